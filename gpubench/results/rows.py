"""Builds rows from measurements.

The rounds of a point are merged, and rates are computed from the point's time.
"""

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

import gpubench
from gpubench.hardware.metrics import arithmetic_intensity, cgma, gbytes_per_s, gflops, percent
from gpubench.hardware.occupancy import occupancy
from gpubench.hardware.peaks import peak_gflops
from gpubench.model import (
    CLOCKS_AGREE,
    CallVariant,
    Device,
    Launches,
    Measurement,
    Point,
    PointKey,
    Scope,
    State,
    Status,
    Timer,
    Variant,
)
from gpubench.results.row import Row
from gpubench.stats.intervals import known_median, rounds_interval

_READS = "the output held zeros before the launch, because the kernel reads its output"
_FIXED = "called at fixed addresses; a cold cache was flushed"
_RETURNS = "the time includes a copy of the returned result"

_NUMBER = re.compile(r"\d[\d,.]*")

MAX_OVERHEAD_SPREAD = 0.01
"""Maximum difference between the overheads of a point's rounds, divided by the time of a sample.
The limit keeps the error of a time within ±0.5 %."""

BETWEEN_SWEEPS_US = 0.033
"""Standard deviation of a launch's time between sweeps, in addition to the deviation between
rounds. The deviation was measured with points below 20 µs in four sweeps of an H200
(results/h200/diff_rounds)."""


def build_rows(
    measured: Mapping[Point, Sequence[Measurement]],
    device: Device,
    source_hashes: Mapping[Variant, str],
) -> list[Row]:
    """Build a row for each point that has measurements. `measured` has the oldest round first.

    If a round failed, the row has the status of this round, and no time. If the overheads that
    rounds subtracted differ too much, the row has the status `error`. The row of an eliminated
    point keeps the times of its earlier rounds.
    """
    measured = {point: _consistent(rounds) for point, rounds in measured.items() if rounds}
    times = {
        point: _times(timed)
        for point, rounds in measured.items()
        if (timed := _without_end(rounds)) and all(taken.series for taken in timed)
    }
    baselines_us: dict[tuple[PointKey, str], float] = {}
    for point, columns in times.items():
        # The time of a baseline is the shorter of its own time and the time of its tuned call.
        for name in {point.variant.name, point.variant.tunes}:
            key = point.problem_key, name
            baselines_us[key] = min(columns["median_us"], baselines_us.get(key, np.inf))
    return [
        _row(
            point,
            rounds,
            times.get(point, {}),
            baselines_us.get((point.problem_key, point.variant.baseline or "none")),
            device,
            source_hashes[point.variant],
        )
        for point, rounds in measured.items()
    ]


def _row(
    point: Point,
    rounds: Sequence[Measurement],
    times: Mapping[str, Any],
    baseline_us: float | None,
    device: Device,
    source_hash: str,
) -> Row:
    end, rounds = rounds[-1], _without_end(rounds) or rounds
    failed = [measurement for measurement in rounds if measurement.status != Status.OK]
    rounds = failed[:1] or rounds
    first = rounds[0]
    decisive = first if failed else end
    texts: dict[str, Any] = {
        name: _joined(getattr(taken, name) for taken in rounds)
        for name in ("algorithm", "kernels_run", "code_hash", "device_uuid", "slot")
    }
    versions: dict[str, Any] = {
        name: device.versions.get(name) for name in ("driver", "cuda", "cupy", "nvrtc")
    }
    reuse = point.variant.reuse(point.tile) if point.variant.reuse and point.tile else None
    launch, clocks = rounds[-1].launch, _clocks(rounds)
    launch_note = launch.note if launch else ""
    return Row(
        **point.key._asdict(),
        status=decisive.status,
        reason=_said(taken.reason for taken in (*rounds, decisive)),
        max_relative_error=_highest(taken.max_relative_error for taken in rounds),
        error_max_bits=_bits(_highest(taken.largest_error for taken in rounds)),
        error_rms_bits=_bits(_highest(taken.rms_error for taken in rounds)),
        **times,
        **_confirmed(point, rounds, is_timed=bool(times)),
        **_rates(point, device, times, baseline_us, clocks["sm_mhz"]),
        **texts,
        notes=_said((*_stated(point), launch_note, *(taken.notes for taken in rounds))),
        **_resources(rounds[-1], device),
        arithmetic_intensity=arithmetic_intensity(point.problem),
        cgma=cgma(point.problem, reuse) if reuse else None,
        **clocks,
        first_call_s=_highest(taken.first_call_s for taken in rounds),
        cpu_threads=rounds[-1].threads,
        device=device.name,
        host=_joined(taken.hostname for taken in rounds),
        compute_capability=".".join(map(str, device.compute_capability or ())) or None,
        **versions,
        library=device.versions.get("blas"),
        environment=device.facts.get("environment"),
        source_hash=source_hash,
        gpubench=gpubench.__version__,
        round_seeds=";".join(str(taken.seed) for taken in rounds if taken.seed is not None) or None,
        started_utc=first.started_utc or None,
    )


