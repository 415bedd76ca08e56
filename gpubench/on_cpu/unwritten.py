"""Finds memory and variables that a kernel with wrong results reads before writing them."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gpubench.errors import CompileError
from gpubench.model import HostVariant
from gpubench.model.sources import include_folders, read_source
from gpubench.on_cpu.accesses import addresses_to_places, missing_tool
from gpubench.on_cpu.case import Case, encoded, words
from gpubench.on_cpu.fault import KernelFaultError
from gpubench.on_cpu.run import Sanitizer, build, execute, run_on_cpu, runtime_object
from gpubench.on_cpu.unit import masked, translation_unit

WATCHED = ("-fsanitize=thread", "-fno-pie", "-DON_CPU_RECORDS")
"""Options of g++ for a program whose accesses to shared memory are watched."""

_READ = re.compile(r"^fault: unwritten ([0-9a-f]+) (\d+) ?(.*)$", re.MULTILINE)
_DECLARED = re.compile(r"(?:^|[;{}])\s*(?:[A-Za-z_][\w:]*\s+)+([^;{}()=]+);", re.MULTILINE)
_NAME = re.compile(r"\s*([A-Za-z_]\w*)\s*((?:\[[^\]]*\]\s*)*)$")


def unwritten_shared_memory(case: Case, folder: Path) -> str:
    """Return where a kernel first reads unwritten shared memory, such as `sum.cu:12`, or ""."""
    if missing_tool():
        return ""
    variant = case.variant
    options = variant.options(case.tile, case.problem.dtype)
    names = list(dict.fromkeys(case.instances))
    entry = names[0] if isinstance(variant, HostVariant) else ""
    unit = translation_unit(variant.source, None, names, entry, include_folders(options))
    folder.mkdir()
    inputs = folder / "inputs"
    inputs.write_bytes(words(1) + encoded(case, names))
    try:
        link = ("-no-pie", str(runtime_object(folder.parent, "unwritten")))
        program = build(unit, variant.source, folder, WATCHED, link, options)
        execute([str(program), str(inputs), str(folder / "outputs")])
    except CompileError:
        return ""
    except KernelFaultError as fault:
        if read := _READ.search(fault.report):
            code, line, file = read.groups()
            places = addresses_to_places(program, variant.source, {code})
            name, number = places.get(code, (Path(file).name, int(line)))
            return f"{name}:{number}"
    return ""


def uninitialized_variables(case: Case, right: np.ndarray, folder: Path) -> str:
    """Return a text on variables that a wrong kernel reads before assigning them, or "".

    There are such variables if the results become right when g++ sets all uninitialized variables
    to zero.
    """
    try:
        (output,) = run_on_cpu([case], Sanitizer.ZEROED, folder)
    except (CompileError, KernelFaultError):
        return ""
    if not np.array_equal(output, right):
        return ""
    places = [
        f"{name} ({path.name}:{line})"
        for path in case.variant.sources
        if path.suffix != ".py"
        for line, name in _never_assigned(read_source(path))
    ]
    return f"a variable is read before it is assigned{': ' if places else ''}{', '.join(places)}"


def _never_assigned(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each variable that a source declares and only adds to."""
    plain = masked(text)
    for declaration in _DECLARED.finditer(plain):
        if re.search(r"__shared__|\b(?:return|using|typedef|extern|struct)\b", declaration[0]):
            continue
        for part in re.split(r",(?![^\[]*\])", declaration[1]):
            name = _NAME.match(part)
            if name and _is_only_added_to(plain, name[1]):
                yield plain.count("\n", 0, declaration.start(1)) + 1, name[1]


def _is_only_added_to(plain: str, name: str) -> bool:
    element = rf"\b{name}\s*(?:\[[^\]]*\]\s*)*(?:\.\w+\s*)?"
    values = re.findall(element + r"([+]?)=(?!=)([^;]*)", plain)
    return bool(values) and all(plus or re.search(rf"\b{name}\b", value) for plus, value in values)
