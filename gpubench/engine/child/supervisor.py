"""Starts child processes, sends requests to them, and notices when they end."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import repeat
from pathlib import Path
from time import perf_counter
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from gpubench.cache import environment_of_foreign, environment_with_caches, part_of
from gpubench.engine.child.calls import Done, Opened, bound, decode_result, encode_call
from gpubench.engine.child.serve import Server
from gpubench.errors import ChildLostError, DeviceUnavailableError, GpubenchError, HostChangedError
from gpubench.hardware.host import CACHE_VARIABLE
from gpubench.model import Point, Timer
from gpubench.process.channel import Channel
from gpubench.process.child import Child, start
from gpubench.process.requests import NO_ANSWER, Report, ask
from gpubench.text import clean

P = ParamSpec("P")
A = TypeVar("A")

THREADS_SLEEP = {"OPENBLAS_THREAD_TIMEOUT": "4", "OMP_WAIT_POLICY": "PASSIVE"}
"""Variables that make idle threads of OpenBLAS sleep after 2⁴ clock ticks, and idle threads of
OpenMP, which torch uses, at once. By default, idle threads of OpenBLAS keep their CPUs busy for at
least 2²⁶ ticks, which disturbs the next kernel's samples. If other programs use the CPUs, too, such
threads take the CPU from the threads that still compute (docs/decisions/0019). On two CPUs with a
load of 14, launches of torch took 50 ms instead of 0.9 ms."""

QUIET = {"KINETO_LOG_LEVEL": "6"}
"""Variable that keeps torch's profiler from printing a line when it starts and stops."""

MAX_CHILDREN_AHEAD = 6
"""Maximum number of children that `start_ahead` starts for a folder of kernels. Six children are
enough for three rounds of two functions. A waiting child takes 0.2 GB of memory."""

START_LIMIT_S = 120.0
"""Time limit, in seconds, for a child to import its modules, perhaps from a slow disk, and to open
its device."""

SILENT_VARIABLES = (
    "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATE_DOUBLE_PRECISION",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUPY_TF32",
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS", "NUMBA_DISABLE_JIT",
)  # fmt: skip
"""Environment variables that silently change the results or the speed of libraries. The child does
not get these variables, but rows record them. The backend sets the number of threads itself."""


RECORDED = (
    "OPENBLAS_", "GOTO_", "MKL_", "OMP_", "KMP_", "NPY_", "NUMBA_", "LD_",
    "CUDA_", "NVIDIA_", "CUBLAS_", "CUBLASLT_", "GLIBC_TUNABLES", "MALLOC_",
)  # fmt: skip
"""Prefixes of the names of environment variables that affect libraries. Rows record each such
variable that is set, whether or not the child gets the variable."""

UNRECORDED = "KMP_DUPLICATE_LIB_OK"
"""Variable that threadpoolctl sets when it is imported. It changes neither results nor times."""

MAX_RECORDED = 200  # maximum number of characters that rows record of a variable's value


def environment_of_child(
    environment: Mapping[str, str], kernels: Path | None, owner: str
) -> tuple[dict[str, str], Path | None]:
    """Return the environment variables of a child, and the only folder into which it may write.

    If the child runs no kernel of the folder `kernels`, the variables come from `environment`, and
    the child may write into all folders. `owner` is the user's function that the child may run.
    """
    folder = None
    if kernels is not None:
        environment, folder = environment_of_foreign(kernels, part_of(owner))
    kept = {name: text for name, text in environment.items() if name not in SILENT_VARIABLES}
    return QUIET | kept | THREADS_SLEEP, folder


