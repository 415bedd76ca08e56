"""The file of a running sweep, and how an interrupted sweep continues it."""

import errno
import re
import resource
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from fakes import measured, measurement, point, variant

from gpubench.errors import UsageError
from gpubench.model import Config, Health, Launch, Measurement, Resources, Status
from gpubench.results.result_file import ResultFile
from gpubench.results.row import read

CONTEXT = {"gpubench": "1", "options": {"sizes": "8"}, "sources": {"naive": "abc"}}
POINT = point()
POINTS = {POINT.key: POINT}.get


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def kept(partial: Path) -> list[float]:
    """Return the medians in a partial file, whose first line is its context."""
    lines = [msgspec.json.decode(line) for line in partial.read_bytes().splitlines()[1:]]
    return [max(line["measurement"]["series"]["times_us"]) for line in lines]


def test_measurements_are_forced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    file = ResultFile(tmp_path / "a.csv")
    file.open(CONTEXT, POINTS)
    monkeypatch.setattr(
        "os.fsync", lambda _descriptor: forced.append(len(kept(tmp_path / "a.csv.partial")))
    )
    for _ in range(3):
        file.add(measurement(1.0, POINT))
    assert forced == [1, 2, 3]
    file.finish([measured()], complete=True)


def test_a_file_named_gz_is_compressed_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    file = ResultFile(path)
    file.open(CONTEXT, POINTS)
    file.finish([measured(2.0)], complete=True)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert read(path) == [measured(2.0)]


def test_samples_are_kept_where_they_are_asked_for(tmp_path: Path) -> None:
    samples = tmp_path / "kept" / "samples.jsonl"
    file = ResultFile(tmp_path / "a.csv", samples=samples)
    file.open(CONTEXT, POINTS)
    file.add(measurement(1.0, POINT))
    file.finish([measured(1.0)], complete=True)
    assert files_in(tmp_path) == ["a.csv", "kept"]
    assert kept(samples) == [1.0]
    for resume in (False, True):
        again = ResultFile(tmp_path / "b.csv", resume=resume, samples=samples)
        with pytest.raises(UsageError, match=r"--samples: .* exists"):
            again.open(CONTEXT, POINTS)
    assert kept(samples) == [1.0]


def test_a_measurement_is_read_back_as_it_was_kept(tmp_path: Path) -> None:
    tiled = point(variant(name="tiled"), tile=Config.parse("16"))
    health = Health(sm_mhz=1980.0, temperature_c=50.0, throttle=("power cap",))
    whole = replace(
        measurement(3.5, tiled),
        resources=Resources(registers=32, local_bytes=0, spill_bytes=0, shared_bytes=2048),
        launch=Launch(grid=(64, 64), block=(16, 16), shared_bytes=100),
        after=health,
        device_uuid="GPU-1",
    )
    failed = Measurement(point=POINT, status=Status.ERROR, reason='first\nsecond, "third"')
    file = ResultFile(tmp_path / "a.csv")
    file.open(CONTEXT, {p.key: p for p in (POINT, tiled)}.get)
    for taken in (whole, failed):
        file.add(taken)
    file.close()
    again = ResultFile(tmp_path / "a.csv", resume=True)
    assert again.open(CONTEXT, {p.key: p for p in (POINT, tiled)}.get) == [whole, failed]
    again.close()


@pytest.mark.parametrize("name", ["a.csv", "a.csv.partial"])
def test_an_existing_file_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    with pytest.raises(UsageError, match=rf"{name} exists; --(force|resume)"):
        ResultFile(tmp_path / "a.csv").open(CONTEXT, POINTS)
    assert files_in(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "precious"


def test_overwriting_keeps_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("old")
    file = ResultFile(tmp_path / "a.csv", overwrite=True)
    file.open(CONTEXT, POINTS)
    file.add(measurement(1.0, POINT))
    assert (tmp_path / "a.csv").read_text() == "old"
    file.finish([measured()], complete=True)
    assert read(tmp_path / "a.csv") == [measured()]


@pytest.mark.parametrize("complete", [True, False])
def test_an_old_partial_file_stays_until_a_point_is_measured(
    tmp_path: Path, complete: bool
) -> None:
    skipped = replace(measurement(1.0, POINT), status=Status.SKIPPED, series=None, reason="small")
    started(tmp_path, 1.0)
    partial = tmp_path / "a.csv.partial"
    before = partial.read_bytes()
    file = ResultFile(tmp_path / "a.csv", overwrite=True)
    file.open(CONTEXT, POINTS)
    file.add(skipped)
    assert partial.read_bytes() == before
    with pytest.raises(UsageError, match="is being written by another gpubench"):
        ResultFile(tmp_path / "a.csv", overwrite=True).open(CONTEXT, POINTS)
    assert not file.finish([replace(measured(), status=Status.SKIPPED)], complete=complete)
    file.remove_partial()
    assert files_in(tmp_path) == ["a.csv.partial"]
    assert partial.read_bytes() == before
    file = ResultFile(tmp_path / "a.csv", overwrite=True)
    file.open(CONTEXT, POINTS)
    file.add(skipped)
    file.add(measurement(2.0, POINT))
    file.add(measurement(3.0, POINT))
    file.close()
    again = ResultFile(tmp_path / "a.csv", resume=True)
    expected = [skipped, measurement(2.0, POINT), measurement(3.0, POINT)]
    assert again.open(CONTEXT, POINTS) == expected
    again.close()


def test_a_disk_full_at_the_end_keeps_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ResultFile(tmp_path / "a.csv")
    file.open(CONTEXT, POINTS)
    file.add(measurement(1.0, POINT))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises((OSError, UsageError), match="No space left"):
        file.finish([measured(1.0)], complete=True)
    assert files_in(tmp_path) == ["a.csv.partial"]
    assert kept(tmp_path / "a.csv.partial") == [1.0]


def test_closing_after_the_disk_was_full_hides_no_error(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "a.csv")
    file.open(CONTEXT, POINTS)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.partial.stat().st_size + 9, limits[1]))
    try:
        with pytest.raises(UsageError, match="File too large"):
            file.add(measurement(1.0, POINT))
        file.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert resumed(tmp_path) == []


