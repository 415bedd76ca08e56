"""What a kernel's inner loop is made of, from its disassembly. Pure.

Reads the text that `nvdisasm -c` prints of a cubin. A loop is what lies between a backward branch
and its target. The *inner loop* is a heuristic: the loop with the most multiply-adds of its own,
that is outside any loop within it. That is where a matrix product spends its time; loops without
one, such as a copying loop or the trap behind a kernel's end, are never it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MULTIPLY_ADDS = {
    "float32": {"FFMA": 1, "FFMA2": 2},
    "float64": {"DFMA": 1},
    "int32": {"IMAD": 1},
}
"""Multiply-adds a thread makes in one instruction, by element type."""

TENSOR = ("HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "UTCHMMA")
"""Matrix instructions, of a warp or of a warp group."""

ASYNC_COPIES = ("LDGSTS", "UTMALDG", "UBLKCP")
"""Copies from global to shared memory that no register takes part in."""

_INSTRUCTION = re.compile(
    r"\s*/\*[0-9a-f]+\*/\s+\{?\s*(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][A-Z0-9_.a-z]*)(?P<operands>[^;]*);"
)
_LABEL = re.compile(r"(?P<label>\.L\w+):")
_TARGET = re.compile(r"`\((?P<label>\.L\w+)\)")


@dataclass(frozen=True)
class Instruction:
    """One machine instruction."""

    opcode: str
    """With its modifiers: `LDS.128`."""

    operands: str

    @property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class InnerLoop:
    """The instructions of one turn of the inner loop, counted, as one thread issues them."""

    instructions: int
    multiply_adds: int
    """FFMA for float32, DFMA for float64, IMAD for int32."""

    tensor: int
    """Tensor core instructions."""

    shared_loads: dict[str, int]
    """LDS by width in bits: `{"32": 16, "128": 4}`."""

    shared_stores: dict[str, int]
    global_loads: dict[str, int]
    """LDG by width in bits."""

    async_copies: int
    """Copies from global to shared memory that bypass registers: `cp.async` and TMA."""

    local_loads: int
    """LDL: spilled registers, or arrays in local memory, read back."""

    local_stores: int
    barriers: int
    opcodes: dict[str, int]
    """Every opcode without its modifiers, the most frequent first."""

    @property
    def multiply_add_share(self) -> float:
        """Multiply-adds per instruction."""
        return self.multiply_adds / self.instructions


def inner_loop(disassembly: str, dtype: str) -> InnerLoop | None:
    """The inner loop of a disassembled kernel; None if no loop multiplies and adds in `dtype`."""
    instructions, labels = _parse(disassembly)
    best: list[Instruction] = []
    for own in _loops(instructions, labels):
        if _work(own, dtype) > _work(best, dtype):
            best = own
    return _count(best, dtype) if best else None


def _parse(disassembly: str) -> tuple[list[Instruction], dict[str, int]]:
    """The instructions in order, and each label as the index of the one that follows it."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in disassembly.splitlines():
        if label := _LABEL.match(line):
            labels[label["label"]] = len(instructions)
        elif match := _INSTRUCTION.match(line):
            instructions.append(Instruction(match["opcode"], match["operands"]))
    return instructions, labels


def _loops(instructions: Sequence[Instruction], labels: dict[str, int]) -> list[list[Instruction]]:
    """Of each loop the instructions that belong to no loop within it."""
    ends: dict[int, int] = {}
    for index, one in enumerate(instructions):
        target = _TARGET.search(one.operands) if one.name == "BRA" else None
        start = labels.get(target["label"], index + 1) if target else index + 1
        if start <= index:
            ends[start] = max(index, ends.get(start, 0))
    spans = list(ends.items())
    return [
        [
            instructions[index]
            for index in range(start, end + 1)
            if not any(
                start <= inner <= index <= stop <= end and (inner, stop) != (start, end)
                for inner, stop in spans
            )
        ]
        for start, end in spans
    ]


def _work(instructions: Iterable[Instruction], dtype: str) -> int:
    """Multiply-adds, and matrix instructions, which make many: any of those outweighs the rest."""
    return sum(_multiply_adds(one, dtype) + 1000 * (one.name in TENSOR) for one in instructions)


def _multiply_adds(one: Instruction, dtype: str) -> int:
    if one.name == "IMAD" and (one.opcode != "IMAD" or "RZ" in one.operands):
        return 0  # moves, shifts and addresses: IMAD.MOV, IMAD.WIDE, or nothing added
    return MULTIPLY_ADDS[dtype].get(one.name, 0)


def _count(instructions: Sequence[Instruction], dtype: str) -> InnerLoop:
    names = Counter(one.name for one in instructions)
    return InnerLoop(
        instructions=len(instructions),
        multiply_adds=sum(_multiply_adds(one, dtype) for one in instructions),
        tensor=sum(names[name] for name in TENSOR),
        shared_loads=_widths(instructions, "LDS"),
        shared_stores=_widths(instructions, "STS"),
        global_loads=_widths(instructions, "LDG"),
        async_copies=sum(names[name] for name in ASYNC_COPIES),
        local_loads=names["LDL"],
        local_stores=names["STL"],
        barriers=names["BAR"] + names["SYNCS"],
        opcodes=dict(names.most_common()),
    )


def _widths(instructions: Iterable[Instruction], name: str) -> dict[str, int]:
    """Accesses by bits: `.64`, `.128`, `.U8`; 32 where the opcode says nothing."""
    bits = Counter(
        int(match[1]) if (match := re.search(r"\.[US]?(8|16|64|128|256)\b", one.opcode)) else 32
        for one in instructions
        if one.name == name
    )
    return {str(width): count for width, count in sorted(bits.items())}
