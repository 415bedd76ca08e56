"""The progress of a sweep."""

import io
import re

import pytest
from fakes import CPU, FakeBackend, measurement, point, variant
from rich.console import Console

from gpubench.engine.measure.runner import Runner
from gpubench.engine.pool import LocalPool
from gpubench.engine.prepare import prepare
from gpubench.model import Config, Device, Measurement, Status
from gpubench.plan.schedule import Estimate, Visit
from gpubench.plan.sweep import Sweep
from gpubench.view import progress as module
from gpubench.view.progress import SweepProgress, times


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """The text that people see in a terminal of eighty columns."""
    shown = io.StringIO()
    terminal = Console(
        file=shown, width=80, force_terminal=True, color_system=None, highlight=False
    )
    monkeypatch.setattr(module, "console", lambda **_: terminal)
    return shown


FORESEEN = Estimate(kernels=2, least_s=10.0, expected_s=65.0, budget_s=None)

REASON = "operator[] takes no [/type], and [red] is none"
"""A reason with brackets, as of compilers. Brackets must not be read as markup of Rich."""


def planned(
    watcher: SweepProgress,
    points: int,
    visits: int,
    device: Device = CPU,
    notices: tuple[str, ...] = (),
) -> None:
    """Start the progress of a sweep."""
    backend = FakeBackend(device=device)
    backend.notices = notices
    sweep = Sweep(variants=("cpu_blas",), sizes=tuple((n, n, n) for n in range(1, points + 1)))
    pool = LocalPool(Runner(backend))
    watcher.planned(prepare(sweep, CPU), pool, visits, FORESEEN)


def use(watcher: SweepProgress) -> None:
    with watcher:
        planned(watcher, 2, 6, notices=("clocks stay empty: [no] NVML",))
        watcher.compiled(1)
        watcher.measuring(Visit(point=point(), name="round 1/3", left_s=65.0))
        watcher.measured(measurement(10.0))
        watcher.measured(Measurement(point=point(), status=Status.WRONG, reason=REASON))


def test_plain_progress_shows_every_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLAIN_EVERY_S", 0.0)
    monkeypatch.setattr(module, "monotonic", lambda: 0.0)
    use(SweepProgress())
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "clocks stay empty: [no] NVML",
        "Fake CPU (CPU): 2 points, 3 rounds; 2 kernels to compile, about 1:05",
        "compiling: 1 kernel",
        "[1/6] 0:00 elapsed, 1:05 left; round 1/3 fake at 64x48x32 float32",
        f"wrong: fake at 64x48x32 float32: {REASON}",
    ]


def test_plain_progress_is_quiet_between_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = SweepProgress()
    planned(watcher, 100, 100)
    for _ in range(50):
        watcher.measuring(Visit(point=point(), name="", left_s=1.0))
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_live_progress_keeps_heading_notices_and_failures(screen: io.StringIO) -> None:
    use(SweepProgress())
    shown = screen.getvalue()
    for line in (
        "Fake CPU (CPU): 2 points, 3 rounds; 2 kernels to compile, about 1:05",
        "clocks stay empty: [no] NVML",
        f"wrong: fake at 64x48x32 float32: {REASON}",
    ):
        assert line in shown


def test_live_progress_serves_several_sweeps(screen: io.StringIO) -> None:
    watcher = SweepProgress()
    with watcher:
        for points in (2, 5):
            planned(watcher, points, points)
            watcher.measured(measurement(10.0))
    assert "5 points" in screen.getvalue()


def test_a_heading_says_what_runs_where(capsys: pytest.CaptureFixture[str]) -> None:
    gpu = Device(backend="cuda", name="NVIDIA H200", index=1)
    planned(SweepProgress(), 7, 7)
    planned(SweepProgress(), 7, 14, device=gpu)
    assert capsys.readouterr().err.splitlines() == [
        f"Fake CPU (CPU): 7 points; {FORESEEN}",
        f"NVIDIA H200 (cuda:1): 7 points, 2 rounds; {FORESEEN}",
    ]


def test_the_time_left_is_in_minutes_and_seconds() -> None:
    assert times(5.2, 0.0) == "0:05 elapsed"
    assert times(61.0, 3725.0) == "1:01 elapsed, 62:05 left"


def test_live_progress_fits_into_eighty_columns(screen: io.StringIO) -> None:
    watcher = SweepProgress()
    with watcher:
        planned(watcher, 999, 8991)
        long = variant(name="a_kernel_with_quite_a_long_name_of_its_own")
        at = point(long, tile=Config.parse("128x128x8/8x8/s3"))
        watcher.measuring(Visit(point=at, name="round 9/9", left_s=3725.0))
        watcher.measured(measurement(10.0, point(long)))
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()).replace("\r", "\n")
    assert re.search(r"0:\d\d elapsed, 62:05 left", lines)
    assert max(map(len, lines.splitlines())) <= 80
