"""Measures in a child process, so that a kernel's crash or hang costs one point, not the sweep."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from gpubench.cache import environment_with_caches
from gpubench.errors import DeviceBusyError, DeviceUnavailableError
from gpubench.measure.child import Built, Done, Opened, Raised
from gpubench.measure.lock import DeviceLock
from gpubench.model import Device, Measurement, Point, Status, Timer, Timing

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from gpubench.measure.child import serve; serve(int(sys.argv[1]), *sys.argv[2:])"
)
"""The child's program: it imports from where we do, whatever the current folder holds."""

THREADS_SLEEP = {"OPENBLAS_THREAD_TIMEOUT": "4"}
"""Idle threads of OpenBLAS sleep after 2⁴ clock ticks. As it is built they keep their CPUs busy for
2²⁶ or more, into the next kernel's samples, and where other work wants a CPU a product waits for
them (docs/decisions/0019)."""

START_LIMIT_S = 120.0
"""For the child to open its device: a first import of everything from a slow disk."""

COMPILE_LIMIT_S = 300.0
"""Without one more kernel built. The largest register tiles take half a minute."""

SILENT_VARIABLES = (
    "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATE_DOUBLE_PRECISION",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUPY_TF32",
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS"),
    "NUMBA_NUM_THREADS",
)
"""Variables that change what libraries compute, or how fast, without a word in the results: the
child does not get them, and rows record them. The backend sets the number of threads itself."""

MAX_FAULTS = 5
"""Children in a row that a variant may cost; after that its other points are skipped."""


class ChildLostError(Exception):
    """The child crashed, or was killed because it hung; the message says which."""


