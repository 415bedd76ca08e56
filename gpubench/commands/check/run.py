"""`gpubench check`: compiles a kernel for a GPU, and runs it on the CPU. It needs no GPU."""

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import filterfalse, islice
from operator import itemgetter
from pathlib import Path
from time import perf_counter

import numpy as np

from gpubench.backends import backends
from gpubench.backends.cuda import compile as compiler
from gpubench.commands.check.cases import (
    all_cases,
    evenly,
    expected,
    race_cases,
    tiles_to_run,
)
from gpubench.engine.judge.verify import is_unwritten, never_written
from gpubench.engine.pool import local_pool
from gpubench.engine.prepare import prepare
from gpubench.engine.run import run
from gpubench.errors import CompileError, UsageError
from gpubench.grouping import grouped
from gpubench.hardware.architectures import DEFAULT
from gpubench.kernel_options import HOST_HINT, find_variant, require_architecture
from gpubench.model import (
    OPERATIONS,
    BrokenVariant,
    Cache,
    CallVariant,
    Config,
    CudaVariant,
    HostVariant,
    Problem,
    Status,
    Timing,
    Variant,
)
from gpubench.on_cpu.run import (
    Case,
    KernelFaultError,
    Sanitizer,
    run_on_cpu,
)
from gpubench.plan.descriptor import described_by
from gpubench.plan.ranges import parse_tiles
from gpubench.plan.registry import is_ours, of_op
from gpubench.plan.sweep import Sweep
from gpubench.text import counted
from gpubench.view.tables import say

FAULTY, NOT_RUN = 1, 3
"""Exit codes: a fault was found; the kernel cannot be run here."""

SIZES = ((1, 1, 1), (32, 32, 32), (13, 7, 5), (33, 1, 20))
"""M, N and K at which a function on arrays is checked."""

SHORTEST = Timing(rounds=1, min_samples=2, few_samples=1, min_device_s=0, max_wall_s=0.001)
"""The policy of a sweep whose times are not shown."""

MAX_SHOWN = 5
"""Maximum number of wrong results that are printed."""

MAX_TILES = 4
"""Maximum number of tiles that are checked if the user names none."""

USUAL = 1024
"""M, N and K that the default tiles must take."""


def run_check(
    name: str | None, kernels: Path | None, op: str | None, tiles: str | None, arch: str | None
) -> int:
    """Check a variant, or all variants of a directory, and print the results.

    Return the exit code, of several variants the worst. Raises UsageError for an unknown variant or
    tile, and for what the descriptor raises.
    """
    if name:
        return _check(find_variant(name, op, kernels), kernels, tiles, arch)
    if kernels is None:
        raise UsageError("name a kernel, such as shared_tile, or the directory --kernels of yours")
    codes = []
    for variant in filterfalse(is_ours, of_op(op or Sweep().op, kernels).values()):
        say(f"\n{variant.name}", "bold")
        try:
            codes.append(_check(variant, kernels, tiles, arch))
        except UsageError as error:
            say(str(error), "red")
            codes.append(FAULTY)
    return FAULTY if FAULTY in codes else max(codes)


def _check(variant: Variant, kernels: Path | None, tiles: str | None, arch: str | None) -> int:
    with described_by(variant.path):
        chosen = _tiles(variant, tiles)
        if isinstance(variant, HostVariant | CudaVariant):
            if not _compile(variant, chosen, arch or DEFAULT):
                return FAULTY
            if isinstance(variant, CudaVariant):
                configs = [tile for tile in chosen if tile is not None]
                return _check_source(variant, configs, named=bool(tiles))
            say(f"not run on the CPU: sweep it on a GPU, or {HOST_HINT}", "yellow")
            return NOT_RUN
        if isinstance(variant, CallVariant):  # and no host function, which is one too
            return _check_call(variant, kernels, chosen)
    if isinstance(variant, BrokenVariant):
        raise UsageError(variant.idea)
    raise UsageError(f"'{variant.name}' is neither a function nor a CUDA source")


def _tiles(variant: Variant, tiles: str | None) -> list[Config | None]:
    """Return the tiles to check. Raises UsageError for a tile that the variant refuses."""
    space = variant.tiles
    if space is None or not space.axes:
        if tiles:
            raise UsageError(f"--tiles: {variant.name} has no tile to choose")
        return list(space or [None])
    if tiles is None:
        default = tiles_to_run(variant) if isinstance(variant, CudaVariant) else space.defaults
        k = USUAL if OPERATIONS[variant.op].has_k else 1
        problem = Problem(op=variant.op, m=USUAL, n=USUAL, k=k, dtype=variant.dtypes[0])
        return list(evenly([x for x in default if not variant.refuse(x, problem)], MAX_TILES))
    chosen = [space.read(text) for text in parse_tiles(tiles)]
    for tile in chosen:
        if reason := space.why_not(tile):
            raise UsageError(f"--tiles: {variant.name} {reason}")
    return list(chosen)


