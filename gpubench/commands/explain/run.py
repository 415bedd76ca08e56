"""`gpubench explain`: read the options, compile, take times, print. It needs no GPU."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from gpubench.backends import AUTO, Compiler, compiler_of, find_devices
from gpubench.commands.explain.explanation import Explanation
from gpubench.commands.explain.sass import disassemble, inner_loop, nvdisasm
from gpubench.commands.explain.view import Explained, NotExplained, print_json, print_text
from gpubench.engine.pool import local_pool
from gpubench.engine.prepare import prepare
from gpubench.engine.run import run
from gpubench.errors import CompileError, DeviceUnavailableError, UsageError, install_command
from gpubench.hardware.architectures import DEFAULT, example
from gpubench.hardware.host import cpu_threads
from gpubench.kernel_options import find_kernel, read_options, require_architecture
from gpubench.model import Config, CudaVariant, Device, Problem, Scope, Status
from gpubench.on_cpu.accesses import Recorded, record
from gpubench.plan.descriptor import launch_on
from gpubench.plan.sweep import Sweep, plan
from gpubench.results.row import Row, read
from gpubench.view.progress import progress
from gpubench.view.tables import console


def run_explain(
    variant: str,
    options: dict[str, Any],
    *,
    arch: str | None,
    every: bool,
    times: Path | None,
    measure: bool,
    as_json: bool,
) -> int:
    """Explain a variant and print the result. Return 1 if a tile failed, or else 0.

    `options` are those of a sweep. Raises the same errors as `explained`.
    """
    answer = explained(variant, options, arch=arch, every=every, times=times, measure=measure)
    if as_json:
        print_json(answer)
    else:
        print_text(answer, as_table=every)
    return 1 if any(tile.status == Status.ERROR for tile in answer.not_explained) else 0


def explained(
    variant: str,
    options: dict[str, Any],
    *,
    arch: str | None = None,
    every: bool = False,
    times: Path | None = None,
    measure: bool = False,
) -> Explained:
    """Explain a variant. `options` are those of a sweep.

    Raises UsageError, and DeviceUnavailableError if the named GPU does not exist.
    """
    kernel = find_kernel(variant, options.get("op"), options.get("kernels"), "explain")
    sweep = read_options(kernel, options, size="1024", every=every)
    ((m, n, k),), (dtype,) = sweep.sizes, sweep.dtypes
    problem = Problem(op=kernel.op, m=m, n=n, k=k, dtype=dtype)
    try:
        compiler = compiler_of(kernel.backend)
        compiler.architectures()
    except CompileError as error:
        raise UsageError(str(error)) from error
    architecture, gpu, assumed = _target(kernel, compiler, arch, sweep.device, measure=measure)
    reasons = {
        point.tile: why
        for point, why in plan(sweep, kernel.backend).items()
        if point.tile is not None
    }
    tiles = [tile for tile, why in reasons.items() if not why]
    skipped = [NotExplained(str(t), Status.SKIPPED, why) for t, why in reasons.items() if why]
    notes = [assumed] if assumed else []
    if nvdisasm() is None:
        install = install_command("sass")
        notes.append(f"no nvdisasm found, so nothing about the inner loop: {install}")
    times_us: dict[str, float] = {}
    if times and measure:
        raise UsageError("--times and --measure: take the times from a file, or measure them")
    if times or measure:
        if kernel.tiles.axes:
            sweep = replace(sweep, tiles=tuple(map(str, tiles)))
        rows = read(times) if times else _measure(gpu, sweep)
        times_us, note = _times_us(
            rows, str(times or "measured here"), sweep, tiles, architecture, gpu
        )
        notes += [note] if note else []

    answers = _explain_tiles(kernel, compiler, tiles, problem, architecture, gpu, times_us)
    explanations = [answer for answer in answers if isinstance(answer, Explanation)]
    failed = [answer for answer in answers if isinstance(answer, NotExplained)]
    return Explained(
        explanations=explanations,
        not_explained=skipped + failed,
        notes=notes,
        gpu_is_here=not assumed,
    )


def _target(
    kernel: CudaVariant, compiler: Compiler, arch: str | None, name: str, *, measure: bool
) -> tuple[str, Device, str]:
    """Return the architecture, the GPU whose figures count, and what was assumed about it.

    The GPU is this machine's GPU, of which nothing is assumed, or an example of the architecture.
    """
    if arch is not None:
        if name != AUTO:
            raise UsageError("--arch and --device: name an architecture, or a GPU of this machine")
        if measure:
            raise UsageError("--measure and --arch: kernels are measured on this machine's GPU")
        require_architecture(arch, compiler)
        return arch, example(arch), _figures_of(example(arch))
    if name.partition(":")[0] not in {AUTO, kernel.backend}:
        raise UsageError(f"--device: explain is about GPUs; write {kernel.backend}, or use --arch")
    try:
        gpu = find_devices(name.replace(AUTO, kernel.backend))[0][0]
    except DeviceUnavailableError as error:
        if name != AUTO or measure:
            missing = str(error).partition(";")[0]  # the rest is about --device cpu
            message = f"{missing}; --arch {DEFAULT} explains without a GPU"
            raise DeviceUnavailableError(message) from error
        gpu = example(DEFAULT)
        assumed = f"no GPU here: {DEFAULT}, {_figures_of(gpu)}; --arch chooses another"
        return DEFAULT, gpu, assumed
    return gpu.architecture, gpu, ""


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
    compiler: Compiler,
    tiles: Sequence[Config],
    problem: Problem,
    architecture: str,
    gpu: Device,
    times_us: dict[str, float],
) -> list[Explanation | NotExplained]:
    """Return each tile's launches, or why a tile does not compile. Uses one thread per CPU."""
    architecture, dtype = kernel.architecture(architecture), problem.dtype
    recorded: Future[dict[Config, Recorded]] | None = None

    def explain_tile(tile: Config) -> Sequence[Explanation | NotExplained]:
        sequence = launch_on(kernel, tile, problem, gpu).sequence
        compiled_steps = []
        for launch in sequence:
            try:
                called = kernel.compilation(tile, dtype, architecture, launch.kernel)
                compiled = compiler.compile_instance(*called)
            except CompileError as error:
                return [NotExplained(str(tile), Status.ERROR, str(error))]
            compiled_steps.append((compiled, disassemble(compiled.cubin)))
        accesses = recorded.result()[tile] if recorded else [None] * len(sequence)
        return [
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
                note=compiled.note and f"{compiled.note} ({compiled.seconds:.1f} s)",
                inner_loop=inner_loop(code, dtype) if code else None,
                accesses=of_step,
                measured_us=None if step else times_us.get(str(tile)),
            )
            for step, (launch, (compiled, code), of_step) in enumerate(
                zip(sequence, compiled_steps, accesses, strict=True)
            )
        ]

    if len(tiles) > 1:
        console(stderr=True).print(f"compiling {len(tiles)} kernels for {architecture}")
    with ThreadPoolExecutor(cpu_threads()) as pool, ThreadPoolExecutor(1) as recorder:
        if len(tiles) == 1:  # a table of tiles does not show accesses
            recorded = recorder.submit(record, kernel, tiles, problem, gpu)
        # The largest tiles compile slowest and tend to come last, so start there.
        answers = list(pool.map(explain_tile, reversed(tiles)))
    return list(chain.from_iterable(reversed(answers)))


