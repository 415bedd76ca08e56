"""Times kernels of 2 µs to 10 ms by events and by CUPTI, and judges the launch gap.

The launch gap is the time per launch in a stream (events) minus the execution time (CUPTI). The gap
is the time that the device takes between two kernels. The gap is a property of the machine, so it
must be equal for all kernels. If the gaps differ, one of the two timers is disturbed, or launches
overlap. Among many kernels, one or two gaps may be a little longer. A clock may also be wrong by
the same amount for all kernels. An empty kernel shows such an error, because a third clock times
its launches. The control, a kernel whose launches overlap, shows that the check finds overlap.
"""

import re
import statistics
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, product
from typing import NamedTuple

from rich.text import Text

from gpubench.backends import backends
from gpubench.engine.pool import Pool, Watcher, local_pool
from gpubench.engine.prepare import Job, prepare
from gpubench.engine.run import all_rows
from gpubench.errors import DeviceUnavailableError, UsageError
from gpubench.model import Device, Launches, Point, PointKey, Timer
from gpubench.options import read_sweep
from gpubench.results.row import Row
from gpubench.view.numbers import number
from gpubench.view.progress import SweepProgress
from gpubench.view.tables import Table, console, say, table

FITTED = "128x128x64/s7/cluster=1x1/group=8/pdl=1"
IN_16_BITS = {
    "wgmma_fitted": FITTED,
    "wgmma_split_cluster": "128x128x64/s7/k2/cluster=1x1/group=8/pdl=1",
    "wgmma_pingpong": "104x192x64/s5/cluster=2x1/group=8",
    "cublas": "",
    "cublaslt": "",
}
IN_8_BITS = {"wgmma_bytes_cluster": "64x128x128/s8/cluster=1x1", "cublas": "", "cublaslt": ""}

KERNELS: dict[str, dict[str, str]] = {
    "float32": {
        "naive": "32",
        "shared_tile": "16",
        "register_tile": "4",
        "packed_panels": "128x256x64/16x8/s2",
        "splitk_cluster": "64x128x16/8x8/s4/k4",
        "cublas": "",
        "cublaslt": "",
    },
    "float64": {"dmma_split_cluster": "64x64x32/s3/k2/cluster=1x1", "cublas": "", "cublaslt": ""},
    "tf32": {"wgmma_tf32_cluster": "64x128x32/s8/cluster=1x1", "cublas": "", "cublaslt": ""},
    "bfloat16": IN_16_BITS,
    "float16": IN_16_BITS,
    "int8": IN_8_BITS,
    "float8_e4m3": IN_8_BITS,
}
"""Maps each precision to the kernels that the README names and to the libraries. Each kernel has
its tile."""

SIZES = (176, 464, 944, 1136, 1648, 2768)  # primes times 16; no tile was tuned at these sizes
CONTROL = {"variants": "wgmma_fitted", "tiles": FITTED, "sizes": "464", "dtypes": "bfloat16"}
"""A kernel whose launches overlap with `--launches overlapped`. The check must find this
overlap."""

MIN_DEVICE_S = 0.01  # minimum total time of a kernel's samples, for each timer
REPEATS = 2  # maximum number of further measurements of a kernel whose gap deviates
MAX_DEVIATION_US = 0.3  # gaps at most this far from the median of all gaps count as equal
MAX_DEVIATION_OF_TIME = 0.02
"""Fraction of a long kernel's time by which its gap may differ from the median of all gaps. On an
idle H100, the gaps of 174 kernels differ by up to 1.1 % of the kernel's time, because the clock
changes between the two measurements, and because CUPTI makes calls of several kernels longer."""

MAX_SHARE_LONGER = 0.02  # fraction of the kernels whose gap may be longer than the limit
MAX_LONGER = 2.0
"""Maximum excess of a single long gap over the median, in multiples of the limit. Among 174 kernels
of an idle H200, one gap was longer by 0.49 µs, in each of three measurements. Among 167 kernels of
an H100, one gap was longer by 1.06 times the limit. Launches that overlap make a gap shorter."""

