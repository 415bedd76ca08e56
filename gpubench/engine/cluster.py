"""Connects to a Dask cluster whose workers each have a device, or starts such a cluster."""

from __future__ import annotations

import logging
import multiprocessing
import os
import platform
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from gpubench.backends import find_devices
from gpubench.engine.child.supervisor import START_LIMIT_S
from gpubench.errors import (
    ChildLostError,
    DeviceUnavailableError,
    GpubenchError,
    PeerLostError,
    UsageError,
    first_line,
    install_command,
)
from gpubench.model import Device
from gpubench.options import LOCAL, require_cluster
from gpubench.process.child import open_channel, start
from gpubench.process.requests import answer_requests, ask
from gpubench.results.provenance import package_version
from gpubench.temporary import temporary_folder

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")

LOOPBACK = "127.0.0.1"

DEVICE_VARIABLE = "GPUBENCH_DEVICE"
"""Environment variable with the description of a worker's device. Without this variable, the worker
would search for its device, which takes seconds."""

ANSWER_S = 15.0  # time limit for a scheduler to answer, and for its first worker to appear
CLOSE_S = 3.0  # time limit for a scheduler to end a connection

CONNECTION_ENDED = "the connection to the scheduler ended"
"""Message for futures that Dask cancels. Dask's own message has only the key of the task."""

SILENT_S = 25.0
"""Time without a heartbeat after which a worker counts as lost. Dask's workers send a heartbeat
every few seconds, also while they measure."""


def within(limit_s: float, peer: str, call: Callable[[], T]) -> T:
    """Return the result of a call that waits for a peer, such as the scheduler.

    Dask does not limit the time of such a call. So the call runs in a separate thread, which
    continues after the time limit. If the call takes longer than the limit, raises PeerLostError,
    which names the peer. If the call fails, raises the error of the call.
    """
    answer: Future[T] = Future()

    def wait() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # raised again below
            answer.set_exception(error)

    thread = Thread(target=wait, daemon=True)
    thread.start()
    thread.join(limit_s)
    if not answer.done():
        raise PeerLostError(f"{peer} has not answered for {limit_s:g} s")
    return answer.result()


class Member(NamedTuple):
    """A Dask worker, with the device on which the worker measures."""

    name: str
    hostname: str
    device: Device
    tree_hash: str  # the hash of the gpubench package on the worker

    @property
    def kind(self) -> tuple[str, ...]:
        """Facts that must be equal if the times of two members are compared."""
        versions = ", ".join(
            f"{name} {text}" for name, text in sorted(self.device.versions.items())
        )
        return self.device.name, versions, f"gpubench files {self.tree_hash}"

    @property
    def slot(self) -> str:
        """The device's address in its host, or the worker's name if the device has no address."""
        return str(self.device.facts.get("slot") or self.name)

    @property
    def label(self) -> str:
        """The name that users see, such as `node7 0000:1B:00.0`."""
        return f"{self.hostname} {self.slot}"


