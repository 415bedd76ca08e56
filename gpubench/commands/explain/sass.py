"""Finds a kernel's inner loop: disassembles a cubin with nvdisasm, and reads the listing.

A loop is the code between a backward branch and its target. The *inner loop* is found by a
heuristic: it is the loop with the most multiply-adds, not counting the multiply-adds of loops
within it. A matrix product spends most of its time in this loop. Loops without multiply-adds, such
as a copying loop or the trap after a kernel's end, do not count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from operator import attrgetter
from subprocess import TimeoutExpired
from typing import NamedTuple

from gpubench.backends.cuda.nvcc import find
from gpubench.hardware.occupancy import WARP
from gpubench.process.child import run_program
from gpubench.temporary import temporary_folder

TIMEOUT_S = 120


def sections(cubin: bytes) -> dict[str, str]:
    """Map the name of each section of a cubin to the disassembler's text about this section.

    The dictionary is empty if no disassembler lists the architecture's code.
    """
    _, *parts = _SECTION.split(disassemble(cubin) or "")
    return dict(zip(parts[::2], parts[1::2], strict=True))


def max_threads(attributes: str) -> int | None:
    """Return a kernel's launch bound, in threads per block, or None if it has no bound.

    `attributes` is the listing of the section `.nv.info.KERNEL`.
    """
    _, limit, listing = attributes.partition("EIATTR_MAX_THREADS")
    x_y_z = re.findall(r"\.word\s+0x([0-9a-f]+)", listing)[:3]
    return prod(int(extent, 16) for extent in x_y_z) if limit else None


def disassemble(content: bytes, *options: str) -> str | None:
    """Return the listing of a cubin, or None if the disassembler fails or is missing."""
    with temporary_folder() as folder:
        file = folder / "kernel.cubin"
        file.write_bytes(content)
        # `-ndf` omits the analysis of data flow, which takes a quarter of the time.
        return run_disassembler(*options, "-ndf", str(file))


def run_disassembler(*arguments: str) -> str | None:
    """Run nvdisasm, and return its output. Return None if nvdisasm fails or is missing."""
    program = find("nvdisasm")
    if program is None:
        return None
    try:
        ended = run_program((program, *arguments), limit_s=TIMEOUT_S)
    except TimeoutExpired:
        return None
    return None if ended.returncode else ended.stdout.decode(errors="replace")


MULTIPLY_ADDS = {"float32": {"FFMA": 1, "FFMA2": 2}, "float64": {"DFMA": 1}, "int32": {"IMAD": 1}}
"""Maps an element type and the name of an instruction to the number of multiply-adds that the
instruction does in each thread."""

TENSOR = ("HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "UTCHMMA")
"""Names of the tensor core instructions, which a warp or a warpgroup runs together."""

_WARP_SHAPES = {"884": (8, 8, 4), "1684": (16, 8, 4), "1688": (16, 8, 8)} | {
    f"168{k}": (16, 8, k) for k in (16, 32, 64, 128)
}
"""Maps the digits in the opcode of a warp's matrix instruction, such as `HMMA.16816`, to M, N and
K. Opcodes such as `DMMA.16x8x16` need no table."""

_GROUP_SHAPE = re.compile(r"[HIQ]GMMA\.64x(\d+)x(\d+)")

MATRIX_BYTES = 128  # bytes of a matrix of 8 by 8 elements of 16 bits, which `ldmatrix` reads
GROUP_K_BYTES = 32  # bytes of a row of A and of a column of B in a warpgroup's instruction
GROUP_ROWS = 64  # number of rows of the result of a warpgroup's instruction
GROUP_WARPS = 4  # number of warps in a warpgroup
FLOAT64 = ("DADD", "DFMA", "DMUL", "DSETP", "DMNMX")

_SECTION = re.compile(r"^//-+ (\S+) +-+$", re.MULTILINE)
_INSTRUCTION = re.compile(
    r"\s*/\*(?P<address>[0-9a-f]+)\*/\s+\{?\s*(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][A-Z0-9_.a-z]*)(?P<operands>[^;]*);"
)
_LABEL = re.compile(r"(\.L\w+):")
_TARGET = re.compile(r"`\((\.L\w+)\)|\b0x([0-9a-f]+)\s*$")


class Instruction(NamedTuple):
    """A machine instruction, such as a load with the name `LDS` and the opcode `LDS.128`."""

    name: str
    opcode: str
    operands: str

    @property
    def is_float64(self) -> bool:
        """Whether the instruction is arithmetic in float64 or a conversion of float64."""
        return self.name in FLOAT64 or "F64" in self.opcode

    @property
    def bits(self) -> int:
        """The width of an access in bits, as a modifier such as `.64` states, or else 32."""
        width = re.search(r"\.[US]?(8|16|64|128|256)\b", self.opcode)
        return int(width[1]) if width else 32

    @property
    def tensor_multiply_adds(self) -> int:
        """Number of multiply-adds of a matrix instruction.

        The number is 0 for other instructions, and for matrix instructions of an unknown shape.
        """
        if group := _GROUP_SHAPE.match(self.opcode):
            return GROUP_ROWS * int(group[1]) * int(group[2])
        shape = self.opcode.partition(".")[2].partition(".")[0]
        if self.name not in TENSOR:
            return 0
        return prod(map(int, shape.split("x")) if "x" in shape else _WARP_SHAPES.get(shape, (0,)))

    def multiply_adds(self, dtype: str) -> int:
        """Return how many multiply-adds a thread does, or 0 for a tensor core instruction."""
        if self.name == "IMAD" and (self.opcode != "IMAD" or "RZ" in self.operands):
            return 0  # it moves, shifts or computes an address: IMAD.MOV, IMAD.WIDE, or it adds 0
        return MULTIPLY_ADDS.get(dtype, {}).get(self.name, 0)


@dataclass(frozen=True, kw_only=True)
class InnerLoop:
    """Counts of the instructions that a thread issues in an iteration of the inner loop."""

    instructions: int
    multiply_adds: int
    tensor: int
    tensor_multiply_adds: float
    """Number of multiply-adds of matrix instructions, divided by the number of threads that issue
    them."""

    float64: int
    """Number of instructions that compute in float64 or convert it, except multiply-adds in the
    element type."""

    shared_loads: dict[str, int]
    """Maps each width in bits to the number of shared-memory loads, such as `{"32": 16, "128":
    4}`."""

    global_loads: dict[str, int]
    local_loads: int
    """Number of LDL instructions, which read spilled registers or arrays in local memory."""

    local_stores: int
    shared_bytes_per_operation: float | None
    """Bytes that tensor cores, or the loads before them, read from shared memory per operation. A
    multiply-add is two operations. The value is None if there are no matrix instructions."""

    opcodes: dict[str, int]
    """Maps each opcode without modifiers to the number of its instructions, starting with the most
    frequent opcode."""

    @property
    def multiply_add_share(self) -> float:
        """Multiply-adds per instruction, without the multiply-adds of matrix instructions."""
        return self.multiply_adds / self.instructions

    @property
    def multiply_adds_per_instruction(self) -> float:
        """Multiply-adds per instruction, including a thread's share of the matrix instructions."""
        return (self.multiply_adds + self.tensor_multiply_adds) / self.instructions