FURTHER_NODE_US = 3.0
"""Time by which a gap may be longer for each further node of a call. A node is a kernel, which has
a gap of its own, or a clearing of memory, whose time CUPTI's records of kernels leave out. A call
of cuBLAS that clears 4.6 KB had a gap that was 2.6 µs longer on an H200."""


class Gap(NamedTuple):
    """The times of one kernel by both timers."""

    label: str
    events_us: float
    cupti_us: float
    is_library: bool = False
    """Whether the kernel is a library's call. The gap of a call may be longer, because the call may
    launch several kernels."""

    nodes: int = 1  # number of kernels and of clearings of memory in a call
    is_control: bool = False  # whether this is the control, whose launches overlap
    key: PointKey | None = None  # the measured point; its timer is empty

    @property
    def gap_us(self) -> float:
        """The launch gap: the time per launch minus the execution time."""
        return self.events_us - self.cupti_us

    @property
    def limit_us(self) -> float:
        """Maximum distance from the median at which a gap counts as equal to the median."""
        return max(MAX_DEVIATION_US, MAX_DEVIATION_OF_TIME * self.cupti_us)

    def deviates(self, median_us: float) -> bool:
        """Return whether the gap differs from the median by more than its limit."""
        longer_us = self.gap_us - median_us
        further_us = FURTHER_NODE_US * (self.nodes - 1)
        return not -self.limit_us <= longer_us <= self.limit_us + further_us


class EmptyLaunch(NamedTuple):
    """Times of one launch of an empty kernel, in µs, by independent clocks."""

    device: float  # time per launch in a stream, by the timer of the multiprocessors
    events: float  # time per launch in a stream, by events
    cupti: float  # time of the execution only, by CUPTI

    def fault(self, gap_us: float) -> str:
        """Return why a clock must be wrong, or an empty text. `gap_us` is the kernels' median gap.

        The launch gap is at least the gap of an empty launch, and at most the whole time of an
        empty launch.
        """
        if abs(self.events - self.device) > MAX_DEVIATION_US:
            return (
                f"events time an empty launch as {self.events:.2f} µs, and the timer of the "
                f"multiprocessors as {self.device:.2f} µs"
            )
        if not 0 < self.cupti < self.device:
            return (
                f"by CUPTI an empty kernel executes for {self.cupti:.2f} µs, and its whole launch "
                f"takes {self.device:.2f} µs"
            )
        low_us = max(0.0, self.device - self.cupti - MAX_DEVIATION_US)
        high_us = self.device + MAX_DEVIATION_US
        if not low_us <= gap_us <= high_us:
            return (
                f"the launch gap is {gap_us:.2f} µs, but an empty launch limits it to "
                f"{low_us:.2f} to {high_us:.2f} µs"
            )
        return ""


class SelfcheckResult(NamedTuple):
    """Whether a machine's times can be trusted, and a sentence with the reason."""

    trusted: bool
    sentence: str


