"""`gpubench build`: compile kernels for architectures, and write a row for each.

It needs no GPU. Waves are those of an example GPU of each architecture, on every machine, so that
files from several machines compare.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from time import monotonic
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import gpubench
from gpubench.backends import Compiler, compiler_of, find_devices
from gpubench.commands.explain.accesses import access_columns
from gpubench.commands.explain.code import (
    Code,
    Codes,
    Program,
    compile_programs,
    disassembler_version,
)
from gpubench.errors import CompileError, DeviceUnavailableError, UsageError, install_command
from gpubench.grouping import grouped
from gpubench.hardware.architectures import DEFAULT, example
from gpubench.hardware.host import cpu_threads
from gpubench.hardware.occupancy import occupancy, waves
from gpubench.kernel_options import require_architecture
from gpubench.model import (
    DTYPE_ALIASES,
    DTYPES,
    OPERATIONS,
    BrokenVariant,
    Config,
    CudaVariant,
    Device,
    Launch,
    Problem,
    Status,
    Variant,
)
from gpubench.on_cpu.accesses import Recorded, missing_tool, record, recorder_version
from gpubench.plan.descriptor import described_by, launch_on
from gpubench.plan.ranges import list_of, parse_names, parse_sizes
from gpubench.plan.registry import of_op
from gpubench.results.build_row import BuildRow, encode, is_build_file
from gpubench.results.output import Output
from gpubench.results.provenance import source_hash
from gpubench.text import counted, unknown
from gpubench.view.progress import PLAIN_EVERY_S
from gpubench.view.tables import console, say

ALL = "all"
"""The item of the list that takes every kernel."""

SIZE = "1024"
"""The default size. Only blocks, waves and accesses depend on it."""

BACKEND = "cuda"

MAX_LISTED = 8
"""Maximum number of kernels that are listed because they do not compile. The file has all."""

_TEMPLATE = re.compile(r"([\w:]+)(?:<[^()]*>)?\)?$")


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A tile of a kernel in one element type, for one architecture."""

    variant: CudaVariant
    tile: Config
    problem: Problem
    architecture: str
    device: Device
    """The example GPU of the architecture."""

    reason: str = ""
    """Why it cannot run there; empty if it can."""

    launches: tuple[Launch, ...] = ()

    @property
    def expressions(self) -> tuple[str, ...]:
        """The template instance of each launch."""
        dtype = self.problem.dtype
        return tuple(self.variant.instance(self.tile, dtype, at.kernel) for at in self.launches)

    @property
    def options(self) -> tuple[str, ...]:
        """The kernel's own compile options."""
        return self.variant.options(self.tile, self.problem.dtype)


