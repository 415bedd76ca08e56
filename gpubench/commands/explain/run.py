"""`gpubench explain`: read the options, compile, take times, print. Needs NVRTC, and no GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from gpubench.backends.cpu.backend import cpu_threads
from gpubench.backends.cuda.compile import compile_instance, instance
from gpubench.commands.explain.explanation import Explanation, explain, launches
from gpubench.commands.explain.sass import INSTALL, disassemble, inner_loop, nvdisasm
from gpubench.commands.explain.target import Target, find_target
from gpubench.commands.explain.view import NotExplained, print_json, print_text
from gpubench.errors import CompileError, UsageError
from gpubench.hardware.architectures import capability
from gpubench.measure.session import run
from gpubench.measure.worker import Worker
from gpubench.model import OPERATIONS, Config, CudaVariant, Device, Problem, Scope, Status
from gpubench.options import read_sweep
from gpubench.plan.descriptor import described_by
from gpubench.plan.registry import of_op, unknown, variants
from gpubench.plan.sweep import Sweep, plan
from gpubench.row import Row, read
from gpubench.view.progress import progress
from gpubench.view.tables import console

SIZE = "1024"


def run_explain(
    variant: str,
    *,
    tile: str | None = None,
    size: str | None = None,
    dtype: str | None = None,
    arch: str | None = None,
    device: str | None = None,
    op: str | None = None,
    kernels: Path | None = None,
    every: bool = False,
    csv: Path | None = None,
    measure: bool = False,
    as_json: bool = False,
) -> int:
    """Explain a variant, with the options as on the command line: 0, or 1 if a tile fails.

    Raises UsageError for what cannot be explained, DeviceUnavailableError for a GPU that was asked
    for and is not there.
    """
    kernel = _find_kernel(variant, op, kernels)
    options = {
        "sizes": size or SIZE,
        "tiles": tile,
        "dtypes": dtype or kernel.dtypes[0],
        "device": device,
        "kernels": kernels,
    }
    sweep = _read_options(kernel, options, every=every)
    ((m, n, k),), (element,) = sweep.sizes, sweep.dtypes
    problem = Problem(op=kernel.op, m=m, n=n, k=k, dtype=element)
    target = find_target(arch, sweep.device, measure=measure)
    tiles, not_explained = _legal_tiles(sweep)
    notes = [target.note] if target.note else []
    if nvdisasm() is None:
        notes.append(f"no nvdisasm found, so nothing about the inner loop: {INSTALL}")
    times_us: dict[str, float] = {}
    if csv and measure:
        raise UsageError("--csv and --measure: take the times from a file, or measure them")
    if csv or measure:
        sweep = replace(sweep, tiles=tuple(map(str, tiles)))
        rows = read(csv) if csv else _measure(target.device, sweep)
        times_us, note = _times_us(rows, str(csv or "measured here"), sweep, target)
        notes += [note] if note else []

    explanations: list[Explanation] = []
    answers = _explain_tiles(kernel, tiles, problem, target, times_us)
    for legal_tile, answer in zip(tiles, answers, strict=True):
        if isinstance(answer, CompileError):
            not_explained.append(NotExplained(str(legal_tile), Status.ERROR, str(answer)))
        else:
            explanations += answer
    if as_json:
        print_json(explanations, not_explained, gpu_is_here=target.is_here)
    else:
        print_text(explanations, not_explained, notes, as_table=every)
    return int(any(tile.status == Status.ERROR for tile in not_explained))


def _find_kernel(name: str, op: str | None, kernels: Path | None) -> CudaVariant:
    """The variant of that name: of any operation, unless --op or --kernels narrow it."""
    if op and op not in OPERATIONS:
        raise UsageError(f"--op: {unknown('operation', op, OPERATIONS)}")
    if op or kernels:
        known = of_op(op or Sweep().op, kernels)
    else:
        known = {variant.name: variant for variant in variants()}
    if name not in known:
        raise UsageError(unknown("variant", name, known))
    kernel = known[name]
    if not isinstance(kernel, CudaVariant):
        kind = "runs on the CPU" if kernel.backend == "cpu" else "is a library routine"
        sources = [other.name for other in known.values() if isinstance(other, CudaVariant)]
        raise UsageError(
            f"'{name}' {kind}, and explain needs a CUDA source; it explains {', '.join(sources)}"
        )
    return kernel


def _read_options(kernel: CudaVariant, options: Mapping[str, object], *, every: bool) -> Sweep:
    """The options as a sweep of this kernel with one size, one dtype and the tiles to explain.

    These are by default the kernel's own; at least one of them is legal.
    """
    try:
        sweep = read_sweep({**options, "op": kernel.op, "variants": kernel.name})
    except UsageError as error:
        raise UsageError(re.sub("^--(size|tile|dtype)s:", r"--\1:", str(error))) from error
    for flag, values in (("--size", sweep.sizes), ("--dtype", sweep.dtypes)):
        if len(values) > 1:
            raise UsageError(f"{flag}: one at a time, not {len(values)}")
    if sweep.dtypes[0] not in kernel.dtypes:
        known = ", ".join(kernel.dtypes)
        raise UsageError(f"--dtype: {kernel.name} has no {sweep.dtypes[0]}, only {known}")
    if every:
        if sweep.tiles:
            raise UsageError("--all and --tile: name tiles, or ask for all of them")
        return replace(sweep, tiles=tuple(map(str, kernel.tiles)))
    refusals = [kernel.tiles.why_not(kernel.tiles.read(tile)) for tile in sweep.tiles]
    if refusals and all(refusals):
        raise UsageError(f"--tile: {kernel.name} {refusals[0]}")
    return replace(sweep, tiles=sweep.tiles or kernel.tiles.default)


def _legal_tiles(sweep: Sweep) -> tuple[list[Config], list[NotExplained]]:
    """The tiles that can run this problem, and why the others cannot, as a sweep decides it."""
    reasons = {point.tile: reason for point, reason in plan(sweep, "cuda").items() if point.tile}
    return (
        [tile for tile, reason in reasons.items() if not reason],
        [NotExplained(str(t), Status.SKIPPED, reason) for t, reason in reasons.items() if reason],
    )


def _explain_tiles(
    kernel: CudaVariant,
    tiles: Sequence[Config],
    problem: Problem,
    target: Target,
    times_us: dict[str, float],
) -> list[list[Explanation] | CompileError]:
    """Each tile's launches, or why one does not compile, in as many threads as there are CPUs."""
    architecture = kernel.architecture(target.architecture)

    def explain_tile(tile: Config) -> list[Explanation] | CompileError:
        with described_by(kernel.path):
            sequence = launches(kernel, tile, problem, target.device)
        explanations = []
        for step, launch in enumerate(sequence):
            expression = instance(kernel, tile, problem.dtype, launch.kernel)
            try:
                compiled = compile_instance(
                    kernel.source, expression, architecture, kernel.compile_options
                )
            except CompileError as error:
                return error
            code = disassemble(compiled.cubin)
            with described_by(kernel.path):
                explanation = explain(
                    kernel,
                    tile,
                    problem,
                    architecture=architecture,
                    device=target.device,
                    resources=compiled.resources,
                    step=step,
                    inner_loop=inner_loop(code, problem.dtype) if code else None,
                    measured_us=times_us.get(str(tile)),
                )
            explanations.append(explanation)
        return explanations

    if len(tiles) > 1:
        line = f"compiling {len(tiles)} kernels for {architecture}"
        console(stderr=True).print(line, markup=False)
    with ThreadPoolExecutor(cpu_threads()) as pool:
        # The slowest to compile, the largest tiles, tend to stand last: start there.
        return list(pool.map(explain_tile, reversed(tiles)))[::-1]


