"""Describes this machine's CPU, and measures its highest rates."""

import os
import platform
import re
import timeit
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import thread_time
from typing import Annotated, Any

import msgspec
import numpy as np
import threadpoolctl

from gpubench.cache import cache_file, keep_value
from gpubench.cache import kept as kept_values
from gpubench.errors import UsageError
from gpubench.hardware.host import (
    CACHE_VARIABLE,
    cpu_threads,
    free_memory_bytes,
    memory_bytes,
    read_text,
)
from gpubench.hardware.peaks import fma_rate
from gpubench.model import CORE_DTYPES, Device, Health
from gpubench.text import shown

MAX_CACHE_MIB = 65536
COPY_BYTES = 2**28  # maximum size of the array that is copied
MIN_COPY_BYTES = 2**22  # minimum size of that array: larger than the L2 cache of most CPUs
COPIED_CACHES = 8  # the array exceeds the last-level cache by this factor, up to COPY_BYTES
REPEATS = 5

COPY = "measured_copy_gbytes_per_s"

FMA_COUNT = 2**20
"""Number of iterations of the multiply-add loop in the first call. The number is doubled until a
call takes FMA_CALL_S."""

FMA_CALL_S = 0.01  # minimum duration of a call that is timed

FMA_REPEATS = 10

KEPT_FOR = timedelta(days=1)  # time for which a measured rate is reused


class CpuGauge:
    """Measures the CPU on all threads that this process may use."""

    def __init__(self, device: Device) -> None:
        self._device = device
        copy_bytes = max(MIN_COPY_BYTES, min(COPY_BYTES, COPIED_CACHES * device.l2_bytes))
        while 4 * copy_bytes > free_memory_bytes() and copy_bytes > MIN_COPY_BYTES:
            copy_bytes //= 2  # a copy needs two arrays, and half of the memory stays free
        self._copy_bytes = copy_bytes

    def copy_gbytes_per_s(self) -> float:
        """Measure the rate of a copy in main memory. Bytes read and bytes written both count."""
        threads = cpu_threads()
        source = np.ones(self._copy_bytes, np.uint8)
        sources = np.array_split(source, threads)
        targets = np.array_split(np.empty_like(source), threads)
        with ThreadPoolExecutor(threads) as pool:  # NumPy releases Python's lock while it copies
            copy_s = min(
                timeit.repeat(
                    lambda: list(pool.map(np.copyto, targets, sources)), number=1, repeat=REPEATS
                )
            )
        return 2 * self._copy_bytes / copy_s / 1e9

    def parts(self) -> dict[str, float]:
        """Time a copy in main memory. Return microseconds under the name `copy`."""
        return {"copy": 2 * self._copy_bytes / self.copy_gbytes_per_s() / 1e3}

    def empty_launch_us(self) -> dict[str, float]:
        """Return an empty dictionary, because there is no empty kernel on a CPU."""
        return {}

    def configuration(self) -> dict[str, Any]:
        """Return the name and the release of the operating system."""
        return {"system": self._device.facts.get("system")}

    def health(self) -> Health:
        """Return no readings, because operating systems report a CPU's clock in different ways."""
        return Health()

    def ceilings(self, dtypes: Sequence[str] = CORE_DTYPES) -> dict[str, float]:
        """Measure the rates of copies in main memory and of multiply-adds in vector registers."""
        rates = {COPY: self.copy_gbytes_per_s()}
        return rates | {fma_rate(dtype): self._fma_gflops(dtype) for dtype in dtypes}

    def _fma_gflops(self, dtype: str) -> float:
        """Measure the rate of multiply-adds several times, and return the highest rate.

        Each rate is the sum of the rates of all threads. A thread's rate is computed from its CPU
        time, which other work on the machine does not lengthen.
        """
        from gpubench.backends.cpu.multiply_add import multiply_adds, operations

        run, threads, count = multiply_adds(dtype), cpu_threads(), FMA_COUNT

        def running_s(_thread: int) -> float:
            started_s = thread_time()
            run(count, 1, 0)
            return thread_time() - started_s

        with ThreadPoolExecutor(threads) as pool:
            while min(pool.map(running_s, range(threads))) < FMA_CALL_S:
                count *= 2
            calls = [list(pool.map(running_s, range(threads))) for _ in range(FMA_REPEATS)]
        return operations(dtype, count) * max(sum(1 / s for s in call) for call in calls) / 1e9


