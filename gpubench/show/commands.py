"""What each command prints, once its flags are parsed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from gpubench.analyze.gaps import judge_gaps, launch_gaps
from gpubench.errors import INTERRUPTED, DeviceUnavailableError, UsageError
from gpubench.measure.result_file import ResultFile, read_context
from gpubench.measure.selfcheck import selfcheck_rows
from gpubench.measure.session import Outcome, default_output, run
from gpubench.measure.worker import Worker
from gpubench.model import Variant
from gpubench.operation import OPERATIONS
from gpubench.plan.config import Sweep, option_texts, read_sweep
from gpubench.plan.ranges import shown
from gpubench.plan.registry import choose, of_op, unknown, variants
from gpubench.show import device as device_view
from gpubench.show.curve import curves
from gpubench.show.ladder import ladder, steps
from gpubench.show.progress import progress
from gpubench.show.tables import comparison, console, gap_table, results, spans, table
from gpubench.timing import Timing

WITHOUT_GPU = "'gpubench sweep --device cpu' compares against the CPU's BLAS"

COMPARE_DEFAULTS = Sweep(timing=Timing(launch_limit_s=1.0))
"""compare-cublas looks for each variant's best tile: a launch over a second is never that."""


def run_sweep(
    options: Mapping[str, str | None],
    config: Path | None,
    *,
    resume: Path | None = None,
    force: bool = False,
) -> int:
    """`gpubench sweep`: the exit code."""
    if resume:
        options, config = _begun(resume, option_texts(options, config)), None
    sweep = read_sweep(options, config)
    outcome = _measure(sweep, resume=resume is not None, force=force)
    screen = console()
    screen.print(results(outcome.rows))
    if screen.is_terminal and screen.encoding.startswith("utf") and (drawn := curves(outcome.rows)):
        screen.print(drawn)
    return _conclude(outcome)


