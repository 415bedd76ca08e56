"""Defines the sweep that a user requests, and plans the points to measure."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from operator import itemgetter
from pathlib import Path

from gpubench.backends import backends
from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.model import (
    DEFAULT_OP,
    LAYOUTS,
    OPERATIONS,
    PRECISIONS,
    Cache,
    Config,
    Fill,
    HostVariant,
    Launches,
    Point,
    Problem,
    Scope,
    Size,
    State,
    Timer,
    Timing,
    Variant,
)
from gpubench.model.config import NO_PARAMETERS
from gpubench.plan.problems import ListedProblem, list_paths
from gpubench.plan.python_file import described_by
from gpubench.plan.registry import choose
from gpubench.plan.scrutiny import owner_of
from gpubench.plan.selection import matching
from gpubench.text import shown

MAX_POINTS = 100_000

QUICK_BYTES = 2**25  # maximum number of bytes of all arrays in a sweep without `--sizes`

AUTO_TILES = "auto"
"""Value of `--tiles` that stands for the tiles that each variant's cost model picks."""

TUNED = Path("results", "tuned.toml")  # the default file of the winners of `gpubench tune`

Picked = Callable[[Variant, Problem], tuple[Config, ...]]
"""Takes (variant, problem) and returns the tiles of `--tiles auto` or `--tiles tuned`. The value ()
means the default tiles."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The sweep that the user requested."""

    op: str = DEFAULT_OP
    variants: tuple[str, ...] = ()
    """Names of variants, or patterns such as `cpu_*`. Empty means every default variant of the op
    on the device."""

    excluded: tuple[str, ...] = ()  # names or patterns of variants that are left out
    sizes: tuple[Size, ...] = ()
    """The sizes to measure. Empty means the size that `_quick_size` returns."""

    problems: tuple[ListedProblem, ...] = ()
    """The problems of a list, each with its dtype, which replace all sizes in all dtypes. `sizes`
    and `dtypes` then hold the values of these problems."""

    tiles: tuple[str, ...] = ()
    """Tiles as users write them, which each variant's space reads. Empty means each variant's
    default tiles. `AUTO_TILES` means the tiles that each variant's cost model picks. The module
    `plan.tuned` finds the tiles for `tuned`."""

    dtypes: tuple[str, ...] = ("float32",)
    device: str = "auto"
    kernels: Path | None = None  # the user's folder of variants, which are measured besides ours
    output: Path | None = None
    samples: Path | None = None  # the file for the samples of every round, or None
    seed: int = 2006
    operands: tuple[Fill, ...] = (Fill.UNIFORM,)
    layouts: tuple[str, ...] = ()
    """Names of the layouts to measure, from `LAYOUTS`. Empty means each variant's own layout."""

    caches: tuple[Cache, ...] = (Cache.COLD,)
    launches: tuple[Launches, ...] = (Launches.ALONE,)
    scopes: tuple[Scope, ...] = (Scope.KERNEL,)
    states: tuple[State, ...] = (State.BURST,)
    timer: Timer = Timer.EVENTS
    timing: Timing = field(default_factory=Timing)
    options: Mapping[str, str] = field(default_factory=dict)
    """The sweep's options as text. A resumed sweep must have equal options."""


def tuned_file(tiles: Sequence[str]) -> Path | None:
    """Return the file of winners that `--tiles` selects, or None.

    The value `tuned`, the name of a .toml file or the name of a .csv file selects a file.
    """
    text = tiles[0] if len(tiles) == 1 else ""
    if text == "tuned":
        return TUNED
    return Path(text) if text.endswith((".toml", ".csv")) else None


def require_inputs_kept(texts: Mapping[str, str], config: Path | None) -> None:
    """Raise UsageError if an output file is also an input file, which --force would replace."""
    tuned = tuned_file((texts.get("tiles", ""),))
    lists = [("--sizes", path) for path in list_paths(texts.get("sizes", ""))]
    inputs = [*lists, ("--tiles", tuned), ("--config", config)]
    for name in {"output", "samples"} & texts.keys():
        for flag, file in inputs:
            if file and os.path.realpath(texts[name]) == os.path.realpath(file):
                raise UsageError(f"--{name}: {shown(texts[name])} is the file of {flag}")
        if "kernels" in texts and Path(texts[name]).suffix in {".py", ".cu", ".cuh"}:
            raise UsageError(f"--{name}: {shown(texts[name])} is named like a file of --kernels")