class KeptRate(msgspec.Struct):
    """A measured rate, and the time of its last measurement."""

    rate: float
    measured: Annotated[datetime, msgspec.Meta(tz=True)]


def highest_rates(
    device: Device,
    dtypes: Sequence[str],
    measure: Callable[[Sequence[str]], Mapping[str, float]],
    *,
    kept: bool = True,
) -> dict[str, float]:
    """Return the highest rates of a CPU. `measure` is `CpuGauge.ceilings`.

    The rates are kept in the user's cache. With `kept`, a rate that was measured on this kind of
    CPU less than a day ago is used. For multiply-adds, the highest rate that was ever measured on
    this kind of CPU is used, because other load can only lower a rate. The size of the last-level
    cache decides how many bytes are copied, so other sizes have other rates.
    """
    path = cache_file("rates", device.name, cpu_threads(), device.l2_bytes)
    now = datetime.now(UTC)
    rates = kept_values(path, dict[str, KeptRate]) or {}

    def is_missing(name: str) -> bool:
        return not (kept and name in rates and abs(now - rates[name].measured) < KEPT_FOR)

    missing = [dtype for dtype in dtypes if is_missing(fma_rate(dtype))]
    if missing or is_missing(COPY):
        for name, rate in measure(missing).items():
            before = rates[name].rate if name in rates and name != COPY else 0.0
            rates[name] = KeptRate(rate=max(rate, before), measured=now)
        keep_value(path, rates)
    names = (COPY, *map(fma_rate, dtypes))
    return {name: rates[name].rate for name in names if name in rates}


def describe_cpu() -> Device:
    """Describe this machine's CPU, from /proc and /sys if they exist."""
    caches = _caches()
    blas = [info for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas"]
    blas.sort(key=lambda info: "numpy" not in info["filepath"])  # SciPy may use another BLAS
    return Device(
        backend="cpu",
        name=_model_name(),
        multiprocessors=cpu_threads(),
        l2_bytes=_last_level_bytes(caches),
        versions={"blas": f"{blas[0]['internal_api']} {blas[0]['version']}" if blas else ""},
        facts={
            "cores": cpu_threads(),
            "clock_mhz": _clock_mhz(),
            "memory_bytes": memory_bytes("MemTotal"),
            "cache_bytes": dict(caches),
            "machine": platform.machine(),
            "system": f"{platform.system()} {platform.release()}",
            "blas": [
                {key: info.get(key) for key in ("internal_api", "version", "num_threads")}
                for info in blas
            ],
        },
    )


def _last_level_bytes(caches: Sequence[tuple[str, int]]) -> int:
    """Return the size of the last-level cache in bytes.

    This is the size in `CACHE_VARIABLE`, or else the size of the largest cache, or else 32 MiB.
    Raises UsageError for a value that is not a whole number of MiB from 1 to 65536.
    """
    text = os.environ.get(CACHE_VARIABLE)
    if not text:
        return max((size for _, size in caches), default=32 * 2**20)  # a common size
    if not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= MAX_CACHE_MIB:
        raise UsageError(
            f"{CACHE_VARIABLE}: '{shown(text)}' is not a whole number of MiB from 1 to "
            f"{MAX_CACHE_MIB}"
        )
    return int(text) * 2**20


def _model_name() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", read_text("/proc/cpuinfo"), re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def _clock_mhz() -> float | None:
    """Return the highest clock of the CPU in MHz.

    If Linux reports only the present clock of the first CPU, return that clock.
    """
    highest = read_text("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    if highest.isdecimal():
        return int(highest) / 1e3
    match = re.search(r"^cpu MHz\s*:\s*([\d.]+)", read_text("/proc/cpuinfo"), re.MULTILINE)
    return float(match[1]) if match else None


def _caches() -> list[tuple[str, int]]:
    """Return the name and the bytes of each data cache and unified cache of the first CPU."""
    caches = []
    for directory in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = read_text(directory / "type")
        size = re.fullmatch(r"(\d+)([KM])", read_text(directory / "size"))
        if size and kind in {"Data", "Unified"}:
            name = f"L{read_text(directory / 'level')}{'d' if kind == 'Data' else ''}"
            caches.append((name, int(size[1]) * {"K": 2**10, "M": 2**20}[size[2]]))
    return caches
