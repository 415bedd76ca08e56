"""`gpubench new-kernel`: write the two files of a user's own kernel.

The files are a copy of a kernel of gpubench under a new name, with a lesson that the user fills in.
There is no template to maintain: the original is compiled, verified and timed like every kernel.
"""

import ast
import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import dropwhile
from pathlib import Path

from gpubench.commands.new_kernel.proof import prove
from gpubench.errors import UsageError
from gpubench.files import Output, write_all
from gpubench.model import CudaVariant
from gpubench.model.sources import whole_source
from gpubench.plan.description_text import NO_PRECISION, Description
from gpubench.plan.descriptor import load
from gpubench.plan.from_source.description import describe_file, described_by_default
from gpubench.plan.from_source.files import source_text
from gpubench.plan.from_source.python import describe_python
from gpubench.plan.operations import operation_named
from gpubench.plan.other_guesses import alternatives
from gpubench.plan.python_file import NAME_RULE, is_name
from gpubench.plan.registry import KERNELS, descriptors, home, library_of, of_op
from gpubench.plan.sweep import Sweep
from gpubench.text import shown, unknown
from gpubench.view.tables import console, say

_LESSON = """\
// {name}: what it teaches, in a line.
//
// One change against `{start}`: what it is, and how it changes the memory accesses.
//
// What limits it now, and what the next step is. State a speed only if you measured it.
"""


NOT_TESTED = "Not tested: sizes that its tiles do not divide, races, and accesses beyond an array."
"""What the proof of a CUDA source leaves to `check`, which is the next command."""

MAX_OTHERS = 5  # maximum number of other functions of a source that are printed

_OF_CPP = re.compile(
    r"alignas|alignof|and|asm|auto|bool|break|case|catch|char|class|compl|concept|const"
    r"|consteval|constexpr|constinit|continue|decltype|default|delete|do|double|else|enum"
    r"|explicit|export|extern|false|float|for|friend|goto|half|if|inline|int|long|main|mutable"
    r"|namespace|new|noexcept|not|nullptr|operator|or|private|protected|public|register"
    r"|requires|return|short|signed|sizeof|static|struct|switch|template|this|throw|true|try"
    r"|typedef|typeid|typename|union|unsigned|using|virtual|void|volatile|while|xor"
)
"""Matches words that cannot name a kernel in CUDA C++."""


def write_pair(name: str, op: str | None, like: str | None, folder: Path, *, force: bool) -> None:
    """Write `folder/<op>/<name>.cu` and `.py`, and the headers that the CUDA source includes.

    Print the files' paths and the next commands. Existing headers are not changed.

    Raises UsageError for a name that cannot be used, for a kernel `like` that is not CUDA C++, and
    for files that exist already.
    """
    op = _checked(name, op, folder)
    if _OF_CPP.fullmatch(name):
        raise UsageError(f"'{name}' has a meaning in C++, and cannot name a kernel; choose another")
    start = _start(op, like)
    stem = folder / op / name
    lines = _source(start.source).splitlines(keepends=True)
    code = "".join(dropwhile(lambda line: line.startswith("//"), lines))
    lesson = _LESSON.format(name=name, start=start.name)
    texts = {
        stem.with_suffix(".cu"): lesson + _renamed(code, start, name),
        stem.with_suffix(".py"): _description(start, name),
    }
    for header in whole_source(start.source)[1:]:
        path = folder / header.relative_to(KERNELS.resolve())
        if path.suffix == ".cu":  # the new name hides the source from `--kernels`
            path = path.with_name(f"_{path.name}")
        if not path.exists():
            texts[path] = _source(header)
    write_all(texts, overwrite=force)
    what = f"{start.name} under a new name, which compiles and is correct. Change the kernel, then:"
    _say_next(texts, op, folder, what, [start.name, name], dtypes=start.dtypes[:1])


