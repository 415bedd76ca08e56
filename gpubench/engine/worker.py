"""The child process that measures, and the worker that controls it: both ends of their channel.

A kernel's crash or hang ends the child and costs one point, not the sweep. `Worker` starts a child
and sends it requests. `serve` runs in the child and answers them with a `Runner`.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from gpubench.backends import backends, open_backend, passed_over
from gpubench.cache import environment_with_caches
from gpubench.engine.judge.outside import require_exact_outputs, require_time
from gpubench.engine.judge.probe import probe_problem, unusual_problem
from gpubench.engine.judge.verify import WrongError
from gpubench.engine.lock import DeviceLock
from gpubench.engine.runner import Instance, Parts, Runner, instance_of
from gpubench.errors import ChildLostError, GpubenchError, with_place
from gpubench.model import (
    CallVariant,
    Device,
    Measurement,
    PairedTimes,
    Point,
    Status,
    Timer,
    Timing,
    Variant,
)
from gpubench.plan.registry import is_ours, owner_of
from gpubench.results.output import guard_streams

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from gpubench.engine.worker import serve; serve(int(sys.argv[1]), sys.argv[2])"
)
"""The child's program. It imports from the same paths as this process, in any current directory."""

THREADS_SLEEP = {"OPENBLAS_THREAD_TIMEOUT": "4"}
"""Idle threads of OpenBLAS sleep after 2⁴ clock ticks. By default they keep their CPUs busy for 2²⁶
ticks or more, which extends into the next kernel's samples. Where other work needs a CPU, a product
waits for them (docs/decisions/0019)."""

START_LIMIT_S = 120.0
"""Time limit for a child to open its device, which includes all imports from a slow disk."""

COMPILE_LIMIT_S = 300.0
"""Time limit for one more kernel to be compiled, unless --point-limit is given. The largest
register tiles take half a minute."""

SILENT_VARIABLES = (
    "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATE_DOUBLE_PRECISION",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUPY_TF32",
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS"),
    *("NUMBA_NUM_THREADS", "NUMBA_DISABLE_JIT"),
)
"""Variables that change what libraries compute, or how fast, without a trace in the results. The
child does not get them, and rows record them. The backend sets the number of threads itself."""

MAX_FAULTS = 3
"""Number of consecutive points of a variant that may end their child, twice each. The variant's
other points are skipped after that."""

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that this process gets when its parent dies."""


# ---- the channel


class Channel:
    """One end of a pair of sockets. A message arrives complete, or an error is raised.

    Messages are pickled. The other end runs the user's kernels anyway, so pickle gives it no
    further rights.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._stream = end.makefile("rb")

    def send(self, message: object, limit_s: float | None = None) -> None:
        """Send a message. Raises OSError if the other end has gone, TimeoutError if it hangs."""
        self._socket.settimeout(limit_s)
        self._socket.sendall(pickle.dumps(message))

    def receive(self, limit_s: float | None = None) -> Any:
        """Return the next message. Raises EOFError, OSError or TimeoutError.

        Bytes that are not a message raise any exception.
        """
        self._socket.settimeout(limit_s)
        return pickle.load(self._stream)  # noqa: S301 # from our own process, see above

    def close(self) -> None:
        """Close this end, even if messages were not read."""
        self._stream.close()
        self._socket.close()


@dataclass(frozen=True, kw_only=True)
class Built:
    """The number of kernels compiled so far. The request is not finished."""

    count: int


@dataclass(frozen=True, kw_only=True)
class Done:
    """A request is finished."""

    value: Any
    spent_s: dict[str, float]
    usable: bool = True
    """Whether the device still works. After an illegal access it does not, and the child ends."""


@dataclass(frozen=True, kw_only=True)
class Raised:
    """A request failed with an error for the user; ChildLostError if it is unexpected."""

    error: GpubenchError


Answer = Built | Done | Raised


# ---- the worker, in the process that was started


_Child = tuple[subprocess.Popen[bytes], Channel]