def plan(
    sweep: Sweep,
    backend: str,
    capability: tuple[int, int] | None = None,
    multiprocessors: int = 0,
    picked: Picked | None = None,
) -> dict[Point, str | None]:
    """Return the points of a sweep on a backend, each with the reason why it cannot run, or None.

    `capability` is the GPU's compute capability, or None to skip its check. `multiprocessors` is
    for `--tiles auto`. 0 means that the number is not known. `picked` replaces `--tiles`. Raises
    UsageError if no point can run.
    """
    if not sweep.sizes:
        sweep = replace(sweep, sizes=(_quick_size(sweep.op, backends()[backend].quick_size),))
    if picked:
        sweep = replace(sweep, tiles=())
    _require_consistent(sweep)
    variants = _variants(sweep, backend)
    if sweep.tiles == (AUTO_TILES,):
        picked = _picker(multiprocessors)
        sweep = replace(sweep, tiles=())
    _require_legal_tile(sweep.tiles, variants)
    tiles = {variant: _tiles(variant, sweep.tiles) for variant in variants}
    lists = (
        sweep.caches, sweep.launches, sweep.states, sweep.scopes,
        sweep.operands, sweep.layouts or ("",),
    )  # fmt: skip
    conditions = math.prod(map(len, lists))
    count = len(_problems(sweep)) * conditions * sum(map(len, tiles.values()))
    if count > MAX_POINTS:
        raise UsageError(f"the sweep has {count} points, more than {MAX_POINTS}; split it")

    planned = {}
    twins = {variant: pdl_twins(each) for variant, each in tiles.items()}
    for point in _points(sweep, backend, tiles, picked):
        variant, problem = point.variant, point.problem
        is_twin = point.tile in twins[variant] and not (picked and picked(variant, problem))
        if is_twin and not sweep.tiles and not point.launches.overlap:
            continue
        # A kernel that lacks this dtype, but has another dtype of the sweep, needs no message.
        if problem.dtype in variant.dtypes or not set(variant.dtypes) & set(sweep.dtypes):
            with described_by(variant.path):
                reason = variant.why_not(point.tile, problem, capability)
                if problem.column_major and point.scope == Scope.END_TO_END:
                    reason = reason or "end-to-end is for row-major matrices"
                reason = reason or _why_not_launched(point, sweep, is_twin=is_twin)
                if not isinstance(reason, str | None):
                    raise TypeError(f"refuse returned {type(reason).__name__}, not text or None")
                planned[point] = reason
    if all(planned.values()):
        raise UsageError(_why_nothing(planned, sweep, backend))
    return planned


def _why_nothing(planned: Mapping[Point, str | None], sweep: Sweep, backend: str) -> str:
    """Return why no point of a sweep can run."""
    if planned:
        refusals = [(point.variant.name, str(reason)) for point, reason in planned.items()]
        return f"nothing to measure: {_once(refusals)}"
    every = choose(sweep.op, backend, (), sweep.kernels)
    theirs = dict.fromkeys(dtype for variant in every for dtype in variant.dtypes)
    return (
        f"--dtypes: no kernel of {sweep.op} for {backend} has {', '.join(sweep.dtypes)}; "
        f"the kernels have {', '.join(theirs)}"
    )


def _once(refusals: Sequence[tuple[str, str]]) -> str:
    """Return a text with each reason once, after the names of the variants that have it."""
    return "; ".join(
        f"{', '.join(name for name, _ in listed)}{':' if len(listed) > 1 else ''} {reason}"
        for reason, listed in grouped(dict.fromkeys(refusals), itemgetter(1)).items()
    )


def _require_consistent(sweep: Sweep) -> None:
    """Raise UsageError for options that contradict each other."""
    if State.SUSTAINED in sweep.states and sweep.timer == Timer.CUPTI:
        raise UsageError("--state sustained is timed by events: leave --timer out")
    if sweep.layouts and not OPERATIONS[sweep.op].has_layouts:
        raise UsageError(
            f"--layouts: {sweep.op} has no layouts; only products of two matrices have them"
        )
    if tuned_file(sweep.tiles):
        raise UsageError("--tiles: tuned tiles are for sweep and compare-cublas")


