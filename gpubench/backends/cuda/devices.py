"""Finds the GPUs of this machine and their properties, or the reason why no GPU can be used."""

import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from gpubench.errors import CompileError, DeviceUnavailableError, install_command
from gpubench.hardware.host import read_text
from gpubench.model import Device

DRIVER_FILES = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")
"""At least one of these files exists if a driver is loaded. The last file is for WSL."""

ERROR_INSUFFICIENT_DRIVER = 35
ERROR_NO_DEVICE = 100

PROPERTIES = {
    "global_memory_bytes": "totalGlobalMem",
    "constant_memory_bytes": "totalConstMem",
    "shared_memory_per_block_bytes": "sharedMemPerBlock",
    "shared_memory_per_block_optin_bytes": "sharedMemPerBlockOptin",
    "shared_memory_per_multiprocessor_bytes": "sharedMemPerMultiprocessor",
    "registers_per_block": "regsPerBlock",
    "registers_per_multiprocessor": "regsPerMultiprocessor",
    "threads_per_block": "maxThreadsPerBlock",
    "threads_per_multiprocessor": "maxThreadsPerMultiProcessor",
    "warp_size": "warpSize",
}
"""Maps the name of a device's fact to the name of the field in `cudaDeviceProp`."""


def cuda_devices() -> list[Device]:
    """Return all CUDA devices. Raises DeviceUnavailableError, which names what is missing."""
    return describe_devices(_runtime())


def cuda_device(index: int) -> Device:
    """Return the device with an index. Raises DeviceUnavailableError if there is no such device."""
    devices = cuda_devices()
    if index >= len(devices):
        raise DeviceUnavailableError(
            f"--device cuda:{index}: this machine has {len(devices)} CUDA device(s), "
            f"cuda:0 to cuda:{len(devices) - 1}"
        )
    return devices[index]


def _runtime() -> Any:
    """Return CuPy's CUDA runtime. Raises DeviceUnavailableError without a driver or CuPy."""
    if not any(Path(path).exists() for path in DRIVER_FILES):
        with_cupy = "CuPy is installed, but " if _cupy_is_installed() else ""
        raise DeviceUnavailableError(
            f"{with_cupy}no NVIDIA driver is loaded: CUDA needs an NVIDIA GPU and its driver; "
            "--device cpu needs neither",
            expected=not with_cupy and not _nvidia_on_the_bus(),
        )
    try:
        from cupy.cuda import runtime
    except ImportError as error:
        problem = "is not installed" if error.name == "cupy" else f"cannot be loaded ({error})"
        raise DeviceUnavailableError(
            f"CuPy {problem}: {install_command('cuda13')} (or cuda12, if the driver requires it)"
        ) from error
    return runtime


def _cupy_is_installed() -> bool:
    """Return whether CuPy is installed. CuPy is not imported, because this needs the driver."""
    return any(Path(folder, "cupy").is_dir() for folder in sys.path)


def _nvidia_on_the_bus() -> bool:
    """Return whether Linux lists an NVIDIA display controller, with or without a driver."""
    return any(
        read_text(vendor) == "0x10de" and read_text(vendor.with_name("class")).startswith("0x03")
        for vendor in Path("/sys/bus/pci/devices").glob("*/vendor")
    )


def describe_devices(
    runtime: Any,
    library_versions: Callable[[], dict[str, str]] | None = None,
    uuid: Callable[[int], str] | None = None,
) -> list[Device]:
    """Return the devices of CuPy's `runtime`. Tests replace the functions that call libraries."""
    count = _count(runtime)
    versions = (library_versions or _library_versions)() | {
        "cuda": _version(runtime.driverGetVersion()),
        "cuda_runtime": _version(runtime.runtimeGetVersion()),
    }
    return [_describe(runtime, index, versions, (uuid or _uuid)(index)) for index in range(count)]


def _count(runtime: Any) -> int:
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        if error.status == ERROR_INSUFFICIENT_DRIVER:
            message = (
                "the NVIDIA driver is too old for CuPy's CUDA "
                f"{_version(runtime.runtimeGetVersion())}: "
                f"update the driver, or {install_command('cuda12')}"
            )
        elif error.status == ERROR_NO_DEVICE:
            message = "no CUDA device is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES"
        else:
            message = f"CUDA does not start: {error}"
        raise DeviceUnavailableError(message) from error
    if not count:
        raise DeviceUnavailableError("no CUDA device is visible: check CUDA_VISIBLE_DEVICES")
    return int(count)


def _describe(runtime: Any, index: int, versions: dict[str, str], uuid: str) -> Device:
    properties = runtime.getDeviceProperties(index)

    def attribute(name: str) -> int:
        return int(runtime.deviceGetAttribute(getattr(runtime, f"cudaDevAttr{name}"), index))

    # Clocks come from attributes, because the property structure of CUDA 13 has none.
    memory_clock_mhz = attribute("MemoryClockRate") / 1e3
    bus_bits = attribute("GlobalMemoryBusWidth")
    return Device(
        backend="cuda",
        name=properties["name"].decode(),
        index=index,
        compute_capability=(properties["major"], properties["minor"]),
        multiprocessors=properties["multiProcessorCount"],
        sm_clock_mhz=attribute("ClockRate") / 1e3,
        # Two transfers per clock.
        memory_bandwidth_gbytes_per_s=2 * memory_clock_mhz * 1e6 * bus_bits / 8 / 1e9,
        l2_bytes=properties["l2CacheSize"],
        versions=versions,
        facts={
            "memory_clock_mhz": memory_clock_mhz,
            "memory_bus_bits": bus_bits,
            **{fact: properties[name] for fact, name in PROPERTIES.items()},
            "ecc": bool(properties["ECCEnabled"]),
            "uuid": uuid,
            "slot": runtime.deviceGetPCIBusId(index),
        },
    )


def _uuid(index: int) -> str:
    """Return a GPU's UUID as nvidia-smi prints it, or an empty text if the UUID is unknown."""
    try:
        from gpubench.backends.cuda.driver import device_uuid
    except ImportError:  # the compiler reports that cuda-bindings is missing
        return ""
    return device_uuid(index)


@cache
def _library_versions() -> dict[str, str]:
    import cupy
    from cupy.cuda import cublas, device

    from gpubench.backends.cuda.compile import nvrtc_version

    try:
        nvrtc = ".".join(map(str, nvrtc_version()))
    except CompileError as error:
        nvrtc = str(error)
    # The version of the kernel module, such as 580.95.05.
    driver = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", read_text("/proc/driver/nvidia/version"))
    blas = cublas.getVersion(device.get_cublas_handle())
    return {
        "cupy": cupy.__version__,
        **({"driver": driver[1]} if driver else {}),
        "nvrtc": nvrtc,
        "blas": f"cuBLAS {blas // 10000}.{blas // 100 % 100}.{blas % 100}",  # 130100 is 13.1.0
    }


def _version(number: int) -> str:
    """Return a version of CUDA as text, such as 13.0 for the number 13000."""
    return f"{number // 1000}.{number % 1000 // 10}"
