"""A user's functions on tensors are measured like kernels, and rows note their side effects.

NumPy replaces torch here, because it also makes arrays through DLPack.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import FakeBackend, matmul, point, row, variant

from gpubench.backends.cpu.backend import CpuBackend
from gpubench.backends.cpu.gauge import describe_cpu
from gpubench.backends.functions import Returning, as_tensors
from gpubench.engine.judge import verify
from gpubench.engine.judge.verdict import WrongError
from gpubench.engine.judge.verify import Check, errors_of
from gpubench.engine.measure.runner import Runner
from gpubench.engine.operands.make import make_inputs, make_reference
from gpubench.errors import LaunchError
from gpubench.model import Cache, Measurement, Resources, Scope, Status, Timing, Variant
from gpubench.results.row import Row

MINE = Path("mine.py")
"""Path of a description that is not gpubench's, so its function is judged like a user's."""

QUICK = Timing(min_samples=2, min_device_s=0.0, max_wall_s=0.2)


def measured(called: Variant, **facts: Any) -> tuple[Measurement, Row]:
    """Measure a variant on the CPU backend; return the measurement and the row."""
    at = point(called, **facts)
    backend = CpuBackend(replace(describe_cpu(), l2_bytes=2**16))
    result = Runner(backend, QUICK, seed=1, sleep=lambda _seconds: None).measure(at)
    return result, row(result, backend.device, "")


def test_bfloat16_passes_through_dlpack(monkeypatch: pytest.MonkeyPatch) -> None:
    viewed = SimpleNamespace(view=lambda kind: f"seen as {kind}")
    library = SimpleNamespace(bfloat16="bfloat16", from_dlpack=lambda _array: viewed)
    monkeypatch.setitem(sys.modules, "stand_in", library)
    assert as_tensors("stand_in", (np.ones(2, "bfloat16"),)) == ("seen as bfloat16",)


def test_a_function_on_tensors_is_measured_and_checked() -> None:
    types = []

    def call(a: Any, b: Any, c: Any) -> None:
        types.append(type(a))
        matmul(a, b, c)

    for scope in Scope:
        result, _ = measured(variant(call, tensors="numpy"), scope=scope)
        assert (result.status, result.reason) == (Status.OK, "")
    wrong, _ = measured(variant(lambda _a, _b, c: c.fill(0), tensors="numpy"))
    assert wrong.status == Status.WRONG
    assert set(types) == {np.ndarray}


def allocates(a: Any, b: Any, c: Any) -> None:
    c[...] = a @ b


def allocates_less_than_a_result(a: Any, b: Any, c: Any) -> None:
    scratch = np.zeros(1000, a.dtype)
    matmul(a, b, c)
    del scratch


def test_a_function_that_allocates_a_result_is_measured_and_the_row_says_so() -> None:
    _, said = measured(variant(allocates))
    assert said.status == "ok"
    assert "each call allocates memory" in (said.notes or "")
    for call in (allocates_less_than_a_result, matmul):
        assert measured(variant(call))[1].notes is None


def test_facts_that_a_function_reports_after_it_ran_are_in_the_row() -> None:
    class Compiled:
        resources: Resources | None = None
        algorithm = ""

        def __call__(self, a: Any, b: Any, c: Any) -> None:
            matmul(a, b, c)
            self.resources = Resources(registers=99, local_bytes=0, spill_bytes=0, shared_bytes=512)
            self.algorithm = "128x64, 4 warps"

    _, said = measured(variant(Compiled()))
    assert (said.registers, said.shared_bytes, said.algorithm) == (99, 512, "128x64, 4 warps")


@pytest.mark.parametrize("matrices", [("B",), ("A", "C"), ("A", "B", "C")])
def test_column_major_matrices_have_this_order_and_the_row_too(matrices: tuple[str, ...]) -> None:
    strides: set[tuple[bool, ...]] = set()

    def call(*arrays: Any) -> None:
        strides.add(tuple(bool(array.flags.f_contiguous) for array in arrays))
        matmul(*arrays)

    # The forecast of slow launches uses some rows only, whose arrays are not contiguous.
    result, said = measured(variant(call, column_major=matrices))
    assert (result.status, result.reason) == (Status.OK, "")
    assert said.layout == f"column-major {' '.join(matrices)}"
    assert tuple(name in matrices for name in "ABC") in strides


def adds(beta: float) -> Callable[..., None]:
    def call(a: Any, b: Any, c: Any) -> None:
        c *= beta
        c += a @ b

    return call


def test_a_kernel_that_computes_nan_is_not_called_one_that_wrote_nothing() -> None:
    def call(_a: Any, _b: Any, c: Any) -> None:
        c[:] = np.uint32(0xFFC00000).view(np.float32)  # 0·∞ on x86

    computed, _ = measured(variant(call))
    assert computed.status == Status.WRONG
    assert computed.reason.endswith("the kernel wrote NaN into all elements of the result")


def test_a_kernel_that_reads_its_output_finds_zeros_there_and_the_row_says_so() -> None:
    blind, _ = measured(variant(adds(0.0)))
    assert blind.status == Status.WRONG
    assert "the result is unchanged by the launch; write into the last argument" in blind.reason
    right, said = measured(variant(adds(0.0), reads_output=True))
    assert (right.status, right.reason) == (Status.OK, "")
    assert "held zeros" in (said.notes or "")
    adding, _ = measured(variant(adds(1.0), reads_output=True))
    assert re.match(r"the result is \d+ times the right one: repeated launches add", adding.reason)


def test_a_wrong_function_of_a_user_is_not_measured_in_turns_with_a_library() -> None:
    backend = CpuBackend(replace(describe_cpu(), l2_bytes=2**16))
    runner = Runner(backend, QUICK, seed=1, sleep=lambda _seconds: None)
    wrong = variant(lambda a, b, c: np.matmul(2 * a, b, out=c), path=MINE)
    library = point(variant(matmul, "library"), cache=Cache.HOT)
    assert "2 times the right one" in str(
        runner.measure_pairs(point(wrong, cache=Cache.HOT), library)
    )


@pytest.mark.parametrize("cache", Cache)
@pytest.mark.parametrize("by", ["first call", "size"])
def test_a_function_that_keeps_addresses_is_wrong_with_this_reason(by: str, cache: Cache) -> None:
    """A function may keep the addresses of its first call, or of the first call of each size."""
    kept: dict[Any, tuple[Any, ...]] = {}

    def call(*arrays: Any) -> None:
        a, b, c = kept.setdefault(arrays[0].shape if by == "size" else 0, arrays)
        np.matmul(a, b, out=c)

    result, _ = measured(variant(call, path=MINE), cache=cache)
    assert result.status == Status.WRONG
    assert "the kernel may keep old addresses, such as in a tensor map" in result.reason


@pytest.mark.parametrize("cache", Cache)
def test_a_function_that_keeps_its_first_addresses_can_have_fixed_ones(cache: Cache) -> None:
    kept: list[Any] = []

    def call(*arrays: Any) -> None:
        kept[:] = kept or arrays
        a, b, c = kept
        assert arrays[0].shape == (520, 16)  # the function is called at no other size
        assert all(x.ctypes.data == y.ctypes.data for x, y in zip(arrays, (a, b, c), strict=True))
        np.matmul(a, b, out=c)

    right, said = measured(
        variant(call, fixed_addresses=True, path=MINE), cache=cache, size=(520, 260, 16)
    )
    assert (right.status, right.reason) == (Status.OK, "")
    assert said.notes == "called at fixed addresses; a cold cache was flushed"
    refused, _ = measured(variant(call, fixed_addresses=True, path=MINE), scope=Scope.END_TO_END)
    assert (refused.status, "requires fixed addresses" in refused.reason) == (Status.SKIPPED, True)


@pytest.mark.parametrize("keeps", [False, True])
def test_an_operand_overwritten_or_a_result_kept_at_fixed_addresses_is_wrong(keeps: bool) -> None:
    kept: dict[Any, Any] = {}

    def call(a: Any, b: Any, c: Any) -> None:
        c[:] = kept.setdefault(a.shape, a @ b) if keeps else a @ b
        a[0] *= keeps

    result, _ = measured(variant(call, fixed_addresses=True, path=MINE))
    assert result.status == Status.WRONG


def test_each_kernel_finds_its_own_poison_in_every_set() -> None:
    backend = FakeBackend()
    problem = point().problem
    operands = backend.load(problem, make_inputs(problem, seed=1), cold=True)
    for reads_output in (False, True, False):
        at = point(variant(reads_output=reads_output))
        check = Check(backend.xp, at, operands, lambda: pytest.fail("not asked"))
        check.start()
        for *_, output in operands.sets:
            assert (output == 0).all() if reads_output else np.isnan(output).all()
        assert operands.rotation.used == set()


def test_an_output_with_the_bits_of_a_right_one_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = point().problem
    operands = FakeBackend().load(problem, make_inputs(problem, seed=1), cold=False)
    reference = make_reference(np, "gemm", *operands.host_inputs)
    compared = []
    monkeypatch.setattr(verify, "errors_of", lambda *_: compared.append(1) or errors_of(*_))
    errors = []
    for times in (1, 1, 2):
        check = Check(np, point(), operands, lambda: reference)
        check.start()
        matmul(*operands.sets[0])
        operands.output[...] *= times
        operands.rotation.used.add(0)
        if times == 1:
            check.look()
            errors.append(check.errors.judged)
        else:
            with pytest.raises(WrongError):
                check.look()
    assert len(compared) == 2
    assert errors[0] == errors[1] > 0


def test_a_call_that_cannot_be_enqueued_is_refused_before_anything_is_timed() -> None:
    class Waiting(FakeBackend):
        def watch(self, _kernel: object) -> str:
            raise LaunchError("the call waits for the GPU")

    for scope, status in ((Scope.KERNEL, Status.ERROR), (Scope.END_TO_END, Status.OK)):
        backend = Waiting()
        result = Runner(backend, QUICK, seed=1).measure(point(scope=scope))
        assert result.status == status
        if scope == Scope.KERNEL:
            assert result.reason == "the call waits for the GPU"
            assert not backend.events_of("sample") + backend.events_of("sample", whole=False)


@pytest.mark.parametrize(
    "answers",
    [
        {"resources": 5},
        {"resources": "many"},
        {"resources": lambda: 0},
        {"resources": Resources(registers=-1, local_bytes=0, spill_bytes=0, shared_bytes=0)},
        {"resources": Resources(registers=2**40, local_bytes=0, spill_bytes=0, shared_bytes=0)},
        {"algorithm": "\ud800"},
        {"algorithm": "a" * 200_000},
        {"algorithm": "\x1b[2J"},
    ],
)
def test_facts_that_a_function_reports_are_checked_first(answers: dict[str, Any]) -> None:
    def call(a: Any, b: Any, c: Any) -> None:
        np.matmul(a, b, out=c)

    for name, value in answers.items():
        setattr(call, name, value)
    result, _ = measured(variant(call))
    assert (result.status, result.series) == (Status.ERROR, None)
    assert result.reason.startswith(f"{next(iter(answers))} is not ") or "registers" in (
        result.reason
    )


def test_a_function_that_returns_its_result_is_measured_with_the_copy() -> None:
    for scope in Scope:
        result, said = measured(variant(lambda a, b: a @ b, returns=True), scope=scope)
        assert (result.status, result.reason) == (Status.OK, "")
        assert "the time includes a copy of the returned result" in (said.notes or "")
    _, said = measured(variant(matmul))
    assert "a copy of the result" not in (said.notes or "")
    wrong, _ = measured(variant(lambda a, b: a @ b * 2, returns=True))
    assert wrong.status == Status.WRONG


@pytest.mark.parametrize("returned", [None, 1.0, np.ones(48, np.float32)], ids=repr)
def test_a_returned_value_that_is_not_the_whole_result_is_an_error(returned: object) -> None:
    result, _ = measured(variant(lambda _a, _b: returned, returns=True))
    assert result.status == Status.ERROR
    assert ", not an array of shape (64, 48)" in result.reason
    assert "write returns=True" not in result.reason


@pytest.mark.parametrize("scope", Scope)
def test_only_a_function_of_the_inputs_alone_is_advised_to_return_its_result(scope: Scope) -> None:
    def any_arrays(*_arrays: Any) -> None:
        raise TypeError("of this test")

    result, _ = measured(variant(any_arrays), scope=scope)
    assert "of this test" in result.reason
    assert "write returns=True" not in result.reason
    result, _ = measured(variant(lambda a, b: a @ b), scope=scope)
    assert "write returns=True" in result.reason


def test_a_returning_function_reports_its_algorithm() -> None:
    def call(a: Any, b: Any) -> Any:
        return a @ b

    call.algorithm = "the only one"  # type: ignore[attr-defined]
    assert measured(variant(call, returns=True))[0].algorithm == "the only one"


@pytest.mark.parametrize(("package", "waits"), [("jaxlib._jax", True), ("torch", False)])
def test_a_result_of_jax_is_copied_before_its_memory_is_used_again(
    package: str, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []
    result = type("Array", (), {"__module__": package, "shape": (2,)})()

    class Output:
        __module__, shape = "cupy", (2,)

        def __setitem__(self, _all: Any, copied: Any) -> None:
            done.append(copied)

    stream = SimpleNamespace(synchronize=lambda: done.append("wait"))
    cupy = SimpleNamespace(
        from_dlpack=lambda array: ["copy", array],
        cuda=SimpleNamespace(get_current_stream=lambda: stream),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    Returning(lambda _a: result)(np.ones(2), Output())
    assert done == [["copy", result], *(["wait"] if waits else [])]


def test_arrays_that_cannot_be_written_are_inputs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = type("ArrayImpl", (), {"__module__": "jaxlib._jax"})
    monkeypatch.setitem(
        sys.modules, "stand_in", SimpleNamespace(from_dlpack=lambda _array: frozen())
    )
    arrays = [np.ones(2) for _ in range(3)]
    *inputs, output = as_tensors("stand_in", arrays)
    assert {type(each) for each in inputs} == {frozen}
    assert output is arrays[-1]