class Worker:
    """An `Executor` whose points run in a child process, replaced when a point takes it down.

    Raises DeviceUnavailableError where the device or the timer is missing, DeviceBusyError
    where another sweep holds the GPU.
    """

    def __init__(self, device: str, timer: Timer) -> None:
        self._asked = (device, timer)
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._policy: tuple[Timing, int] | None = None
        self._measured: dict[Point, Measurement] = {}
        """What came of each point last: a new child need not verify it again."""

        self._faults: Counter[str] = Counter()
        """Children that each variant has cost since one of its points was measured."""

        self._spent_s: defaultdict[str, float] = defaultdict(float)
        self._childs_s: dict[str, float] = {}
        self._environment, unkept = environment_with_caches()
        opened = self._start()
        had = (f"{name}={os.environ[name]}" for name in SILENT_VARIABLES if name in os.environ)
        facts = opened.device.facts | {"environment": ";".join(had) or None}
        self._device, self._notices = replace(opened.device, facts=facts), opened.notices
        self._lock = DeviceLock(self._device)
        try:
            unlocked = self._lock.take()
        except DeviceBusyError:
            self._end()
            raise
        self._notices = (*filter(None, (unkept, unlocked)), *self._notices)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._end()
        self._lock.give_back()

    @property
    def device(self) -> Device:
        """As the first child described it."""
        return self._device

    @property
    def notices(self) -> tuple[str, ...]:
        """The first child's, and what cannot be kept or locked."""
        return self._notices

    @property
    def spent_s(self) -> Mapping[str, float]:
        """All children's time by phase, and ours to start them."""
        names = dict.fromkeys((*self._spent_s, *self._childs_s))
        return {n: self._spent_s.get(n, 0.0) + self._childs_s.get(n, 0.0) for n in names}

    def begin(self, timing: Timing, seed: int) -> None:
        """Give the child the policy; later children get the same."""
        self._spent_s.clear()
        self._policy = timing, seed
        self._childs_s = {}
        self._faults.clear()
        self._measured.clear()
        if self._process is None:
            self._start()
        self._ask("begin", *self._policy, limit_s=START_LIMIT_S)

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Build ahead. If that takes the child down, each point is built when it is measured."""
        try:
            self._ask("compile", list(points), limit_s=COMPILE_LIMIT_S, on_built=on_built)
        except ChildLostError:
            self._end()

    def warm_up(self) -> None:
        """In this child; a later one warms up when it starts."""
        if self._process is not None:
            self._ask("warm_up", limit_s=START_LIMIT_S)

    def copy_gbytes_per_s(self) -> float:
        """As the child measures it."""
        if self._process is None:
            self._restart()
        rate: float = self._ask("copy_gbytes_per_s", limit_s=START_LIMIT_S).value
        return rate

    def next_round(self) -> None:
        """A new child for the next point."""
        self._end()

    def measure(self, point: Point, wall_limit_s: float | None = None) -> Measurement:
        """Measure in the child. A fault that takes it down is an `error` row with the cause."""
        name = point.variant.name
        if self._faults[name] >= MAX_FAULTS:
            return Measurement(
                point=point,
                status=Status.SKIPPED,
                reason=f"{MAX_FAULTS} points of {name} in a row took their process down",
            )
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self._process is None:
            self._restart()
        try:
            arguments = (point, wall_limit_s, self._measured.get(point))
            answer = self._ask("measure", *arguments, limit_s=self._limit_s)
            result: Measurement = answer.value
        except ChildLostError as lost:
            self._faults[name] += 1
            self._end()
            return Measurement(
                point=point, status=Status.ERROR, reason=str(lost), started_utc=started
            )
        if not answer.usable:
            self._faults[name] += 1
            self._end()
        elif result.status == Status.OK:
            self._faults[name] = 0
        if result.status == Status.OK:
            self._measured[point] = result
        return replace(result, point=point)  # ours: the child loaded its own descriptors

    @property
    def _limit_s(self) -> float:
        return self._policy[0].hang_s if self._policy else START_LIMIT_S

    def _restart(self) -> None:
        """A fresh child, ready to measure. The kernels it needs are in the cache on disk."""
        try:
            self._start()
            if self._policy:
                self._ask("begin", *self._policy, limit_s=START_LIMIT_S)
            self._ask("warm_up", limit_s=START_LIMIT_S)
        except ChildLostError as lost:
            raise DeviceUnavailableError(
                f"the device does not work any more: a fresh process {lost}"
            ) from lost

    def _start(self) -> Opened:
        started = time.perf_counter()
        ours, theirs = Pipe()
        device, timer = self._asked
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 # this interpreter, our own code
                [
                    *(sys.executable, "-P", "-c", BOOT, json.dumps(sys.path)),
                    *(str(theirs.fileno()), device, str(timer)),
                ],
                stdin=subprocess.DEVNULL,
                env={
                    **{
                        name: text
                        for name, text in self._environment.items()
                        if name not in SILENT_VARIABLES
                    },
                    **THREADS_SLEEP,
                },
                pass_fds=(theirs.fileno(),),
            )
        self._pipe = ours
        try:
            opened = self._receive(START_LIMIT_S)
        except ChildLostError as lost:
            raise DeviceUnavailableError(f"the measuring process {lost}") from lost
        self._spent_s["starting"] += time.perf_counter() - started
        if isinstance(opened, Raised):
            self._end()
            raise opened.error
        if not isinstance(opened, Opened):
            raise TypeError(f"the child started with {opened!r}")
        return opened

    def _ask(
        self,
        name: str,
        *arguments: object,
        limit_s: float,
        on_built: Callable[[int], None] = lambda _count: None,
    ) -> Done:
        """Call a method of the child's executor. Raises ChildLostError, or what it raised."""
        if self._pipe is None:
            raise ChildLostError("is gone")
        try:
            self._pipe.send((name, arguments))
        except OSError as error:
            raise ChildLostError(self._why_lost()) from error
        while isinstance(answer := self._receive(limit_s), Built):
            on_built(answer.count)
        if isinstance(answer, Raised):
            raise answer.error
        if not isinstance(answer, Done):
            raise TypeError(f"the child answered {answer!r}")
        self._childs_s = answer.spent_s
        return answer

    def _receive(self, limit_s: float) -> object:
        if self._pipe is None:
            raise ChildLostError("is gone")
        try:
            if not self._pipe.poll(limit_s):
                raise ChildLostError(f"hung: no answer within {limit_s:g} s; killed")
            return self._pipe.recv()
        except (EOFError, OSError) as error:
            raise ChildLostError(self._why_lost()) from error

    def _why_lost(self) -> str:
        """How the child ended, in words."""
        if self._process is None:
            return "is gone"
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return "closed its pipe; killed"
        if code < 0:
            return f"crashed: {signal.strsignal(-code)} (signal {-code})"
        return f"ended by itself with exit code {code}"

    def _end(self) -> None:
        """Kill the child, whatever it does; what it spent is kept."""
        for name, spent in self._childs_s.items():
            self._spent_s[name] += spent
        self._childs_s = {}
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
