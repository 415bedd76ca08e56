"""`gpubench explain`: read the options, compile, take times, print. It needs no GPU."""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from gpubench.backends import AUTO, Compiler, compiler_of, find_devices
from gpubench.commands.explain.code import disassembler_version
from gpubench.commands.explain.instances import NotExplained, explain_instances, make_instance
from gpubench.commands.explain.view import Explained, print_json, print_text
from gpubench.engine.pool import local_pool
from gpubench.engine.prepare import prepare
from gpubench.engine.run import run
from gpubench.errors import CompileError, DeviceUnavailableError, UsageError, install_command
from gpubench.hardware.architectures import DEFAULT, example
from gpubench.kernel_options import find_kernel, read_options, require_architecture
from gpubench.model import CudaVariant, Device, Problem, Scope, Status
from gpubench.plan.sweep import Sweep, plan
from gpubench.results.row import Row, read
from gpubench.view.progress import SweepProgress


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
    planned = plan(sweep, kernel.backend)
    tiles = dict.fromkeys(point.tile for point in planned if point.tile is not None)
    target = kernel.architecture(architecture), gpu
    instances = [make_instance(kernel, tile, problem, *target) for tile in tiles]
    notes = [assumed] if assumed else []
    if not disassembler_version():
        install = install_command("sass")
        notes.append(f"no nvdisasm found, so nothing about the inner loop: {install}")
    if times and measure:
        raise UsageError("--times and --measure: take the times from a file, or measure them")
    times_us: dict[str, float] = {}
    if times or measure:
        names = [str(instance.tile) for instance in instances if not instance.reason]
        if kernel.tiles.axes:
            sweep = replace(sweep, tiles=tuple(names))
        rows = read(times) if times else _measure(gpu, sweep)
        times_us, note = _times_us(
            rows, str(times or "measured here"), sweep, names, architecture, gpu
        )
        notes += [note] if note else []
    is_single = sum(not instance.reason for instance in instances) == 1
    answers = explain_instances(instances, with_accesses=is_single)  # a table does not show them
    explanations = [each for answer in answers if isinstance(answer, list) for each in answer]
    return Explained(
        explanations=[
            replace(each, measured_us=None if each.step else times_us.get(str(each.tile)))
            for each in explanations
        ],
        not_explained=[answer for answer in answers if isinstance(answer, NotExplained)],
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


def _measure(device: Device, sweep: Sweep) -> list[Row]:
    with (
        SweepProgress() as watcher,
        local_pool(f"{device.backend}:{device.index}", sweep.timer) as pool,
    ):
        outcome = run(prepare(sweep, pool.device), pool, watcher)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.rows


def _times_us(
    rows: Sequence[Row],
    source: str,
    sweep: Sweep,
    names: Sequence[str],
    architecture: str,
    gpu: Device,
) -> tuple[dict[str, float], str]:
    """Return median times by tile, and a note if they are from another GPU than the bound."""
    ((m, n, k),), (variant,), (dtype,) = sweep.sizes, sweep.variants, sweep.dtypes
    point = (sweep.op, variant, dtype, m, n, k, Scope.KERNEL, Status.OK)
    facts = attrgetter("op", "variant", "dtype", "m", "n", "k", "scope", "status")
    rows = [row for row in rows if facts(row) == point and row.tile in names]
    if not rows:
        listed = ", ".join(sorted(names)[:3])
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
