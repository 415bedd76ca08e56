"""Declares the CPU as a backend, for loops compiled by Numba and for NumPy's BLAS."""

from gpubench.backends import Backend, BackendEntry, Cost
from gpubench.model import Device, Timer


def _devices(_index: int | None) -> list[Device]:
    from gpubench.backends.cpu.gauge import describe_cpu

    return [describe_cpu()]


def _load() -> None:
    from gpubench.backends.cpu import backend  # noqa: F401 # it loads NumPy


def _open(_index: int, _timer: Timer) -> Backend:
    from gpubench.backends.cpu.backend import CpuBackend

    return CpuBackend()


BACKEND = BackendEntry(
    name="cpu",
    auto_order=100,  # the last choice, for machines without a GPU
    timers=(Timer.HOST, Timer.OUTSIDE),
    cost=Cost(start_s=0.7, compile_s=1.0, gflops=lambda _device: 10.0),
    host_arrays=True,
    devices=_devices,
    open=_open,
    load=_load,
)
