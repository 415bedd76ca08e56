"""Results of solutions in the bytes of a launch, with torch."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pytest

from gpubench.errors import LaunchError, UsageError
from gpubench.foreign import bound, tensors, values
from gpubench.foreign.compare import Comparison
from gpubench.foreign.statement import Tolerance

pytestmark = [pytest.mark.exhaustive]

torch = pytest.importorskip("torch")

LIMIT = Tolerance(1e-5, 1e-5)


class Problem:
    """A problem whose inputs and reference are functions of a test."""

    ENTRY = "function run"
    other_types: Collection[str] | None = ("float16",)

    def __init__(self, inputs: Callable[[], Sequence[Any]], reference: Callable[..., Any]) -> None:
        self._inputs, self._reference = inputs, reference

    def inputs(self, _number: int, seed: int) -> Sequence[Any]:
        values.seed(seed)
        return self._inputs()

    def reference(self, arguments: Sequence[Any]) -> Any:
        return self._reference(*arguments)


def reason(
    inputs: Callable[[], Sequence[Any]], reference: Callable[..., Any], run: Callable[..., Any]
) -> str:
    """Return why the results of `run` are wrong, or an empty text."""
    problem: Any = Problem(inputs, reference)
    facts = tensors.examine(problem, 1, LIMIT)
    content = bound.fill(problem, facts, 1, seed=2)
    right = Comparison(facts).with_reference(*bound.refer(problem, facts, 1, content))
    memory = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    output = torch.full((facts.output_bytes,), 0xFF, dtype=torch.uint8)
    workloads = {facts.input_bytes: (facts, 1)}
    solution = bound.Solution(problem, workloads, run, takes_outputs=False, clocks={})
    solution(memory, output)
    return right(np.asarray(output)).reason


def test_memory_for_results_has_the_order_of_the_inputs() -> None:
    def run(x: Any, sine: Any, *others: Any) -> None:
        sine.copy_(x.sin())
        others[-1].copy_(x.cos())

    def inputs() -> list[Any]:
        return [torch.randn(4), torch.empty(4), *range(6), torch.empty(4)]

    assert reason(inputs, lambda x, *_: (x.sin(), x.cos()), run) == ""


def test_complex_results_are_refused_because_only_real_parts_are_compared() -> None:
    with pytest.raises(UsageError, match="is complex"):
        reason(lambda: [torch.randn(4)], lambda x: torch.complex(x, x), lambda x: x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: y.double(), "the function returns float64, not float32"),
        (lambda y: y[None], r"the function returns the shape \(1, 4, 8\), not \(4, 8\)"),
        (lambda y: y.flatten(), r"the function returns the shape \(32,\), not \(4, 8\)"),
        (lambda _: None, "the function returns 0 tensors, but the reference returns 1"),
    ],
)
def test_a_result_of_another_form_is_refused(change: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        reason(lambda: [torch.rand(4, 8)], lambda x: x + 1, lambda x: change(x + 1))


def test_a_result_may_have_another_type_that_the_problem_accepts() -> None:
    right = reason(lambda: [torch.ones(4, 8)], lambda x: x + 1, lambda x: (x + 1).half())
    assert right == ""


def square() -> list[Any]:
    return [torch.randn(8, 8), torch.empty(8, 8)]


def sine(x: Any, out: Any) -> Any:
    return out.copy_(x.sin())


def test_a_transposed_view_of_a_result_is_not_the_result() -> None:
    assert reason(square, sine, lambda x, out: sine(x.t(), out).t()) == ""
    assert "are right" in reason(square, sine, lambda x, out: sine(x, out).t())
    assert reason(square, lambda x, _: x.sin_().t(), lambda x, _: (x.sin().t(), x.sin_())) == ""


def test_results_may_lie_in_each_others_memory() -> None:
    def inputs() -> list[Any]:
        return [torch.randn(4), torch.empty(4), torch.empty(4)]

    def run(x: Any, first: Any, second: Any) -> Any:
        return second.copy_(x.sin()), first.copy_(x.cos())

    assert reason(inputs, lambda x, *_: (x.sin(), x.cos()), run) == ""


def test_the_check_of_a_problem_gets_the_returned_results_alone() -> None:
    class Checked(Problem):
        def tolerances(self, _: Any, result: Sequence[Any]) -> list[Tolerance]:
            (_,) = result
            return [LIMIT]

    problem: Any = Checked(lambda: [torch.randn(4), torch.randn(4)], lambda x, y: x.mul_(2) + y)
    facts = tensors.examine(problem, 1, None)
    assert (len(facts.outputs), facts.tolerances) == (2, (LIMIT, LIMIT))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "uint16", "uint32", "int8", "int64"])
def test_random_integers_are_small(dtype: str) -> None:
    drawn = values.random("x", (1000,), dtype).to(torch.int64)
    assert 1 <= int(drawn.abs().max()) <= values.LARGEST_INTEGER
    assert (int(drawn.min()) < 0) == dtype.startswith("int")