def _variants(sweep: Sweep, backend: str) -> tuple[Variant, ...]:
    """Return the variants of a sweep. Raises UsageError if `--exclude` leaves no variant."""
    variants = choose(sweep.op, backend, sweep.variants, sweep.kernels)
    for name in sweep.excluded:
        out = matching("--exclude", "variant", name, [variant.name for variant in variants])
        variants = tuple(variant for variant in variants if variant.name not in out)
        if not variants:
            raise UsageError(
                f"--exclude: '{shown(name)}' leaves no variant of {sweep.op} to measure"
            )
    if sweep.variants:
        return variants
    # The user did not name these variants, so a dtype that they lack needs no message.
    return tuple(v for v in variants if set(v.dtypes) & set(sweep.dtypes))


def _picker(multiprocessors: int) -> Picked:
    """Return the function that picks the tiles of `--tiles auto`."""
    if not multiprocessors:
        raise UsageError("--tiles: auto is for sweep, compare-cublas and export")

    def picked(variant: Variant, problem: Problem) -> tuple[Config, ...]:
        if problem.dtype not in variant.dtypes:
            return ()
        with described_by(variant.path):
            return variant.tiles_for(problem, multiprocessors)

    return picked


def _points(
    sweep: Sweep,
    backend: str,
    tiles: Mapping[Variant, tuple[Config | None, ...]],
    picked: Picked | None,
) -> Iterator[Point]:
    timer, timers = backends()[backend].timer(sweep.timer), backends()[backend].timers
    is_outside = Timer.OUTSIDE in timers and any(map(owner_of, tiles))
    for dtype, size in _problems(sweep):
        row_major = Problem.of(sweep.op, size, dtype)
        for variant, default_tiles in tiles.items():
            for column_major in _layouts(sweep, variant, dtype):
                problem = replace(row_major, column_major=column_major)
                of_problem = (picked and picked(variant, problem)) or default_tiles
                for tile, fill, (scope, cache, launches, state) in product(
                    of_problem, sweep.operands, tuple(_conditions(sweep))
                ):
                    yield Point(
                        variant=variant,
                        tile=tile,
                        problem=problem,
                        operands=fill,
                        cache=cache,
                        launches=_launches_of(variant, launches, scope, timer),
                        state=state,
                        scope=scope,
                        timer=Timer.OUTSIDE
                        if is_outside and (cache, state) == (Cache.COLD, State.BURST)
                        else timer,
                    )


def _problems(sweep: Sweep) -> list[tuple[str, Size]]:
    """Return the dtype and the size of each problem in the sweep."""
    if sweep.problems:
        return [(problem.dtype, problem.size) for problem in sweep.problems]
    return list(product(sweep.dtypes, sweep.sizes))