def _rates(
    point: Point,
    device: Device,
    times: Mapping[str, Any],
    baseline_us: float | None,
    sm_mhz: float | None,
) -> dict[str, Any]:
    problem, mode = point.problem, point.key.compute_mode
    median_us, joules = times.get("median_us"), times.get("joules")
    rate = median_us and gflops(problem, median_us)
    moved = median_us and gbytes_per_s(problem, median_us)
    peak = peak_gflops(device, mode)
    return {
        "gflops": rate,
        "gbytes_per_s": moved,
        "percent_of_peak": percent(rate, peak),
        "peak_gflops": peak,
        "percent_of_peak_at_clock": percent(rate, sm_mhz and peak_gflops(device, mode, sm_mhz)),
        "percent_of_blas": percent(baseline_us, median_us),
        "percent_of_copy": percent(moved, device.facts.get("measured_copy_gbytes_per_s")),
        "pj_per_operation": joules and joules / problem.flops * 1e12,
    }


def _clocks(rounds: Sequence[Measurement]) -> dict[str, Any]:
    """Return the columns with clocks, temperature, power, and the CPU's time per launch."""
    healths = [health for taken in rounds for health in (taken.before, taken.after)]
    clocks: dict[str, Any] = {
        name: known_median(getattr(taken.after, name) for taken in rounds)
        for name in ("sm_mhz", "nvml_sm_mhz", "memory_mhz", "host_us")
    }
    return clocks | {
        "temperature_c": _highest(health.temperature_c for health in healths),
        "power_w": _highest(health.power_w for health in healths),
        "throttle": _joined(chain.from_iterable(health.throttle for health in healths)),
    }


def _confirmed(point: Point, rounds: Sequence[Measurement], *, is_timed: bool) -> dict[str, Any]:
    """Return the columns that state whether the clock of the parent process confirms the time."""
    ratio = known_median(taken.clock_ratio for taken in rounds)
    is_parents = point.timer == Timer.OUTSIDE or (ratio is not None and ratio <= CLOCKS_AGREE)
    clock = "parent" if is_parents else "child"
    if any(taken.is_walled is False for taken in rounds):
        clock = "own"
    return {"clock": clock if is_timed else None, "clock_ratio": ratio}


def _resources(last: Measurement, device: Device) -> dict[str, Any]:
    """Return the columns that state which resources a compiled kernel uses."""
    resources, launch = last.resources, last.launch
    code = _named(resources, "registers", "local_bytes", "spill_bytes", "shared_bytes")
    if resources and launch:
        code["shared_bytes"] += launch.shared_bytes
        resident = occupancy(device.compute_capability, resources, launch)
        code["occupancy"] = resident.fraction if resident else None
    return code | _named(launch, "workspace_bytes", "threads_per_block", "blocks")