def _measure(device: Device, sweep: Sweep) -> list[Row]:
    with progress() as watcher, local_pool(f"{device.backend}:{device.index}", sweep.timer) as pool:
        outcome = run(prepare(sweep, pool.device), pool, watcher)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.rows


def _times_us(
    rows: Sequence[Row],
    source: str,
    sweep: Sweep,
    tiles: Sequence[Config],
    architecture: str,
    gpu: Device,
) -> tuple[dict[str, float], str]:
    """Return median times by tile, and a note if they are from another GPU than the bound."""
    names = sorted(map(str, tiles))
    ((m, n, k),), (variant,), (dtype,) = sweep.sizes, sweep.variants, sweep.dtypes
    point = (sweep.op, variant, dtype, m, n, k, Scope.KERNEL, Status.OK)
    facts = attrgetter("op", "variant", "dtype", "m", "n", "k", "scope", "status")
    rows = [row for row in rows if facts(row) == point and row.tile in names]
    if not rows:
        listed = ", ".join(names[:3])
        raise UsageError(f"{source}: no time of {variant} {listed} at {m}x{n}x{k} {dtype}")
    explained = ".".join(map(str, gpu.compute_capability or ()))
    for measured in {row.compute_capability for row in rows if row.compute_capability}:
        if measured != explained:
            raise UsageError(
                f"{source}: measured on capability {measured}, and this explains "
                f"{architecture}; add --arch sm_{measured.replace('.', '')}"
            )
    # If a tile has several times, the first in the alphabet counts, so cold comes before hot.
    rows.sort(key=lambda row: (row.cache, row.timer), reverse=True)
    measured_on = rows[-1].device
    note = f"times of {source} are of {measured_on}, the bound is that of {gpu.name}"
    times_us = {row.tile: row.median_us for row in rows if row.median_us is not None}
    return times_us, "" if measured_on == gpu.name else note
