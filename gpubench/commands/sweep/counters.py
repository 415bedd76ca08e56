"""Reads the counters of a sweep's points after the sweep, by one launch of each under ncu.

The functions from `serve` on run in the process under ncu.
"""

import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from gpubench.backends import AUTO, open_backend
from gpubench.backends.cuda import ncu
from gpubench.backends.cuda.ncu import Profile, marked_call, profile
from gpubench.cache import copy_compiled, environment_with_caches
from gpubench.engine.child.calls import Call, decode_arguments, encode_call
from gpubench.engine.child.supervisor import START_LIMIT_S, environment_of_child
from gpubench.engine.device_lock import lock_device
from gpubench.engine.operands.cache import OperandCache
from gpubench.engine.run import Outcome
from gpubench.errors import (
    CompileError,
    DoesNotFitError,
    GpubenchError,
    LaunchError,
    UsageError,
    first_line,
)
from gpubench.files import Output
from gpubench.grouping import grouped
from gpubench.model import Cache, Point, Status
from gpubench.plan.scrutiny import owner_of
from gpubench.plan.sweep import Sweep
from gpubench.process.child import END_S
from gpubench.process.streams import Copier
from gpubench.results.counter_row import CounterRow, counters_path, encode
from gpubench.temporary import temporary_folder
from gpubench.text import counted, shown
from gpubench.view.tables import say

BACKEND = "cuda"
FLAG = "--counters"

_METRIC = re.compile(r"[a-z]\w*(\.\w+)*", re.ASCII)

WARM_UP_CALLS = 2
"""Number of calls before the counted call. A first call may compile or choose a kernel."""

PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from gpubench.process.confine import settle; "
    "folder = sys.argv.pop(1); folder and settle(folder); "
    "from gpubench.commands.sweep.counters import serve; serve(sys.argv[1])"
)
"""Program of the process under ncu. It imports from the same paths as this process."""

POINT_ERRORS = (CompileError, DoesNotFitError, LaunchError)


def require_counters(
    text: str, sweep: Sweep, on: str | None, *, overwrite: bool, is_dry: bool = False
) -> list[str]:
    """Return the metrics that `--counters` names, after an empty kernel was launched under ncu.

    A dry run launches nothing, and requires only that ncu is installed. Raises UsageError if ncu
    cannot read these metrics on the device, or if the file of counters exists and may not be
    overwritten.
    """
    metrics = list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    for metric in metrics:
        if not _METRIC.fullmatch(metric):
            raise UsageError(
                f"{FLAG}: '{shown(metric)}' is not a name of a metric, such as dram__bytes.sum"
            )
    if not metrics:
        raise UsageError(f"{FLAG}: name metrics, such as dram__bytes.sum")
    if on:
        raise UsageError(f"{FLAG}: one device is profiled: leave out --on")
    if sweep.device.partition(":")[0] not in {AUTO, BACKEND}:
        raise UsageError(f"{FLAG}: only an NVIDIA GPU has these counters, not {sweep.device}")
    if sweep.output:
        Output(counters_path(sweep.output), overwrite=overwrite, flag=FLAG)
    device = sweep.device.replace(AUTO, BACKEND)
    if is_dry:
        error = "" if ncu.find_ncu() else ncu.NOT_IN_PATH
    else:
        error = _profiled(device, (), sweep, metrics).error
    if error:
        raise UsageError(f"{FLAG}: {error}")
    return metrics


def read_counters(outcome: Outcome, metrics: Sequence[str], *, overwrite: bool) -> list[CounterRow]:
    """Launch each timed point once under ncu. Write the counters beside the CSV, and return them.

    Points of each cache state, and of each user's function, have a process of their own. Raises
    UsageError if ncu fails. The counters of earlier points are written, also after Ctrl-C.
    """
    job, device = outcome.job, outcome.job.device
    rows = {
        point: row
        for row in outcome.rows
        if row.status == Status.OK and (point := job.point_of(row.key))
    }
    say(f"reading counters of {counted(len(rows), 'point')} under Nsight Compute", err=True)
    path = counters_path(outcome.path or Path())
    counters: list[CounterRow] = []

    def write() -> None:
        if counters:
            Output(path, overwrite=overwrite, flag=FLAG).write(encode(counters))
            say(f"counters: {path}", err=True)

    with ExitStack() as until:
        until.callback(write)
        lock_device(device, until)
        groups = grouped(rows, lambda point: (owner_of(point.variant), point.cache))
        for points in groups.values():
            result = _profiled(f"{device.backend}:{device.index}", points, job.sweep, metrics)
            for point, kernels in zip(points, result.calls, strict=False):  # ncu may end early
                counters += (
                    CounterRow(
                        **point.key._asdict(),
                        started_utc=rows[point].started_utc,
                        kernel=number,
                        function=kernel.function,
                        **counter._asdict(),
                    )
                    for number, kernel in enumerate(kernels, start=1)
                    for counter in kernel.counters
                )
            if result.error:
                raise UsageError(f"{FLAG}: {result.error}; the times are in {outcome.path}")
    return counters


def _profiled(
    device: str, points: Sequence[Point], sweep: Sweep, metrics: Sequence[str]
) -> Profile:
    """Launch points of one cache state and one owner under ncu. Return their counters, in order.

    Without points, only the marker kernel is launched.
    """
    kernels = sweep.kernels if points else None
    owner = owner_of(points[0].variant) if points else ""
    environment, folder = environment_of_child(environment_with_caches()[0], kernels, owner)
    arguments = {"device": device, "points": tuple(points), "seed": sweep.seed}
    streams = Copier("counters")
    output = os.dup(streams.descriptor)  # `start` closes the descriptor
    streams.start()
    try:
        with temporary_folder() as temporary:
            request = temporary / "request"
            request.write_bytes(encode_call(launch, arguments))
            paths = json.dumps(sys.path), str(folder or ""), str(request)
            result = profile(
                (sys.executable, "-P", "-c", PROGRAM, *paths),
                metrics,
                flush=bool(points) and points[0].cache == Cache.COLD,
                limit_s=START_LIMIT_S + len(points) * sweep.timing.hang_s,
                environment=environment,
                output=output,
            )
    finally:
        os.close(output)
        streams.finish(END_S)
    if not result.error and len(result.calls) < len(points):
        return result._replace(error="the profiled process ended early")
    return result


# ---- in the process under ncu


def serve(request: str) -> None:
    """Launch the points of a request, which is a file."""
    copy_compiled()
    call = msgspec.msgpack.decode(Path(request).read_bytes(), type=Call)
    try:
        launch(**decode_arguments(launch, call))
    except (GpubenchError, *POINT_ERRORS) as error:
        print(first_line(error), file=sys.stderr)


def launch(device: str, points: Sequence[Point], seed: int) -> None:
    """Launch each point once behind a marker, on operands that the point uses in a sweep.

    The error of a point that cannot be launched is printed. Its marker has no kernels.
    """
    backend = open_backend(device)
    operands = OperandCache(backend, seed)
    if points:
        backend.warm_up()
    else:
        with marked_call():
            pass
    for point in points:
        calls = 0
        try:
            kernel = backend.bind(point, operands.operands(point))
            kernel.run(WARM_UP_CALLS)
            calls = 1
        except POINT_ERRORS as error:
            print(f"{point.label}: {first_line(error)}", file=sys.stderr)
        with marked_call():
            for _ in range(calls):
                kernel.run()
