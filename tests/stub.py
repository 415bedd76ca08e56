"""A stand-in for the measuring process, which runs nothing.

Every point takes 10 to 14 microseconds, which depend on its tile and size.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Self
from unittest.mock import patch

import matplotlib.font_manager  # noqa: F401 # its first import starts a program that finds fonts
from fakes import CPU, FakeBackend, series

from gpubench.commands.explain.code import Code, Codes, Program
from gpubench.commands.new_kernel.proof import Proof
from gpubench.engine.worker import Worker
from gpubench.errors import CompileError, DeviceUnavailableError
from gpubench.model import Measurement, Point, Status, Timer, Timing, Variant
from gpubench.plan.descriptor import load

MAX_POINTS = 40
"""Number of points after which Ctrl-C is raised, because a sweep may have a hundred thousand."""

WRONG = "lazy"
"""Name of a variant whose results are wrong."""


class StubWorker:
    """An `Executor` whose methods replace those of `Worker`."""

    spent_s: Mapping[str, float] = {}

    def __init__(self, _device: str, _timer: Timer, **_options: object) -> None:
        self._left = MAX_POINTS
        self.device, self.notices = CPU, ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def begin(self, timing: Timing, seed: int, verified: Sequence[Measurement]) -> None:
        pass

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        on_built(len(points))

    def warm_up(self) -> None:
        pass

    def next_round(self) -> None:
        pass

    def ceilings(self, _dtypes: Sequence[str], _kept: bool = False) -> dict[str, float]:
        return {"measured_copy_gbytes_per_s": 50.0}

    def row_digests(
        self, _point: Point, rows: int, seed: int, launches: int
    ) -> list[tuple[str, str]]:
        return [(f"{seed}", f"{seed} {rows}")] * launches

    def measure(self, point: Point, _share_s: float | None = None) -> Measurement:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1
        tile = zlib.crc32(str(point.tile).encode()) % 4
        if point.variant.name == WRONG:
            return Measurement(point=point, status=Status.WRONG, reason="half is missing")
        return Measurement(
            point=point,
            status=Status.OK,
            max_relative_error=0.0,
            series=series(10.0 + tile + point.problem.m / 1000),
            started_utc=f"2026-01-01T00:00:00.{self._left:03}+00:00",  # no two lines are equal
        )


_METHODS = {
    name: value
    for name, value in vars(StubWorker).items()
    if name in {"__init__", "__enter__", "__exit__"} or not name.startswith("__")
}


def _no_compiler(*_: object) -> None:
    raise CompileError("no kernel is compiled here")


def _no_programs(programs: Sequence[Program], _on_compiled: object) -> dict[Program, Codes]:
    code = Code(error="no kernel is compiled here")
    return {program: dict.fromkeys(program.instances, code) for program in programs}


def _no_proof(_variant: Variant, _kernels: Path) -> Proof:
    return Proof(reason="no program is started here")


def _no_cluster(_device: str) -> None:
    raise DeviceUnavailableError("no process is started here")


@contextmanager
def nothing_measured() -> Iterator[None]:
    """Replace everything that measures or compiles. Commands plan, read, write and print."""
    with ExitStack() as stack:
        stack.enter_context(patch.multiple(Worker, **_METHODS))
        for name, replacement in {
            "gpubench.commands.operand_files.run.open_backend": lambda _device: FakeBackend(),
            "gpubench.commands.deviceinfo.view.with_ceilings": lambda device: device,
            "gpubench.backends.cuda.compile.compile_instance": _no_compiler,
            "gpubench.commands.explain.instances.compile_programs": _no_programs,
            "gpubench.backends.cuda.nvcc.compile_library": _no_compiler,
            "gpubench.commands.check.run.require_architecture": _no_compiler,
            # the following functions would start programs
            "gpubench.commands.explain.build.disassembler_version": lambda: "",
            "gpubench.commands.explain.code.disassembler_version": lambda: "",
            "gpubench.engine.cluster._own_cluster": _no_cluster,
            "gpubench.engine.cluster.devices_of": _no_cluster,
            "gpubench.commands.check.run._check_source": lambda *_, **__: 3,
            "gpubench.backends.cuda.ncu.find_ncu": lambda: None,
            "gpubench.commands.diff.ab.unpacked": lambda _name, path: nullcontext(path),
            "gpubench.plan.description_process.load": load,
            "gpubench.plan.from_source.files.shutil": SimpleNamespace(which=lambda _name: None),
            "gpubench.backends.c_function.shutil": SimpleNamespace(which=lambda _name: None),
            "gpubench.commands.new_kernel.run.prove": _no_proof,
            "gpubench.on_cpu.accesses.missing_tool": lambda: "no program is started here",
            "gpubench.results.provenance._git": lambda *_arguments: "",
            "ctypes.util.find_library": lambda _name: None,
            # generate would write files up to the size of free memory
            "gpubench.commands.operand_files.files.free_memory_bytes": lambda: 2**20,
            "gpubench.commands.operand_files.run.free_memory_bytes": lambda: 2**20,
        }.items():
            stack.enter_context(patch(name, replacement))
        yield