def describe_source(
    name: str, op: str | None, source: Path, folder: Path, *, kernel: str = "", force: bool
) -> None:
    """Describe a function of `source` in `folder/<op>/<name>.py`, and print the next steps.

    `kernel` names the function. If `kernel` is empty, `describe_file` chooses a function. `all`
    describes every host function that launches kernels, or every kernel if there is no such
    function, as `<name>_1` and so on. Each description is proved on the CPU if that is possible.

    Raises UsageError for a name that cannot be used, a source that cannot be read or has no kernel,
    a function that the source lacks, and a file that exists already.
    """
    op = _checked(name, op, folder)
    if source.suffix == ".py":
        _describe_python(name, op, source, folder, kernel, force=force)
        return
    text = source_text(source)
    chosen = {name: kernel}
    if kernel == "all" and (listed := described_by_default(text)):
        chosen = {f"{name}_{number}": each for number, each in enumerate(dict.fromkeys(listed), 1)}
    descriptions = {
        each: describe_file(
            source, each, _checked(each, op, folder), entry, home=os.path.realpath(folder / op)
        )
        for each, entry in chosen.items()
    }
    paths = [folder / op / f"{each}.py" for each in chosen]
    texts = [description.text for description in descriptions.values()]
    write_all(dict(zip(paths, texts, strict=True)), overwrite=force)
    told = []
    for each, description in descriptions.items():
        redescribe = partial(
            describe_file, source, each, op, chosen[each], home=os.path.realpath(folder / op)
        )
        verdict = _proved(each, op, folder, description, redescribe)
        told.append(verdict if len(chosen) == 1 else f"{each}: {verdict}")
    lines = [
        f"{path}: describes {description.function}{'' if kernel else _others(description)}"
        for path, description in zip(paths, descriptions.values(), strict=True)
    ]
    dtypes = [dtype for each in descriptions.values() for dtype in each.dtypes[:1]]
    _say_next(lines, op, folder, "\n".join((*told, "Then:")), [*chosen], dtypes=dtypes)


def _others(description: Description) -> str:
    """Return a text on how to describe another function of the source."""
    names = ", ".join(description.others[:MAX_OTHERS])
    return f"; --kernel FUNCTION describes another function, such as {names}" if names else ""


def _describe_python(
    name: str, op: str, source: Path, folder: Path, entry: str, *, force: bool
) -> None:
    """Write the description of a Python function, and print whether it is proved."""
    idea, path = f"what {name} teaches, in a line", folder / op / f"{name}.py"
    text = describe_python(source, op, entry, home=os.path.realpath(folder / op), idea=idea)
    if path.resolve() == source.resolve():
        raise UsageError(f"{path} is the file to describe: choose another name, or --dir")
    Output(path, overwrite=force, flag="").write(text.encode())
    described = Description(text=text, asked=[], guesses=[])
    verdict = _proved(name, op, folder, described, lambda **_: described)
    _say_next([str(path)], op, folder, f"{verdict}\nThen:", [name], on_gpu=False)


def _proved(
    name: str,
    op: str,
    folder: Path,
    description: Description,
    redescribe: Callable[..., Description],
) -> str:
    """Prove a description that was written, and return the verdict.

    If results are right only with other guesses, in another layout, or for squares, the
    description is written again, and proved again.
    """
    if description.asked and not description.objects:
        return (
            "First state in the signature what these parameters are: "
            f"{', '.join(description.asked)}."
        )
    if mixed := re.search(f"{NO_PRECISION}.*", description.text):
        return f"Not proved: {mixed[0]}."
    path = folder / op / f"{name}.py"
    hint = f" It may not be a matrix product: {description.hint}." if description.hint else ""
    try:
        proof = prove(load(path, op), folder)  # this command wrote the file, so it is safe to run
    except UsageError as error:  # the description that was written is refused
        return f"Not proved: {error}.{hint}"
    if proof.is_wrong and (verdict := _by_other_guess(path, op, folder, description, redescribe)):
        return verdict
    if proof.column_major is not None or proof.squares_only:
        description = redescribe(column_major=proof.column_major, squares_only=proof.squares_only)
        _write_again(path, description)
        proof = prove(load(path, op), folder)
    is_right = bool(proof.sizes) and not proof.reason
    if is_right and not description.squares_only:
        return f"The description is complete: {_tested(description, proof.sizes)}"
    reason = proof.reason or "its results are not right at all sizes in this layout"
    if is_right:
        reason = (
            f"its results at {proof.sizes} are right, but its results are wrong if the extents "
            "differ; the description refuses such sizes"
        )
    look = f" Check the guesses: {', '.join(description.guesses)}." if description.guesses else ""
    return f"Not proved: {reason}.{look}{hint}"


