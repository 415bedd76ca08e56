"""`gpubench explain`: reads the options, compiles a kernel and explains it. No GPU is needed."""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from gpubench.backends import AUTO, first_device
from gpubench.backends.cuda import compile as compiler
from gpubench.commands.explain.code import missing_disassembler
from gpubench.commands.explain.explanation import Explanation, NotExplained
from gpubench.commands.explain.instances import explain_instances, make_instance
from gpubench.commands.explain.view import Explained
from gpubench.errors import CompileError, DeviceUnavailableError, UsageError
from gpubench.hardware.architectures import DEFAULT, example
from gpubench.kernel_options import find_kernel, read_options, require_architecture
from gpubench.model import CudaVariant, Device, Fill, Problem, Scope
from gpubench.plan.sweep import plan
from gpubench.results.row import read
from gpubench.view.numbers import tile_order


def explained(
    variant: str,
    options: dict[str, Any],
    *,
    arch: str | None = None,
    every: bool = False,
    times: Path | None = None,
) -> Explained:
    """Compile and explain a variant. `options` are options of a sweep.

    Raises UsageError for invalid options, and DeviceUnavailableError if the named GPU does not
    exist.
    """
    kernel = find_kernel(variant, options.get("op"), options.get("kernels"), "explain")
    sweep = read_options(kernel, options, size="1024", every=every)
    (size,), (dtype,) = sweep.sizes, sweep.dtypes
    problem = Problem.of(kernel.op, size, dtype)
    problem = replace(problem, column_major=kernel.own_layout(dtype))
    try:
        compiler.architectures()
    except CompileError as error:
        raise UsageError(str(error)) from error
    architecture, gpu, assumed = _target(kernel, arch, sweep.device)
    planned = plan(sweep, kernel.backend)
    tiles = dict.fromkeys(point.tile for point in planned if point.tile is not None)
    target = kernel.architecture(architecture), gpu
    instances = [make_instance(kernel, tile, problem, *target) for tile in tiles]
    notes = [assumed] if assumed else []
    notes += [missing] if (missing := missing_disassembler()) else []
    times_us: dict[str, float] = {}
    if times:
        names = [str(instance.tile) for instance in instances if not instance.reason]
        times_us, note = _times_us(times, problem, kernel.name, names, architecture, gpu)
        notes += [note] if note else []
    is_single = sum(not instance.reason for instance in instances) == 1
    answers = explain_instances(instances, with_accesses=is_single)  # a table shows no accesses
    return Explained(
        explanations=[
            replace(each, measured_us=None if each.step else times_us.get(str(each.tile)))
            for each in answers
            if isinstance(each, Explanation)
        ],
        not_explained=[answer for answer in answers if isinstance(answer, NotExplained)],
        notes=notes,
        gpu_is_here=not assumed,
    )


def _target(kernel: CudaVariant, arch: str | None, name: str) -> tuple[str, Device, str]:
    """Return the architecture, the GPU whose figures are used, and what was assumed about the GPU.

    The GPU is this machine's GPU, or else an example of the architecture. The last text is empty
    for this machine's GPU.
    """
    if arch is not None:
        if name != AUTO:
            raise UsageError(
                "--arch and --device: name an architecture or a GPU of this machine, not both"
            )
        require_architecture(arch)
        return arch, example(arch), _figures_of(example(arch))
    if name.partition(":")[0] not in {AUTO, kernel.backend}:
        raise UsageError(
            f"--device: explain is only for GPUs; write {kernel.backend}, or use --arch"
        )
    try:
        gpu = first_device(name.replace(AUTO, kernel.backend))
    except DeviceUnavailableError as error:
        if name != AUTO:
            missing = str(error).partition(";")[0]  # the text after `;` is about --device cpu
            message = f"{missing}; --arch {DEFAULT} explains without a GPU"
            raise DeviceUnavailableError(message) from error
        gpu = example(DEFAULT)
        assumed = (
            f"no GPU here, so {DEFAULT} is assumed, with {_figures_of(gpu)}; --arch chooses "
            "another "
            "architecture"
        )
        return DEFAULT, gpu, assumed
    return gpu.architecture, gpu, ""


def _figures_of(device: Device) -> str:
    if not device.name:
        return "gpubench lists no GPU of this architecture, so waves and the roofline are unknown"
    clock = f", {device.sm_clock_mhz:g} MHz" if device.sm_clock_mhz else ""
    return (
        f"figures of the {device.name}: {device.multiprocessors} multiprocessors{clock}, "
        f"{device.memory_bandwidth_gbytes_per_s:g} GB/s"
    )


def _times_us(
    path: Path, problem: Problem, variant: str, names: Sequence[str], architecture: str, gpu: Device
) -> tuple[dict[str, float], str]:
    """Return the median time of each tile, and a note if another GPU than `gpu` was measured."""
    point = (variant, problem.op, problem.dtype, problem.layout, problem.numbers)
    facts = attrgetter("variant", "op", "dtype", "layout", "numbers")
    rows = [
        row
        for row in read(path)
        if facts(row) == point and row.tile in names and row.scope == Scope.KERNEL and row.median_us
    ]
    if not rows:
        listed = ", ".join(sorted(names, key=tile_order)[:3])
        where = f"{problem.m}x{problem.n}x{problem.k} {problem.dtype}"
        raise UsageError(f"{path} has no time of {variant} {listed} at {where}")
    explained = ".".join(map(str, gpu.compute_capability or ()))
    for measured in sorted({row.compute_capability for row in rows if row.compute_capability}):
        if measured != explained:
            raise UsageError(
                f"{path}: measured on compute capability {measured}, but {architecture} is "
                f"explained; add --arch sm_{measured.replace('.', '')}"
            )
    # If a tile has several times, uniform operands count, and the conditions that are first in the
    # alphabet: cold, alone, and burst.
    conditions = attrgetter("cache", "launches", "state", "timer")
    rows.sort(key=lambda row: (row.operands != Fill.UNIFORM, conditions(row)), reverse=True)
    used = {row.tile: row for row in rows}
    times_us = {tile: row.median_us for tile, row in used.items() if row.median_us is not None}
    others = sorted({str(row.device) for row in used.values()} - {gpu.name})
    measured_on = " and ".join(others)
    note = f"the times in {path} were measured on {measured_on}, but the bound is for {gpu.name}"
    return times_us, note if others else ""