def run_selfcheck(device: str | None) -> int:
    """Print the gaps and the verdict. Return 0 if this machine's times can be trusted, or else 1.

    Raises UsageError for a CPU, and DeviceUnavailableError if there is no GPU or no CUPTI.
    """
    gpu = next(name for name, entry in backends().items() if Timer.CUPTI in entry.timers)
    device = gpu if device in {None, "auto"} else read_sweep({"device": device}).device
    if device.partition(":")[0] != gpu:
        raise UsageError(
            f"--device: selfcheck compares two timers of a GPU: write {gpu} or {gpu}:1"
        )
    try:
        with SweepProgress() as watcher, local_pool(device, Timer.CUPTI) as pool:
            job = job_of(pool.device, (Timer.EVENTS, Timer.CUPTI))

            def measure(keys: Collection[PointKey | None]) -> list[Gap]:
                planned = {
                    point: reason
                    for point, reason in job.planned.items()
                    if point.key._replace(timer="") in keys
                }
                return measured_gaps(replace(job, planned=planned), pool, watcher)

            first = measured_gaps(job, pool, watcher)
            gaps = confirmed(first, measure)
            empty = EmptyLaunch(**pool.executor.empty_launch_us())
    except DeviceUnavailableError as error:
        missing = str(error).partition(";")[0]  # the text after `;` is about --device cpu
        message = f"selfcheck compares two timers of a GPU: {missing}"
        raise DeviceUnavailableError(message) from error
    verdict = judge_gaps(gaps, empty)
    console().print(gap_table(gaps))
    say(f"\n{verdict.sentence}")
    return 0 if verdict.trusted else 1


def job_of(device: Device, timers: Sequence[Timer]) -> Job:
    """Return a job that measures all kernels of the device, and the control, with each timer.

    Both timers time a kernel in the same processes, because the times of a kernel differ by about
    1 % between processes.
    """
    common = {"device": f"{device.backend}:{device.index}", "cache": "hot"}
    common |= {"rounds": "1", "precision": "1%"}
    sizes = ",".join(map(str, SIZES))
    asked = [CONTROL | {"launches": Launches.OVERLAPPED}]
    for dtype, by_name in KERNELS.items():
        variants, tiles = ",".join(by_name), ",".join(filter(None, by_name.values()))
        asked.append({"dtypes": dtype, "variants": variants, "tiles": tiles, "sizes": sizes})

    def has_its_tile(point: Point) -> bool:
        return str(point.tile or "") == KERNELS[point.problem.dtype][point.variant.name]

    jobs = []
    for options, timer in product(asked, timers):
        sweep = read_sweep(common | options)
        with suppress(UsageError):  # no kernel of this precision runs on this device
            timing = replace(sweep.timing, min_device_s=MIN_DEVICE_S)
            timed = replace(sweep, timer=timer, timing=timing)
            jobs.append(prepare(timed, device, keep=has_its_tile))
    planned = dict(chain.from_iterable(job.planned.items() for job in jobs))
    hashes = dict(chain.from_iterable(job.hashes.items() for job in jobs))
    return replace(jobs[0], planned=planned, hashes=hashes)


def measured_gaps(job: Job, pool: Pool, watcher: Watcher) -> list[Gap]:
    """Measure the kernels of a job, and return their gaps.

    Raises KeyboardInterrupt if the job was interrupted, because some kernels then have no gap.
    """
    return launch_gaps(all_rows(job, pool, watcher))


def launch_gaps(rows: Iterable[Row]) -> list[Gap]:
    """Return the gaps of the kernels that both timers timed, starting with the shortest kernel."""
    timed = {(row.key._replace(timer=""), row.timer): row for row in rows if row.median_us}
    gaps = [
        Gap(
            label=f"{row.label}{row.special}",
            events_us=events.median_us or 0.0,
            cupti_us=row.median_us or 0.0,
            is_library=not row.tile,
            nodes=node_count(events.kernels_run or "", unknown=1 if row.tile else 2),
            is_control=row.launches == Launches.OVERLAPPED,
            key=key,
        )
        for (key, timer), row in timed.items()
        if timer == Timer.CUPTI and (events := timed.get((key, Timer.EVENTS)))
    ]
    return sorted(gaps, key=lambda gap: gap.cupti_us)


def node_count(kernels_run: str, unknown: int) -> int:
    """Return the number of nodes that `kernels_run` lists, such as `memset; gemm (2 times)`.

    Return `unknown` if the kernels of the call are not known.
    """
    if not kernels_run or kernels_run.startswith("unknown"):
        return unknown
    times = (re.search(r"\((\d+) times\)$", each) for each in kernels_run.split("; "))
    return sum(int(match[1]) if match else 1 for match in times)


