"""What stands for the measuring process: every point takes ten microseconds, and none is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self
from unittest.mock import patch

import matplotlib.font_manager  # noqa: F401 # it looks for fonts, once, and not under watch
from fakes import CPU, FakeBackend, series

from gpubench.errors import CompileError
from gpubench.model import Device, Measurement, Point, Status, Timer, Timing

MAX_POINTS = 40
"""Then somebody presses Ctrl-C: a sweep may have a hundred thousand points."""


class StubWorker:
    """An `Executor` in the place of `Worker`."""

    notices: tuple[str, ...] = ()
    spent_s: Mapping[str, float] = {}

    def __init__(self, _device: str, _timer: Timer) -> None:
        self._left = MAX_POINTS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    @property
    def device(self) -> Device:
        return CPU

    def begin(self, timing: Timing, seed: int) -> None:
        pass

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        on_built(len(points))

    def warm_up(self) -> None:
        pass

    def next_round(self) -> None:
        pass

    def copy_gbytes_per_s(self) -> float:
        return 50.0

    def measure(self, point: Point, _share_s: float | None = None) -> Measurement:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1
        return Measurement(
            point=point,
            status=Status.OK,
            max_relative_error=0.0,
            series=series(10.0 + point.problem.m / 1000),
            started_utc="2026-01-01T00:00:00.000+00:00",
        )


def _no_compiler(*_: Any, **__: Any) -> None:
    raise CompileError("no kernel is compiled here")


@contextmanager
def nothing_measured() -> Iterator[None]:
    """Commands plan, read, write and print as ever; what would measure or compile is a stand-in."""
    with ExitStack() as stack:
        for module in (
            *("api", "view.running", "commands.reproduce.run", "commands.explain.run"),
            *("commands.selfcheck.measure", "commands.diff.again"),
        ):
            stack.enter_context(patch(f"gpubench.{module}.Worker", StubWorker))
        stack.enter_context(patch("gpubench.commands.operand_files.run.open_backend", _backend))
        stack.enter_context(patch("gpubench.commands.explain.run.compile_instance", _no_compiler))
        stack.enter_context(patch("gpubench.commands.deviceinfo.view.measured", lambda one: one))
        # It asks programs where libraries are.
        stack.enter_context(patch("ctypes.util.find_library", lambda _name: None))
        small = patch("gpubench.backends.cpu.CpuBackend.bytes_free", lambda _self: 2**20)
        stack.enter_context(small)  # for generate, whose file may be as large as memory
        yield


def _backend(_device: str) -> FakeBackend:
    return FakeBackend()
