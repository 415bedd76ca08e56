"""`gpubench explain`: read the options, compile, take times, print. Needs NVRTC, and no GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from gpubench.backends.cuda.compile import architectures, compile_instance, nvrtc_version
from gpubench.backends.cuda.devices import cuda_device
from gpubench.commands.explain.explanation import Explanation, launches
from gpubench.commands.explain.sass import disassemble, inner_loop, nvdisasm
from gpubench.commands.explain.view import NotExplained, print_json, print_text
from gpubench.engine.pool import local_pool
from gpubench.engine.prepare import prepare
from gpubench.engine.run import run
from gpubench.errors import CompileError, DeviceUnavailableError, UsageError, install_command
from gpubench.hardware.architectures import DEFAULT, example
from gpubench.hardware.host import cpu_threads
from gpubench.model import OPERATIONS, Config, CudaVariant, Device, Problem, Scope, Status
from gpubench.options import read_sweep
from gpubench.plan.registry import of_op, variants
from gpubench.plan.sweep import AUTO_TILES, Sweep, plan, tuned_file
from gpubench.results.row import Row, read
from gpubench.text import shown, unknown
from gpubench.view.progress import progress
from gpubench.view.tables import console


def run_explain(
    variant: str,
    options: dict[str, Any],
    *,
    arch: str | None,
    every: bool,
    csv: Path | None,
    measure: bool,
    as_json: bool,
) -> int:
    """Explain a variant, with `options` as those of a sweep: 0, or 1 if a tile fails.

    Raises as `explained` does.
    """
    answer = explained(variant, options, arch=arch, every=every, csv=csv, measure=measure)
    if as_json:
        print_json(answer.found, answer.not_explained, gpu_is_here=answer.gpu_is_here)
    else:
        print_text(answer.found, answer.not_explained, answer.notes, as_table=every)
    return 1 if any(one.status == Status.ERROR for one in answer.not_explained) else 0


class Explained(NamedTuple):
    """What came of explaining a variant."""

    found: list[Explanation]
    not_explained: list[NotExplained]
    notes: list[str]
    gpu_is_here: bool


def explained(
    variant: str,
    options: dict[str, Any],
    *,
    arch: str | None = None,
    every: bool = False,
    csv: Path | None = None,
    measure: bool = False,
) -> Explained:
    """Explain a variant, with `options` as those of a sweep.

    Raises UsageError, and DeviceUnavailableError for a GPU that was asked for and is not there.
    """
    kernel = _find_kernel(variant, options["op"], options["kernels"])
    sweep = _read_options(kernel, options, every=every)
    ((m, n, k),), (dtype,) = sweep.sizes, sweep.dtypes
    problem = Problem(op=kernel.op, m=m, n=n, k=k, dtype=dtype)
    architecture, gpu, assumed = _find_target(arch, sweep.device, measure=measure)
    reasons = {point.tile: why for point, why in plan(sweep, "cuda").items() if point.tile}
    tiles = [tile for tile, why in reasons.items() if not why]
    skipped = [NotExplained(str(t), Status.SKIPPED, why) for t, why in reasons.items() if why]
    notes = [assumed] if assumed else []
    if nvdisasm() is None:
        install = install_command("sass")
        notes.append(f"no nvdisasm found, so nothing about the inner loop: {install}")
    times_us: dict[str, float] = {}
    if csv and measure:
        raise UsageError("--csv and --measure: take the times from a file, or measure them")
    if csv or measure:
        sweep = replace(sweep, tiles=tuple(map(str, tiles)))
        rows = read(csv) if csv else _measure(gpu, sweep)
        times_us, note = _times_us(rows, str(csv or "measured here"), sweep, architecture, gpu)
        notes += [note] if note else []

    answers = _explain_tiles(kernel, tiles, problem, architecture, gpu, times_us)
    explanations = [answer for answer in answers if isinstance(answer, Explanation)]
    failed = [answer for answer in answers if isinstance(answer, NotExplained)]
    return Explained(explanations, skipped + failed, notes, not assumed)


def _find_kernel(name: str, op: str | None, kernels: Path | None) -> CudaVariant:
    """The variant of that name: of any operation, unless --op or --kernels narrow it."""
    if op and op not in OPERATIONS:
        raise UsageError(f"--op: {unknown('operation', op, OPERATIONS)}")
    if op or kernels:
        known = of_op(op or Sweep().op, kernels, [name])
    else:
        known = {variant.name: variant for variant in variants()}
    if name not in known:
        raise UsageError(unknown("variant", name, known))
    kernel = known[name]
    if not isinstance(kernel, CudaVariant):
        kind = "runs on the CPU" if kernel.backend == "cpu" else "is a library routine"
        sources = [other for other, found in known.items() if isinstance(found, CudaVariant)]
        raise UsageError(
            f"'{name}' {kind}, and explain needs a CUDA source; it explains {', '.join(sources)}"
        )
    return kernel


def _read_options(kernel: CudaVariant, options: dict[str, Any], *, every: bool) -> Sweep:
    """The options as a sweep of this kernel: one size, one dtype, at least one legal tile."""
    options["sizes"] = options["sizes"] or "1024"
    options["dtypes"] = options["dtypes"] or kernel.dtypes[0]
    try:
        sweep = read_sweep(options | {"op": kernel.op, "variants": kernel.name})
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
    if sweep.tiles == (AUTO_TILES,) or tuned_file(sweep.tiles):
        name = sweep.tiles[0]
        raise UsageError(
            f"--tile: names tiles, such as 16; '{shown(name)}' is for sweep and compare-cublas"
        )
    refusals = [kernel.tiles.why_not(kernel.tiles.read(tile)) for tile in sweep.tiles]
    if refusals and all(refusals):
        raise UsageError(f"--tile: {kernel.name} {refusals[0]}")
    return replace(sweep, tiles=sweep.tiles or tuple(map(str, kernel.tiles.defaults)))


def _find_target(arch: str | None, name: str, *, measure: bool) -> tuple[str, Device, str]:
    """The architecture, the GPU whose figures count, and what was assumed of it.

    It is this machine's GPU, of which nothing is assumed, or else an example of the architecture.
    """
    try:
        known = architectures()
    except CompileError as error:
        raise UsageError(str(error)) from error
    if arch is not None:
        if name != "auto":
            raise UsageError("--arch and --device: name an architecture, or a GPU of this machine")
        if measure:
            raise UsageError("--measure and --arch: kernels are measured on this machine's GPU")
        if re.sub("[af]$", "", arch) not in known:
            version = ".".join(map(str, nvrtc_version()))
            raise UsageError(
                f"--arch: '{shown(arch)}' is not an architecture that NVRTC {version} compiles "
                f"for: {', '.join(known)}"
            )
        return arch, example(arch), _figures_of(example(arch))
    if name.partition(":")[0] not in {"auto", "cuda"}:
        raise UsageError("--device: explain is about GPUs; write cuda, or name an --arch")
    try:
        gpu = cuda_device(int(name.partition(":")[2] or 0))
    except DeviceUnavailableError as error:
        if name != "auto" or measure:
            missing = str(error).partition(";")[0]  # the rest is about --device cpu
            message = f"{missing}; --arch {DEFAULT} explains without a GPU"
            raise DeviceUnavailableError(message) from error
        gpu = example(DEFAULT)
        assumed = f"no GPU here: {DEFAULT}, {_figures_of(gpu)}; --arch chooses another"
        return DEFAULT, gpu, assumed
    return "sm_{}{}".format(*gpu.compute_capability or (0, 0)), gpu, ""


def _figures_of(device: Device) -> str:
    if not device.name:
        return "no GPU is listed for this architecture: no waves, and no roofline"
    clock = f", {device.sm_clock_mhz:g} MHz" if device.sm_clock_mhz else ""
    return (
        f"figures of the {device.name}: {device.multiprocessors} multiprocessors{clock}, "
        f"{device.memory_bandwidth_gbytes_per_s:g} GB/s"
    )


def _explain_tiles(
    kernel: CudaVariant,
    tiles: Sequence[Config],
    problem: Problem,
    architecture: str,
    gpu: Device,
    times_us: dict[str, float],
) -> list[Explanation | NotExplained]:
    """Each tile's launches, or why one does not compile, in as many threads as there are CPUs."""
    architecture = kernel.architecture(architecture)

    def explain_tile(tile: Config) -> Sequence[Explanation | NotExplained]:
        sequence = launches(kernel, tile, problem, gpu)
        explanations = []
        for step, launch in enumerate(sequence):
            expression = kernel.instance(tile, problem.dtype, launch.kernel)
            options = kernel.options(tile, problem.dtype)
            try:
                compiled = compile_instance(kernel.source, expression, architecture, options)
            except CompileError as error:
                return [NotExplained(str(tile), Status.ERROR, str(error))]
            code = disassemble(compiled.cubin)
            explanations.append(
                Explanation(
                    variant=kernel,
                    tile=tile,
                    problem=problem,
                    architecture=architecture,
                    device=gpu,
                    resources=compiled.resources,
                    launch=launch,
                    step=step,
                    steps=len(sequence),
                    inner_loop=inner_loop(code, problem.dtype) if code else None,
                    measured_us=None if step else times_us.get(str(tile)),
                )
            )
        return explanations

    if len(tiles) > 1:
        console(stderr=True).print(f"compiling {len(tiles)} kernels for {architecture}")
    with ThreadPoolExecutor(cpu_threads()) as pool:
        # The slowest to compile, the largest tiles, tend to stand last: start there.
        answers = list(pool.map(explain_tile, reversed(tiles)))
    return list(chain.from_iterable(reversed(answers)))


