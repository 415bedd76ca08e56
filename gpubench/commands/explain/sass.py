"""What a kernel's inner loop is made of: disassembles a cubin with nvdisasm, reads the listing.

A loop is what lies between a backward branch and its target. The *inner loop* is a heuristic: the
loop with the most multiply-adds of its own, outside any loop within it. That is where a matrix
product spends its time; loops without any, such as a copying loop or the trap behind a kernel's
end, are never it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import NamedTuple

from gpubench.hardware.occupancy import WARP

TIMEOUT_S = 120


@cache
def nvdisasm() -> Path | None:
    """The disassembler: on PATH, in a CUDA toolkit, or from NVIDIA's wheel; None if there is none.

    The wheel installs it in `site-packages/nvidia/…/bin`, which is on no PATH.
    """
    toolkits = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    wheels = (Path(sysconfig.get_path("purelib")) / "nvidia").glob("*/bin")
    directories = [
        *(Path(toolkit) / "bin" for toolkit in toolkits if toolkit),
        *sorted(wheels, reverse=True),  # cu13 before cuda_nvdisasm
    ]
    found = (shutil.which("nvdisasm", path=path) for path in (None, *directories))
    return next((Path(program) for program in found if program), None)


def disassemble(cubin: bytes) -> str | None:
    """The listing of a cubin; None without a disassembler, or if it is too old for the cubin."""
    program = nvdisasm()
    if program is None:
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            return subprocess.check_output(  # noqa: S603 # NVIDIA's program, on a file of ours
                [program, "-c", file.name], text=True, timeout=TIMEOUT_S, stderr=subprocess.DEVNULL
            )
        except (OSError, subprocess.SubprocessError):
            return None


MULTIPLY_ADDS = {"float32": {"FFMA": 1, "FFMA2": 2}, "float64": {"DFMA": 1}, "int32": {"IMAD": 1}}
"""Multiply-adds a thread makes in one instruction, by element type."""

TENSOR = ("HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "UTCHMMA")
"""Tensor core instructions, of a warp or of a warpgroup."""

_WARP_SHAPES = {"884": (8, 8, 4), "1684": (16, 8, 4), "1688": (16, 8, 8)} | {
    f"168{k}": (16, 8, k) for k in (16, 32, 64, 128)
}
"""M, N and K of a warp's matrix instruction, as its opcode has them: `HMMA.16816`; in
`DMMA.16x8x16` they stand apart."""

_GROUP_SHAPE = re.compile(r"[HIQ]GMMA\.64x(\d+)x(\d+)")
MATRIX_BYTES = 128
"""Of the 8 by 8 matrices of 16 bits that `ldmatrix` reads."""

GROUP_K_BYTES = 32
"""Of a row of A and a column of B in a warpgroup's instruction, in every type."""

GROUP_WARPS = 4
"""In a warpgroup."""

ASYNC_COPIES = ("LDGSTS", "UTMALDG", "UBLKCP")  # `cp.async` and TMA, which bypass registers

_INSTRUCTION = re.compile(
    r"\s*/\*[0-9a-f]+\*/\s+\{?\s*(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][A-Z0-9_.a-z]*)(?P<operands>[^;]*);"
)
_LIMIT = re.compile(r"\bUSETMAXREG\b[^;]*\b(0x[0-9a-f]+)")
_LABEL = re.compile(r"(\.L\w+):")
_TARGET = re.compile(r"`\((\.L\w+)\)")


class Instruction(NamedTuple):
    """One machine instruction: `LDS`, `LDS.128` with the opcode's modifiers, and its operands."""

    name: str
    opcode: str
    operands: str


@dataclass(frozen=True, kw_only=True)
class InnerLoop:
    """The instructions of one iteration of the inner loop, counted, as one thread issues them."""

    instructions: int
    multiply_adds: int
    tensor: int
    shared_loads: dict[str, int]
    """Loads and stores are counted by width in bits: `{"32": 16, "128": 4}`."""

    shared_stores: dict[str, int]
    global_loads: dict[str, int]
    async_copies: int
    local_loads: int
    """LDL: spilled registers, or arrays in local memory, read back."""

    local_stores: int
    barriers: int
    shared_bytes_per_operation: float | None
    """Bytes that tensor cores, or the loads before them, read from shared memory; a multiply-add is
    two operations. None without matrix instructions."""

    register_limits: tuple[int, ...]
    """Registers a thread, as `setmaxnreg` gives them to the warpgroups' roles; empty: all alike."""

    opcodes: dict[str, int]
    """Every opcode without its modifiers, the most frequent first."""

    @property
    def multiply_add_share(self) -> float:
        """Multiply-adds per instruction."""
        return self.multiply_adds / self.instructions


