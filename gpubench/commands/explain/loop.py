"""Figures of the inner loop for `gpubench build`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpubench.commands.explain.sass import (
    Instruction,
    multiply_adds,
    tensor_multiply_adds,
)
from gpubench.hardware.occupancy import WARP

GROUP_THREADS = 4 * WARP
"""Threads of a warpgroup, which issue a matrix instruction `*GMMA` together."""

FLOAT64 = ("DADD", "DFMA", "DMUL", "DSETP", "DMNMX")


@dataclass(frozen=True, kw_only=True)
class LoopFigures:
    """Counts of the instructions in an iteration of the inner loop."""

    instructions: int
    float64: int
    """Arithmetic and conversions in float64, apart from multiply-adds in the element type."""

    multiply_adds_per_instruction: float
    """Multiply-adds of a thread over instructions. A matrix instruction's multiply-adds are divided
    by the number of threads that issue it."""


def loop_figures(loop: Sequence[Instruction], dtype: str) -> LoopFigures:
    """Return the figures of an inner loop, which has at least one instruction."""
    work = [multiply_adds(instruction, dtype) + _tensor_work(instruction) for instruction in loop]
    others = [instruction for instruction, count in zip(loop, work, strict=True) if not count]
    return LoopFigures(
        instructions=len(loop),
        float64=sum(map(is_float64, others)),
        multiply_adds_per_instruction=sum(work) / len(loop),
    )


def is_float64(instruction: Instruction) -> bool:
    """Return whether an instruction is arithmetic in float64 or a conversion of float64."""
    return instruction.name in FLOAT64 or "F64" in instruction.opcode


def _tensor_work(instruction: Instruction) -> float:
    threads = GROUP_THREADS if instruction.name.endswith("GMMA") else WARP
    return tensor_multiply_adds(instruction) / threads
