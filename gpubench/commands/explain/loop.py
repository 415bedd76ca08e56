"""Figures of the inner loop for `gpubench explain --variants`: instructions by class, and waiting.

Pure. The register file has two banks, of the even and of the odd registers (Jia et al., Dissecting
the NVIDIA Volta GPU Architecture via Microbenchmarking, 2018).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

from gpubench.commands.explain.sass import (
    ASYNC_COPIES,
    TENSOR,
    Instruction,
    multiply_adds,
    tensor_multiply_adds,
)
from gpubench.hardware.occupancy import WARP

GROUP_THREADS = 4 * WARP
"""Threads of a warpgroup, which issue a matrix instruction `*GMMA` together."""

BANKS = 2
"""Banks of the register file."""

WORD_BITS = 32

SHARED_LOADS = ("LDS", "LDSM")
FLOAT64 = ("DADD", "DFMA", "DMUL", "DSETP", "DMNMX")
CLASSES = {
    "shared_load": SHARED_LOADS,
    "shared_store": ("STS", "STSM"),
    "global_load": ("LDG", *ASYNC_COPIES),
    "local": ("LDL", "STL"),
    "barrier": ("BAR", "SYNCS"),
    "integer": (
        *("IMAD", "IADD", "IADD3", "IADD64", "VIADD", "LEA", "LOP3", "SHF", "ISETP", "IABS"),
        *("IMNMX", "VIMNMX", "UIMAD", "UIADD3", "UIADD", "ULEA", "ULOP3", "USHF", "UISETP"),
    ),
}
"""Names of instructions by class. Multiply-adds and float64 are counted before, and all others
are `other`."""

_REGISTER = re.compile(r"\bR(\d+)(?:\.64)?(\.reuse)?")
_WIDTH = re.compile(r"\.(64|128)\b")


@dataclass(frozen=True, kw_only=True)
class LoopFigures:
    """Counts of the instructions in an iteration of the inner loop."""

    instructions: int
    classes: dict[str, int]
    """Number of instructions by class: those of `CLASSES`, `multiply_add`, `float64`, `other`."""

    multiply_adds_per_instruction: float
    """Multiply-adds of a thread over instructions. A matrix instruction's multiply-adds are divided
    by the number of threads that issue it."""

    bank_conflicts: int | None
    """Float32 multiply-adds that need two operands from one bank. None if there are none."""

    load_to_use: int | None
    """Fewest instructions from a load from shared memory to the first use. None without a use."""


def loop_figures(loop: Sequence[Instruction], dtype: str) -> LoopFigures:
    """Return the figures of an inner loop, which has at least one instruction."""
    classes = Counter(_class(instruction, dtype) for instruction in loop)
    work = sum(
        multiply_adds(instruction, dtype) + _tensor_work(instruction) for instruction in loop
    )
    names = ("multiply_add", "float64", *CLASSES, "other")
    return LoopFigures(
        instructions=len(loop),
        classes={name: classes[name] for name in names},
        multiply_adds_per_instruction=work / len(loop),
        bank_conflicts=_bank_conflicts(loop),
        load_to_use=min(_distances(loop), default=None),
    )


def _class(instruction: Instruction, dtype: str) -> str:
    name = instruction.name
    if multiply_adds(instruction, dtype) or name in TENSOR:
        return "multiply_add"
    if is_float64(instruction):
        return "float64"
    return next((kind for kind, names in CLASSES.items() if name in names), "other")


def is_float64(instruction: Instruction) -> bool:
    """Return whether an instruction is arithmetic in float64 or a conversion of float64."""
    return instruction.name in FLOAT64 or "F64" in instruction.opcode


def _tensor_work(instruction: Instruction) -> float:
    threads = GROUP_THREADS if instruction.name.endswith("GMMA") else WARP
    return tensor_multiply_adds(instruction) / threads


def _bank_conflicts(loop: Sequence[Instruction]) -> int | None:
    """Count multiply-adds of which two operands must be read from one bank.

    An operand that the instruction before kept (`.reuse`) in the same place is not read again.
    """
    conflicts, seen = 0, False
    kept: dict[int, int] = {}
    for instruction in loop:
        sources = _registers(instruction)[1:]
        if instruction.name == "FFMA":
            seen = True
            read = {register for place, (register, _) in sources if kept.get(place) != register}
            conflicts += len(read) > len({register % BANKS for register in read})
        kept = {place: register for place, (register, keeps) in sources if keeps}
    return conflicts if seen else None


@cache
def _registers(instruction: Instruction) -> Sequence[tuple[int, tuple[int, bool]]]:
    """Return the registers of the operands by place, the destination first, and which are kept."""
    registers = []
    for place, operand in enumerate(instruction.operands.split(",")):
        if match := _REGISTER.search(operand):
            registers.append((place, (int(match[1]), bool(match[2]))))
    return tuple(registers)


def _distances(loop: Sequence[Instruction]) -> Iterator[int]:
    """Yield the instructions from each load from shared memory to the first use of its value.

    The use may be in the next iteration.
    """
    used = [{register for _, (register, _) in _sources(instruction)} for instruction in loop]
    for start, instruction in enumerate(loop):
        if instruction.name not in SHARED_LOADS:
            continue
        registers = _registers(instruction)
        if not registers or registers[0][0] != 0:
            continue
        first = registers[0][1][0]
        loaded = set(range(first, first + _words(instruction)))
        following = chain(range(start + 1, len(loop)), range(start + 1))
        for distance, place in enumerate(following, 1):
            if used[place] & loaded:
                yield distance
                break


def _sources(instruction: Instruction) -> Sequence[tuple[int, tuple[int, bool]]]:
    """Return the registers that an instruction reads: all but the destination."""
    registers = _registers(instruction)
    stores = instruction.name.startswith(("ST", "RED", "ATOM"))
    return registers if stores else [item for item in registers if item[0] != 0]


def _words(instruction: Instruction) -> int:
    """Return the number of registers that a load from shared memory fills."""
    if instruction.name == "LDSM":
        matrices = instruction.opcode.rpartition(".")[2]
        return int(matrices) if matrices in {"2", "4"} else 1
    width = _WIDTH.search(instruction.opcode)
    return int(width[1]) // WORD_BITS if width else 1
