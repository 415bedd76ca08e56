"""An explanation as a page, several as a table, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from gpubench.commands.explain.explanation import Explanation
from gpubench.commands.explain.sass import InnerLoop
from gpubench.commands.explain.words import counted, sentences, time
from gpubench.hardware.metrics import percent
from gpubench.hardware.occupancy import Occupancy
from gpubench.view.tables import milliseconds, number, table

SHORT_TILE = 12
"""Tiles of more characters leave a table one blank between its columns."""

Facts = Iterator[tuple[str, str]]


def page(of: Explanation) -> RenderableType:
    """One kernel: its figures by subject, then what they mean."""
    grid = table("", "", left=None)
    grid.show_header = False
    sections = (_compiled, _occupancy, _grid, _roofline, _loop)
    for index, section in enumerate(sections):
        facts = list(section(of))
        if index and facts:
            grid.add_row("", "")
        for name, value in facts:
            grid.add_row(name, value)
    words = Text(" ".join(sentences(of)))
    return Group(Text(_heading(of), style="bold"), Text(""), grid, Text(""), words)


def _heading(of: Explanation) -> str:
    where = f" on {of.device.name}" if of.device.name else ""
    return f"{of.label}{where} ({of.architecture})"


def _compiled(of: Explanation) -> Facts:
    resources = of.resources
    most = f" of {of.registers_allowed}" if of.registers_allowed else ""
    yield "registers", f"{resources.registers}{most} a thread"
    spilled = (
        f"{resources.spill_bytes:,} bytes stored a thread" if resources.spill_bytes else "none"
    )
    yield "spills", spilled
    if resources.local_bytes:
        yield "local memory", f"{resources.local_bytes:,} bytes a thread"
    parts = (
        f" ({resources.shared_bytes:,} static, {of.launch.shared_bytes:,} dynamic)"
        if of.launch.shared_bytes
        else ""
    )
    yield "shared memory", f"{of.shared_bytes:,} bytes a block{parts}"
    yield "threads", f"{of.launch.threads_per_block:,} a block ({_times(of.launch.block)})"
    if of.accumulators:
        yield "results", f"{counted(of.accumulators, 'element')} a thread"


def _occupancy(of: Explanation) -> Facts:
    state = of.occupancy
    if state is None:
        return
    yield "occupancy", f"{100 * state.fraction:.1f} %: {state.warps} of {state.max_warps} warps"
    yield "limited by", ", ".join(state.limited_by)
    yield "blocks resident", f"{state.blocks:,} a multiprocessor"
    yield (
        "each limit alone",
        ", ".join(f"{name} {blocks:,}" for name, blocks in state.blocks_by.items()),
    )


def _grid(of: Explanation) -> Facts:
    yield "blocks", f"{of.launch.blocks:,} ({_times(of.launch.grid)})"
    if of.waves:
        waves = of.waves
        tail = waves.waves > 1 and waves.tail_blocks
        of_tail = f"; the last has {waves.tail_blocks:,}" if tail else ""
        yield "waves", f"{waves.waves:.2f} of {waves.blocks_per_wave:,} blocks{of_tail}"


def _roofline(of: Explanation) -> Facts:
    if of.cgma is None or of.cgma_flop_per_byte is None:
        return
    yield (
        "CGMA ratio",
        f"{of.cgma:.2f} operations an element, {of.cgma_flop_per_byte:.2f} a byte",
    )
    roof = of.roofline
    if roof is None:
        return
    yield (
        "arithmetic intensity",
        f"{roof.arithmetic_intensity:.1f} operations a byte, ridge {roof.ridge_flop_per_byte:.1f}",
    )
    unit = "Gop" if of.problem.dtype.startswith("int") else "GFLOP"
    limit = (
        f"{number(roof.peak_gflops, 0)} {unit}/s of the {roof.peak_unit}"
        if roof.bound == "arithmetic"
        else f"{number(roof.memory_gbytes_per_s, 0)} GB/s"
    )
    yield "bound", f"{roof.bound}, {limit}"
    yield "time at the bound", time(roof.bound_us)
    if of.measured_us is not None and of.roofline_share:
        share = 100 * of.roofline_share
        yield "measured", f"{time(of.measured_us)}: {share:.1f} % of the bound's speed"


def _loop(of: Explanation) -> Facts:
    loop = of.inner_loop
    if loop is None:
        return
    share = 100 * loop.multiply_add_share
    yield "inner loop", f"{loop.instructions:,} instructions a turn"
    yield "multiply-adds", f"{loop.multiply_adds:,} ({share:.0f} %)"
    yield from _counts(loop)
    yield (
        "most frequent",
        ", ".join(f"{count:,} {name}" for name, count in list(loop.opcodes.items())[:5]),
    )


def _counts(loop: InnerLoop) -> Facts:
    """What the loop has of each kind; kinds it has none of are left out, spills never."""
    for name, widths in (
        ("LDG, global loads", loop.global_loads),
        ("LDS, shared loads", loop.shared_loads),
        ("STS, shared stores", loop.shared_stores),
    ):
        if widths:
            yield name, _widths(widths)
    for name, count in (
        ("matrix instructions", loop.tensor),
        ("asynchronous copies", loop.async_copies),
        ("barriers", loop.barriers),
    ):
        if count:
            yield name, f"{count:,}"
    yield "LDL, STL, local memory", f"{loop.local_loads:,} read, {loop.local_stores:,} written"


def _widths(widths: Mapping[str, int]) -> str:
    """`16 of 32 bits, 4 of 128 bits`."""
    return ", ".join(f"{count:,} of {bits} bits" for bits, count in widths.items())


def _times(extents: Sequence[int]) -> str:
    return "×".join(map(str, extents))


_COLUMNS: tuple[tuple[str, Callable[[Explanation], str]], ...] = (
    ("tile", lambda one: str(one.tile)),
    ("kernel", lambda one: one.kernel if one.steps > 1 else ""),
    ("regs", lambda one: str(one.resources.registers)),
    ("spill bytes", lambda one: str(one.resources.spill_bytes)),
    ("shared bytes", lambda one: str(one.shared_bytes)),
    ("threads", lambda one: str(one.launch.threads_per_block)),
    ("occ. %", lambda one: number(100 * one.occupancy.fraction, 0) if one.occupancy else ""),
    ("limited by", lambda one: _limits(one.occupancy)),
    ("waves", lambda one: number(one.waves.waves, 2) if one.waves else ""),
    ("CGMA", lambda one: number(one.cgma, 1)),
    ("FMA %", lambda one: _multiply_adds(one.inner_loop)),
    ("ms", lambda one: milliseconds(one.measured_us)),
    ("% of bound", lambda one: number(percent(one.roofline_share, 1), 0)),
)
"""Headings of two words stand in two lines: so a line has 80 characters."""


def tile_table(explanations: Sequence[Explanation]) -> RenderableType:
    """One line a tile, in 80 columns; what is known of no tile is left out."""
    first = explanations[0]
    shown = [column for column in _COLUMNS if any(map(column[1], explanations))]
    grid = table(*(name for name, _ in shown), left={"tile", "kernel", "limited by"})
    long = any(len(str(one.tile)) > SHORT_TILE for one in explanations)
    grid.padding = (0, 0 if long else 1, 0, 0)
    for column, (name, _) in zip(grid.columns, shown, strict=True):
        column.header = name.replace(" ", "\n", 1)
        column.no_wrap = True
    for one in explanations:
        grid.add_row(*(cell(one) for _, cell in shown))
    size = f"{first.variant.name} at {first.problem.size} {first.problem.dtype}"
    where = f" on {first.device.name}" if first.device.name else ""
    heading = Text(f"{size}{where} ({first.architecture})", style="bold")
    roof = first.roofline
    foot = [Text(""), Text(f"bound: {roof.bound}, {time(roof.bound_us)}")] if roof else []
    return Group(heading, Text(""), grid, *foot)


_SHORT = {"registers": "regs", "shared memory": "shared"}


def _limits(state: Occupancy | None) -> str:
    """What keeps a multiprocessor from being full; nothing if it is."""
    if state is None or state.warps == state.max_warps:
        return ""
    return "+".join(_SHORT.get(name, name) for name in state.limited_by)


def _multiply_adds(loop: InnerLoop | None) -> str:
    return number(100 * loop.multiply_add_share, 0) if loop else ""


def _loop_json(loop: InnerLoop | None) -> dict[str, Any] | None:
    return asdict(loop) | {"multiply_add_share": loop.multiply_add_share} if loop else None


def as_json(of: Explanation, *, is_here: bool) -> dict[str, Any]:
    """Everything known, with units in the names; null where it is not known."""
    problem, device = of.problem, of.device
    return {
        "variant": of.variant.name,
        "op": problem.op,
        "tile": str(of.tile),
        "dtype": problem.dtype,
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "architecture": of.architecture,
        "kernel": of.kernel,
        "launch": of.step + 1,
        "launches": of.steps,
        "device": {
            "name": device.name or None,
            "is_here": is_here,
            "multiprocessors": device.multiprocessors or None,
            "sm_clock_mhz": device.sm_clock_mhz,
            "memory_bandwidth_gbytes_per_s": device.memory_bandwidth_gbytes_per_s,
        },
        "registers": of.resources.registers,
        "registers_allowed": of.registers_allowed,
        "spill_bytes": of.resources.spill_bytes,
        "local_bytes": of.resources.local_bytes,
        "static_shared_bytes": of.resources.shared_bytes,
        "dynamic_shared_bytes": of.launch.shared_bytes,
        "threads_per_block": of.launch.threads_per_block,
        "block": list(of.launch.block),
        "grid": list(of.launch.grid),
        "blocks": of.launch.blocks,
        "accumulators": of.accumulators,
        "occupancy": asdict(of.occupancy) if of.occupancy else None,
        "waves": asdict(of.waves) if of.waves else None,
        "cgma": of.cgma,
        "cgma_flop_per_byte": of.cgma_flop_per_byte,
        "roofline": asdict(of.roofline) if of.roofline else None,
        "inner_loop": _loop_json(of.inner_loop),
        "issue_bound": of.issue_bound,
        "measured_us": of.measured_us,
        "roofline_share": of.roofline_share,
        "words": sentences(of),
    }
