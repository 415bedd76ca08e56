"""Measurements become rows: rates derived, rounds merged, the BLAS beside them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain

import gpubench
from gpubench.hardware.metrics import arithmetic_intensity, cgma, gbytes_per_s, gflops, percent
from gpubench.hardware.occupancy import occupancy
from gpubench.hardware.peaks import peak_gflops
from gpubench.model import CudaVariant, Device, Measurement, Point, Status, Variant
from gpubench.row import KEY, Row


def row(
    measurement: Measurement,
    device: Device,
    source_hash: str,
    copy_gbytes_per_s: float | None = None,
) -> Row:
    """The row of a measurement of one round.

    With the device's measured copy, the row says what part of it the operation reached.
    """
    point, series = measurement.point, measurement.series
    problem, variant, launch = point.problem, point.variant, measurement.launch
    before, after = measurement.before, measurement.after
    mode = variant.compute_mode(problem.dtype)
    rate = gflops(problem, series.median_us) if series else None
    moved = gbytes_per_s(problem, series.median_us) if series else None
    resources = measurement.resources
    resident = (
        occupancy(device.compute_capability, resources, launch) if resources and launch else None
    )
    reuse = variant.reuse(point.tile) if isinstance(variant, CudaVariant) and point.tile else None
    return Row(
        op=problem.op,
        variant=variant.name,
        backend=variant.backend,
        tile=str(point.tile or ""),
        dtype=problem.dtype,
        compute_mode=mode,
        m=problem.m,
        n=problem.n,
        k=problem.k,
        cache=point.cache,
        scope=point.scope,
        timer=point.timer,
        status=measurement.status,
        reason=measurement.reason or None,
        max_relative_error=measurement.max_relative_error,
        **(asdict(series) if series else {}),
        rounds=1 if series else None,
        round_medians_us=repr(series.median_us) if series else None,
        gflops=rate,
        gbytes_per_s=moved,
        percent_of_peak=percent(rate, peak_gflops(device, mode)),
        percent_of_copy=percent(moved, copy_gbytes_per_s),
        registers=resources.registers if resources else None,
        local_bytes=resources.local_bytes if resources else None,
        spill_bytes=resources.spill_bytes if resources else None,
        shared_bytes=resources.shared_bytes + launch.shared_bytes if resources and launch else None,
        threads_per_block=launch.threads_per_block if launch else None,
        blocks=launch.blocks if launch else None,
        occupancy=resident.fraction if resident else None,
        arithmetic_intensity=arithmetic_intensity(problem),
        cgma=cgma(problem, reuse) if reuse else None,
        percent_of_peak_at_clock=percent(
            rate, after.sm_mhz and peak_gflops(device, mode, after.sm_mhz)
        ),
        sm_mhz=after.sm_mhz,
        nvml_sm_mhz=after.nvml_sm_mhz,
        memory_mhz=after.memory_mhz,
        temperature_c=_highest(before.temperature_c, after.temperature_c),
        power_w=_highest(before.power_w, after.power_w),
        throttle=";".join(dict.fromkeys((*before.throttle, *after.throttle))) or None,
        device=device.name,
        device_uuid=device.facts.get("uuid") or None,
        compute_capability=".".join(map(str, device.compute_capability or ())) or None,
        driver=device.versions.get("driver"),
        cuda=device.versions.get("cuda"),
        cupy=device.versions.get("cupy"),
        library=device.versions.get("blas"),
        source_hash=source_hash,
        gpubench=gpubench.__version__,
        started_utc=measurement.started_utc or None,
    )


def _highest(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)


def key_of(point: Point, device: Device) -> tuple[str | int, ...]:
    """The key that the point's rows on a device have."""
    return row(Measurement(point=point, status=Status.SKIPPED), device, "").key


