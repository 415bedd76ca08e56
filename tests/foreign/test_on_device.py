"""Inputs and comparisons on the device of a problem, with torch."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes  # noqa: F401 # NumPy gets the names of types
import numpy as np
import pytest
import stated_problems

from gpubench.foreign import kernelbench, on_host, values
from gpubench.foreign.arrange import arrange, is_independent
from gpubench.foreign.compare import MIN_PAIRS, Comparison
from gpubench.foreign.statement import ALIGNMENT, Facts, Part, Tolerance
from gpubench.model import Compared

pytestmark = [pytest.mark.exhaustive]

torch = pytest.importorskip("torch")

from gpubench.foreign import on_device  # noqa: E402 # this module imports torch

SHAPE = 40, 77
LIMITS = [
    Tolerance(1e-2, 1e-2, 0.99),
    Tolerance(1e-4, 1e-3),
    Tolerance(0.0, 0.0),
    Tolerance(1e-2, 1e-2, 0.9, 0.5),
]

CHANGES = {
    "right": lambda right, _: right,
    "near": lambda right, _: right * (1 + 2**-9),
    "off": lambda right, _: right + 0.1,
    "zeros": lambda right, _: np.zeros_like(right),
    "earlier": lambda _, earlier: earlier,
    "nan": lambda right, _: np.where(np.arange(right.size) == 7, np.nan, right),
    "inf": lambda right, _: np.where(np.arange(right.size) == 5, np.inf, right),
    "tail": lambda right, _: np.where(np.arange(right.size) > right.size - 20, 0, right),
    "small": lambda right, _: np.where(np.arange(right.size) > right.size - 300, 0.005, right),
}


def drawn(seed: int, dtype: str, scale: float) -> Any:
    values = scale * np.random.default_rng(seed).standard_normal(SHAPE).ravel()
    if dtype.startswith("int"):
        return np.rint(10 * values)
    values[seed] = np.inf
    values[seed + 1] = np.nan
    return values


@pytest.mark.parametrize("tolerance", LIMITS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "float64", "int64"])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
@pytest.mark.parametrize("change", CHANGES)
def test_results_on_a_device_are_compared_as_on_the_host(
    tolerance: Tolerance, dtype: str, scale: float, change: str
) -> None:
    strides = (1, SHAPE[0])  # column-major strides
    part = Part(SHAPE, strides, dtype, ALIGNMENT, 0)
    size = ALIGNMENT + np.dtype(dtype).itemsize * SHAPE[0] * SHAPE[1]
    facts = Facts((), (part,), ALIGNMENT, size, 1, (tolerance,))
    here, there = Comparison(facts), Comparison(facts, on_device)

    def content(values: Any) -> bytes:
        with np.errstate(over="ignore", invalid="ignore"):
            typed = values.reshape(SHAPE).astype(dtype)
        return bytes(ALIGNMENT) + np.asfortranarray(typed).tobytes("F")

    for seed in range(MIN_PAIRS + 2):
        right = drawn(seed, dtype, scale)
        on_host = here.with_reference(content(right), [right.tobytes()])
        wide = [torch.from_numpy(right.copy())]
        native = torch.frombuffer(bytearray(content(right)), dtype=torch.uint8)
        on_torch = there.with_reference(native, wide)
        assert on_host.is_wide == on_torch.is_wide
    changed = content(CHANGES[change](right, drawn(0, dtype, scale)))
    expected = on_host(np.frombuffer(changed, np.uint8))
    found = on_torch(torch.frombuffer(bytearray(changed), dtype=torch.uint8))
    assert found.reason == expected.reason
    assert found[1:] == pytest.approx(expected[1:], rel=1e-12)
    assert isinstance(found, Compared)


def test_integers_that_float64_rounds_are_compared_exactly_on_a_device() -> None:
    own = torch.tensor([2**60 + 1, 2**53, 2**63 - 1, 5])
    result = own + torch.tensor([1, 500, 1, 0])  # the third sum wraps around
    arrays = own.numpy(), result.numpy()
    ratios, off = on_device.errors(result, own.double(), 1.0, 0.0, own)
    on_host_ratios, on_host_off = on_host.errors(
        arrays[1], arrays[0].astype(float), 1.0, 0.0, arrays[0]
    )
    assert off.tolist() == on_host_off.tolist() == [1, 500, 2**64, 0]
    assert ratios.tolist() == on_host_ratios.tolist()


def test_values_are_drawn_on_the_device_unless_the_problem_needs_them_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "device", lambda: torch.device("meta"))
    monkeypatch.setattr(values, "drawing_device", values.device)
    path = stated_problems.model(tmp_path / "level1")
    (drawn,) = kernelbench.Program(path).inputs(1, 5)
    assert drawn.device.type == "meta"
    assert values.random("x", (3, 4), "bfloat16").device.type == "meta"
    text = path.read_text().replace("torch.rand(300, 128)", "torch.from_numpy(values())")
    path.write_text(f"{text}\n\ndef values():\n    return torch.rand(300, 128).numpy()\n")
    on_host = kernelbench.Program(path)
    (first,), (second,), (other,) = (on_host.inputs(1, seed) for seed in (5, 5, 6))
    assert first.device.type == "cpu"
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("processors", "kind"), [((132, 132), "cuda"), ((132, 108), "cpu")])
def test_the_cpu_draws_values_where_processes_may_use_different_gpus(
    monkeypatch: pytest.MonkeyPatch, processors: tuple[int, ...], kind: str
) -> None:
    gpus = [SimpleNamespace(name="a GPU", multi_processor_count=count) for count in processors]
    monkeypatch.setattr(values, "_device", "cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
    monkeypatch.setattr(torch.cuda, "get_device_properties", gpus.__getitem__)
    assert values.drawing_device.__wrapped__().type == kind


@pytest.mark.parametrize("seed", range(8))
def test_numpy_and_torch_move_the_same_values(seed: int) -> None:
    by_torch = torch.rand(7, 64, 96)
    by_numpy = by_torch.clone()
    arrange(by_torch, np.random.default_rng(seed), torch)
    arrange(by_numpy.numpy(), np.random.default_rng(seed))
    assert torch.equal(by_torch, by_numpy)


@pytest.mark.parametrize("form", ["random", "triangular", "symmetric", "constant", "with zeros"])
def test_numpy_and_torch_find_the_same_values_independent(form: str) -> None:
    values = np.random.default_rng(1).standard_normal((64, 64))
    if form == "triangular":
        values = np.tril(values)
    elif form == "symmetric":
        values += values.T
    elif form == "constant":
        values[:] = 1
    elif form == "with zeros":
        values[0] = 0
    found = is_independent(values), is_independent(torch.from_numpy(values), torch)
    assert found == (form == "random",) * 2
