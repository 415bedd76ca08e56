"""NVBench's JSON files: the columns of rows that a file holds.

The times are in seconds, under the tags in `SOURCES`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from gpubench.errors import UsageError
from gpubench.results.columns import MAX_BYTES, MAX_ROWS

SOURCES = {
    "nv/cold": ("gpu", {"backend": "cuda", "cache": "cold", "timer": "events"}),
    "nv/batch": ("gpu", {"backend": "cuda", "cache": "hot", "timer": "events"}),
    "nv/cpu_only": ("cpu", {"backend": "cpu", "cache": "hot", "timer": "host"}),
}
"""The measurements that a state may have: the beginning of their tags, the clock, the key."""

FIGURES = {"q1": "q1_us", "q3": "q3_us", "min": "min_us", "max": "max_us"}
"""The column of each figure of a measurement that is copied."""


class _Value(msgspec.Struct):
    name: str
    value: str | int | float | None = None

    @property
    def text(self) -> str:
        return "" if self.value is None else str(self.value)


class _Summary(msgspec.Struct):
    tag: str
    data: list[_Value] = []


class _State(msgspec.Struct):
    name: str = ""
    device: int | None = None
    axis_values: list[_Value] | None = None
    summaries: list[_Summary] | None = None
    is_skipped: bool = False
    skip_reason: str | None = None


class _Benchmark(msgspec.Struct):
    name: str
    states: list[_State]


class _Device(msgspec.Struct):
    id: int
    name: str
    sm_version: int | None = None


class _File(msgspec.Struct):
    benchmarks: list[_Benchmark]
    devices: list[_Device] | None = None


def read_fields(path: Path, key: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the place and the fields of each row, as texts. `key` names the columns of the key.

    The name of a benchmark becomes `op`. An axis that is named like a column of the key, in any
    case, becomes that column; the other axes together become the variant. If the file has several
    devices, the variant begins with the device's number. Each measurement of a state
    becomes a row: NVBench's batch has hot caches. If the file has no median of a measurement, the
    time is NVBench's mean, and the notes say so.

    Raises UsageError for a file that cannot be read.
    """
    file = _read(path)
    devices = {device.id: device for device in file.devices or ()}
    for benchmark in file.benchmarks:
        for number, state in enumerate(benchmark.states):
            fields = dict.fromkeys(key, "") | dict.fromkeys("mnk", "1")
            fields |= {"op": benchmark.name, "state": "burst", "scope": "kernel"}
            others = [f"Device={state.device}"] if len(devices) > 1 else []
            for axis in state.axis_values or ():
                if axis.name.lower() in key:
                    fields[axis.name.lower()] = axis.text
                else:
                    others.append(f"{axis.name}={axis.text}")
            fields["variant"] = fields["variant"] or " ".join(others) or benchmark.name
            if device := devices.get(-1 if state.device is None else state.device):
                fields["device"] = ", ".join(dict.fromkeys(each.name for each in devices.values()))
                if device.sm_version:
                    major, minor = divmod(device.sm_version // 10, 10)
                    fields["compute_capability"] = f"{major}.{minor}"
            place = f"{path}, benchmark '{benchmark.name[:60]}', state {number}"
            for row in _rows(state):
                yield place, fields | row


def _read(path: Path) -> _File:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UsageError(f"{path}: more than {MAX_BYTES // 2**20} MiB")
        read = msgspec.json.decode(content, type=_File)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not a JSON file of NVBench: {error}") from error
    if sum(len(benchmark.states) for benchmark in read.benchmarks) > MAX_ROWS:
        raise UsageError(f"{path}: more than {MAX_ROWS:,} states")
    return read


def _rows(state: _State) -> Iterator[dict[str, str]]:
    """Yield the fields of each measurement of a state."""
    values = {
        summary.tag: value.text
        for summary in state.summaries or ()
        for value in summary.data
        if value.name == "value"
    }
    empty = True
    for source, (clock, key) in SOURCES.items():
        times = f"{source}/time/{clock}"
        if f"{times}/mean" in values and not state.is_skipped:
            empty = False
            row = key | {"status": "ok", "rounds": "1"}
            row["median_us"] = _scaled(values.get(f"{times}/median"), 1e6)
            if not row["median_us"]:
                row["median_us"] = _scaled(values[f"{times}/mean"], 1e6)
                row["notes"] = "the time is NVBench's mean; the file has no median"
            row["round_medians_us"] = row["median_us"]
            row["samples"] = values.get(f"{source}/sample_size", "")
            for name, column in FIGURES.items():
                row[column] = _scaled(values.get(f"{times}/{name}"), 1e6)
            row["sm_mhz"] = _scaled(values.get(f"{source}/sm_clock_rate/mean"), 1e-6)
            bandwidth = values.get(f"{source}/bw/global/bytes_per_second")
            row["gbytes_per_s"] = _scaled(bandwidth, 1e-9)
            yield row
    if empty:
        status = "skipped" if state.is_skipped else "error"
        reason = state.skip_reason or "NVBench reports no time"
        yield SOURCES["nv/cold"][1] | {"status": status, "reason": reason}


def _scaled(text: str | None, factor: float) -> str:
    """Return a number as text in another unit; any other text unchanged, to be refused."""
    try:
        return str(float(text) * factor) if text else ""
    except ValueError:
        return str(text)
