"""`gpubench build`: compile kernels for architectures, and write a row for each launch.

The command needs no GPU. Waves are computed for an example GPU of each architecture. Every machine
uses the same example, so that files from several machines can be compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import gpubench
from gpubench.backends import first_device
from gpubench.backends.cuda import compile as compiler
from gpubench.commands.explain.code import disassembler_version, missing_disassembler
from gpubench.commands.explain.explanation import MAX_LEAST, Explanation, Instance, NotExplained
from gpubench.commands.explain.instances import explain_instances, make_instance
from gpubench.errors import CompileError, DeviceUnavailableError, UsageError
from gpubench.files import Output
from gpubench.hardware.architectures import DEFAULT, example
from gpubench.kernel_options import require_architecture
from gpubench.model import (
    DTYPE_ALIASES,
    DTYPES,
    OPERATIONS,
    BrokenVariant,
    CudaVariant,
    Problem,
    Status,
)
from gpubench.on_cpu.accesses import Access, Accesses, missing_tool, recorder_version
from gpubench.plan.operations import operation_named
from gpubench.plan.python_file import described_by
from gpubench.plan.ranges import csv_path, list_of, parse_names, parse_sizes
from gpubench.plan.registry import home, of_op, unknown_variant
from gpubench.results.build_row import BuildRow, encode
from gpubench.results.columns import packed
from gpubench.results.provenance import source_hash
from gpubench.text import counted
from gpubench.view.tables import say

SIZE = "1024"  # the default size. Only blocks, waves and accesses depend on the size
MAX_LISTED = 8  # maximum number of failed kernels that are listed


def run_build(
    variants: str,
    options: Mapping[str, Any],
    *,
    arch: str | None,
    every: bool,
    output: Path | None,
    force: bool,
) -> int:
    """Compile kernels, and write their rows to `output`, or to stdout if `output` is None.

    `options` are options of a sweep: op, kernels, dtypes and sizes. Return 1 if a kernel does not
    compile, or else 0. Raises UsageError for invalid options.
    """
    claimed = output and Output(csv_path("--output", output), overwrite=force)
    chosen = choose_kernels(variants, options.get("op"), options.get("kernels"))
    try:
        compiler.architectures()  # raises CompileError if NVRTC is missing
        architectures = _architectures(arch)
    except CompileError as error:
        raise UsageError(str(error)) from error
    if missing := missing_disassembler():
        say(missing, err=True)
    if missing := missing_tool():
        say(f"accesses are not analysed: {missing}", err=True)
    text, size = options.get("dtypes"), options.get("sizes")
    size = SIZE if size is None else size
    dtypes = DTYPES if text is None else list_of(DTYPES, DTYPE_ALIASES)("--dtypes", text)
    instances = plan_instances(chosen, architectures, dtypes, size, every=every)
    answers = explain_instances(instances)
    hashes = {variant: source_hash(variant) for variant in chosen}
    rows = [_row(answer, hashes[answer.variant]) for answer in answers]
    if claimed:
        claimed.write(packed(claimed.path, encode(rows)))
    else:
        print(encode(rows).decode(), end="")
    return _conclude(rows, output)


def _conclude(rows: Sequence[BuildRow], output: Path | None) -> int:
    """Print what was compiled, and what failed, was skipped or not listed. Return the exit code."""
    unlisted = {
        row.architecture for row in rows if row.status == Status.OK and not row.disassembler
    }
    if unlisted and (version := disassembler_version()):
        names = f"code for {', '.join(sorted(unlisted))}"
        say(
            f"nvdisasm {version} did not list {names}, so inner loops of this code are unknown",
            err=True,
        )
    failed = [row for row in rows if row.status == Status.ERROR]
    for row in failed[:MAX_LISTED]:
        say(f"error: {row.label}: {row.reason}", err=True)
    if len(failed) > MAX_LISTED:
        say(f"and {len(failed) - MAX_LISTED} more", err=True)
    compiled = sum(row.status == Status.OK for row in rows)
    skipped = [row for row in rows if row.status == Status.SKIPPED]
    if skipped and not compiled:
        say(f"skipped: {skipped[0].label}: {skipped[0].reason}", err=True)
    counts = f"{counted(compiled, 'row')}, {len(skipped)} skipped, {counted(len(failed), 'error')}"
    say(f"{counts}{f': {output}' if output else ''}", err=True)
    return 1 if failed else 0


def choose_kernels(names: str, op: str | None, kernels: Path | None) -> list[CudaVariant]:
    """Return the kernels that a list names. The kernels are for `op`, or else for any operation.

    With a directory `kernels` and without `op`, the operations that have a folder in this directory
    are used. If there is no such folder, the default operation is used. With `kernels`, the name
    `all` selects only the directory's kernels. Raises UsageError for a name that is no kernel, and
    for a description that cannot be used.
    """
    default = operation_named(op, kernels)
    ops = (
        [op] if op else [each for each in OPERATIONS if not kernels or home(each, kernels).is_dir()]
    )
    available = [v for each in ops or [default] for v in of_op(each, kernels).values()]
    own = kernels.absolute() if kernels else Path("/")
    chosen: dict[CudaVariant, None] = {}
    for pattern in parse_names(names):
        fitting = [v for v in available if fnmatchcase(v.name, pattern)]
        if pattern == "all":
            fitting = [v for v in available if v.path.is_relative_to(own)]
        if not fitting:
            cuda_names = {variant.name for variant in available if isinstance(variant, CudaVariant)}
            raise UsageError(unknown_variant(pattern, cuda_names, kernels))
        if broken := [variant for variant in fitting if isinstance(variant, BrokenVariant)]:
            raise UsageError(broken[0].idea)
        chosen |= dict.fromkeys(each for each in fitting if isinstance(each, CudaVariant))
    if not chosen:
        raise UsageError(f"'{names}' names no CUDA kernel, such as register_tile or wgmma*")
    return [*chosen]


def _architectures(text: str | None) -> tuple[str, ...]:
    """Return the architectures that `--arch` names, or else the architecture of this machine's GPU.

    Without a GPU, return the default architecture.
    """
    if text is not None:
        names = parse_names(text)
        for name in names:
            require_architecture(name)
        if not names:
            raise UsageError("--arch: the list is empty; write, for example, sm_80,sm_90")
        return names
    try:
        return (first_device("cuda").architecture,)
    except DeviceUnavailableError:
        return (DEFAULT,)


def plan_instances(
    variants: Sequence[CudaVariant],
    architectures: Sequence[str],
    dtypes: Sequence[str],
    size: str,
    *,
    every: bool,
) -> list[Instance]:
    """Return an instance for each kernel, element type, architecture and tile.

    Instances that the architecture cannot run are included.

    If `every` is true, the instances have all legal tiles instead of only the default tiles. Raises
    UsageError for an invalid size, and if a kernel's description raises an exception.
    """
    instances = []
    for variant in variants:
        sizes = parse_sizes(size, variant.op, "--sizes")
        if len(sizes) > 1:
            raise UsageError(f"--sizes: name one size, not {len(sizes)}")
        with described_by(variant.path):
            tiles = tuple(variant.tiles) if every else variant.tiles.defaults
        for dtype in (each for each in variant.dtypes if each in dtypes):
            problem = Problem.of(variant.op, sizes[0], dtype)
            problem = replace(problem, column_major=variant.own_layout(dtype))
            instances += [
                make_instance(variant, tile, problem, architecture, example(architecture))
                for architecture in architectures
                for tile in tiles
            ]
    if not instances:
        raise UsageError(f"--dtypes: no kernel has {' or '.join(dtypes)}")
    return instances


def _row(explanation: Explanation | NotExplained, digest: str) -> BuildRow:
    """Return the row of a launch, or the row of an instance that was skipped or failed."""
    here = str(explanation.variant.path.parent)
    facts: dict[str, Any] = {
        **{name: getattr(explanation.problem, name) for name in ("op", "dtype", "m", "n", "k")},
        "extents": explanation.problem.operation.further_text(explanation.problem.further),
        "variant": explanation.variant.name,
        "tile": str(explanation.tile),
        "architecture": explanation.architecture,
        "compiler": compiler.version(),
        "disassembler": disassembler_version() or None,
        "options": " ".join(explanation.options).replace(f"{here}/", "").replace(here, ".") or None,
        "source_hash": digest,
        "gpubench": gpubench.__version__,
    }
    if isinstance(explanation, NotExplained):
        return BuildRow(**facts, launch=1, status=explanation.status, reason=explanation.reason)
    return BuildRow(
        **(facts if explanation.code.is_disassembled else facts | {"disassembler": None}),
        launch=explanation.step + 1,
        status=Status.OK,
        kernel=explanation.kernel,
        **_figures(explanation),
        **(_access_columns(explanation.accesses) if explanation.accesses else {}),
        recorder=recorder_version() or None,
    )


def _figures(explanation: Explanation) -> dict[str, Any]:
    """Return the columns whose values follow from the compiled code and the launch."""
    resources, launch, loop = explanation.resources, explanation.launch, explanation.code.loop
    figures: dict[str, Any] = {
        "registers": resources.registers,
        "spill_bytes": resources.spill_bytes,
        "local_bytes": resources.local_bytes,
        "static_shared_bytes": resources.shared_bytes,
        "dynamic_shared_bytes": launch.shared_bytes,
        "max_threads_per_block": explanation.code.max_threads,
        "threads_per_block": launch.threads_per_block,
        "gpu": explanation.device.name or None,
        "blocks": launch.blocks,
    }
    if explanation.code.max_threads and launch.threads_per_block > explanation.code.max_threads:
        figures |= {"resident_blocks": 0, "occupancy": 0.0, "limited_by": "launch bounds"}
    elif resident := explanation.occupancy:
        is_full = resident.warps == resident.max_warps
        figures |= {
            "resident_blocks": resident.blocks,
            "occupancy": resident.fraction,
            "limited_by": None if is_full else ";".join(resident.limited_by),
            "waves": explanation.waves.waves if explanation.waves else None,
        }
    if loop:
        figures |= {
            "loop_instructions": loop.instructions,
            "loop_float64": loop.float64,
            "multiply_adds_per_instruction": loop.multiply_adds_per_instruction,
        }
    return figures


def _access_columns(recorded: Accesses) -> dict[str, Any]:
    """Return a build file's columns about accesses. A value is None if no access was analysed."""
    skipped = []
    for each in recorded.not_analysed:
        what = each.what.partition(": ")[0]  # the error after `: ` names paths of this machine
        skipped.append(f"{what} on {counted(len(each.places), 'line')}" if each.places else what)
    return {
        "sectors_per_request": recorded.sectors_per_request,
        "sectors_over_least": recorded.sectors_over_least,
        "bank_conflict_ways": recorded.bank_conflict_ways,
        "uncoalesced_lines": _wasteful(recorded.by_wasted_clocks, is_shared=False),
        "bank_conflict_lines": _wasteful(recorded.by_wasted_clocks, is_shared=True),
        "not_analysed": ";".join(skipped) or None,
    }


def _wasteful(ranked: Sequence[Access], *, is_shared: bool) -> str | None:
    """Return the source lines with more than the minimum traffic, such as `a.cu:23 8;a.cu:30 2`.

    The number after a line is its traffic divided by the minimum.
    """
    lines = (
        f"{line.place} {line.times_least:.3g}"
        for line in ranked
        if line.is_shared == is_shared and line.times_least > MAX_LEAST
    )
    return ";".join(lines) or None