def median_gap_us(gaps: Sequence[Gap]) -> float:
    """Return the median launch gap of all kernels except libraries and controls."""
    usual = [gap.gap_us for gap in gaps if not (gap.is_library or gap.is_control)]
    return statistics.median(usual) if usual else 0.0


def deviating(gaps: Sequence[Gap]) -> list[Gap]:
    """Return the gaps that differ from the median by more than their limit."""
    median_us = median_gap_us(gaps)
    return [gap for gap in gaps if gap.deviates(median_us)]


def confirmed(
    gaps: Sequence[Gap], measure: Callable[[Collection[PointKey | None]], list[Gap]]
) -> list[Gap]:
    """Measure the kernels with a deviating gap again, and keep the gap that deviates least.

    The clock may change between the samples of the two timers. A disturbed timer, or launches that
    overlap, are visible in each measurement.
    """
    median_us = median_gap_us(gaps)
    by_key = {gap.key: gap for gap in gaps}
    for _ in range(REPEATS):
        deviations = [gap for gap in deviating(list(by_key.values())) if not gap.is_control]
        if not deviations:
            break
        for gap in measure({gap.key for gap in deviations}):
            by_key[gap.key] = min(
                (gap, by_key[gap.key]), key=lambda candidate: abs(candidate.gap_us - median_us)
            )
    return list(by_key.values())


def judge_gaps(gaps: Sequence[Gap], empty: EmptyLaunch) -> SelfcheckResult:
    """Return whether the times of this machine can be trusted.

    All gaps must be equal, and an empty launch must confirm them.
    """
    if not gaps:
        return SelfcheckResult(False, "No kernel was measured by both timers.")
    median = median_gap_us(gaps)
    distrust = f"Do not trust times here: the launch gap is {median:.2f} µs, "
    if fault := empty.fault(median):
        return SelfcheckResult(False, f"Do not trust times here: {fault}.")
    deviations = deviating(gaps)
    for control in (gap for gap in gaps if gap.is_control and gap not in deviations):
        return SelfcheckResult(
            False,
            f"Do not trust times here: launches of {control.label} overlap, but the launch gap of "
            f"{control.gap_us:.2f} µs does not show this.",
        )
    unequal = [gap for gap in deviations if not gap.is_control]
    listed = ", ".join(f"{gap.gap_us:.2f} µs for {gap.label}" for gap in unequal)
    a_little_longer = (0 < gap.gap_us - median <= MAX_LONGER * gap.limit_us for gap in unequal)
    if len(unequal) > MAX_SHARE_LONGER * len(gaps) or not all(a_little_longer):
        return SelfcheckResult(False, f"{distrust}but {listed}; is another program using the GPU?")
    controls = sum(gap.is_control for gap in gaps)
    kernels = len(gaps) - controls
    same = f"{kernels - len(unequal)} of {kernels} kernels ({listed})"
    return SelfcheckResult(
        True,
        f"This machine's times can be trusted: both timers agree apart from a launch gap of "
        f"{median:.2f} µs, the same for {same if unequal else 'every kernel'}"
        f"{'; overlapping launches are found' if controls else ''}.",
    )


def gap_table(gaps: Sequence[Gap]) -> Table:
    """Return a table of the kernels, starting with the shortest.

    The last column marks the control with `c`, and a gap that deviates with `!`.
    """
    marked = deviating(gaps)
    grid = table("kernel", "events, µs", "CUPTI, µs", "launch gap, µs", left={"kernel"})
    for gap in gaps:
        mark = "c" if gap.is_control else "!" if gap in marked else " "
        gap_us = Text(f"{gap.gap_us:.2f} {mark}", "red" if gap in marked else "")
        grid.add_row(gap.label, number(gap.events_us, 2), number(gap.cupti_us, 2), gap_us)
    return grid
