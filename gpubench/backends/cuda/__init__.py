"""NVIDIA GPUs: the only place that imports CuPy."""

from __future__ import annotations

from pathlib import Path

from gpubench.backends import Backend, BackendEntry
from gpubench.model import Device, Timer


def _devices(index: int | None) -> list[Device]:
    from gpubench.backends.cuda.devices import cuda_device, cuda_devices

    return cuda_devices() if index is None else [cuda_device(index)]


def _open(index: int, timer: Timer) -> Backend:
    from gpubench.backends.cuda.backend import CudaBackend
    from gpubench.backends.cuda.cupti import load_cupti

    if timer == Timer.CUPTI:
        load_cupti()
    return CudaBackend(index)


def _numbers() -> list[int]:
    return sorted(int(path.name[6:]) for path in Path("/dev").glob("nvidia[0-9]*"))


BACKEND = BackendEntry(
    name="cuda",
    auto_order=0,
    timers=(Timer.EVENTS, Timer.CUPTI),
    blas="cuBLAS",
    quick_size=1024,
    numbers=_numbers,
    devices=_devices,
    open=_open,
)
