"""Declares NVIDIA GPUs as a backend. No other package imports CuPy."""

from gpubench.backends import Backend, BackendEntry, Cost
from gpubench.hardware.peaks import peak_gflops
from gpubench.model import Device, Launches, Timer

TYPICAL_FRACTION = 0.05
"""Fraction of the float32 peak that a kernel is assumed to reach. On an H200, the tile with the
median rate reaches this fraction."""


def _devices(index: int | None) -> list[Device]:
    from gpubench.backends.cuda.devices import cuda_device, cuda_devices

    return cuda_devices() if index is None else [cuda_device(index)]


def _open(index: int, timer: Timer) -> Backend:
    from gpubench.backends.cuda.backend import CudaBackend
    from gpubench.backends.cuda.cupti import load_cupti

    if timer == Timer.CUPTI:
        load_cupti()
    return CudaBackend(index)


def _load() -> None:
    import gpubench.backends.cuda.backend  # noqa: F401 # CuPy takes a second


def _typical_gflops(device: Device) -> float | None:
    peak = peak_gflops(device, "float32")
    return peak and TYPICAL_FRACTION * peak


BACKEND = BackendEntry(
    name="cuda",
    auto_order=0,
    timers=(Timer.EVENTS, Timer.CUPTI),
    launches=tuple(Launches),
    quick_size=1024,
    is_numbered=True,
    cost=Cost(start_s=2.0, compile_s=0.15, gflops=_typical_gflops),
    devices=_devices,
    open=_open,
    load=_load,
)