class Worker:
    """Measures points in a child process, which is replaced if a point ends it.

    With `ahead`, the next child starts while this one measures, and waits before it opens the
    device, if the backend has a `load`. That disturbs the host, so it is for sweeps on hosts that
    have other work anyway.

    Raises DeviceUnavailableError if the device or the timer is missing, DeviceBusyError if another
    sweep holds the GPU, and ChildLostError if no process can be started that measures.
    """

    def __init__(self, device: str, timer: Timer, *, ahead: bool = False) -> None:
        self._opening = (device, timer)
        self._ahead = ahead
        self._child: _Child | None = None
        self._next: _Child | None = None
        self._requests = 0
        """Number of requests to this child."""

        self._last: Point | None = None
        """The point that this child measured last."""

        self._policy: tuple[Timing, int] | None = None
        self._measured: dict[Point, Measurement] = {}
        """The last measurement of each point, which a new child need not verify again."""

        self._owner = ""
        """The variant that has this child to itself (`owner_of`); empty: the child is shared."""

        self._fragile: set[Variant] = set()
        """Variants that ended a child at an unusual size. Their other tiles are not launched there,
        because a new child takes seconds."""

        self._examined_notes: dict[Instance, str] = {}
        """What an unusual size showed of each instance of a user's kernel."""

        self._faults: Counter[str] = Counter()
        """For each variant, the number of its points in a row that ended their children."""

        self._spent_s: defaultdict[str, float] = defaultdict(float)
        self._child_spent_s: dict[str, float] = {}
        environment, unkept = environment_with_caches()
        kept = {name: text for name, text in environment.items() if name not in SILENT_VARIABLES}
        self._environment = kept | THREADS_SLEEP
        try:
            opened, notices = self._start()
            self._opening = (f"{opened.backend}:{opened.index}", timer)  # also for later children
            removed = [
                f"{name}={os.environ[name]}" for name in SILENT_VARIABLES if name in os.environ
            ]
            facts = opened.facts | {"environment": ";".join(removed) or None}
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
        """The device as the first child described it."""
        return self._device

    @property
    def notices(self) -> tuple[str, ...]:
        """The first child's notices, and the notices about the cache and the lock."""
        return self._notices

    @property
    def spent_s(self) -> Mapping[str, float]:
        """Wall time of this job by phase: of all children, and to start them."""
        names = dict.fromkeys((*self._spent_s, *self._child_spent_s))
        return {n: self._spent_s.get(n, 0.0) + self._child_spent_s.get(n, 0.0) for n in names}

    def begin(self, timing: Timing, seed: int, verified: Sequence[Measurement] = ()) -> None:
        """Send the policy of a job to the child. Later children get the same policy."""
        self._spent_s.clear()
        self._policy = timing, seed
        self._child_spent_s = {}
        self._faults.clear()
        self._measured = {measurement.point: measurement for measurement in verified}
        if self._child is None:
            self._start()
        self._request("begin", timing, seed)

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Compile ahead. If that ends the child, each point is compiled when it is measured.

        Functions that need a process of their own are compiled there, when they are measured.
        """
        if len({owner_of(point.variant) for point in points}) > 1:
            points = [point for point in points if not owner_of(point.variant)]
        limit_s = (self._policy and self._policy[0].point_limit_s) or COMPILE_LIMIT_S
        with suppress(ChildLostError):
            self._request("compile", list(points), limit_s=limit_s, on_built=on_built)

    def warm_up(self) -> None:
        """Warm up in this child. A later child warms up when it starts."""
        if self._child is not None:
            self._request("warm_up")

    def ceilings(self, dtypes: Sequence[str], kept: bool = False) -> dict[str, float]:
        """Measure the device's highest rates in the child."""
        self._make_ready()
        rates: dict[str, float] = self._request("ceilings", tuple(dtypes), kept).value
        return rates

    def parts(self) -> Parts:
        """Measure fixed work on each part of the device, in the child."""
        self._make_ready()
        parts: Parts = self._request("parts").value
        return parts

    def next_round(self) -> None:
        """End the child. The next point starts another."""
        self._end()

    def measure(self, point: Point, wall_limit_s: float | None = None) -> Measurement:
        """Measure in the child. A fault that ends the child becomes an `error` with its cause.

        The point is first tried once more, in a fresh child, because an earlier kernel may have
        written beyond its operands. If the point is right there, the reason names that kernel.
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
        if result.status == Status.OK and not is_ours(point.variant):
            result = self._examined(result)
        if result.status == Status.OK:
            self._faults[name] = 0
            self._measured[point] = result
        return result

    def _examined(self, result: Measurement) -> Measurement:
        """Return the measurement of a user's kernel after two checks, once for each instance.

        A function could change the checks in its own process, so its results are compared here. A
        kernel that does not check its bounds is right only at some sizes. To note this, the kernel
        is launched at an unusual size, which may end the child, once for each variant.
        """
        point = result.point
        instance = instance_of(point)
        if instance in self._examined_notes:
            return replace(result, notes=_joined(result.notes, self._examined_notes[instance]))
        seed, limit_s = (self._policy or (Timing(), 0))[1], self._hang_s
        try:
            if isinstance(point.variant, CallVariant):
                outputs = self._request("probe_outputs", point, limit_s=limit_s).value
                problem = probe_problem(point, self._device.compute_capability)
                require_exact_outputs(outputs, problem, seed)
                if point.timer == Timer.HOST and self._child:
                    require_time(
                        result,
                        lambda count: self._request("repeat", point, count, limit_s=limit_s),
                        self._child[0].pid,
                    )
        except WrongError as wrong:
            return replace(result, status=Status.WRONG, reason=str(wrong), series=None)
        except ChildLostError as lost:
            return replace(result, status=Status.ERROR, reason=lost.why, series=None)
        note = ""
        try:
            if point.variant not in self._fragile:
                answer = self._request("at_unusual_size", point, limit_s=limit_s)
                note = answer.value
                if not answer.usable:
                    self._fragile.add(point.variant)
                    self._end()
        except ChildLostError as lost:
            self._fragile.add(point.variant)
            unusual = unusual_problem(point, self._device.compute_capability)
            note = f"right at this size; {lost.why} at {unusual.size if unusual else ''}"
        self._examined_notes[instance] = note
        return replace(result, notes=_joined(result.notes, note))

    @property
    def _hang_s(self) -> float:
        return self._policy[0].hang_s if self._policy else START_LIMIT_S

    def measure_pairs(self, point: Point, library: Point) -> PairedTimes | str:
        """Measure a kernel and a library in turns in the child; return a fault as the reason."""
        self._make_ready()
        try:
            result = self._request("measure_pairs", point, library, limit_s=self._hang_s).value
        except ChildLostError as lost:
            return lost.why
        if isinstance(result, PairedTimes):
            return replace(result, point=point, library=library)
        return str(result)

    def _attempt(self, point: Point, wall_limit_s: float | None) -> tuple[Measurement, bool]:
        """Measure in this or a new child; return the result, and whether the child was lost."""
        if self._last and self._owner != owner_of(point.variant):
            self._end()
        self._owner = owner_of(point.variant)
        self._make_ready()
        started = datetime.now(UTC).isoformat(timespec="microseconds")
        limit_s = self._hang_s
        earlier = self._measured.get(point)
        try:
            answer = self._request("measure", point, wall_limit_s, earlier, limit_s=limit_s)
        except ChildLostError as lost:
            result = Measurement(
                point=point, status=Status.ERROR, reason=lost.why, started_utc=started
            )
            return result, True
        self._last = point
        if not answer.usable:
            self._end()
        result = replace(answer.value, point=point)  # the child loaded descriptors of its own
        return result, not answer.usable

    def _make_ready(self) -> None:
        """Start a child if there is none. The kernels that it needs are in the cache on disk."""
        if self._child is None:
            self._start()
            if self._policy:
                self._request("begin", *self._policy)
            self._request("warm_up")

    def _start(self) -> tuple[Device, tuple[str, ...]]:
        """Start a child that opens the device; return the device and the child's notices."""
        started = perf_counter()
        if self._next and self._next[0].poll() is not None:  # killed while it waited
            self._end_next()
        self._child, self._next = self._next or self._boot(), None
        self._requests = 0
        opened: tuple[Device, tuple[str, ...]] = self._request("open", *self._opening).value
        backend = opened[0].backend
        if self._ahead and backends()[backend].load:
            self._next = self._boot(backend)
        self._spent_s["starting"] += perf_counter() - started
        return opened

    def _boot(self, backend: str = "") -> _Child:
        """Start a child. It loads a backend's modules, if one is named, and awaits a request."""
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
                process_group=0,  # killed with what kernels started; Ctrl-C reaches only us
            )
        return process, Channel(ours)

    def _request(
        self,
        name: str,
        *arguments: object,
        limit_s: float = START_LIMIT_S,
        on_built: Callable[[int], None] = lambda _count: None,
    ) -> Done:
        """Send the child a request and return its answer. Raises what the child raised.

        Raises ChildLostError if no answer arrives within the limit. The child is then ended.
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
            why = f"hung: no answer within {limit_s:g} s; killed" if hung else end_of(process)
            self._end()
            raise ChildLostError(why) from error
        self._child_spent_s = answer.spent_s
        return answer

    def _receive(self, limit_s: float) -> Answer:
        """Return the child's answer to the last request. Answers of forked copies are dropped."""
        if self._child is None:
            raise ChildLostError("is gone")
        process, channel = self._child
        answer: Answer
        while True:
            try:
                *sender, answer = channel.receive(limit_s)
            except (EOFError, OSError):
                raise
            except Exception as error:  # a kernel wrote into the channel
                raise ChildLostError("sent what is no answer; killed") from error
            if sender == [process.pid, self._requests]:
                return answer

    def _end(self) -> None:
        """Kill the child and all processes that its kernels started. Keep its times by phase."""
        for name, spent in self._child_spent_s.items():
            self._spent_s[name] += spent
        self._child_spent_s = {}
        if self._child is not None:
            child, self._child, self._last = self._child, None, None
            _kill(child)

    def _end_next(self) -> None:
        """Kill the child that waits."""
        if self._next is not None:
            child, self._next = self._next, None
            _kill(child)

    def _end_all(self) -> None:
        """Kill both children."""
        self._end()
        self._end_next()


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _kill(child: _Child) -> None:
    process, channel = child
    channel.close()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_of(process: subprocess.Popen[bytes], ended: str = "ended by itself") -> str:
    """Return how a child ended, in words. `ended` stands before an exit code."""
    try:
        code = process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        return "closed its channel; killed"
    if code < 0:
        return f"crashed: {signal.strsignal(-code)} (signal {-code})"
    return f"{ended} with exit code {code}"


