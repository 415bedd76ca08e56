"""Kernels whose time or result depends on earlier launches."""

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from fakes import point, product

from gpubench.backends.rotation import OperandSets, Rotation, SetPolicy
from gpubench.engine.judge.independence import copies_of_first_set, require_independent
from gpubench.engine.judge.verdict import WrongError
from gpubench.engine.measure.trials import _new_inputs
from gpubench.engine.outside.values import new_inputs
from gpubench.model import OPERATIONS, Fill, Problem

Call = Callable[[np.ndarray, np.ndarray, np.ndarray], float]
"""A kernel, which computes and returns the time in microseconds that it claims."""


def operands(op: str = "gemm") -> OperandSets:
    rng = np.random.default_rng(1)
    problem = Problem(op=op, m=20, n=24, k=16 if op == "gemm" else 1, dtype="float32")
    inputs = tuple(rng.random(shape, np.float32) for shape in problem.input_shapes)
    return OperandSets(
        problem=problem,
        host_inputs=inputs,
        sets=((*inputs, np.zeros(problem.output_shape, np.float32)),),
        policy=SetPolicy(count=1, flush=False),
        rotation=Rotation(1),
    )


@pytest.mark.parametrize("op", ["gemm", "gemm_batched", "gemm_relu"])
@pytest.mark.parametrize("fill", Fill)
def test_new_operands_differ_for_each_kind_of_values(op: str, fill: Fill) -> None:
    problem = Problem(op=op, m=5, n=6, k=7, dtype="float32")
    at = replace(point(), problem=problem, operands=fill)
    assert not np.array_equal(_new_inputs(at)[0], _new_inputs(at)[0])
    first, second = (next(new_inputs(problem, seed, [True], fill))[0] for seed in (1, 2))
    assert not np.array_equal(first, second)


def check(call: Call, op: str = "gemm", **facts: bool) -> int:
    """Require that a kernel is independent, and return the number of times operands were made."""
    arrays, made = copies_of_first_set(operands(op)), itertools.count()
    rng = np.random.default_rng(5)

    def new_inputs() -> tuple[np.ndarray, ...]:
        next(made)
        return (rng.random(arrays.sets[0][0].shape, np.float32),)

    require_independent(
        arrays,
        lambda: call(*arrays.sets[0]),
        np,
        new_inputs=new_inputs,
        **{"is_long": False, "by_events": False, "reads_output": False} | facts,
    )
    return next(made)