# ---- continuing


def started(folder: Path, *medians_us: float) -> Path:
    """Return the file of a sweep that ended after these rows."""
    file = ResultFile(folder / "a.csv")
    assert file.open(CONTEXT, POINTS) == []
    for median_us in medians_us:
        file.add(measurement(median_us, POINT))
    file.close()
    return file.partial


def resumed(folder: Path, context: dict[str, object] = CONTEXT) -> list[float | None]:
    file = ResultFile(folder / "a.csv", resume=True)
    try:
        return [taken.series.median_us for taken in file.open(context, POINTS)]
    finally:
        file.close()


def test_a_resumed_file_has_the_rows_it_had(tmp_path: Path) -> None:
    started(tmp_path, 1.0, 2.0)
    file = ResultFile(tmp_path / "a.csv", resume=True)
    assert file.open(CONTEXT, POINTS) == [measurement(1.0, POINT), measurement(2.0, POINT)]
    file.add(measurement(3.0, POINT))
    assert kept(tmp_path / "a.csv.partial") == [1.0, 2.0, 3.0]
    file.finish([measured(2.0)], complete=False)
    assert files_in(tmp_path) == ["a.csv", "a.csv.partial"]
    assert resumed(tmp_path) == [1.0, 2.0, 3.0]


@pytest.mark.slow
def test_a_line_cut_anywhere_is_dropped_and_no_other(tmp_path: Path) -> None:
    partial = started(tmp_path, 1.0, 2.0)
    whole = partial.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for length in (*range(last, len(whole) - 9, 9), *range(len(whole) - 9, len(whole))):
        partial.write_bytes(whole[:length])
        assert resumed(tmp_path) == [1.0], length
        assert partial.read_bytes() == whole[:last]
    partial.write_bytes(whole)
    assert resumed(tmp_path) == [1.0, 2.0]


def test_a_last_line_of_zeros_after_a_power_cut_is_dropped(tmp_path: Path) -> None:
    partial = started(tmp_path, 1.0)
    with partial.open("ab") as file:
        file.write(b"\0" * 300)
    assert resumed(tmp_path) == [1.0]


TIMES = rb'"times_us":\[[\d.,]*\]'


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (rb",64,48,", b',64,"forty-eight",', ".*must be a whole number, not text"),
        (rb",64,48,", b",64,49,", "fake  is not a point of this sweep"),
        (rb'"status":"ok",', b"", ".*the key 'status' is missing"),
        (rb'"times_us":\[', b'"times_us":["x",', ".*must be a number, not text"),
        (TIMES, b'"times_us":[1e308,1e308]', r".*1e\+308"),
        (TIMES, b'"times_us":[]', ".*empty"),
        (TIMES, b'"times_us":[-1.0]', ".*-1.0"),
        (TIMES, b'"times_us":[0.0]', ".*0.0"),
        (rb'"launches_per_sample":4', b'"launches_per_sample":0', ".*launches_per_sample is 0"),
        (rb'"series":\{[^}]*\}', b'"series":null', ".*has no times"),
    ],
)
def test_a_line_that_no_sweep_writes_is_named_and_the_file_left_as_it_is(
    tmp_path: Path, old: bytes, new: bytes, named: str
) -> None:
    partial = started(tmp_path, 1.0, 2.0)
    damaged, count = re.subn(old, new, partial.read_bytes(), count=1)
    assert count == 1
    partial.write_bytes(damaged)
    with pytest.raises(UsageError, match=f"a.csv.partial:2: {named}"):
        resumed(tmp_path)
    assert partial.read_bytes() == damaged


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"gpubench": "2"}, "gpubench was 1, and is 2 now"),
        ({"options": {"sizes": "9"}}, "options: sizes was 8, and is 9 now"),
        ({"options": {"sizes": "8", "tiles": "4"}}, "options: tiles was None, and is 4 now"),
        ({"sources": {"naive": "abd"}}, "sources: naive was abc, and is abd now"),
        ({"versions": {"driver": "590"}}, "versions: driver was None, and is 590 now"),
    ],
)
def test_changed_settings_are_named(tmp_path: Path, changed: dict[str, object], named: str) -> None:
    partial = started(tmp_path, 1.0)
    before = partial.read_bytes()
    with pytest.raises(UsageError, match=named):
        resumed(tmp_path, CONTEXT | changed)
    assert partial.read_bytes() == before


@pytest.mark.parametrize("name", ["a.csv", "a.csv.partial", "link"])
def test_samples_are_not_written_into_the_files_of_the_sweep(tmp_path: Path, name: str) -> None:
    started(tmp_path, 1.0)
    (tmp_path / "link").symlink_to("a.csv.partial")
    before = (tmp_path / "a.csv.partial").read_bytes()
    file = ResultFile(tmp_path / "a.csv", resume=True, samples=tmp_path / name)
    with pytest.raises(UsageError, match=r"--samples: .* the sweep writes itself"):
        file.open(CONTEXT, POINTS)
    assert (tmp_path / "a.csv.partial").read_bytes() == before