# ---- the child


def serve(descriptor: int, backend: str) -> None:
    """Answer requests until the channel closes. First import what `backend` needs, if it is named.

    The first request opens the backend. Each later request calls a method of the `Runner`. An
    answer has this process's id and the number of its request, because a kernel that forks would
    answer twice.
    """
    _end_with_the_parent(descriptor)
    guard_streams()
    os.dup2(2, 1)  # what kernels print is not our output
    os.set_inheritable(descriptor, False)  # programs that a kernel starts do not keep it open,
    channel = Channel(socket.socket(fileno=descriptor))
    os.register_at_fork(after_in_child=channel.close)  # nor do processes that a kernel forks
    pid = os.getpid()
    if backend and (load := backends()[backend].load):
        load()
    runner: Runner | None = None

    def send(number: int, answer: Answer) -> None:
        if os.getpid() != pid:  # a kernel forked, and its copy returned to here
            os._exit(0)
        with suppress(ConnectionError):  # the parent was killed; the next request ends this process
            channel.send((pid, number, answer))

    for number in count(1):
        answer: Answer
        try:
            name, arguments = channel.receive()
            if runner is None:
                runner = Runner(open_backend(*arguments))
                notices = (*passed_over(arguments[0]), *runner.notices)
                answer = Done(value=(runner.device, notices), spent_s={})
            else:
                if name == "compile":
                    arguments += (lambda built, at=number: send(at, Built(count=built)),)
                answer = _call(runner, name, arguments)
        except (EOFError, ConnectionError):  # the parent ended, or closed the channel
            return
        except GpubenchError as error:
            answer = Raised(error=error)
        except Exception as error:  # unexpected
            answer = Raised(error=ChildLostError(f"failed: {with_place(error)}"))
        send(number, answer)


def _call(runner: Runner, name: str, arguments: tuple[Any, ...]) -> Done:
    value = getattr(runner, name)(*arguments)
    failed = isinstance(value, Measurement) and value.status == Status.ERROR
    may_have_failed = failed or name == "at_unusual_size"
    usable = not may_have_failed or runner.usable
    return Done(value=value, spent_s=dict(runner.spent_s), usable=usable)


def _end_with_the_parent(descriptor: int) -> None:
    """Let this process end with its parent, even if a kernel hangs (Linux).

    The processes that kernels started end too. The system signals the parent's end to a watcher,
    which kills the group.
    """
    if sys.platform != "linux":
        return
    prctl, measuring_pid = ctypes.CDLL(None).prctl, os.getpid()
    if os.fork() == 0:
        os.close(descriptor)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() == measuring_pid:
            signal.sigwait({signal.SIGTERM})
        os.killpg(measuring_pid, signal.SIGKILL)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
