"""ARCHITECTURE.md follows a point through the modules. A traced run enters the same modules."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from fakes import FakeBackend
from newcomer import REPOSITORY

import gpubench
from gpubench.engine import worker
from gpubench.engine.child.calls import Opened
from gpubench.engine.child.supervisor import Supervisor
from gpubench.engine.measure.runner import Runner
from gpubench.engine.pool import Watcher
from gpubench.engine.run import measure
from gpubench.options import read_sweep

PACKAGE = Path(gpubench.__file__).parent
ENTRIES = {
    "options.py": "read_sweep",
    "engine/run.py": "measure",
    "engine/prepare.py": "prepare",
    "plan/sweep.py": "plan",
    "engine/pool.py": "LocalPool.measure",
    "plan/schedule.py": "Rounds.each",
    "engine/worker.py": "Worker.measure",
    "engine/measure/visits.py": "Visits.visit",
    "engine/measure/sampling.py": "collect",
    "results/rows.py": "build_rows",
}
"""The function that takes each step of a point, except for steps of the CUDA backend."""


class InThisProcess(Supervisor):
    """A supervisor that calls the child's methods in this process, on a fake device."""

    def open(self, _owner: str = "") -> Opened:
        self.runner = Runner(FakeBackend())
        return Opened(self.runner.device, ())

    def request(self, _limit_s: float, method: Any, *arguments: Any, **named: Any) -> Any:
        return method(self.runner, *arguments, **named)

    def compile(self, *_arguments: object) -> None:
        """Compile nothing: the backend is a fake."""


def traced(run: Callable[[], object]) -> list[tuple[str, str]]:
    """Run a function; return the module and function of each call in the package, in order."""
    calls: list[tuple[str, str]] = []

    def record(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            calls.append((str(Path(code.co_filename).relative_to(PACKAGE)), code.co_qualname))

    sys.setprofile(record)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def test_a_traced_point_takes_the_steps_of_the_page_and_enters_no_other_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "supervisor_of", InThisProcess)
    flags = {"device": "cpu", "variants": "cpu_naive", "sizes": "16", "rounds": "1"}
    flags["output"] = str(tmp_path / "a.csv")
    calls = traced(lambda: measure(read_sweep(flags), Watcher()))
    page = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
    _, _, section = page.partition("\n## The way of one point\n")
    section, _, _ = section.partition("\n## ")
    steps = re.findall(r"^\d+\. `gpubench/(\S+\.py)`", section, re.MULTILINE)
    assert [step for step in steps if not step.startswith("backends/cuda/")] == list(ENTRIES)
    first = [calls.index(entry) for entry in ENTRIES.items()]
    assert first == sorted(first), "ARCHITECTURE.md has the steps of a point in another order"
    named = set(re.findall(r"`(?:gpubench/)?((?:engine|plan|results)/\S+\.py)`", section))
    entered = {
        module
        for module, _ in calls
        if module.startswith(("engine/", "plan/", "results/")) and "__init__" not in module
    }
    assert len(entered) > 20
    missing = sorted(entered - named)
    assert missing == [], "name these modules in ARCHITECTURE.md, in 'The way of one point'"