def inner_loop(disassembly: str, dtype: str) -> InnerLoop | None:
    """Return the inner loop of a disassembled kernel, or None if the kernel has no inner loop.

    If no loop has a multiply-add in `dtype`, the loop with the most instructions in float64 is
    returned, because a kernel may compute in float64 by mistake.
    """

    def work(instruction: Instruction) -> int:
        # A tensor core instruction makes many multiply-adds, so it counts as 1000 of them.
        return instruction.multiply_adds(dtype) + 1000 * (instruction.name in TENSOR)

    loops = _loops(disassembly)
    for amount in (work, attrgetter("is_float64")):
        amounts = [sum(map(amount, loop)) for loop in loops]
        if any(amounts):
            return _counted(loops[amounts.index(max(amounts))], dtype)
    return None


def _counted(loop: Sequence[Instruction], dtype: str) -> InnerLoop:
    """Count the instructions of a loop, which has at least one instruction."""
    names = Counter(instruction.name for instruction in loop)
    multiply_adds = [x.multiply_adds(dtype) for x in loop]
    by_thread = (
        x.tensor_multiply_adds / (WARP * (GROUP_WARPS if x.name.endswith("GMMA") else 1))
        for x in loop
    )
    return InnerLoop(
        instructions=len(loop),
        multiply_adds=sum(multiply_adds),
        tensor=sum(names[name] for name in TENSOR),
        tensor_multiply_adds=sum(by_thread),
        float64=sum(
            x.is_float64 and not (count or x.tensor_multiply_adds)
            for x, count in zip(loop, multiply_adds, strict=True)
        ),
        shared_loads=_widths(loop, "LDS"),
        global_loads=_widths(loop, "LDG"),
        local_loads=names["LDL"],
        local_stores=names["STL"],
        shared_bytes_per_operation=_shared_bytes_per_operation(loop),
        opcodes=dict(names.most_common()),
    )


def _loops(disassembly: str) -> list[list[Instruction]]:
    """Return the instructions of each loop, without the instructions of nested loops."""
    instructions: list[Instruction] = []
    places: dict[str | int, int] = {}  # index of the instruction at each label and address
    branches: dict[int, str | int] = {}
    for line in disassembly.splitlines():
        if label := _LABEL.match(line):
            places[label[1]] = len(instructions)
        elif match := _INSTRUCTION.match(line):
            places[int(match["address"], 16)] = len(instructions)
            opcode, operands = match["opcode"], match["operands"]
            if opcode.partition(".")[0] == "BRA" and (target := _TARGET.search(operands)):
                branches[len(instructions)] = target[1] or int(target[2], 16)
            instructions.append(Instruction(opcode.partition(".")[0], opcode, operands))
    # If several branches have the same target, the last branch ends the loop.
    ends = {places[name]: index for index, name in branches.items() if name in places}
    ends = {start: end for start, end in ends.items() if start <= end}
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
    """Return the bytes that a loop reads from shared memory per operation of the tensor cores.

    A warpgroup's instruction reads B, and possibly A, from shared memory.
    """
    read, operations, loaded = 0, 0, 0
    warps = 1
    for instruction in loop:
        name, opcode, operands = instruction
        operations += 2 * instruction.tensor_multiply_adds
        if group := _GROUP_SHAPE.match(opcode):
            rows_of_a = GROUP_ROWS if operands.split(",")[1].lstrip().startswith("gdesc") else 0
            read += GROUP_K_BYTES * (rows_of_a + int(group[1]))
            warps = GROUP_WARPS  # each of the group's warps loads its part of A into registers
        elif name == "LDSM":
            matrices = opcode.rpartition(".")[2]
            loaded += MATRIX_BYTES * int(matrices if matrices in {"2", "4"} else 1)
        elif name == "LDS":
            loaded += WARP * instruction.bits // 8
    return (read + warps * loaded) / operations if operations else None


def _widths(loop: Iterable[Instruction], name: str) -> dict[str, int]:
    """Map each width in bits to the number of instructions called `name` that have this width."""
    counts = Counter(each.bits for each in loop if each.name == name)
    return {str(bits): count for bits, count in sorted(counts.items())}