def _measure(device: Device, sweep: Sweep) -> list[Row]:
    with progress() as watcher, local_pool(f"cuda:{device.index}", sweep.timer) as pool:
        outcome = run(prepare(sweep, pool.device), pool, watcher)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.rows


def _times_us(
    rows: Sequence[Row], source: str, sweep: Sweep, architecture: str, gpu: Device
) -> tuple[dict[str, float], str]:
    """Median times by tile, and a note if they are another GPU's than the bound."""
    tiles = set(sweep.tiles)
    ((m, n, k),), (variant,), (dtype,) = sweep.sizes, sweep.variants, sweep.dtypes
    wanted = (sweep.op, variant, dtype, m, n, k, Scope.KERNEL, Status.OK)
    facts = attrgetter("op", "variant", "dtype", "m", "n", "k", "scope", "status")
    rows = [row for row in rows if facts(row) == wanted and row.tile in tiles]
    if not rows:
        some_tiles = ", ".join(sorted(tiles)[:3])
        raise UsageError(f"{source}: no time of {variant} {some_tiles} at {m}x{n}x{k} {dtype}")
    explained = ".".join(map(str, gpu.compute_capability or ()))
    for measured in {row.compute_capability for row in rows if row.compute_capability}:
        if measured != explained:
            raise UsageError(
                f"{source}: measured on capability {measured}, and this explains "
                f"{architecture}; add --arch sm_{measured.replace('.', '')}"
            )
    # Of several times of a tile the first in the alphabet counts, so cold before hot.
    rows.sort(key=lambda row: (row.cache, row.timer), reverse=True)
    measured_on = rows[-1].device
    note = f"times of {source} are of {measured_on}, the bound is that of {gpu.name}"
    times_us = {row.tile: row.median_us for row in rows if row.median_us is not None}
    return times_us, "" if measured_on == gpu.name else note
