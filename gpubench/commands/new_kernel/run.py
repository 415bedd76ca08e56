"""A pair of files for a kernel of one's own: `gpubench new-kernel`.

The pair is a kernel of ours under a new name, with the lesson left to fill in. So there is no
skeleton to keep in step: what it is made from is compiled, verified and timed like every kernel.
"""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

from gpubench.errors import UsageError
from gpubench.model import OPERATIONS, CudaVariant
from gpubench.plan.descriptor import NAME_RULE, is_name
from gpubench.plan.ranges import shown
from gpubench.plan.registry import of_op, unknown
from gpubench.plan.sweep import Sweep
from gpubench.view.tables import console

START = "naive"
"""The plainest kernel, where the operation has one."""

RESERVED = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    class compl const const_cast constexpr continue decltype default delete do double dynamic_cast
    else enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename union unsigned using virtual
    void volatile wchar_t while xor xor_eq
"""
"""ISO C++17, [lex.key]: what no kernel can be called."""

LESSON = """\
// {name}: what it teaches, in a line.
//
// One change against `{start}`: what it is, and what it does to the access of memory.
//
// What limits it now, and where the next step lies. A speed that is promised here was measured.
"""


def write_pair(name: str, op: str | None, like: str | None, folder: Path, *, force: bool) -> None:
    """Write `folder/<op>/<name>.cu` and `.py`, and print them and the commands to go on with.

    Raises UsageError for a name that cannot be used, a kernel to start from that is not CUDA C++,
    and files that exist already.
    """
    op = op or Sweep().op
    if op not in OPERATIONS:
        raise UsageError(f"--op: {unknown('operation', op, OPERATIONS)}")
    known = of_op(op)
    if not is_name(name):
        raise UsageError(f"'{shown(name)}' cannot name a kernel, which is {NAME_RULE}")
    if name in RESERVED.split():
        raise UsageError(f"'{name}' cannot name a kernel: it is a word of C++")
    if name in known:
        raise UsageError(f"gpubench has a variant '{name}' already; choose another name")
    start = _start(op, like)
    source = folder / op / f"{name}.cu"
    texts = {
        source: cuda_source(start, name),
        source.with_suffix(".py"): description(start, name),
    }
    for path in texts:
        if path.exists() and not force:
            raise UsageError(f"{path} exists; --force overwrites it")
    try:
        source.parent.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {source}: {error.strerror}") from error
    screen = console()
    for path in texts:
        screen.print(str(path), soft_wrap=True)
    own = f"--kernels {shlex.quote(str(folder))}"
    asked = "" if op == Sweep().op else f" --op {op}"
    screen.print(
        f"\n{start.name} under a new name: it compiles, and is right. Change it, then:\n\n"
        f"  gpubench variants{asked} {own}\n"
        f"  gpubench sweep{asked} {own} --variants {start.name},{name} --sizes 1000,1024",
        soft_wrap=True,
    )


def _start(op: str, like: str | None) -> CudaVariant:
    """The kernel to begin with: the one named, or the op's plainest."""
    sources = {n: v for n, v in of_op(op).items() if isinstance(v, CudaVariant)}
    if like and like not in sources:
        raise UsageError(f"--like: {unknown('CUDA kernel', like, sources)}")
    if like and not is_whole(sources[like]):
        raise UsageError(f"--like: {like} includes files beside it; start from one that does not")
    whole = {name: variant for name, variant in sources.items() if is_whole(variant)}
    if not whole:
        raise UsageError(f"--op: {op} has no CUDA kernel to start from")
    shortest = min(whole, key=lambda name: whole[name].source.stat().st_size)
    return whole[like or (START if START in whole else shortest)]


def is_whole(variant: CudaVariant) -> bool:
    """Whether the source stands alone, and so may be copied elsewhere."""
    return not re.search(r'^\s*#\s*include\s*"', variant.source.read_text("utf-8"), re.MULTILINE)


def cuda_source(start: CudaVariant, name: str) -> str:
    """The CUDA C++ of `start` as `name`, under a lesson to fill in."""
    lines = start.source.read_text(encoding="utf-8").splitlines(keepends=True)
    code = next(n for n, line in enumerate(lines) if not line.startswith("//"))
    return LESSON.format(name=name, start=start.name) + _renamed("".join(lines[code:]), start, name)


def description(start: CudaVariant, name: str) -> str:
    """The description of `start` as that of `name`, the step after it, with its idea to fill in."""
    text = _renamed(start.path.read_text(encoding="utf-8"), start, name)
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    new = {
        "idea": f'    idea="what {name} teaches, in a line",\n    after="{start.name}",\n',
        "after": "",
    }
    fields = [one for one in ast.walk(tree) if isinstance(one, ast.keyword) and one.arg in new]
    for field in sorted(fields, key=lambda one: one.lineno, reverse=True):
        lines[field.lineno - 1 : field.value.end_lineno] = [new[str(field.arg)]]
    if ast.get_docstring(tree) is not None:
        lines[: tree.body[0].end_lineno] = [f'"""{name}: what it does, in a line."""\n']
    return "".join(lines)


def _renamed(text: str, start: CudaVariant, name: str) -> str:
    return re.sub(rf"\b{start.name}\b", name, text)
