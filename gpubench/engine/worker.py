"""Measures in a child process, so that a kernel's crash or hang costs one point, not the sweep."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter
from types import TracebackType
from typing import Self

from gpubench.backends import backends
from gpubench.cache import environment_with_caches
from gpubench.engine.channel import Channel
from gpubench.engine.child import Answer, Built, Done, Raised
from gpubench.engine.executor import Parts
from gpubench.engine.lock import DeviceLock
from gpubench.errors import ChildLostError
from gpubench.model import Device, Measurement, Point, Status, Timer, Timing

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from gpubench.engine.child import serve; serve(int(sys.argv[1]), sys.argv[2])"
)
"""The child's program: it imports from where we do, whatever the current folder holds."""

THREADS_SLEEP = {"OPENBLAS_THREAD_TIMEOUT": "4"}
"""Idle threads of OpenBLAS sleep after 2⁴ clock ticks. As it is built they keep their CPUs busy for
2²⁶ or more, into the next kernel's samples, and where other work wants a CPU a product waits for
them (docs/decisions/0019)."""

START_LIMIT_S = 120.0
"""For the child to open its device: a first import of everything from a slow disk."""

COMPILE_LIMIT_S = 300.0
"""Without one more kernel built, unless --point-limit is given. The largest register tiles take
half a minute."""

SILENT_VARIABLES = (
    "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATE_DOUBLE_PRECISION",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUPY_TF32",
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS"),
    *("NUMBA_NUM_THREADS", "NUMBA_DISABLE_JIT"),
)
"""Variables that change what libraries compute, or how fast, without a word in the results: the
child does not get them, and rows record them. The backend sets the number of threads itself."""

MAX_FAULTS = 3
"""Points in a row of a variant that may fail so, twice each; after that its others are skipped."""

_Child = tuple[subprocess.Popen[bytes], Channel]