def _begun(path: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The options a sweep was begun with. Raises UsageError where those given now differ."""
    begun: dict[str, str] = read_context(path)["options"] | {"output": str(path)}
    for name, text in given.items():
        if begun.get(name) != text:
            was = f"'{begun[name]}'" if name in begun else "not given"
            raise UsageError(
                f"--resume: {path} was begun with --{name.replace('_', '-')} {was}; "
                "leave it out, or begin another file"
            )
    if "kernels" in begun and "kernels" not in given:  # no file makes code run by itself
        raise UsageError(
            f"--resume: {path} sweeps kernels of a folder, which runs their code: "
            f"add --kernels {shown(begun['kernels'])}"
        )
    return begun


def run_compare_cublas(
    options: Mapping[str, str | None],
    config: Path | None,
    *,
    by_step: bool = False,
    resume: Path | None = None,
    force: bool = False,
) -> int:
    """`gpubench compare-cublas`: the exit code. `by_step` is `--ladder`."""
    if resume:
        options, config = _begun(resume, option_texts(options, config)), None
    sweep = read_sweep(options, config, COMPARE_DEFAULTS)
    if sweep.device == "cpu":
        raise UsageError(f"compare-cublas needs an NVIDIA GPU; {WITHOUT_GPU}")
    order = steps(choose(sweep.op, "cuda", (), sweep.kernels)) if by_step else {}
    sweep = replace(
        sweep,
        variants=with_libraries(sweep, sweep.variants or tuple(order)),
        device=sweep.device.replace("auto", "cuda"),
    )
    try:
        outcome = _measure(sweep, resume=resume is not None, force=force)
    except DeviceUnavailableError as error:
        raise DeviceUnavailableError(
            f"compare-cublas needs an NVIDIA GPU: {error}; {WITHOUT_GPU}"
        ) from error
    console().print(ladder(outcome.rows, order) if by_step else comparison(outcome.rows))
    return _conclude(outcome)


def with_libraries(sweep: Sweep, asked: Sequence[str]) -> tuple[str, ...]:
    """The variants asked for, or else the usual ones, and cuBLAS: the call, and the tuned one."""
    named = choose(sweep.op, "cuda", asked, sweep.kernels)
    libraries = [
        one
        for one in variants()
        if (one.op, one.backend) == (sweep.op, "cuda") and "cublas" in {one.name, one.tunes}
    ]
    # Nobody asked for these by name, so what they lack is no news.
    unnamed = libraries if asked else [*named, *libraries]
    fitting = [one for one in unnamed if set(one.dtypes) & set(sweep.dtypes)]
    return tuple(dict.fromkeys((*asked, *(one.name for one in fitting))))


def _measure(sweep: Sweep, *, resume: bool, force: bool) -> Outcome:
    with progress() as watcher, Worker(sweep.device, sweep.timer) as worker:
        path = sweep.output or default_output(sweep, worker.device.name)
        return run(sweep, worker, watcher, ResultFile(path, resume=resume, overwrite=force))


def _conclude(outcome: Outcome) -> int:
    """The last lines: where the time went, and the file."""
    err = console(stderr=True)
    err.print(where_time_went(outcome), soft_wrap=True)
    if outcome.interrupted:
        err.print(
            f"interrupted: what was measured is kept; --resume {outcome.path} goes on",
            markup=False,
            soft_wrap=True,
        )
    console().print(Text(f"\n{outcome.path}"), soft_wrap=True)
    if outcome.interrupted:
        return INTERRUPTED
    return 1 if outcome.failed else 0


def where_time_went(outcome: Outcome) -> str:
    """`56.6 s, 70 % of it samples; the rest: compiling 3.1 s, operands 2.0 s, …`."""
    phases = dict(outcome.spent_s)
    # A slow launch may be verified and a sample at once: its time stands under verifying.
    waiting_s = phases.pop("sampling", 0.0) - outcome.device_s
    phases["gates and waiting"] = max(0.0, waiting_s)
    phases["other"] = outcome.wall_s - sum(outcome.spent_s.values())
    rest = ", ".join(f"{name} {spent:.1f} s" for name, spent in phases.items() if round(spent, 1))
    share = 100 * outcome.device_s / outcome.wall_s
    return f"{outcome.wall_s:.1f} s, {share:.0f} % of it samples; the rest: {rest}"


def run_selfcheck(device: str) -> int:
    """`gpubench selfcheck`: 0 if this machine's figures can be trusted, else 1."""
    try:
        with progress() as watcher:
            rows = selfcheck_rows(device, watcher)
    except DeviceUnavailableError as error:
        raise DeviceUnavailableError(f"selfcheck compares two timers of a GPU: {error}") from error
    gaps = launch_gaps((one.label, one.timer, one.median_us) for one in rows if one.median_us)
    screen = console()
    screen.print(gap_table(gaps))
    verdict = judge_gaps(gaps)
    screen.print(f"\n{verdict.sentence}", markup=False, soft_wrap=True)
    return 0 if verdict.trusted else 1


def print_variants(op: str | None, backend: str | None, kernels: Path | None = None) -> None:
    """`gpubench variants`."""
    if op is not None and op not in OPERATIONS:
        raise UsageError(f"--op: {unknown('operation', op, OPERATIONS)}")
    if backend not in {None, "cuda", "cpu"}:
        raise UsageError(f"--device: '{backend}' is no backend; write cuda or cpu")
    found = of_op(op or Sweep().op, kernels).values() if op or kernels else variants()
    shown = [variant for variant in found if variant.backend == (backend or variant.backend)]
    listing = table("op", "variant", "on", "dtypes", "tiles", "idea", left=None)
    for variant in shown:
        listing.add_row(
            variant.op,
            variant.name,
            variant.backend,
            ", ".join(variant.dtypes),
            _tiles(variant),
            variant.idea,
        )
    console().print(listing)


def _tiles(variant: Variant) -> str:
    if not variant.tiles:
        return ""
    return variant.tiles.summary or spans([str(tile) for tile in variant.tiles.legal])


def print_deviceinfo(device: str, *, measure: bool, as_json: bool) -> None:
    """`gpubench deviceinfo`."""
    devices, missing = device_view.find(device)
    if measure:
        devices = [device_view.measured(one) for one in devices]
    if as_json:
        print(json.dumps(device_view.as_json(devices, missing), indent=2))
        return
    screen = console()
    for one in devices:
        screen.print(device_view.as_tables(one))
    if missing:
        screen.print(f"\nCUDA: {missing}", markup=False)
