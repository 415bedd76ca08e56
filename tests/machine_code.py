"""Helpers of tests of compiled kernels: listings, and programs that print index maps."""

import re
import subprocess
from pathlib import Path

import pytest

from gpubench.backends.cuda.compile import Compiled
from gpubench.commands.explain.sass import disassemble
from gpubench.on_cpu.run import gxx
from gpubench.on_cpu.unit import SHIM
from gpubench.plan.registry import KERNELS


def listing_of(built: Compiled) -> str:
    """Return the disassembled kernel; fail the test if there is no disassembler."""
    listing = disassemble(built.cubin, "-c")
    if listing is None:
        pytest.fail("no nvdisasm, which the extra `test` has, or an older one stands on PATH")
    return listing


def between_labels(listing: str) -> list[str]:
    return re.split(r"^\.L_\w+:", listing, flags=re.MULTILINE)


def opcodes(text: str) -> list[str]:
    return re.findall(r"\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9]+)", text)


def lines_printed(program: str, folder: Path) -> dict[str, list[list[int]]]:
    """Compile and run a program; return the numbers in its lines, by the word before them.

    The program may include the kernels' headers.
    """
    source, binary = folder / "maps.cpp", folder / "maps"
    source.write_text(program, encoding="utf-8")
    gxx("-w", f"-I{SHIM}", f"-I{KERNELS}", str(source), "-o", str(binary))
    lines: dict[str, list[list[int]]] = {}
    for line in subprocess.check_output([binary], text=True).splitlines():
        name, *numbers = line.split()
        lines.setdefault(name, []).append([*map(int, numbers)])
    return lines
