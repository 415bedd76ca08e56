"""A Dask cluster whose workers have a device each: one of our own, or one that exists already."""

from __future__ import annotations

import json
import logging
import os
import pickle
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpubench.backends import find_devices
from gpubench.errors import (
    DeviceUnavailableError,
    GpubenchError,
    UsageError,
    first_line,
    install_command,
)
from gpubench.model import Device
from gpubench.results.provenance import package_version

if TYPE_CHECKING:
    from distributed import Client

LOCAL = "local"
"""The `--on` that starts a worker for each device of this machine."""

LOOPBACK = "127.0.0.1"

KNOWN = "GPUBENCH_DEVICE"
"""In the environment of a worker of ours: its device. To look for it again takes seconds."""

ANSWER_S = 20
"""For a scheduler to answer, and for its first worker to be there."""


class Member(NamedTuple):
    """A worker, and the device that it measures on."""

    name: str
    hostname: str
    device: Device
    tree_hash: str
    """Of the package there."""

    @property
    def kind(self) -> tuple[object, ...]:
        """What members must agree in for their times to be compared."""
        return self.device.name, sorted(self.device.versions.items()), self.tree_hash

    @property
    def slot(self) -> str:
        """Where the device is in its host."""
        return str(self.device.facts.get("slot") or self.name)

    @property
    def label(self) -> str:
        """`node7 0000:1B:00.0`."""
        return f"{self.hostname} {self.slot}"


