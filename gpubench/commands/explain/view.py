"""Shows explanations on the terminal, as a page or as a table, and as JSON."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from gpubench.commands.explain.explanation import MAX_LEAST, Explanation, NotExplained
from gpubench.commands.explain.sentences import sentences, time
from gpubench.hardware.metrics import percent
from gpubench.hardware.occupancy import Occupancy
from gpubench.on_cpu.accesses import Accesses
from gpubench.text import counted
from gpubench.view.numbers import milliseconds, number
from gpubench.view.tables import console, say, table

MAX_LINES = 5  # maximum number of source lines whose accesses are shown, the most wasteful first


@dataclass(frozen=True, kw_only=True)
class Explained:
    """The explanations of a variant's launches, and notes on all launches."""

    explanations: list[Explanation]
    not_explained: list[NotExplained]
    notes: list[str]
    gpu_is_here: bool


def print_text(answer: Explained, *, as_table: bool) -> None:
    """Print a table with a line for each launch. For a single tile, add sentences and accesses."""
    screen, explanations = console(), answer.explanations
    for note in dict.fromkeys((*answer.notes, *(each.code.note for each in explanations))):
        if note:
            say(note, err=True)
    if explanations:
        is_single = len({each.tile for each in explanations}) == 1 and not as_table
        screen.print(tile_table(explanations))
        for explanation in explanations if is_single else ():
            screen.print(_words(explanation))
        screen.print(Text(f"\nnot judged here: {'; '.join(explanations[0].not_judged)}"))
        if not is_single:
            say("--tiles TILE explains one tile in words", err=True)
    for tile in answer.not_explained:
        which = f"{tile.tile}: " if len(tile.tile) else ""
        say(f"{tile.status}: {which}{tile.reason}")


def print_json(answer: Explained) -> None:
    """Print the answer as JSON, in the same form for one tile and for several tiles."""
    here = answer.gpu_is_here
    explained = [as_json(each, gpu_is_here=here) for each in answer.explanations]
    missing = [
        {"tile": str(each.tile), **_attributes(each, "status", "reason")}
        for each in answer.not_explained
    ]
    report = {"explanations": explained, "not_explained": missing}
    print(json.dumps(report, indent=2, default=asdict))


def _words(explanation: Explanation) -> RenderableType:
    """Return sentences on a launch, followed by a table of its accesses."""
    name = [Text(f"\n{explanation.kernel}", style="bold")] if len(explanation.launches) > 1 else []
    parts: list[RenderableType] = [*name, "", Text(" ".join(sentences(explanation)))]
    if explanation.accesses and explanation.accesses.lines:
        grid = table("", "", left=None)
        for place, value in _accesses(explanation, explanation.accesses):
            grid.add_row(place, value)
        parts += ["", grid]
    return Group(*parts)


def _accesses(explanation: Explanation, recorded: Accesses) -> Iterator[tuple[str, str]]:
    """Yield names and figures, first for all accesses together, then for the source lines."""
    if explanation.access_us is not None:
        yield "L1 and shared memory", f"{time(explanation.access_us)} as written"
    if recorded.sectors_per_request and recorded.sectors_over_least:
        over_least = f"{recorded.sectors_over_least:.2f} times the minimum"
        yield "sectors", f"{recorded.sectors_per_request:.2f} per request, {over_least}"
    if recorded.bank_conflict_ways:
        yield "bank conflicts", f"{recorded.bank_conflict_ways:.2f}-way on average"
    for line in recorded.by_wasted_clocks[:MAX_LINES]:
        what = f"{line.kind} {'to' if line.kind == 'write' else 'of'} {line.memory}"
        if line.is_shared:
            cost = f"{number(line.wavefronts, 1)} wavefronts"
        else:
            cost = f"{number(line.sectors, 1)} sectors"
        is_least = line.times_least <= MAX_LEAST
        times = "the minimum" if is_least else f"{line.times_least:.1f} times the minimum"
        yield line.place, f"{what}, {8 * line.bytes} bits: {cost}, {times}"
    if len(recorded.lines) > MAX_LINES:
        yield "", f"and {counted(len(recorded.lines) - MAX_LINES, 'further line')}"


