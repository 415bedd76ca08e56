"""Compiles and keeps the kernels of gpubench that each process needs to judge a problem."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from secrets import randbits

from gpubench.cache import OWN, user_cache
from gpubench.engine.child.supervisor import START_LIMIT_S, Supervisor
from gpubench.engine.measure.examiner import Examiner
from gpubench.engine.measure.runner import Runner
from gpubench.engine.operands.make import SEED_BITS
from gpubench.errors import GpubenchError
from gpubench.foreign import bytes_copy
from gpubench.model import Timer, Timing

SHORTLY = Timing(rounds=1, min_samples=2, min_device_s=1e-3, max_wall_s=1e-2)


class OwnKernels:
    """Compiles kernels in a process that measures copies of bytes and runs no foreign code.

    The process runs at the same time as other preparations. Foreign code may write into the cache
    of its kernels, so each folder of foreign kernels has a separate cache. The files that this
    process has compiled are copied into each such cache (`copy_compiled`). On an H200, a
    process needs 3 s to compile the kernels.
    """

    def __init__(self, device: str, backend: str) -> None:
        """Start a process that compiles the kernels."""
        self._supervisor = Supervisor(device, Timer.EVENTS, user_cache(OWN))
        self._pool = ThreadPoolExecutor(1)
        self._compiled = self._pool.submit(self._compile, backend)

    def _compile(self, backend: str) -> None:
        with suppress(GpubenchError):  # if this fails, measuring processes compile the kernels
            points, child = bytes_copy.points(backend), self._supervisor
            child.open()
            child.request(START_LIMIT_S, Runner.begin, SHORTLY, 0)
            limits_s = START_LIMIT_S, START_LIMIT_S  # for the first call, and for the other calls
            for point in points:
                child.request(limits_s, Runner.measure, point, seed=randbits(SEED_BITS))
                child.request(START_LIMIT_S, Examiner.result_on, point, randbits(SEED_BITS))

    def wait(self) -> None:
        """Wait until the kernels are compiled and kept, and end the process."""
        self._compiled.result()
        self.end()

    def end(self) -> None:
        """End the process, even while it compiles."""
        self._supervisor.end_all()
        self._pool.shutdown()