def inner_loop(disassembly: str, dtype: str) -> InnerLoop | None:
    """The inner loop of a disassembled kernel; None if no loop multiplies and adds in `dtype`."""

    def work(loop: list[Instruction]) -> int:
        # A tensor core instruction makes many multiply-adds, so any of those outweighs the rest.
        return sum(_multiply_adds(i, dtype) + 1000 * (i.name in TENSOR) for i in loop)

    loop = max(_loops(disassembly), key=work, default=[])
    if not work(loop):
        return None
    names = Counter(instruction.name for instruction in loop)
    return InnerLoop(
        instructions=len(loop),
        multiply_adds=sum(_multiply_adds(instruction, dtype) for instruction in loop),
        tensor=sum(names[name] for name in TENSOR),
        shared_loads=_widths(loop, "LDS"),
        shared_stores=_widths(loop, "STS"),
        global_loads=_widths(loop, "LDG"),
        async_copies=sum(names[name] for name in ASYNC_COPIES),
        local_loads=names["LDL"],
        local_stores=names["STL"],
        barriers=names["BAR"] + names["SYNCS"],
        shared_bytes_per_operation=_shared_bytes_per_operation(loop),
        register_limits=tuple(
            sorted({int(limit, 16) for limit in _LIMIT.findall(disassembly)}, reverse=True)
        ),
        opcodes=dict(names.most_common()),
    )


def _loops(disassembly: str) -> list[list[Instruction]]:
    """For each loop, the instructions that belong to no loop within it."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}  # to the index of the instruction that follows
    for line in disassembly.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif match := _INSTRUCTION.match(line):
            opcode, operands = match.groups()
            instructions.append(Instruction(opcode.partition(".")[0], opcode, operands))
    ends: dict[int, int] = {}
    for index, instruction in enumerate(instructions):
        target = _TARGET.search(instruction.operands) if instruction.name == "BRA" else None
        start = labels.get(target[1], index + 1) if target else index + 1
        if start <= index:
            ends[start] = index  # of several branches to a label the last
    loops = []
    for start, end in ends.items():
        within = {
            index
            for inner, stop in ends.items()
            if start <= inner and stop <= end and (inner, stop) != (start, end)
            for index in range(inner, stop + 1)
        }
        loops.append([instructions[i] for i in range(start, end + 1) if i not in within])
    return loops


def _shared_bytes_per_operation(loop: Iterable[Instruction]) -> float | None:
    """Of a warp's or a warpgroup's instructions: B always lies in shared memory, A may."""
    read, operations, loaded = 0, 0, 0
    warps = 1
    for instruction in loop:
        name, opcode, operands = instruction
        if group := _GROUP_SHAPE.match(opcode):
            n, k = int(group[1]), int(group[2])
            rows_of_a = 64 if operands.split(",")[1].lstrip().startswith("gdesc") else 0
            read += GROUP_K_BYTES * (rows_of_a + n)
            operations += 2 * 64 * n * k
            warps = GROUP_WARPS  # each of which loads what stands in the registers
        elif name == "LDSM":
            matrices = opcode.rpartition(".")[2]
            loaded += MATRIX_BYTES * int(matrices if matrices in {"2", "4"} else 1)
        elif name == "LDS":
            loaded += (
                WARP * sum(int(bits) * n for bits, n in _widths([instruction], name).items()) // 8
            )
        elif name in TENSOR:
            operations += 2 * prod(_warp_shape(opcode.split(".")[1]))
    return (read + warps * loaded) / operations if operations else None


def _warp_shape(text: str) -> tuple[int, ...]:
    """M, N and K of `16816` or `16x8x16`; (0,) for what is not known."""
    if "x" in text:
        return tuple(map(int, text.split("x")))
    return _WARP_SHAPES.get(text, (0,))


def _multiply_adds(instruction: Instruction, dtype: str) -> int:
    name, opcode, operands = instruction
    if name == "IMAD" and (opcode != "IMAD" or "RZ" in operands):
        return 0  # moves, shifts and addresses: IMAD.MOV, IMAD.WIDE, or nothing added
    return MULTIPLY_ADDS.get(dtype, {}).get(name, 0)


def _widths(instructions: Iterable[Instruction], name: str) -> dict[str, int]:
    """Accesses by bits: `.64`, `.128`, `.U8`; 32 where the opcode names no width."""
    opcodes = [instruction.opcode for instruction in instructions if instruction.name == name]
    widths = (re.search(r"\.[US]?(8|16|64|128|256)\b", opcode) for opcode in opcodes)
    bits = Counter(int(width[1]) if width else 32 for width in widths)
    return {str(width): count for width, count in sorted(bits.items())}