def run_build(
    variants: str,
    options: Mapping[str, Any],
    *,
    arch: str | None,
    every: bool,
    output: Path | None,
) -> int:
    """Compile kernels, and write their rows to `output`, or to stdout without one.

    `options` are those of a sweep: op, kernels, dtypes and sizes. Return 1 if a kernel does not
    compile, or else 0. Raises UsageError.
    """
    claimed = _claim(output) if output else None
    chosen = choose_kernels(variants, options.get("op"), options.get("kernels"))
    try:
        compiler = compiler_of(BACKEND)
        compiler.architectures()  # raises without NVRTC
        architectures = _architectures(arch, compiler)
    except CompileError as error:
        raise UsageError(str(error)) from error
    if not disassembler_version():
        install = install_command("sass")
        say(f"no nvdisasm found, so nothing about the inner loop: {install}", err=True)
    if missing := missing_tool():
        say(f"nothing about accesses, as {missing}", err=True)
    dtypes, size = _dtypes(options.get("dtypes")), options.get("sizes") or SIZE
    instances = plan_instances(chosen, architectures, dtypes, size, every=every)
    rows = build_rows(instances, compiler)
    if claimed:
        claimed.write(encode(rows))
    else:
        print(encode(rows).decode(), end="")
    unlisted = {
        row.architecture for row in rows if row.status == Status.OK and not row.disassembler
    }
    if unlisted and (version := disassembler_version()):
        names = ", ".join(sorted(unlisted))
        say(
            f"nvdisasm {version} did not list code for {names}: nothing about its inner loops",
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


def _claim(path: Path) -> Output:
    """Claim a file that is new or a build file. Raises UsageError for any other file."""
    hint = "it is not a build file, so it is not overwritten"
    return Output(path, overwrite=is_build_file(path), hint=hint)


def choose_kernels(names: str, op: str | None, kernels: Path | None) -> list[CudaVariant]:
    """Return the kernels that a list names, of every operation or of `op`.

    `all` with a directory of the user's kernels takes the kernels of that directory. Raises
    UsageError for a name that is no kernel, and for a description that cannot be used.
    """
    if op and op not in OPERATIONS:
        raise UsageError(f"--op: {unknown('operation', op, OPERATIONS)}")
    available: list[Variant] = []
    for name in [op] if op else OPERATIONS:
        of_ops = [each for each in OPERATIONS if kernels and (kernels / each).is_dir()]
        has_own = op or name in (of_ops or ["gemm"])  # a folder without folders is of gemm
        available += of_op(name, kernels if has_own else None).values()
    patterns = parse_names(names)
    if not patterns:
        raise UsageError("the list of kernels is empty; write such as register_tile,wgmma*, or all")
    chosen: dict[Variant, None] = {}
    for pattern in patterns:
        if pattern == ALL:
            inside = kernels.absolute() if kernels else Path("/")
            chosen |= dict.fromkeys(v for v in available if v.path.is_relative_to(inside))
            continue
        fitting = [variant for variant in available if fnmatchcase(variant.name, pattern)]
        if not fitting:
            cuda_names = {variant.name for variant in available if isinstance(variant, CudaVariant)}
            raise UsageError(unknown("variant", pattern, sorted(cuda_names)))
        if not any(isinstance(variant, CudaVariant | BrokenVariant) for variant in fitting):
            raise UsageError(f"'{pattern}' is a function, and only a CUDA source is compiled")
        chosen |= dict.fromkeys(fitting)
    for variant in chosen:
        if isinstance(variant, BrokenVariant):
            raise UsageError(variant.idea)
    sources = [variant for variant in chosen if isinstance(variant, CudaVariant)]
    if not sources:
        raise UsageError(f"--kernels: {kernels} holds no CUDA source")
    return sources


def _architectures(text: str | None, compiler: Compiler) -> tuple[str, ...]:
    """Return the architectures of `--arch`, or that of this machine's GPU, or the default."""
    if text is not None:
        names = parse_names(text)
        for name in names:
            require_architecture(name, compiler)
        if not names:
            raise UsageError("--arch: the list is empty; write such as sm_80,sm_90")
        return names
    try:
        gpu = find_devices(BACKEND)[0][0]
    except DeviceUnavailableError:
        return (DEFAULT,)
    return (gpu.architecture,)


def _dtypes(text: str | None) -> tuple[str, ...]:
    """Return the element types of `--dtypes`; empty for those of each kernel."""
    return () if text is None else list_of(DTYPES, DTYPE_ALIASES)("--dtypes", text)


def plan_instances(
    variants: Sequence[CudaVariant],
    architectures: Sequence[str],
    dtypes: Sequence[str],
    size: str,
    *,
    every: bool,
) -> list[Instance]:
    """Return the instances, also those that an architecture lacks the features for.

    `every` takes all legal tiles, and not only the default ones. Raises UsageError for a size that
    is none, and for what a description raises.
    """
    instances = []
    for variant in variants:
        sizes = parse_sizes(size, variant.op, "--sizes")
        if len(sizes) > 1:
            raise UsageError(f"--sizes: one at a time, not {len(sizes)}")
        ((m, n, k),) = sizes
        with described_by(variant.path):
            tiles = tuple(variant.tiles) if every else variant.tiles.defaults
        for dtype in variant.dtypes:
            if dtypes and dtype not in dtypes:
                continue
            problem = Problem(op=variant.op, m=m, n=n, k=k, dtype=dtype)
            instances += [
                make_instance(variant, tile, problem, architecture)
                for architecture in architectures
                for tile in tiles
            ]
    if not instances:
        raise UsageError(f"--dtypes: no kernel has {' or '.join(dtypes)}")
    return instances


def make_instance(
    variant: CudaVariant, tile: Config, problem: Problem, architecture: str
) -> Instance:
    """Return an instance with its launches, or with the reason why it cannot run."""
    device = example(architecture)
    with described_by(variant.path):
        reason = variant.why_not(tile, problem, device.compute_capability) or ""
    launches = () if reason else launch_on(variant, tile, problem, device).sequence
    return Instance(
        variant=variant,
        tile=tile,
        problem=problem,
        architecture=architecture,
        device=device,
        reason=reason,
        launches=launches,
    )


def build_rows(instances: Sequence[Instance], compiler: Compiler) -> list[BuildRow]:
    """Compile the instances and return a row for each launch. Progress goes to stderr."""
    hashes = {instance.variant.path: source_hash(instance.variant) for instance in instances}
    runnable = [instance for instance in instances if not instance.reason]
    programs: dict[tuple[object, ...], dict[tuple[str, str], None]] = {}
    for instance in runnable:
        of_program = programs.setdefault(_program_key(instance), {})
        of_program |= {(text, instance.problem.dtype): None for text in instance.expressions}
    by_key = {
        _program_key(instance): Program(
            backend=instance.variant.backend,
            source=instance.variant.source,
            source_hash=hashes[instance.variant.path],
            architecture=instance.variant.architecture(instance.architecture),
            options=instance.options,
            instances=tuple(programs[_program_key(instance)]),
        )
        for instance in runnable
    }
    total = sum(len(program.instances) for program in by_key.values())
    with _progress("compiled", "instance", total) as advance:
        codes = compile_programs(list(by_key.values()), advance)
    recorded = _record(runnable)
    rows: list[BuildRow] = []
    for instance in instances:
        of_instance: Codes = codes[by_key[_program_key(instance)]] if instance.launches else {}
        accesses = recorded.get(_record_key(instance), {}).get(instance.tile, ())
        hashed = {"compiler": compiler.version(), "source_hash": hashes[instance.variant.path]}
        rows += _rows(instance, of_instance, accesses, hashed)
    return rows


_ByTile = Mapping[Config, Recorded]


def _record_key(instance: Instance) -> tuple[CudaVariant, Problem, str]:
    """Return what the instances of a call of `record` share."""
    return instance.variant, instance.problem, instance.architecture


def _record(instances: Sequence[Instance]) -> dict[object, _ByTile]:
    """Return the accesses of each launch, by `_record_key` and tile. Empty without g++."""
    if missing_tool():
        return {}
    by_key = grouped(instances, _record_key)
    # A thread takes the architectures of a kernel in turn, because most launches are the same.
    groups = grouped(by_key.values(), lambda of_key: (of_key[0].variant, of_key[0].problem))

    def record_group(group: Sequence[Sequence[Instance]]) -> dict[object, _ByTile]:
        return {
            _record_key(first): record(
                first.variant, [instance.tile for instance in of_key], first.problem, first.device
            )
            for of_key in group
            for first in of_key[:1]
        }

    recorded: dict[object, _ByTile] = {}
    with (
        _progress("recorded", "kernel", len(groups)) as advance,
        ThreadPoolExecutor(cpu_threads()) as pool,
    ):
        futures = [pool.submit(record_group, group) for group in groups.values()]
        try:
            for done, future in enumerate(as_completed(futures), 1):
                recorded |= future.result()
                advance(done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return recorded


def _program_key(instance: Instance) -> tuple[object, ...]:
    """Return what the instances of a program share."""
    return instance.variant.path, instance.architecture, instance.options


def _rows(
    instance: Instance, codes: Codes, recorded: Recorded, hashed: Mapping[str, str]
) -> list[BuildRow]:
    """Return a row for each launch, or a single row if the instance is skipped or fails."""
    variant, problem = instance.variant, instance.problem
    here = str(variant.path.parent)
    facts: dict[str, Any] = {
        **hashed,
        **{name: getattr(problem, name) for name in ("op", "dtype", "m", "n", "k")},
        "variant": variant.name,
        "tile": str(instance.tile),
        "architecture": instance.architecture,
        "disassembler": disassembler_version() or None,
        "options": " ".join(instance.options).replace(f"{here}/", "").replace(here, ".") or None,
        "gpubench": gpubench.__version__,
    }
    of_launches = [codes[expression, problem.dtype] for expression in instance.expressions]
    error = next((code.error for code in of_launches if code.error), "")
    if instance.reason or error:
        status = Status.SKIPPED if instance.reason else Status.ERROR
        return [BuildRow(**facts, launch=1, status=status, reason=instance.reason or error)]
    columns = [access_columns(accesses) for accesses in recorded] or [{}] * len(of_launches)
    launches = zip(instance.launches, instance.expressions, of_launches, columns, strict=True)
    return [
        BuildRow(
            **(facts if code.is_disassembled else facts | {"disassembler": None}),
            launch=number,
            status=Status.OK,
            kernel=_template(expression) or variant.name,
            **_figures(instance.device, launch, code),
            **of_accesses,
            recorder=recorder_version() or None,
        )
        for number, (launch, expression, code, of_accesses) in enumerate(launches, 1)
    ]


def _template(expression: str) -> str:
    """Return the name of a template instance, which may be cast to a type: `naive` or nothing."""
    match = _TEMPLATE.search(expression)
    return match[1] if match else ""


def _figures(device: Device, launch: Launch, code: Code) -> dict[str, Any]:
    """Return the columns that follow from the code and the launch."""
    resources, loop = code.resources, code.loop
    assert resources is not None  # noqa: S101 - an instance without an error has resources
    resident = occupancy(device.compute_capability, resources, launch)
    filled = waves(launch.blocks, device.multiprocessors, resident) if resident else None
    figures: dict[str, Any] = {
        "registers": resources.registers,
        "spill_bytes": resources.spill_bytes,
        "local_bytes": resources.local_bytes,
        "static_shared_bytes": resources.shared_bytes,
        "dynamic_shared_bytes": launch.shared_bytes,
        "max_threads_per_block": code.max_threads,
        "threads_per_block": launch.threads_per_block,
        "gpu": device.name or None,
        "blocks": launch.blocks,
        "waves": filled.waves if filled else None,
    }
    if code.max_threads is not None and launch.threads_per_block > code.max_threads:
        figures |= {"resident_blocks": 0, "occupancy": 0.0, "limited_by": "launch bounds"}
        figures["waves"] = None
    elif resident:
        is_full = resident.warps == resident.max_warps
        figures |= {
            "resident_blocks": resident.blocks,
            "occupancy": resident.fraction,
            "limited_by": None if is_full else ";".join(resident.limited_by),
        }
    if loop:
        figures |= {
            "loop_instructions": loop.instructions,
            "loop_float64": loop.float64,
            "multiply_adds_per_instruction": loop.multiply_adds_per_instruction,
        }
    return figures


@contextmanager
def _progress(verb: str, noun: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how many are done, `compiled` or `recorded`: a bar in a terminal, lines elsewhere."""
    screen = console(stderr=True)
    if sys.stderr.isatty():
        columns = (TextColumn(verb), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=screen, transient=True) as bar:
            task = bar.add_task("", total=total)
            yield lambda done: bar.update(task, completed=done)
        return
    last = monotonic()

    def line(done: int) -> None:
        nonlocal last
        if done < total and monotonic() - last >= PLAIN_EVERY_S:
            last = monotonic()
            say(f"{verb} {done} of {counted(total, noun)}", err=True)

    yield line