def _measure(device: Device, sweep: Sweep) -> list[Row]:
    with progress() as watcher, Worker(f"cuda:{device.index}", sweep.timer) as worker:
        outcome = run(sweep, worker, watcher)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.rows


def _times_us(
    rows: Sequence[Row], source: str, sweep: Sweep, target: Target
) -> tuple[dict[str, float], str]:
    """Median times by tile, and a note if they are another GPU's than the bound."""
    tiles = {str(tile) for tile in sweep.tiles}
    ((m, n, k),), (variant,), (dtype,) = sweep.sizes, sweep.variants, sweep.dtypes
    wanted = (sweep.op, variant, dtype, m, n, k, Scope.KERNEL, Status.OK)
    rows = [
        row
        for row in rows
        if (row.op, row.variant, row.dtype, row.m, row.n, row.k, row.scope, row.status) == wanted
        and row.tile in tiles
    ]
    if not rows:
        some_tiles = ", ".join(sorted(tiles)[:3])
        raise UsageError(f"{source}: no time of {variant} {some_tiles} at {m}x{n}x{k} {dtype}")
    explained = ".".join(map(str, capability(target.architecture)))
    for measured in {row.compute_capability for row in rows if row.compute_capability}:
        if measured != explained:
            raise UsageError(
                f"{source}: measured on capability {measured}, and this explains "
                f"{target.architecture}; add --arch sm_{measured.replace('.', '')}"
            )
    # Of several times of a tile the first in the alphabet counts, so cold before hot.
    rows.sort(key=lambda row: (row.cache, row.timer), reverse=True)
    gpu = rows[-1].device
    note = f"times of {source} are of {gpu}, the bound is that of {target.device.name}"
    times_us = {row.tile: row.median_us for row in rows if row.median_us is not None}
    return times_us, "" if gpu == target.device.name else note