@contextmanager
def connected(on: str, device: str) -> Iterator[Client]:
    """A client of the cluster that `--on` names; one of our own ends with the block.

    Raises UsageError where Dask is missing, or no scheduler with workers answers.
    """
    if ":" in device:
        raise UsageError(
            f"--on takes every device, not {device} alone; CUDA_VISIBLE_DEVICES chooses"
        )
    with ThreadPoolExecutor(1) as beside:
        found = beside.submit(devices_of, device) if on == LOCAL else None
        try:
            from distributed import Client  # it takes a second, and to look for devices two
        except ImportError:
            raise UsageError(f"--on needs Dask: {install_command('fleet')}") from None
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("distributed"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters, we say
    with ExitStack() as stack:
        if found:
            cluster = stack.enter_context(_own_cluster(found.result()))
            client = stack.enter_context(Client(cluster))
        else:
            where: dict[str, Any] = {"address": on} if "://" in on else {"scheduler_file": on}
            if "://" not in on and not Path(on).is_file():
                raise UsageError(
                    f"--on: '{on}' is neither {LOCAL}, nor an address such as tcp://host:8786, "
                    "nor a scheduler file"
                )
            try:
                client = stack.enter_context(Client(**where, timeout=ANSWER_S))
                client.wait_for_workers(1, timeout=ANSWER_S)
            except Exception as error:  # whatever Dask makes of what it cannot use
                raise UsageError(
                    f"--on: no Dask scheduler with workers answers at {on}: "
                    f"{str(error).partition(chr(10))[0] or type(error).__name__}"
                ) from error
        yield client


@contextmanager
def _own_cluster(found: Sequence[Device]) -> Iterator[Any]:
    """A worker for each device, on the loopback, and only for who has the keys made here.

    Whoever reaches a scheduler can have it run anything: other users of this machine must not.
    """
    import dask
    from distributed import Nanny, Scheduler, SpecCluster
    from distributed.security import Security

    devices = [one for one in found if one.backend == found[0].backend]
    with tempfile.TemporaryDirectory(prefix="gpubench-") as directory:
        shared: dict[str, Any] = {
            "host": LOOPBACK,
            "protocol": "tls",
            "security": Security.temporary(),
        }
        workers = {
            one.index: {
                "cls": Nanny,
                "options": {
                    **shared,
                    "name": one.index,
                    "nthreads": 1,
                    "preload": [__name__],
                    "memory_limit": 0,
                    "local_directory": directory,
                    "env": _environment(one),
                },
            }
            for one in devices
        }
        # Dask's own variables would limit the threads of BLAS and OpenMP: that is the backend's.
        environment = {"DASK_LOGGING__DISTRIBUTED": "critical"}
        private = {
            "temporary-directory": directory,  # not below /tmp, where others may put what we import
            "distributed.nanny.pre-spawn-environ": environment,
        }
        with ExitStack() as stack:
            stack.enter_context(dask.config.set(private))
            scheduler = {**shared, "dashboard": False, "dashboard_address": f"{LOOPBACK}:0"}
            try:
                cluster = SpecCluster(
                    workers=workers,
                    scheduler={"cls": Scheduler, "options": scheduler},
                    security=shared["security"],
                    silence_logs=logging.CRITICAL,
                )
            except (RuntimeError, OSError) as error:
                why = first_line(error.__cause__ or error)  # type: ignore[arg-type] # of Dask
                raise DeviceUnavailableError(
                    f"--on {LOCAL}: not all workers could be started: {why}; a script must call "
                    "it under: if __name__ == '__main__'"
                ) from error
            yield stack.enter_context(cluster)


def _environment(device: Device) -> dict[str, str]:
    """Of the worker that measures on a device: there it is the only one."""
    uuid = device.facts.get("uuid")
    visible = {"CUDA_VISIBLE_DEVICES": uuid} if uuid else {}
    return {KNOWN: msgspec.json.encode(replace(device, index=0)).decode(), **visible}


def dask_setup(_worker: Any) -> None:
    """In each worker of ours, as `preload` has it: Ctrl-C is for the process that was started."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def present(client: Client) -> Mapping[str, Any]:
    """The workers that the scheduler has now, by address; none once it has gone."""
    found: Mapping[str, Any] = client.scheduler_info(n_workers=-1).get("workers", {})
    return found if client.status == "running" else {}


def cancel(client: Client, futures: Iterable[Any]) -> None:
    """Tell the workers that nobody wants these any more, if there is a scheduler to tell it."""
    if client.status == "running":
        client.cancel(list(futures))


def describe(device: str, dask_worker: Any = None) -> Member | GpubenchError:
    """The member that runs this; `Client.run` gives `dask_worker`."""
    try:
        known = os.environ.get(KNOWN)
        first = msgspec.json.decode(known, type=Device) if known else devices_of(device)[0]
    except GpubenchError as error:
        return error
    return Member(str(dask_worker.name), platform.node(), first, package_version()[0])


def devices_of(name: str) -> list[Device]:
    """The devices that `--device` names, looked at by a process that ends.

    In this one the context that looking takes would stay on the GPU, and be taken for a neighbour.
    """
    program = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        "from gpubench.engine.cluster import send_devices; send_devices(sys.argv[2])"
    )
    command = [sys.executable, "-P", "-c", program, json.dumps(sys.path), name]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=False)  # noqa: S603 # our own
    try:
        found: list[Device] | GpubenchError = pickle.loads(ended.stdout)  # noqa: S301 # likewise
    except (EOFError, pickle.UnpicklingError):
        raise DeviceUnavailableError(f"looking for devices ended with {ended.returncode}") from None
    if isinstance(found, GpubenchError):
        raise found
    return found


def send_devices(name: str) -> None:
    """Answer `devices_of` on stdout."""
    answer = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    found: list[Device] | GpubenchError
    try:
        found = find_devices(name)[0]
    except GpubenchError as error:
        found = error
    with os.fdopen(answer, "wb") as stream:
        pickle.dump(found, stream)


def members(client: Client, device: str) -> dict[str, Member]:
    """Every worker by its address. Raises UsageError for one that could not measure truly."""
    for address, facts in present(client).items():
        if facts["nthreads"] != 1:
            raise UsageError(
                f"--on: worker {address} has {facts['nthreads']} threads, which would measure each "
                "other: start it with --nthreads 1"
            )
    found: Mapping[str, Member | GpubenchError] = client.run(
        describe, device, on_error="raise", wait=True
    )
    for address, member in found.items():
        if isinstance(member, GpubenchError):
            raise DeviceUnavailableError(f"worker {address}: {member}")
    return {address: member for address, member in found.items() if isinstance(member, Member)}


def require_one_kind(found: Mapping[str, Member]) -> Member:
    """The first member. Raises UsageError naming one that differs from it, and in what."""
    first, *others = found.values()
    for other in others:
        if other.kind != first.kind:
            differing = [
                f"{mine} and {theirs}"
                for mine, theirs in zip(_facts(first), _facts(other), strict=True)
                if mine != theirs
            ]
            raise UsageError(
                f"--on: {first.label} and {other.label} are of several kinds, whose times say "
                f"nothing together: {'; '.join(differing)}; CUDA_VISIBLE_DEVICES can leave some out"
            )
    return first


def _facts(member: Member) -> tuple[str, ...]:
    versions = ", ".join(f"{name} {text}" for name, text in sorted(member.device.versions.items()))
    return member.device.name, versions, f"gpubench files {member.tree_hash}"