def kernel(
    noise: Callable[[], float] = lambda: 1.0,
    *,
    op: str = "gemm",
    us: float = 10.0,
    filled: float = 1.0,
    new: float = 1.0,
) -> Call:
    """Return a kernel that computes each time.

    Its time is multiplied by `filled` if the output holds numbers, and by `new` if the first
    operand is new to it.
    """
    used: set[bytes] = set()

    def call(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
        time_us = us * noise()
        time_us *= filled if np.isfinite(c).all() else 1.0
        time_us *= 1.0 if a.tobytes() in used else new
        used.add(a.tobytes())
        c[...] = product(op, a, b)
        return time_us

    return call


def noise(seed: int, *factors: float) -> Callable[[], float]:
    """Return a function that returns one of the factors at random, most often the first."""
    rng = np.random.default_rng(seed)
    return lambda: float(rng.choice(factors, p=[0.4, 0.3, 0.2, 0.1]))


OUTPUT = "the time depends on what the output holds"
DEPENDS_ON_USED = "the time depends on operands that it has seen before"


@pytest.mark.parametrize("op", ["gemm", "gemv", "gemv_t", "atax"])
@pytest.mark.parametrize("is_long", [False, True])
def test_a_kernel_that_always_computes_is_independent_if_noisy(op: str, is_long: bool) -> None:
    rng = np.random.default_rng(2)
    check(kernel(lambda: float(rng.uniform(0.9, 1.1)), op=op), op, is_long=is_long)


def test_a_kernel_that_adds_to_its_output_is_independent() -> None:
    def call(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
        c += a @ b
        return 10.0

    check(call, reads_output=True)


@pytest.mark.parametrize(("is_long", "repeats"), [(False, 0), (True, 0), (False, 7)])
def test_a_kernel_that_stops_if_the_output_is_filled_is_wrong(is_long: bool, repeats: int) -> None:
    """It is wrong even if the timer repeats one of seven launches while the output is filled."""
    calls = 0

    def call(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
        nonlocal calls
        calls += 1
        if np.isfinite(c).all():
            return 1.0
        c[...] = a @ b
        return 1.0 if repeats and calls % repeats == 0 else 10.0

    with pytest.raises(WrongError, match=f"{OUTPUT}: 10 µs"):
        check(call, is_long=is_long)


@pytest.mark.parametrize(
    ("by_events", "launch_us", "gain", "is_wrong"),
    [
        (False, 160, 0.05, False),
        (False, 160, 0.15, True),
        (True, 160, 0.1, True),
        (True, 20, 0.1, False),
    ],
)
def test_a_kernel_that_gains_where_the_output_is_filled_is_wrong_if_the_clock_shows_it(
    by_events: bool, launch_us: float, gain: float, is_wrong: bool
) -> None:
    rng = np.random.default_rng(3)
    call = kernel(lambda: float(rng.uniform(1, 1.03)), us=launch_us, filled=1 - gain)
    with pytest.raises(WrongError, match=OUTPUT) if is_wrong else nullcontext():
        check(call, by_events=by_events)


def test_a_result_kept_by_the_operands_values_is_wrong() -> None:
    with pytest.raises(WrongError, match=DEPENDS_ON_USED):
        check(kernel(us=1.0, new=10.0))


def test_operands_that_may_take_long_to_make_are_made_for_launches_with_new_ones_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launches = 1 + 6 * 3
    assert check(kernel()) == launches
    slow = replace(OPERATIONS["gemm"], make=lambda *_: ())
    monkeypatch.setattr(Problem, "operation", slow)
    assert check(kernel()) in {6, 7}
    with pytest.raises(WrongError, match=DEPENDS_ON_USED):
        check(kernel(us=1.0, new=10.0))

    held: list[np.ndarray] = []

    def kept(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
        held.append(product("gemm", a, b))
        c[...] = held[0]
        return 1.0

    with pytest.raises(WrongError, match="the result of earlier operands"):
        check(kept)


@pytest.mark.parametrize(("longer", "is_wrong"), [(1.17, False), (1.4, True)])
def test_operands_just_written_may_make_a_launch_longer(longer: float, is_wrong: bool) -> None:
    with pytest.raises(WrongError, match=DEPENDS_ON_USED) if is_wrong else nullcontext():
        check(kernel(us=40, new=longer))


@pytest.mark.parametrize("is_long", [False, True])
def test_launches_that_are_shorter_on_new_operands_falsify_nothing(is_long: bool) -> None:
    check(kernel(new=0.1), is_long=is_long)


@pytest.mark.parametrize("skips", ["where it has seen the address", "in six calls of seven"])
def test_a_kernel_that_does_not_compute_each_time_is_wrong(skips: str) -> None:
    kept: dict[int, np.ndarray] = {}
    calls = 0

    def call(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
        nonlocal calls
        calls += 1
        if skips == "in six calls of seven":
            if calls % 7 == 1:
                c[...] = a @ b
        else:
            c[...] = kept.setdefault(a.ctypes.data, a @ b)
        return 10.0

    with pytest.raises(WrongError, match="a launch did not compute its result"):
        check(call)


def test_a_kernel_that_writes_nothing_after_its_arguments_moved_may_keep_addresses() -> None:
    for reads_output, reason in ((False, "keep old addresses"), (True, "what the output held")):
        with pytest.raises(WrongError, match=reason):
            check(lambda _a, _b, _c: 10.0, reads_output=reads_output)


def test_disturbances_do_not_make_a_kernel_dependent() -> None:
    disturbed = noise(3, 1.0, 1.1, 1.3, 3.0)
    for is_long in [False] * 60 + [True] * 60:
        check(kernel(disturbed), is_long=is_long)


@pytest.mark.parametrize("phase", range(3))
def test_a_disturbance_of_every_third_launch_does_not_make_a_kernel_dependent(phase: int) -> None:
    """The check has three cases, so it must change their order."""
    calls = itertools.count(phase)
    check(kernel(lambda: 1.0 if next(calls) % 3 else 2.0))


def test_a_dependence_is_seen_among_disturbances() -> None:
    with pytest.raises(WrongError, match=OUTPUT):
        check(kernel(noise(4, 1.0, 1.1, 1.2, 3.0), filled=0.6))