class Supervisor:
    """Controls one child at a time. Children that were started ahead wait until `open` uses them.

    `kernels` is the folder of the user's kernels, if the child runs such kernels.
    """

    def __init__(self, device: str, timer: Timer, kernels: Path | None = None) -> None:
        self.device_name, self._timer = device, timer
        self.child: Child | None = None  # the child that has opened the device
        self.owner = ""  # name of the user's function for which this child was started
        self._waiting: list[tuple[str, Child]] = []  # the children, each with its owner
        self._opened: Opened | None = None  # answer of the child that `open_ahead` used
        self._has_opened = False
        self.usable = True  # whether the device still worked after the last request
        self._spent_s: defaultdict[str, float] = defaultdict(float)
        self._child_spent_s: Mapping[str, float] = {}
        self._scheduling = scheduling(os.getpid())
        self._environment, self.unkept = environment_with_caches()
        self._kernels = kernels
        self._is_confined = kernels is not None  # whether each child may write into one folder only

    @property
    def spent_s(self) -> Mapping[str, float]:
        """Wall time, in seconds, that all children together spent in each phase.

        The times since the last call of `forget_times` count. The phase `starting` is the time to
        start the children.
        """
        names = dict.fromkeys((*self._spent_s, *self._child_spent_s))
        return {n: self._spent_s.get(n, 0.0) + self._child_spent_s.get(n, 0.0) for n in names}

    def forget_times(self) -> None:
        """Reset `spent_s` to zero."""
        self._spent_s.clear()
        self._child_spent_s = {}

    def open(self, owner: str = "") -> Opened:
        """Start a child, or use a waiting child, and let this child open the device.

        If `owner` is not empty, the child may run this user's function, and may write only where
        the other processes of this function write. A child that `open_ahead` used may have another
        owner. Raises ChildLostError, HostChangedError, or the error that the child reports.
        """
        opened, self._opened = self._opened, None
        if opened and self.child and not self.child.has_ended:
            return opened
        started = perf_counter()
        self.owner = owner
        if waiting := self._take_waiting(owner):
            self.child = waiting
            self._require_undisturbed(waiting)
        else:
            self.child = self._start(owner)
        try:
            opened = self.request(START_LIMIT_S, Server.open, self.device_name, self._timer)
        except DeviceUnavailableError as error:
            # Foreign code could end a child. The device's driver reports an error.
            is_lost = isinstance(error, ChildLostError)
            if is_lost or not self._is_confined or self._has_opened:
                raise
            self.end_all()
            self._is_confined = False
            opened = self.open(owner)  # the device's driver may write into other folders
            self.unkept = "the device opens only if kernels may write all files that you may write"
            return opened
        self._has_opened = True
        self._spent_s["starting"] += perf_counter() - started
        self._require_scheduling(self.child.pid)
        return opened

    def _take_waiting(self, owner: str) -> Child | None:
        """Remove and return the first waiting child of this owner. Kill children that have ended.

        Return None if no child of this owner waits.
        """
        for owner_of_child, child in list(self._waiting):
            if child.has_ended:  # killed while it waited
                self._waiting.remove((owner_of_child, child))
                child.kill()
            elif owner_of_child == owner:
                self._waiting.remove((owner_of_child, child))
                return child
        return None

    def open_ahead(self, owner: str = "") -> None:
        """Open the device in a child of this owner, which the next call of `open` uses.

        If opening fails here, no error is raised: the next call of `open` tries again.
        """
        try:
            self._opened = self.open(owner)
        except GpubenchError:
            self.end()

    @contextmanager
    def starting_ahead(
        self, backend: str, owners: Sequence[str], *, torch: bool = False
    ) -> Iterator[None]:
        """Start children until one child waits for each item of `owners`.

        The `with` block runs while the children load.

        The children load the backend's modules, and torch if `torch` is true. Then they wait,
        without opening the device. Nothing should be timed in the block, because loading modules
        keeps the CPU busy.
        """
        missing = Counter(owners) - Counter(owner for owner, _ in self._waiting)
        started_ahead = [
            (owner, self._start(owner, backend, torch=torch)) for owner in missing.elements()
        ]
        self._waiting += started_ahead
        yield
        started = perf_counter()
        for owner, child in started_ahead:
            try:
                Channel(child.socket).receive(START_LIMIT_S)
            except (EOFError, OSError):  # killed, or hung; `open` starts another child
                self._waiting.remove((owner, child))
                child.kill()
        self._spent_s["starting"] += perf_counter() - started

    def _start(self, owner: str = "", backend: str = "", *, torch: bool = False) -> Child:
        """Start a child.

        If `owner` is not empty, the child may run this user's function. If `backend` is not empty,
        the child loads the backend's modules, and torch if `torch` is true. When the modules are
        loaded, the child sends a message.
        """
        environment, folder = environment_of_child(self._environment, self._kernels, owner)
        return start(
            "gpubench.engine.child.serve",
            "serve",
            backend,
            "torch" if torch else "",
            speaker="kernels",
            environment=environment,
            folder=folder if self._is_confined else None,
        )

    @property
    def living(self) -> Child:
        """The child that has opened the device. Raises ChildLostError if there is no such child."""
        if self.child is None:
            raise ChildLostError("is gone")
        return self.child

    def request(
        self,
        limits_s: float | tuple[float, ...],
        method: Callable[Concatenate[Any, P], A],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> A:
        """Call a method in the child, such as `Runner.measure`, and return the method's result.

        `limits_s` is the time limit of the call, or a limit for each step that the child reports.
        Raises the error of the method. If no answer arrives within the limit, or if the answer is
        invalid, ends the child and raises ChildLostError.
        """
        steps_s = limits_s if isinstance(limits_s, tuple) else (limits_s,)
        result: A = self._result(steps_s, method, bound(method, *arguments, **named))
        return result

    def request_with_file(
        self,
        descriptor: int,
        limit_s: float,
        method: Callable[Concatenate[Any, P], A],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> A:
        """Call a method as `request` does, and send an open file to the child with the request."""
        by_name = bound(method, *arguments, **named)
        result: A = self._result((limit_s,), method, by_name, descriptors=(descriptor,))
        return result

    def compile(self, points: Sequence[Point], limit_s: float, on_built: Report) -> None:
        """Compile the kernels of the points in the child.

        After each kernel, `on_built` is called with the number of kernels compiled so far.

        `limit_s` is the time limit for each kernel. Raises ChildLostError.
        """
        self._result(repeat(limit_s), Server.compile, {"points": tuple(points)}, on_built)

    def _result(
        self,
        limits_s: Iterable[float],
        method: Callable[..., Any],
        arguments: Mapping[str, Any],
        report: Report = lambda _steps: None,
        descriptors: Sequence[int] = (),
    ) -> Any:
        child, request = self.living, encode_call(method, arguments)
        if isinstance(point := arguments.get("point"), Point):
            child.streams.speak_as(point.variant.name)
        try:
            content = ask(child, request, limits_s, report, descriptors=descriptors)
            done = msgspec.msgpack.decode(content, type=Done)
            result = decode_result(method, arguments, done.result)
        except ChildLostError:
            self.end()
            raise
        except (ValueError, RecursionError) as error:
            self.end()
            raise ChildLostError(NO_ANSWER) from error
        self._child_spent_s, self.usable = done.spent_s, done.usable
        self._require_scheduling(os.getpid())
        return result

    def _require_scheduling(self, pid: int) -> None:
        """Raise HostChangedError if the CPUs or the priority of a process or a thread have changed.

        A kernel may pin or renice any process or thread of its user, and later children inherit
        this change.
        """
        try:
            now = scheduling(pid)
        except ProcessLookupError:  # the thread has ended
            return
        for what, before, after in zip(("CPUs", "priority"), self._scheduling, now, strict=True):
            if before != after:
                raise HostChangedError(
                    f"the {what} of gpubench changed during the measurement, by a kernel or by "
                    f"hand, from {before} to {after}; earlier measurements are kept"
                )

    def _require_undisturbed(self, child: Child) -> None:
        """Raise HostChangedError if a kernel changed the scheduling of a child that waited."""
        for thread in threads(child.pid):
            self._require_scheduling(thread)
        if nice := nice_of_session(child.pid):
            raise HostChangedError(
                "the priority of a session of gpubench changed during the measurement, by a "
                f"kernel or by hand, from 0 to {nice}; earlier measurements are kept"
            )

    def end(self) -> None:
        """Kill the child and all processes that its kernels started. Keep the child's times."""
        for name, spent in self._child_spent_s.items():
            self._spent_s[name] += spent
        self._child_spent_s = {}
        if self.child is not None:
            child, self.child = self.child, None
            child.kill()

    def end_all(self) -> None:
        """Kill all children."""
        self.end()
        while self._waiting:
            self._waiting.pop()[1].kill()


_ahead: dict[tuple[str, Timer, Path | None], Supervisor] = {}


def supervisor_of(device: str, timer: Timer, kernels: Path | None) -> Supervisor:
    """Return the supervisor that `start_ahead` made for a folder of kernels, or a new one."""
    return _ahead.pop((device, timer, kernels), None) or Supervisor(device, timer, kernels)


def start_ahead(
    device: str, timer: Timer, folders: Mapping[Path, Sequence[str]], backend: str, rounds: int
) -> None:
    """Start children for the rounds of folders of torch functions.

    `folders` maps each folder to the names of its functions. A folder gets at most
    `MAX_CHILDREN_AHEAD` children. All children import torch immediately. The first child of each
    folder then opens the device.
    """
    made = list[tuple[Supervisor, str]]()
    with ExitStack() as starting:
        for kernels, names in folders.items():
            supervisor = _ahead[device, timer, kernels] = Supervisor(device, timer, kernels)
            owners = [*names] * rounds
            made.append((supervisor, names[0]))
            starting.enter_context(
                supervisor.starting_ahead(backend, owners[:MAX_CHILDREN_AHEAD], torch=True)
            )
    with ThreadPoolExecutor(max(1, len(made))) as pool:
        list(pool.map(Supervisor.open_ahead, *zip(*made, strict=True)))


def end_ahead() -> None:
    """End the children that `start_ahead` started and that no call of `supervisor_of` has taken."""
    while _ahead:
        _ahead.popitem()[1].end_all()


def threads(pid: int) -> list[int]:
    """Return the ids of the threads of a process (Linux); the list is empty if it has ended."""
    with suppress(OSError):
        return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    return []


def scheduling(pid: int) -> tuple[str, str]:
    """Return the CPUs of a process or a thread, and its policy and nice value."""
    policy, nice = os.sched_getscheduler(pid), os.getpriority(os.PRIO_PROCESS, pid)
    return str(sorted(os.sched_getaffinity(pid))), f"policy {policy}, nice {nice}"


def nice_of_session(pid: int) -> int:
    """Return the nice value of a process's session, with which Linux schedules the whole session.

    Each child starts a session, whose nice value is 0. Return 0 if the system has no such value.
    """
    with suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/autogroup").read_text().rpartition(" ")[2])
    return 0


def recorded_variables() -> list[str]:
    """Return the environment variables that rows record, as `NAME=value`."""
    names = (*SILENT_VARIABLES, CACHE_VARIABLE)
    others = sorted(name for name in os.environ if name.startswith(RECORDED))
    return [
        f"{name}={clean(os.environ[name])[:MAX_RECORDED]}"
        for name in dict.fromkeys((*names, *others))
        if name in os.environ and name != UNRECORDED
    ]
