"""The devices of this machine."""

from __future__ import annotations

from gpubench.backends.cpu import describe_cpu
from gpubench.backends.cuda.devices import cuda_device, cuda_devices
from gpubench.errors import DeviceUnavailableError
from gpubench.model import Device


def find_devices(name: str) -> tuple[list[Device], str]:
    """The devices that `--device` names, and why CUDA is missing; empty if it is not.

    Raises DeviceUnavailableError where CUDA was asked for by name.
    """
    if name == "cpu":
        return [describe_cpu()], ""
    if name.startswith("cuda:"):
        return [cuda_device(int(name.removeprefix("cuda:")))], ""
    try:
        devices = cuda_devices()
    except DeviceUnavailableError as error:
        if name == "cuda":
            raise
        return [describe_cpu()], str(error)
    return [*devices, describe_cpu()] if name == "auto" else devices, ""
