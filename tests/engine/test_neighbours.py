"""A verdict does not depend on the sizes measured before, on their order, or on the cache state.

Each function is wrong at one size of its sweep, by an error within the tolerance.
"""

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import cut, point, variant

from gpubench.backends.cpu.backend import CpuBackend
from gpubench.backends.cpu.gauge import describe_cpu
from gpubench.engine.measure import trials as engine
from gpubench.engine.measure.runner import Runner
from gpubench.model import Cache, Status, Timing

Product = Callable[[np.ndarray, np.ndarray, np.ndarray], None]
Size = tuple[int, int, int]

QUICK = Timing(rounds=1, min_samples=2, min_device_s=0.0, sample_us=1.0, max_wall_s=0.2)
WRONG_AT: Size = (64, 48, 1000)
NEIGHBOURS: tuple[Size, ...] = ((64, 48, 250), (96, 80, 300), (320, 300, 310), (40, 40, 700))


def flushed(values: np.ndarray, below: float) -> np.ndarray:
    """Return the values, with zeros in place of small values."""
    return np.where(np.abs(values) < below, np.zeros_like(values), values)


def changing(
    first: Callable[[np.ndarray], np.ndarray], second: Callable[[np.ndarray], np.ndarray],
    when: Callable[[np.ndarray, np.ndarray], object],
) -> Product:  # fmt: skip
    """Return a product that changes its operands under a condition."""

    def call(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        if when(a, b):
            np.matmul(first(a), second(b), out=c)
        else:
            np.matmul(a, b, out=c)

    return call


def same(values: np.ndarray) -> np.ndarray:
    return values


def is_deep(a: np.ndarray, _b: np.ndarray) -> bool:
    return a.shape[1] > 800


def is_dense(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape[1] > 800 and bool(a.all() and b.all())


def in_range(a: np.ndarray, b: np.ndarray) -> bool:
    return is_dense(a, b) and float(np.abs(b).max()) <= 1


def is_this_size(a: np.ndarray, b: np.ndarray) -> bool:
    return (*a.shape, b.shape[1]) == (64, 1000, 48)


def is_warm() -> Callable[[np.ndarray, np.ndarray], bool]:
    """Return a condition: the previous launch had its operands at the same address."""
    last = 0

    def seen(a: np.ndarray, b: np.ndarray) -> bool:
        nonlocal last
        before, last = last, a.ctypes.data
        return is_dense(a, b) and last == before

    return seen


def is_moved() -> Callable[[np.ndarray, np.ndarray], bool]:
    """Return a condition: the previous launch at this size had operands at another address."""
    last: dict[tuple[int, ...], int] = {}

    def seen(a: np.ndarray, b: np.ndarray) -> bool:
        before = last.get(a.shape, a.ctypes.data)
        last[a.shape] = a.ctypes.data
        return is_dense(a, b) and before != a.ctypes.data

    return seen


def saturating(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -1, 1)


def bits(count: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: cut(values, count)


WRONG: dict[str, Callable[[], Product]] = {
    "A and B of 18 bits at a large K": lambda: changing(bits(18), bits(18), is_deep),
    "A of 18 bits at one size": lambda: changing(bits(18), same, is_this_size),
    "20 bits without zeros": lambda: changing(bits(20), bits(20), is_dense),
    "18 bits up to 1": lambda: changing(bits(18), bits(18), in_range),
    "small A as 0": lambda: changing(lambda a: flushed(a, 1e-4), same, is_dense),
    "A at most 1": lambda: changing(saturating, saturating, is_dense),
    "18 bits where the cache is hot": lambda: changing(bits(18), same, is_warm()),
    "18 bits where the operands moved": lambda: changing(bits(18), same, is_moved()),
    "the last product lost": lambda: changing(
        lambda a: np.where(np.arange(a.shape[1]) < 999, a, np.zeros_like(a)), same, is_dense
    ),
}
"""Functions that are wrong only at the size WRONG_AT."""


@pytest.fixture(autouse=True)
def no_launch_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat no launch as long, because long launches are not repeated on the same operands."""
    monkeypatch.setattr(engine, "LONG_LAUNCH_US", np.inf)


def statuses(call: Product, sizes: tuple[Size, ...], cache: Cache) -> dict[Size, Status]:
    """Return the status of each size in a sweep of sizes in this order."""
    backend = CpuBackend(replace(describe_cpu(), l2_bytes=2**14), max_sets=3)
    runner = Runner(backend, QUICK, seed=1)
    function = variant(call, path=Path("mine.py"))
    return {size: runner.measure(point(function, size=size, cache=cache)).status for size in sizes}


def orders(count: int) -> list[tuple[Size, ...]]:
    """Return the wrong size alone, and among random other sizes in random order."""
    draw = random.Random(7)  # noqa: S311 # an order, not a secret
    chosen: list[tuple[Size, ...]] = [(WRONG_AT,)]
    while len(chosen) < count:
        part = [WRONG_AT, *draw.sample(NEIGHBOURS, draw.randrange(1, len(NEIGHBOURS)))]
        draw.shuffle(part)
        chosen.append(tuple(part))
    return chosen


def require_wrong(name: str, sizes: tuple[Size, ...], cache: Cache) -> None:
    by_size = statuses(WRONG[name](), sizes, cache)
    expected = {size: Status.WRONG if size == WRONG_AT else Status.OK for size in sizes}
    assert by_size == expected, (sizes, cache)


@pytest.mark.parametrize("name", list(WRONG)[::2])
def test_a_function_that_is_wrong_at_one_size_is_wrong_whatever_its_neighbours(name: str) -> None:
    alone, with_neighbours = orders(2)
    for sizes, cache in ((alone, Cache.HOT), (with_neighbours, Cache.COLD)):
        require_wrong(name, sizes, cache)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", WRONG)
def test_a_function_that_is_wrong_at_one_size_is_wrong_in_ten_orders(name: str) -> None:
    for sizes, cache in itertools.product(orders(10), Cache):
        require_wrong(name, sizes, cache)