def _quick_size(op: str, n: int) -> Size:
    """Return a size of equal extents for a sweep without `--sizes`.

    The extents are `n`, or a fraction of `n` if the arrays would exceed `QUICK_BYTES` in float32,
    because an operation may have more extents than a product.
    """
    operation = OPERATIONS[op]
    size = operation.size_of([n] * len(operation.extents))
    is_small = n == 1 or Problem.of(op, size, "float32").bytes <= QUICK_BYTES
    return size if is_small else _quick_size(op, n // 2)


def _layouts(sweep: Sweep, variant: Variant, dtype: str) -> Iterator[tuple[str, ...]]:
    """Yield the column-major matrices of each layout in which a variant is measured.

    A precision of 8 bits has a fixed layout, whatever `--layouts` names.
    """
    if not sweep.layouts or PRECISIONS[dtype].column_major:
        yield variant.own_layout(dtype)
    else:
        yield from (LAYOUTS[name] for name in sweep.layouts)


def _conditions(sweep: Sweep) -> Iterator[tuple[Scope, Cache, Launches, State]]:
    """Yield the scope, cache, launches and state of each point.

    The scope `end-to-end` has only the conditions `cold`, `alone` and `burst`. Operands that were
    just copied cannot be made cold or hot. The copies separate the launches, and the kernel does
    not run during the copies.
    """
    for scope in sweep.scopes:
        if scope == Scope.END_TO_END:
            yield scope, Cache.COLD, Launches.ALONE, State.BURST
        else:
            yield from product((scope,), sweep.caches, sweep.launches, sweep.states)


def _launches_of(variant: Variant, launches: Launches, scope: Scope, timer: Timer) -> Launches:
    """Return `waited` in place of `alone` for a call that waits for the GPU, or else `launches`.

    CUPTI is an exception, because it times the kernels of a call, not the call.
    """
    waits = isinstance(variant, HostVariant) and variant.waits
    if waits and (launches, scope, timer) == (Launches.ALONE, Scope.KERNEL, Timer.EVENTS):
        return Launches.WAITED
    return launches


def _why_not_launched(point: Point, sweep: Sweep, *, is_twin: bool) -> str | None:
    """Return why a point's `launches` cannot be timed, or are already timed as another point."""
    launches = point.launches
    entry = backends()[point.variant.backend]
    if owner_of(point.variant) and Timer.OUTSIDE in entry.timers and (why := _why_not_new(point)):
        return why
    if launches not in entry.launches:
        return f"a {point.variant.backend.upper()} takes only --launches alone"
    in_bursts = launches.in_graph or launches == Launches.WAITED
    if in_bursts and (point.state, point.timer) != (State.BURST, Timer.EVENTS):
        return (
            f"--launches {launches} needs --state burst and --timer events: use --launches alone "
            "or overlapped"
        )
    same = Launches.GRAPH if launches.in_graph else Launches.ALONE
    if launches.overlap:
        if same in sweep.launches and not point.variant.may_overlap(point.tile, point.problem):
            return f"the launches never overlap, so the time is that of --launches {same}"
    elif is_twin:
        return "differs only in pdl, which has no effect when launches do not overlap"
    return None


def _why_not_new(point: Point) -> str:
    """Return why a point's launches cannot have new operands, or an empty text."""
    if point.timer != Timer.OUTSIDE:
        return "each launch of a user's function has new operands: use --cache cold --state burst"
    if point.operands.is_random or point.problem.operation.make:
        return ""
    return (
        f"a user's function could know the result for --operands {point.operands} in advance: "
        "use --operands uniform"
    )


def pdl_twins(tiles: Sequence[Config | None]) -> frozenset[Config | None]:
    """Return the tiles with `pdl=0` that are in the list a second time with `pdl=1`."""
    all_tiles = frozenset(tiles)
    return frozenset(
        tile
        for tile in tiles
        if tile and tile.get("pdl") == 0 and Config({**tile, "pdl": 1}.items()) in all_tiles
    )


def _tiles(variant: Variant, asked: tuple[str, ...]) -> tuple[Config | None, ...]:
    """Return the tiles of `--tiles` that have the variant's form, or else the default tiles.

    Edges (`16`) and block tiles (`128x128x8`) are different forms. For example, `--tiles 1..32`
    chooses edges, and variants with block tiles keep their defaults.
    """
    space = variant.tiles
    if space is None:
        return (None,)
    # A kernel without tile parameters has a point for every tile that it refuses.
    of_its_kind = [tile for tile in asked if _numbers(tile) == len(space.block) or not space.axes]
    with described_by(variant.path):
        return tuple(dict.fromkeys(map(space.read, of_its_kind))) or space.defaults


def _numbers(tile: str) -> int:
    """Return the number of extents in a tile's block: 1 for `16`, or 3 for `128x128x8/8x8`."""
    if tile == NO_PARAMETERS:
        return 0
    return tile.partition("/")[0].count("x") + 1


def _require_legal_tile(asked: tuple[str, ...], variants: Sequence[Variant]) -> None:
    """Raise UsageError if no variant takes any of the tiles, or if a tile has an unknown form."""
    if not asked:
        return
    tiled = [(variant, variant.tiles) for variant in variants if variant.tiles]
    if not tiled:
        names = ", ".join(variant.name for variant in variants)
        raise UsageError(f"--tiles: no variant of this sweep has a tile to choose ({names})")
    reasons: list[tuple[str, str]] = []
    for variant, space in tiled:
        with described_by(variant.path):
            refusals = [space.why_not(space.read(text)) for text in asked]
        if None not in refusals:
            reasons.append((variant.name, str(refusals[0])))
    if len(reasons) == len(tiled):
        raise UsageError(f"--tiles: no variant takes any of these: {_once(reasons)}")
    numbers = {len(space.block) for _, space in tiled}
    for text in asked:
        if _numbers(text) not in numbers:
            raise UsageError(f"--tiles: {text} has a form that no variant of this sweep takes")