_COLUMNS: dict[str, Callable[[Explanation], str]] = {
    "tile": lambda each: str(each.tile),
    "kernel": lambda each: each.kernel if len(each.launches) > 1 else "",
    "regs": lambda each: str(each.resources.registers),
    "spill bytes": lambda each: str(each.resources.spill_bytes),
    "shared bytes": lambda each: str(each.resources.shared_bytes + each.launch.shared_bytes),
    "threads": lambda each: str(each.launch.threads_per_block),
    "occ. %": lambda each: number(100 * each.occupancy.fraction, 0) if each.occupancy else "",
    "limited by": lambda each: _limits(each.occupancy),
    "waves": lambda each: number(each.waves.waves, 2) if each.waves else "",
    "CGMA": lambda each: number(each.cgma, 1),
    "FMA %": lambda each: _of_loop(each, "FMA %"),
    "MMA": lambda each: _of_loop(each, "MMA"),
    "shared %": lambda each: number(percent(each.shared_share, 1), 0),
    "ms": lambda each: milliseconds(each.measured_us),
    "% of bound": lambda each: number(percent(each.roofline_share, 1), 0),
}
"""Headings, and the functions that return the cells. A heading of two words has two lines, so that
the table is at most 80 characters wide."""

_LEGENDS = {
    "FMA %": "multiply-adds among the instructions of the inner loop",
    "MMA": "matrix instructions of tensor cores in the inner loop",
    "shared %": "part of shared memory's rate that matrix instructions need at their peak",
}
"""Meanings of the headings that are not words."""


def tile_table(explanations: Sequence[Explanation]) -> RenderableType:
    """Return a table with a line per launch, at most 80 characters wide, without empty columns."""
    first = explanations[0]
    columns = {name: cell for name, cell in _COLUMNS.items() if any(map(cell, explanations))}
    headings = [name.replace(" ", "\n", 1) for name in columns]
    grid = table(*headings, left={"tile", "kernel"})
    for explanation in explanations:
        grid.add_row(*(cell(explanation) for cell in columns.values()))
    label = f"{first.variant.name} at {first.problem.size} {first.problem.dtype}"
    where = f" on {first.device.name}" if first.device.name else ""
    heading = Text(f"{label}{where} ({first.architecture})", style="bold")
    roof = first.roofline
    foot = [f"roofline's bound: {roof.bound}, {time(roof.bound_us)}"] if roof else []
    foot += [f"{name}: {meaning}" for name, meaning in _LEGENDS.items() if name in columns]
    return Group(heading, "", grid, "", *foot)


def _of_loop(explanation: Explanation, column: str) -> str:
    """Return a cell about the inner loop, or an empty text if the column is for other loops."""
    loop = explanation.code.loop
    if loop is None or column != ("MMA" if loop.tensor else "FMA %"):
        return ""
    return str(loop.tensor) if loop.tensor else number(100 * loop.multiply_add_share, 0)


def _limits(state: Occupancy | None) -> str:
    """Return the limits that keep a multiprocessor from being full, or an empty text."""
    if state is None or state.warps == state.max_warps:
        return ""
    short = {"registers": "regs", "shared memory": "shared"}
    return "+".join(short.get(name, name) for name in state.limited_by)


_FIGURES = (
    "architecture", "kernel", "registers_allowed", "accumulators", "occupancy", "waves", "cgma",
    "cgma_flop_per_byte", "roofline", "access_us", "not_judged", "issue_bound", "shared_share",
    "measured_us", "roofline_share",
)  # fmt: skip


def as_json(explanation: Explanation, *, gpu_is_here: bool) -> dict[str, Any]:
    """Return all figures, with units in their names. A figure that is not known is null."""
    device, loop = explanation.device, explanation.code.loop
    return {
        "variant": explanation.variant.name,
        "tile": str(explanation.tile),
        "launch": explanation.step + 1,
        "launches": len(explanation.launches),
        "device": {
            "name": device.name or None,
            "is_here": gpu_is_here,
            "multiprocessors": device.multiprocessors or None,
            **_attributes(device, "sm_clock_mhz", "memory_bandwidth_gbytes_per_s"),
        },
        "static_shared_bytes": explanation.resources.shared_bytes,
        "dynamic_shared_bytes": explanation.launch.shared_bytes,
        **_attributes(explanation.problem, "op", "dtype", "m", "n", "k"),
        **_attributes(explanation.resources, "registers", "spill_bytes", "local_bytes"),
        **_attributes(explanation.launch, "threads_per_block", "block", "grid", "blocks"),
        **_attributes(explanation, *_FIGURES),
        "inner_loop": loop and asdict(loop) | {"multiply_add_share": loop.multiply_add_share},
        "accesses": explanation.accesses and _accesses_as_json(explanation.accesses),
        "words": sentences(explanation),
    }


def _accesses_as_json(recorded: Accesses) -> dict[str, Any]:
    """Return the figures of all accesses and of each line, starting with the most wasteful line."""
    names = ("sectors_per_request", "sectors_over_least", "bank_conflict_ways")
    return asdict(recorded) | {
        "lines": [
            asdict(line) | {"times_least": line.times_least} for line in recorded.by_wasted_clocks
        ],
        **_attributes(recorded, *names),
    }


def _attributes(owner: object, *names: str) -> dict[str, Any]:
    return {name: getattr(owner, name) for name in names}