def _by_other_guess(
    path: Path,
    op: str,
    folder: Path,
    description: Description,
    redescribe: Callable[..., Description],
) -> str:
    """Write the description again with other guesses that have right results; return the verdict.

    If no other guess is right, the file keeps `description`, and the verdict is empty.
    """
    right = description
    try:
        for other, what in alternatives(description, redescribe):
            _write_again(path, other)
            with suppress(UsageError):  # this description is refused
                proof = prove(load(path, op), folder, as_is=True)
                if proof.sizes and not proof.reason:
                    right = other
                    return (
                        f"The description is complete: {_tested(other, proof.sizes)}\n"
                        f"The results are only right if {what}, so the description states this."
                    )
        return ""
    finally:
        _write_again(path, right)


def _tested(description: Description, sizes: str) -> str:
    """Return a text on what was tested, and what was not. `sizes` are the tested sizes."""
    tested = f"its results at {sizes} are right on the CPU."
    return f"{tested}\n{NOT_TESTED}" if description.function else tested


def _write_again(path: Path, description: Description) -> None:
    """Replace a description that this command wrote."""
    Output(path, overwrite=True, flag="").write(description.text.encode())


def _checked(name: str, op: str | None, folder: Path) -> str:
    """Return the operation. Raise UsageError for an unknown operation or an illegal name."""
    op = operation_named(op, folder if folder.is_dir() else None)
    if not is_name(name):
        raise UsageError(f"'{shown(name)}' cannot name a kernel: {NAME_RULE}")
    if name in {path.stem for path in descriptors(home(op))}:
        raise UsageError(f"gpubench has a variant '{name}' already; choose another name")
    return op


def _say_next(
    files: Iterable[object], op: str, folder: Path, what: str, names: Sequence[str], *,
    dtypes: Sequence[str] = (), on_gpu: bool = True,
) -> None:  # fmt: skip
    """Print the new files, `what`, and the next commands.

    The sweep has the kernels `names`, the GPU's library, and the dtypes that are not the default.
    """
    say("\n".join(map(str, files)))
    options = "" if op == Sweep().op else f" --op {op}"
    options += f" --kernels {shlex.quote(str(folder))}"
    console().print(f"\n{what}\n")
    variants = [*names, *filter(None, [library_of(op, "cuda") if on_gpu else ""])]
    listed = tuple(dict.fromkeys(dtypes)) or Sweep().dtypes
    only = "" if listed == Sweep().dtypes else f" --dtypes {','.join(listed)}"
    say(
        f"  gpubench check {names[-1]}{options}\n"
        f"  gpubench sweep{options} --variants {','.join(variants)} --sizes 1000,1024{only}"
    )


def _start(op: str, like: str | None) -> CudaVariant:
    """Return the kernel to copy, which is `like`, `naive`, or the operation's shortest kernel."""
    variants = of_op(op)
    kernels = {v.name: v for v in variants.values() if isinstance(v, CudaVariant)}
    if not kernels:
        raise UsageError(
            f"--op: gpubench has no CUDA kernel of {op} to start from; copy a kernel of yours, or "
            "describe its source with --from FILE"
        )
    if like:
        if like in variants.keys() - kernels.keys():
            raise UsageError(
                f"--like: '{like}' is a function that runs on {variants[like].backend}, and a copy "
                f"starts from a CUDA source, such as {next(iter(kernels))}"
            )
        if like not in kernels:
            raise UsageError(f"--like: {unknown('CUDA kernel', like, kernels)}")
        return kernels[like]
    shortest = min(kernels.values(), key=lambda k: sum(file.stat().st_size for file in k.sources))
    return kernels.get("naive", shortest)


def _source(path: Path) -> str:
    """Return a file's text, in which `#include` has the new names of the copied sources."""
    return re.sub(r'(#include ".*?)(\w+\.cu")', r"\1_\2", path.read_text(encoding="utf-8"))


def _description(start: CudaVariant, name: str) -> str:
    """Return a description of the kernel `name`, in which the user fills in the idea."""
    text = _renamed(start.path.read_text(encoding="utf-8"), start, name)
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    new = {
        "idea": f'    idea="what {name} teaches, in a line",\n    after="{start.name}",\n',
        "after": "",
    }
    fields = [node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg in new]
    for field in sorted(fields, key=lambda node: node.lineno, reverse=True):
        lines[field.lineno - 1 : field.value.end_lineno] = [new[str(field.arg)]]
    if ast.get_docstring(tree) is not None:  # the docstring describes the other kernel
        lines[: tree.body[0].end_lineno] = []
    return "".join(lines)


def _renamed(text: str, start: CudaVariant, name: str) -> str:
    return re.sub(rf"\b{start.name}\b", name, text)