def merge_rounds(rows: Sequence[Row]) -> Row:
    """One row for a point from its rows of single rounds, oldest first.

    A round that failed decides: its row stands as it is.
    """
    for one in rows:
        if one.status != Status.OK:
            return one
    first, last = rows[0], rows[-1]
    if len(rows) == 1:
        return first
    medians = _values(rows, "median_us")
    median_us = statistics.median(medians)
    faster = medians[0] / median_us  # the first round's rates, scaled to the median
    # Rounds differ by more than the samples within one do (clocks, placement): the interval is the
    # wider of the two. With few rounds, theirs is their whole range.
    return replace(
        last,
        median_us=median_us,
        q1_us=_middle(rows, "q1_us"),
        q3_us=_middle(rows, "q3_us"),
        min_us=min(_values(rows, "min_us")),
        max_us=max(_values(rows, "max_us")),
        ci_low_us=min(statistics.median(_values(rows, "ci_low_us")), *medians),
        ci_high_us=max(statistics.median(_values(rows, "ci_high_us")), *medians),
        samples=sum(one.samples or 0 for one in rows),
        rounds=len(rows),
        round_medians_us=";".join(one.round_medians_us or "" for one in rows),
        outliers_tukey=sum(one.outliers_tukey or 0 for one in rows),
        outliers_mad=sum(one.outliers_mad or 0 for one in rows),
        device_s=sum(_values(rows, "device_s")),
        gflops=_scaled(first.gflops, faster),
        gbytes_per_s=_scaled(first.gbytes_per_s, faster),
        percent_of_peak=_scaled(first.percent_of_peak, faster),
        percent_of_copy=_scaled(first.percent_of_copy, faster),
        percent_of_peak_at_clock=_middle(rows, "percent_of_peak_at_clock"),
        sm_mhz=_middle(rows, "sm_mhz"),
        nvml_sm_mhz=_middle(rows, "nvml_sm_mhz"),
        memory_mhz=_middle(rows, "memory_mhz"),
        temperature_c=_highest(*_values(rows, "temperature_c")),
        power_w=_highest(*_values(rows, "power_w")),
        throttle=_joined(rows, "throttle"),
        device_uuid=_joined(rows, "device_uuid"),
        max_relative_error=first.max_relative_error,
        started_utc=first.started_utc,
    )


def _values(rows: Sequence[Row], name: str) -> list[float]:
    return [value for one in rows if (value := getattr(one, name)) is not None]


def _joined(rows: Sequence[Row], name: str) -> str | None:
    """What the rows list under a column, each once."""
    lists = (text.split(";") for one in rows if (text := getattr(one, name)))
    return ";".join(dict.fromkeys(chain.from_iterable(lists))) or None


def _middle(rows: Sequence[Row], name: str) -> float | None:
    values = _values(rows, name)
    return float(statistics.median(values)) if values else None


def _scaled(rate: float | None, factor: float) -> float | None:
    return None if rate is None else rate * factor


def with_blas(rows: Sequence[Row], marks: Mapping[str, Sequence[str]]) -> list[Row]:
    """The rows with `percent_of_blas`, where the variant's baseline was measured in them too.

    `marks` maps a variant to its baseline and whatever tunes that: the fastest of them counts.
    """
    times: dict[tuple[object, ...], float] = {}
    for one in rows:
        if one.status == Status.OK and one.median_us is not None:
            times[one.variant, _problem_key(one)] = one.median_us

    def mark_us(one: Row) -> float | None:
        measured = (times.get((name, _problem_key(one))) for name in marks.get(one.variant, ()))
        return min((time for time in measured if time is not None), default=None)

    return [replace(one, percent_of_blas=percent(mark_us(one), one.median_us)) for one in rows]


def marks_of(variants: Iterable[Variant]) -> dict[str, tuple[str, ...]]:
    """For each variant the names of its baseline, and of those among them that tune it."""
    variants = tuple(variants)
    return {
        one.name: (
            one.baseline,
            *(other.name for other in variants if other.tunes and other.tunes == one.baseline),
        )
        for one in variants
    }


def _problem_key(one: Row) -> tuple[object, ...]:
    """All of the key but variant and tile: rows that may be compared with each other."""
    return tuple(getattr(one, name) for name in KEY if name not in {"variant", "tile"})