class Worker:
    """An `Executor` whose points run in a child process, replaced when a point takes it down.

    Raises DeviceUnavailableError where the device or the timer is missing, DeviceBusyError
    where another sweep holds the GPU, ChildLostError where no process can be had that measures.

    `ahead`: the next child is started while this one measures, and waits before it opens the
    device, if the backend can `load` so. That is other work on the host, for sweeps that have such
    work beside them anyway.
    """

    def __init__(self, device: str, timer: Timer, *, ahead: bool = False) -> None:
        self._asked = (device, timer)
        self._ahead = ahead
        self._child: _Child | None = None
        self._next: _Child | None = None
        self._requests = 0
        """Of this child."""

        self._last: Point | None = None
        """The point that this child measured last."""

        self._policy: tuple[Timing, int] | None = None
        self._measured: dict[Point, Measurement] = {}
        """What came of each point last: a new child need not verify it again."""

        self._faults: Counter[str] = Counter()
        """Points of each variant that took child after child down, since another was measured."""

        self._spent_s: defaultdict[str, float] = defaultdict(float)
        self._childs_s: dict[str, float] = {}
        environment, unkept = environment_with_caches()
        kept = {name: text for name, text in environment.items() if name not in SILENT_VARIABLES}
        self._environment = kept | THREADS_SLEEP
        try:
            opened, notices = self._start()
            self._asked = (f"{opened.backend}:{opened.index}", timer)  # later ones take the same
            had = (f"{name}={os.environ[name]}" for name in SILENT_VARIABLES if name in os.environ)
            facts = opened.facts | {"environment": ";".join(had) or None}
            self._device = replace(opened, facts=facts)
            self._lock = DeviceLock(self._device)
            unlocked = self._lock.take()
        except BaseException:
            self._end_all()
            raise
        self._notices = (*filter(None, (unkept, unlocked)), *notices)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._end_all()
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

    def begin(self, timing: Timing, seed: int, verified: Sequence[Measurement] = ()) -> None:
        """Give the child the policy; later children get the same."""
        self._spent_s.clear()
        self._policy = timing, seed
        self._childs_s = {}
        self._faults.clear()
        self._measured = {measurement.point: measurement for measurement in verified}
        if self._child is None:
            self._start()
        self._ask("begin", timing, seed)

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Build ahead. If that takes the child down, each point is built when it is measured."""
        limit_s = (self._policy and self._policy[0].point_limit_s) or COMPILE_LIMIT_S
        with suppress(ChildLostError):
            self._ask("compile", list(points), limit_s=limit_s, on_built=on_built)

    def warm_up(self) -> None:
        """In this child; a later one warms up when it starts."""
        if self._child is not None:
            self._ask("warm_up")

    def ceilings(self, dtypes: Sequence[str], kept: bool = False) -> dict[str, float]:
        """As the child measures them."""
        self._make_ready()
        rates: dict[str, float] = self._ask("ceilings", tuple(dtypes), kept).value
        return rates

    def parts(self) -> Parts:
        """As the child measures them."""
        self._make_ready()
        found: Parts = self._ask("parts").value
        return found

    def next_round(self) -> None:
        """A new child for the next point."""
        self._end()

    def measure(self, point: Point, wall_limit_s: float | None = None) -> Measurement:
        """Measure in the child. A fault that takes it down is an `error` row with the cause.

        Before that the point is tried once more, in a fresh child: what one kernel writes past its
        operands may crash the next one. If the point is right there, the one before it is named.
        """
        name = point.variant.name
        if self._faults[name] >= MAX_FAULTS:
            return Measurement(
                point=point,
                status=Status.SKIPPED,
                reason=f"{MAX_FAULTS} points of {name} in a row took their process down",
            )
        before = self._last
        result, lost = self._attempt(point, wall_limit_s)
        if lost:
            why = result.reason
            result, lost = self._attempt(point, wall_limit_s)
            if lost:
                self._faults[name] += 1
            elif result.status == Status.OK:
                suspect = f"; at fault: {before.label}, measured before it, or it" if before else ""
                reason = f"right in a second process; the first one {why}{suspect}"
                result = replace(result, reason=reason)
        if result.status == Status.OK:
            self._faults[name] = 0
            self._measured[point] = result
        return result

    def _attempt(self, point: Point, wall_limit_s: float | None) -> tuple[Measurement, bool]:
        """Measure in this child, or a new one: the result, and whether it has cost the child."""
        self._make_ready()
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        limit_s = self._policy[0].hang_s if self._policy else START_LIMIT_S
        earlier = self._measured.get(point)
        try:
            answer = self._ask("measure", point, wall_limit_s, earlier, limit_s=limit_s)
        except ChildLostError as lost:
            result = Measurement(
                point=point, status=Status.ERROR, reason=lost.why, started_utc=started
            )
            return result, True
        self._last = point
        if not answer.usable:
            self._end()
        result = replace(answer.value, point=point)  # ours: the child loaded its own descriptors
        return result, not answer.usable

    def _make_ready(self) -> None:
        """Have a child that can measure. The kernels it needs are in the cache on disk."""
        if self._child is None:
            self._start()
            if self._policy:
                self._ask("begin", *self._policy)
            self._ask("warm_up")

    def _start(self) -> tuple[Device, tuple[str, ...]]:
        """A child that has opened the device: the device, and its notices."""
        started = perf_counter()
        if self._next and self._next[0].poll() is not None:  # killed while it waited
            self._end_next()
        self._child, self._next = self._next or self._boot(), None
        self._requests = 0
        opened: tuple[Device, tuple[str, ...]] = self._ask("open", *self._asked).value
        backend = opened[0].backend
        if self._ahead and backends()[backend].load:
            self._next = self._boot(backend)
        self._spent_s["starting"] += perf_counter() - started
        return opened

    def _boot(self, backend: str = "") -> _Child:
        """A child that waits for its first request; before that it loads a backend's modules."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(  # noqa: S603 # this interpreter, our own code
                [
                    *(sys.executable, "-P", "-c", BOOT, json.dumps(sys.path)),
                    *(str(theirs.fileno()), backend),
                ],
                stdin=subprocess.DEVNULL,
                env=self._environment,
                pass_fds=(theirs.fileno(),),
                process_group=0,  # to be killed with what kernels started; Ctrl-C reaches us alone
            )
        return process, Channel(ours)

    def _ask(
        self,
        name: str,
        *arguments: object,
        limit_s: float = START_LIMIT_S,
        on_built: Callable[[int], None] = lambda _count: None,
    ) -> Done:
        """Have the child answer a request. Raises what the child raised.

        Raises ChildLostError if it gives no answer within the limit; then it is gone.
        """
        if self._child is None:
            raise ChildLostError("is gone")
        process, channel = self._child
        self._requests += 1
        try:
            channel.send((name, arguments), limit_s)
            while isinstance(answer := self._receive(limit_s), Built):
                on_built(answer.count)
            if isinstance(answer, Raised):
                raise answer.error
        except ChildLostError:
            self._end()
            raise
        except (EOFError, OSError) as error:
            hung = isinstance(error, TimeoutError)
            why = f"hung: no answer within {limit_s:g} s; killed" if hung else _end_of(process)
            self._end()
            raise ChildLostError(why) from error
        self._childs_s = answer.spent_s
        return answer

    def _receive(self, limit_s: float) -> Answer:
        """The child's answer to the last request; what a forked copy of it says is dropped."""
        if self._child is None:
            raise ChildLostError("is gone")
        process, channel = self._child
        answer: Answer
        while True:
            try:
                *answers, answer = channel.receive(limit_s)
            except (EOFError, OSError):
                raise
            except Exception as error:  # a kernel wrote into the channel
                raise ChildLostError("sent what is no answer; killed") from error
            if answers == [process.pid, self._requests]:
                return answer

    def _end(self) -> None:
        """Kill the child and all that its kernels started; what it spent is kept."""
        for name, spent in self._childs_s.items():
            self._spent_s[name] += spent
        self._childs_s = {}
        if self._child is not None:
            child, self._child, self._last = self._child, None, None
            _kill(child)

    def _end_next(self) -> None:
        """Kill the child that waits."""
        if self._next is not None:
            child, self._next = self._next, None
            _kill(child)

    def _end_all(self) -> None:
        """Leave no child."""
        self._end()
        self._end_next()


def _kill(child: _Child) -> None:
    process, channel = child
    channel.close()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end_of(process: subprocess.Popen[bytes]) -> str:
    """How the child ended, in words."""
    try:
        code = process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        return "closed its channel; killed"
    if code < 0:
        return f"crashed: {signal.strsignal(-code)} (signal {-code})"
    return f"ended by itself with exit code {code}"
