"""What `gpubench explain` compiles for: an architecture, and the GPU whose figures count."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpubench.backends.cuda.compile import architectures, nvrtc_version
from gpubench.backends.cuda.devices import cuda_device
from gpubench.errors import CompileError, DeviceUnavailableError, UsageError
from gpubench.hardware.architectures import DEFAULT, example
from gpubench.model import Device
from gpubench.plan.ranges import shown


@dataclass(frozen=True, kw_only=True)
class Target:
    """What kernels are compiled for, and the GPU whose figures count."""

    architecture: str
    device: Device
    is_here: bool
    note: str = ""
    """What was assumed without being asked for."""


def find_target(arch: str | None, device: str, *, measure: bool) -> Target:
    """The architecture named, or this machine's GPU's, or the default one, with an example GPU.

    `device` is as `--device` takes it, `auto` by default. Raises UsageError for an architecture
    that NVRTC does not compile for, DeviceUnavailableError for a GPU that is asked for, or to be
    measured on, and not there.
    """
    try:
        known = architectures()
    except CompileError as error:
        raise UsageError(str(error)) from error
    if arch is None:
        return _target_of_gpu(device, measure=measure)
    if device != "auto":
        raise UsageError("--arch and --device: name an architecture, or a GPU of this machine")
    if measure:
        raise UsageError("--measure and --arch: kernels are measured on this machine's GPU")
    if re.sub("[af]$", "", arch) not in known:
        version = ".".join(map(str, nvrtc_version()))
        raise UsageError(
            f"--arch: '{shown(arch)}' is not an architecture that NVRTC {version} compiles for: "
            f"{', '.join(known)}"
        )
    device_of_arch = example(arch)
    note = _figures_of(device_of_arch)
    return Target(architecture=arch, device=device_of_arch, is_here=False, note=note)


def _target_of_gpu(name: str, *, measure: bool) -> Target:
    if name.partition(":")[0] not in {"auto", "cuda"}:
        raise UsageError("--device: explain is about GPUs; write cuda, or name an --arch")
    try:
        device = cuda_device(int(name.partition(":")[2] or 0))
    except DeviceUnavailableError as error:
        if name != "auto" or measure:
            missing = str(error).partition(";")[0]  # the rest is about --device cpu
            message = f"{missing}; --arch {DEFAULT} explains without a GPU"
            raise DeviceUnavailableError(message) from error
        device = example(DEFAULT)
        note = f"no GPU here: {DEFAULT}, {_figures_of(device)}; --arch chooses another"
        return Target(architecture=DEFAULT, device=device, is_here=False, note=note)
    major, minor = device.compute_capability or (0, 0)
    return Target(architecture=f"sm_{major}{minor}", device=device, is_here=True)


def _figures_of(device: Device) -> str:
    if not device.name:
        return "no GPU is listed for this architecture: no waves, and no roofline"
    clock = f", {device.sm_clock_mhz:g} MHz" if device.sm_clock_mhz else ""
    return (
        f"figures of the {device.name}: {device.multiprocessors} multiprocessors{clock}, "
        f"{device.memory_bandwidth_gbytes_per_s:g} GB/s"
    )