def _stated(point: Point) -> tuple[str, ...]:
    """Return notes on unusual properties that a variant's description states."""
    variant, precision = point.variant, point.problem.precision
    in_blas = precision.in_blas if variant.is_blas else ""
    return (
        _READS if variant.reads_output else "",
        _FIXED if variant.fixed_addresses else "",
        _RETURNS if isinstance(variant, CallVariant) and variant.returns else "",
        f"computes in {in_blas}" if in_blas else "",
    )


def _named(owner: object, *names: str) -> dict[str, Any]:
    """Return attributes of an object as columns, which are None if the object is None."""
    return {name: getattr(owner, name, None) for name in names}


def _without_end(rounds: Sequence[Measurement]) -> Sequence[Measurement]:
    """Return the rounds of a point, without the entry that records its elimination."""
    return rounds[:-1] if rounds[-1].status == Status.ELIMINATED else rounds


def _consistent(rounds: Sequence[Measurement]) -> Sequence[Measurement]:
    """Return the rounds, or one round with an error if their overheads differ too much."""
    overheads_us = _overheads_us(rounds)
    series = [taken.series for taken in rounds if taken.series]
    if not _is_burst(rounds[0].point) or not overheads_us or len(series) < len(rounds):
        return rounds
    spread_us = max(overheads_us) - min(overheads_us)
    sample_us = min(taken.median_us * taken.launches_per_sample for taken in series)
    if spread_us <= MAX_OVERHEAD_SPREAD * sample_us:
        return rounds
    reason = (
        f"the rounds subtracted {min(overheads_us):.2f} to {max(overheads_us):.2f} µs from samples "
        f"of {sample_us:.0f} µs: measure again on a GPU that nothing else uses"
    )
    return [replace(rounds[0], status=Status.ERROR, reason=reason, series=None)]


def _overheads_us(rounds: Sequence[Measurement]) -> list[float]:
    """Return the time that each round subtracted from a sample, or an empty list."""
    point = rounds[0].point
    in_queue = not (point.launches.in_graph or point.launches == Launches.WAITED)
    if point.timer != Timer.OUTSIDE and not (_is_burst(point) and in_queue):
        return []
    overheads_us = (taken.after.overhead_us for taken in rounds)
    return [overhead_us for overhead_us in overheads_us if overhead_us is not None]


def _is_burst(point: Point) -> bool:
    """Return whether samples are blocked batches, from which an overhead is subtracted."""
    return (point.timer, point.scope, point.state) == (Timer.EVENTS, Scope.KERNEL, State.BURST)


def _times(rounds: Sequence[Measurement]) -> dict[str, Any]:
    """Return the columns with times, from rounds that all have samples."""
    series = [measurement.series for measurement in rounds if measurement.series]
    medians = [float(np.median(taken.times_us)) for taken in series]
    # Rounds differ more than the samples of one round do (clocks, placement).
    between_us = BETWEEN_SWEEPS_US if _is_burst(rounds[0].point) else 0.0
    low_us, high_us = rounds_interval(medians, between_us) or (None, None)
    return {
        "median_us": statistics.median(medians),
        "min_us": min(min(taken.times_us) for taken in series),
        "ci_low_us": low_us,
        "ci_high_us": high_us,
        "samples": sum(len(taken.times_us) for taken in series),
        "launches_per_sample": series[-1].launches_per_sample,
        "rounds": len(series),
        "round_medians_us": tuple(medians),
        "stop_reason": series[-1].stop_reason,
        "overhead_us": known_median(_overheads_us(rounds)),
        "joules": known_median(taken.joules for taken in series),
    }


def _bits(error: float | None) -> float | None:
    """Convert a relative error to a number of right bits, or None if it is 0 or unknown."""
    return -math.log2(error) if error else None


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _said(texts: Iterable[str]) -> str | None:
    """Join the sentences. If sentences differ only in their numbers, keep the first sentence."""
    sentences: dict[str, str] = {}
    for text in texts:
        sentences.setdefault(_NUMBER.sub("", text), text)
    return _joined(sentences.values())


def _joined(texts: Iterable[str]) -> str | None:
    """Join the texts by `;`, without empty texts and repeated texts."""
    return ";".join(dict.fromkeys(filter(None, texts))) or None
