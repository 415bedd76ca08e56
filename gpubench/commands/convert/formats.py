"""Result files in the forms that other programs read."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import gpubench
from gpubench.model import Status
from gpubench.results.nvbench import ROW
from gpubench.results.row import KEY, Row, encode, objects, texts

JSON_FORMAT = 1
"""Version of the form. It increases when a column is removed or changes its meaning."""

EXTENTS = {"m", "n", "k"}
"""Columns of the key that are whole numbers."""

USUAL = {"", "row-major", "uniform", "cold", "burst", "kernel", "events", "host"}
"""Values of the key that need not be part of a name."""


def _dumped(value: object) -> bytes:
    return f"{json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)}\n".encode()


def as_json(rows: Sequence[Row]) -> bytes:
    """Return the rows as objects of their columns."""
    document = {"format": JSON_FORMAT, "gpubench": gpubench.__version__, "rows": objects(rows)}
    return _dumped(document)


def as_benchmarks(rows: Sequence[Row]) -> bytes:
    """Return the times for the tool `customSmallerIsBetter` of github-action-benchmark."""
    return _dumped(
        [
            {
                "name": _name(row),
                "unit": "µs",
                "value": row.median_us,
                **({"range": f"± {100 * half:.1f} %"} if (half := row.half_interval) else {}),
                "extra": f"{row.device}, {row.rounds} rounds, gpubench {row.gpubench}",
            }
            for row in rows
            if row.status == Status.OK
        ]
    )


def _name(row: Row) -> str:
    """Name a point by all of its key that is not usual, so that no other point has the name."""
    key = (row.compute_mode, row.layout, row.operands, row.cache, row.state, row.scope, row.timer)
    special = (text for text in key if text not in {*USUAL, row.dtype})
    return ", ".join([f"{row.op} {row.label}", *special])


def as_nvbench(rows: Sequence[Row]) -> bytes:
    """Return NVBench's JSON, file version 1.0.0.

    An operation is a benchmark, the columns of the key are its axes, and a row is a state. A row
    without a time is a skipped state. The times stand under the tags of NVBench's isolated times on
    a GPU, because its tools read no others; the axes say what they are. NVBench has no rounds: its
    mean is the mean of the round medians, and its noise is their relative standard deviation. All
    other columns are in the summary `ROW`.
    """
    devices: dict[tuple[str | None, str | None], int] = {}
    for row in rows:
        devices.setdefault((row.device, row.slot), len(devices))
    by_op = sorted(rows, key=lambda row: row.op)
    return _dumped(
        {
            "meta": {
                "argv": ["gpubench", "convert"],
                "version": {"json": {"major": 1, "minor": 0, "patch": 0, "string": "1.0.0"}},
            },
            "devices": [
                {"id": number, "name": name or "unknown"} for (name, _), number in devices.items()
            ],
            "benchmarks": [
                _benchmark(number, op, list(group), devices)
                for number, (op, group) in enumerate(groupby(by_op, key=lambda row: row.op))
            ],
        }
    )


def _benchmark(
    number: int, op: str, rows: Sequence[Row], devices: Mapping[tuple[str | None, str | None], int]
) -> dict[str, object]:
    of_rows = [texts(row) for row in rows]
    axes = [
        {
            "name": name,
            "type": "int64" if name in EXTENTS else "string",
            "flags": "",
            "values": [
                {"input_string": text, "description": "", "value": text}
                for text in dict.fromkeys(columns.get(name, "") for columns in of_rows)
            ],
        }
        for name in KEY
        if name != "op"
    ]
    states = []
    for row, columns in zip(rows, of_rows, strict=True):
        values = [
            _value(str(axis["name"]), str(axis["type"]), columns.get(str(axis["name"]), ""))
            for axis in axes
        ]
        device = devices[row.device, row.slot]
        name = " ".join(f"{value['name']}={value['value']}" for value in values)
        state: dict[str, object] = {
            "name": f"Device={device} {name}",
            "device": device,
            "type_config_index": 0,
            "axis_values": values,
            "summaries": _summaries(row, columns),
            "is_skipped": row.status != Status.OK,
        }
        if row.status != Status.OK:
            state["skip_reason"] = f"{row.status}: {row.reason or ''}"
        states.append(state)
    return {
        "name": op,
        "index": number,
        "devices": sorted(set(devices.values())),
        "axes": axes,
        "states": states,
    }


def _value(name: str, kind: str, value: object) -> dict[str, object]:
    return {"name": name, "type": kind, "value": value}


def _summaries(row: Row, columns: Mapping[str, str]) -> list[dict[str, object]]:
    """Return the figures by NVBench's names, and the columns of the row beside its key."""
    others = [_value(name, "string", columns[name]) for name in columns if name not in KEY]
    whole: dict[str, object] = {
        "tag": ROW,
        "name": "row",
        "hide": "Hidden by default.",
        "data": others,
    }
    if row.status != Status.OK or not row.median_us:
        return [whole]
    medians = row.medians_us or [row.median_us]
    mean = statistics.fmean(medians)
    noise = statistics.stdev(medians) / mean if len(medians) > 1 else None
    figures = (
        ("time/gpu/mean", "Mean", "duration", mean, 1e-6),
        ("time/gpu/stdev/relative", "Noise", "percentage", noise, 1.0),
        ("time/gpu/median", "Median", "duration", row.median_us, 1e-6),
        ("time/gpu/q1", "Q1", "duration", row.q1_us, 1e-6),
        ("time/gpu/q3", "Q3", "duration", row.q3_us, 1e-6),
        ("time/gpu/min", "Min", "duration", row.min_us, 1e-6),
        ("time/gpu/max", "Max", "duration", row.max_us, 1e-6),
        ("sm_clock_rate/mean", "Clock rate", "frequency", row.sm_mhz, 1e6),
        ("bw/global/bytes_per_second", "Bandwidth", "byte_rate", row.gbytes_per_s, 1e9),
    )
    listed: list[dict[str, object]] = [
        {
            "tag": f"nv/cold/{tag}",
            "name": name,
            "hint": hint,
            "data": [_value("value", "float64", None if value is None else str(value * factor))],
        }
        for tag, name, hint, value, factor in figures
        if value is not None or name == "Noise"
    ]
    samples: dict[str, object] = {
        "tag": "nv/cold/sample_size",
        "name": "Samples",
        "hint": "sample_size",
        "data": [_value("value", "int64", str(row.samples or len(medians)))],
    }
    return [samples, *listed, whole]


FORMATS: dict[str, Callable[[Sequence[Row]], bytes]] = {
    "csv": encode,
    "json": as_json,
    "nvbench": as_nvbench,
    "github-action-benchmark": as_benchmarks,
}
"""The function that writes each value of `--to`."""
