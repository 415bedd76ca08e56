"""A handful of kernels, from 2 µs to 2 ms, timed by events and by CUPTI."""

from __future__ import annotations

from dataclasses import replace

from gpubench.measure.session import Watcher, run
from gpubench.measure.worker import Worker
from gpubench.model import Timer
from gpubench.options import read_sweep
from gpubench.row import Row

CHECKS = (
    {"variants": "shared_tile", "tiles": "16", "sizes": "64,128,256,512,1024,2048"},
    {"variants": "cublas", "sizes": "64,1024,2048"},
    {"variants": "naive", "tiles": "32", "sizes": "64,512"},
)


def selfcheck_rows(device: str, watcher: Watcher) -> list[Row]:
    """Rows of every check by both timers, operands hot.

    Raises DeviceUnavailableError without a GPU or without CUPTI.
    """
    rows: list[Row] = []
    with Worker(device, Timer.CUPTI) as worker:
        for options in CHECKS:
            sweep = read_sweep({**options, "device": device, "cache": "hot"})
            for timer in (Timer.EVENTS, Timer.CUPTI):
                rows += run(replace(sweep, timer=timer), worker, watcher).rows
    return rows