def _compile(
    variant: HostVariant | CudaVariant, tiles: Sequence[Config | None], architecture: str
) -> bool:
    """Compile the tiles for an architecture, say so, and return whether all compile."""
    dtype, started, notes = variant.dtypes[0], perf_counter(), dict[str, None]()
    target = architecture
    try:
        if isinstance(variant, CudaVariant):
            require_architecture(architecture)
            target = variant.architecture(architecture)
    except CompileError as error:
        say(f"not compiled for a GPU: {error}")
        return True
    try:
        for tile in tiles:
            if isinstance(variant, HostVariant):
                compiler.compile_library(variant, tile, dtype, architecture)
            elif tile is not None:
                called = variant.compilation(tile, dtype, architecture)
                notes[compiler.compile_instance(*called).note] = None
    except CompileError as error:
        say(f"does not compile: {error}", "red")
        return False
    names = ", ".join(str(tile) for tile in tiles if tile) or variant.name
    seconds = perf_counter() - started
    say(f"compiled for {target}, {dtype}: {names} ({seconds:.1f} s)")
    for note in filter(None, notes):
        say(note)
    return True


def _check_source(variant: CudaVariant, tiles: Sequence[Config], *, named: bool) -> int:
    """Run a CUDA source on the CPU, under both sanitizers at once. Return the exit code.

    `named`: the user named the tiles.
    """
    cases = {
        Sanitizer.ADDRESS: all_cases(variant, tiles),
        Sanitizer.THREAD: race_cases(variant, tiles if named else ()),
    }
    with tempfile.TemporaryDirectory(prefix="gpubench-") as folder, ThreadPoolExecutor(2) as pool:
        runs = {
            sanitizer: pool.submit(run_on_cpu, watched, sanitizer, Path(folder) / sanitizer.name)
            for sanitizer, watched in cases.items()
        }
        try:
            wrong = [
                (case, reason)
                for sanitizer, run in runs.items()
                for case, output in zip(cases[sanitizer], run.result(), strict=True)
                if (reason := _wrong(output, expected(case.problem), variant))
            ]
        except KernelFaultError as fault:
            lines = ", ".join(f"{file} line {line}" for file, line in dict.fromkeys(fault.lines))
            label = fault.case.label if fault.case else variant.name
            say(f"\nfault: {label}: {fault.finding}\n{lines}".rstrip(), "red")
            if fault.case:
                say(_launched(fault.case))
            return FAULTY
        except CompileError as error:
            say(f"\nnot run on the CPU: {error}", "yellow")
            return NOT_RUN
    names = {Sanitizer.ADDRESS: "AddressSanitizer, UBSan", Sanitizer.THREAD: "ThreadSanitizer"}
    code = _conclude(
        variant,
        [(f"{Status.WRONG}: {case.label}", reason) for case, reason in wrong],
        ", ".join(f"{len(watched)} cases ({names[by]})" for by, watched in cases.items()),
    )
    if wrong:
        say(_launched(wrong[0][0]))
    return code


def _check_call(variant: CallVariant, kernels: Path | None, tiles: Sequence[Config | None]) -> int:
    """Sweep a function at odd sizes, as `gpubench sweep` verifies it. Return the exit code."""
    if not backends()[variant.backend].host_arrays:
        say(f"not run: {variant.name} runs on {variant.backend}; sweep it there")
        return NOT_RUN
    sweep = Sweep(
        op=variant.op,
        variants=(variant.name,),
        sizes=SIZES if OPERATIONS[variant.op].has_k else tuple((m, n, 1) for m, n, _ in SIZES),
        tiles=tuple(str(tile) for tile in tiles if tile),
        layouts=variant.layouts,
        dtypes=variant.dtypes,
        device=variant.backend,
        caches=(Cache.HOT,),
        kernels=kernels,
        timing=SHORTEST,
    )
    with local_pool(sweep.device, sweep.timer) as pool:
        outcome = run(prepare(sweep, pool.device), pool)
    if outcome.interrupted:
        raise KeyboardInterrupt
    faults = [
        (f"{row.status}: {row.label}", row.reason or "")
        for row in outcome.rows
        if row.status not in {Status.OK, Status.SKIPPED}
    ]
    return _conclude(variant, faults, counted(len(outcome.rows), "point"))


def _launched(case: Case) -> str:
    """Return how a kernel was launched: its description may be what is wrong."""
    path = case.variant.path
    launch = case.launch.main
    grid, block = ("×".join(map(str, extents)) for extents in (launch.grid, launch.block))
    return (
        f"{path.name} launched it with a grid of {grid} and blocks of {block} threads: if the "
        f"source expects others, correct {path.name}"
    )


def _wrong(output: np.ndarray, right: np.ndarray, variant: Variant) -> str:
    """Return the difference, or an empty text. Operands are integers, so no result is rounded."""
    differing = np.argwhere(output != right)
    if not len(differing):
        return ""
    if is_unwritten(np, output):
        return never_written(variant)
    place = tuple(map(int, differing[0]))
    count = f"{len(differing)} of {right.size} elements are wrong"
    return f"{count}, the first at {list(place)}: {output[place]}, not {right[place]}"


def _conclude(variant: Variant, faults: Sequence[tuple[str, str]], what: str) -> int:
    """Print the cases with a fault, each reason once, and return the exit code."""
    labels = grouped(faults, itemgetter(1))
    for reason, ((label, _), *others) in islice(labels.items(), MAX_SHOWN):
        more = f" and {counted(len(others), 'more case')}" if others else ""
        say(f"{label}{more}: {reason}", "red")
    if len(labels) > MAX_SHOWN:
        say(f"and {counted(len(labels) - MAX_SHOWN, 'more case')}")
    if faults:
        return FAULTY
    say(f"\n{variant.name} is right and clean on the CPU:\n{what}")
    return 0