@contextmanager
def connected(on: str, device: str) -> Iterator[Client]:
    """Connect to the cluster that `--on` names. A local cluster ends when the `with` block ends.

    Raises UsageError if Dask is missing, or if no scheduler with workers answers.
    """
    if ":" in device:
        raise UsageError(
            f"--on uses all devices, not only {device}; CUDA_VISIBLE_DEVICES can hide devices"
        )
    try:
        import cryptography  # noqa: F401 # Dask uses it to make the keys of a local cluster
        from distributed import Client
    except ImportError as error:
        what = f"needs {error.name}" if error.name else f"cannot use Dask: {first_line(error)}"
        raise UsageError(
            f"measuring on several devices {what}: {install_command('fleet')}"
        ) from None
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("distributed"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # gpubench reports failures
    if on != LOCAL:
        with _client_of(on) as client:
            yield client
        return
    with _own_cluster(devices_of(device)) as cluster, Client(cluster) as client:
        yield client


@contextmanager
def _client_of(on: str) -> Iterator[Client]:
    """Connect to the scheduler at an address, or to the scheduler that a file describes."""
    from distributed import Client

    require_cluster(on)
    with ExitStack() as stack:
        try:
            address = on if "://" in on else msgspec.json.decode(Path(on).read_bytes())["address"]
            peer = f"the scheduler {address}"
            client = within(ANSWER_S, peer, lambda: Client(address, timeout=ANSWER_S))
            stack.callback(_close, client)
            within(ANSWER_S, peer, lambda: client.wait_for_workers(1, timeout=ANSWER_S))
        except Exception as error:  # Dask raises many types for an invalid address
            raise UsageError(
                f"--on: no Dask scheduler with workers answers at {on}: "
                f"{first_line(error) if str(error) else f'no answer in {ANSWER_S} s'}"
            ) from error
        yield client


@contextmanager
def _own_cluster(all_devices: Sequence[Device]) -> Iterator[Any]:
    """Start a cluster with a worker for each device.

    The scheduler accepts connections only from processes of this machine that have the keys of this
    cluster. Anyone who can connect to a scheduler can run code there, so the keys keep out other
    users of the machine.
    """
    import dask
    from distributed import Nanny, Scheduler, SpecCluster
    from distributed.security import Security

    devices = [device for device in all_devices if device.backend == all_devices[0].backend]
    try:
        multiprocessing.Lock()
    except OSError as error:
        raise DeviceUnavailableError(
            f"--on {LOCAL} needs a /dev/shm that can be written: {error.strerror}"
        ) from None
    with temporary_folder() as directory:
        shared: dict[str, Any] = {
            "host": LOOPBACK,
            "protocol": "tls",
            "security": Security.temporary(),
        }
        of_workers = {
            **shared,
            "nthreads": 1,
            "preload": [__name__],
            "memory_limit": 0,
            "local_directory": str(directory),
        }
        # The variables that Dask sets by default would limit the threads of BLAS and OpenMP. The
        # backend sets the number of threads itself.
        environment = {"DASK_LOGGING__DISTRIBUTED": "critical"}
        settings = {
            "temporary-directory": directory,  # in /tmp, other users could add modules
            "distributed.nanny.pre-spawn-environ": environment,
        }
        make = partial(
            SpecCluster,
            workers={
                device.index: {
                    "cls": Nanny,
                    "options": {**of_workers, "name": device.index, "env": _environment(device)},
                }
                for device in devices
            },
            scheduler={
                "cls": Scheduler,
                "options": {**shared, "dashboard": False, "dashboard_address": f"{LOOPBACK}:0"},
            },
            security=shared["security"],
            silence_logs=logging.CRITICAL,
            shutdown_on_close=False,  # `all_ended` closes it when this process ends
        )
        with dask.config.set(settings):
            try:
                cluster = _whole(make)
            except (RuntimeError, OSError) as error:
                why = first_line(error.__cause__ or error)  # type: ignore[arg-type] # Dask's
                raise DeviceUnavailableError(
                    f"--on {LOCAL}: not all workers could be started: {why}; a script must call "
                    "gpubench under: if __name__ == '__main__'"
                ) from error
            with cluster:
                yield cluster


def _whole(make: Callable[[], Any]) -> Any:
    """Return the cluster that `make` starts.

    After Ctrl-C, close the cluster as soon as all of it has started. Dask cannot close a cluster
    that is still starting: its workers would start in a folder that has been removed. Dask also
    waits without a limit for a worker that hangs, so its processes are killed after a limit.
    """
    clusters = []
    ended = Event()
    Thread(target=_kill_late_children, args=(ended,), daemon=True).start()
    try:
        with ThreadPoolExecutor(1) as beside:  # leaving the block waits for the call
            beside.submit(lambda: clusters.append(make())).result()
    except KeyboardInterrupt:
        with suppress(Exception):  # Dask raises many types
            for cluster in clusters:
                cluster.close()
        raise
    finally:
        ended.set()
    return clusters[0]


def _kill_late_children(ended: Event) -> None:
    """Kill the workers that still start at the limit. Older versions of Dask start them again."""
    while not ended.wait(START_LIMIT_S):
        for child in multiprocessing.active_children():
            child.kill()


def _environment(device: Device) -> dict[str, str]:
    """Return environment variables that describe a worker's device, and that hide other GPUs."""
    uuid = device.facts.get("uuid")
    visible = {"CUDA_VISIBLE_DEVICES": uuid} if uuid else {}
    return {DEVICE_VARIABLE: msgspec.json.encode(replace(device, index=0)).decode(), **visible}


def dask_setup(_worker: Any) -> None:
    """Make a worker ignore Ctrl-C, because the main process handles Ctrl-C.

    Dask calls this function when it starts the worker, because `preload` names this module.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def present(client: Client) -> Mapping[str, Any]:
    """Return the scheduler's workers by address.

    The result is empty if the connection has ended. Raises PeerLostError if the scheduler does not
    answer. `Client.scheduler_info` returns a stored answer, which a timer of Dask replaces by an
    answer without workers. So this function requests a new answer from the scheduler.
    """
    if client.status != "running":
        return {}
    peer = f"the scheduler {client.scheduler.address}"

    def workers() -> Mapping[str, Any]:
        answer: Mapping[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
        return answer

    for _ in range(2):  # if one of Dask's connections has ended, the second request opens another
        with suppress(OSError):
            return within(ANSWER_S, peer, workers)
    return {}


class Heartbeats:
    """Finds workers that are connected, but no longer send heartbeats."""

    def __init__(self) -> None:
        self._signs: dict[str, tuple[float, float]] = {}
        """Two times of each worker's last heartbeat. The first time is by the scheduler's clock.
        The second time is by this process's clock, when this process noticed the heartbeat."""

    def silent(self, workers: Mapping[str, Any]) -> set[str]:
        """Return those of the scheduler's workers (`present`) that are silent for `SILENT_S`."""
        now_s = perf_counter()
        for address, facts in workers.items():
            sign = facts["last_seen"]
            if self._signs.get(address, (None,))[0] != sign:
                self._signs[address] = sign, now_s
        return {address for address in workers if now_s - self._signs[address][1] > SILENT_S}


def cancel(client: Client, futures: Iterable[Any]) -> None:
    """Cancel futures, if the scheduler is still connected."""
    if client.status == "running":
        with suppress(Exception):  # Dask raises many types if the connection has ended
            within(CLOSE_S, "the scheduler", lambda: client.cancel(list(futures)))


def result_of(future: Any) -> Any:
    """Return the result of a future that is done, or None if the result was lost with its worker.

    Dask would wait for a lost result without a limit. Raises PeerLostError if there is no result,
    for example because several workers died while they computed it.
    """
    try:
        return future.result(timeout=ANSWER_S)
    except Exception as error:  # Dask raises many types
        if isinstance(error, TimeoutError) and future.status != "error":
            return None
        why = CONNECTION_ENDED if future.cancelled() else first_line(error)
        raise PeerLostError(why) from error


def _close(client: Client) -> None:
    """End the connection to a scheduler, even if the scheduler no longer answers."""
    with suppress(Exception):  # Dask raises many types
        within(CLOSE_S, "the scheduler", lambda: client.close(timeout=CLOSE_S))


def describe(device: str, dask_worker: Any = None) -> Member | GpubenchError:
    """Return a description of this worker, or an error. `Client.run` sets `dask_worker`."""
    try:
        description = os.environ.get(DEVICE_VARIABLE)
        first = (
            msgspec.json.decode(description, type=Device) if description else devices_of(device)[0]
        )
    except GpubenchError as error:
        return error
    return Member(str(dask_worker.name), platform.node(), first, package_version()[0])


def devices_of(name: str) -> list[Device]:
    """Return the devices that `--device` names. A separate process looks for the devices.

    The search opens a context on the GPU. In this process, the context would stay open, and would
    count as another user of the GPU.
    """
    child = start(__name__, "send_devices", speaker="devices")
    try:
        return msgspec.json.decode(ask(child, name.encode(), (START_LIMIT_S,)), type=list[Device])
    except ChildLostError as lost:
        raise DeviceUnavailableError(f"the process that looks for devices {lost.why}") from None
    finally:
        child.kill()


def send_devices(descriptor: int) -> None:
    """Find devices in a separate process, and send them to the process that called `devices_of`."""
    channel = open_channel(descriptor)
    answer_requests(channel, lambda name, _: msgspec.json.encode(find_devices(name.decode())[0]))


def members(client: Client, device: str) -> tuple[dict[str, Member], dict[str, tuple[Member, str]]]:
    """Return a description of each worker, by the worker's address.

    The second dictionary has the workers that do not answer, and the reason for each of them. The
    devices of these workers are not known.

    Raises UsageError for a worker with several threads, and PeerLostError if no worker answers.
    """
    addresses = present(client)
    for address, facts in addresses.items():
        if facts["nthreads"] != 1:
            raise UsageError(
                f"--on: worker {address} has {facts['nthreads']} threads, which would disturb each "
                "other: start it with --nthreads 1"
            )

    def describe_at(address: str) -> Member | GpubenchError:
        answers = client.run(describe, device, workers=[address], on_error="raise")
        answer: Member | GpubenchError = answers[address]
        return answer

    with ThreadPoolExecutor(len(addresses) or 1) as beside:
        calls = [  # the limit is doubled, because a worker first looks for its devices
            beside.submit(within, 2 * ANSWER_S, f"worker {address}", partial(describe_at, address))
            for address in addresses
        ]
    described: dict[str, Member] = {}
    unanswered: dict[str, tuple[Member, str]] = {}
    for (address, facts), call in zip(addresses.items(), calls, strict=True):
        try:
            member = call.result()
        except Exception as error:  # Dask raises many types
            nobody = Member(str(facts["name"]), facts["host"], Device(backend="", name=""), "")
            unanswered[address] = nobody, first_line(error)
            continue
        if isinstance(member, GpubenchError):
            raise DeviceUnavailableError(f"worker {address}: {member}")
        described[address] = member
    if not described:
        raise PeerLostError(
            next((why for _, why in unanswered.values()), "--on: no worker is left")
        )
    return described, unanswered


def require_one_kind(by_address: Mapping[str, Member]) -> Member:
    """Return the first member. Raises UsageError if the members are of different kinds."""
    first, *rest = by_address.values()
    for other in rest:
        if other.kind != first.kind:
            pairs = zip(first.kind, other.kind, strict=True)
            differing = [f"{mine} and {theirs}" for mine, theirs in pairs if mine != theirs]
            raise UsageError(
                f"--on: {first.label} and {other.label} differ, so their times cannot be compared: "
                f"{'; '.join(differing)}; CUDA_VISIBLE_DEVICES can hide devices"
            )
    return first
