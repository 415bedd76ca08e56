"""torch, torch.compile and Triton as rivals; stand-ins replace the packages.

The stand-ins record their calls, and NumPy computes.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpubench.commands.compare_cublas.ladder import with_libraries
from gpubench.kernels import gemm
from gpubench.model import CallVariant, Problem
from gpubench.plan.descriptor import load
from gpubench.plan.registry import of_op
from gpubench.plan.sweep import Sweep

RIVALS = ("torch_compile", "torch_matmul", "triton_matmul")
KERNEL = "gpubench.kernels.gemm._triton_matmul"


class Tuned:
    """A stand-in for the result of `triton.autotune`, which uses its last configuration."""

    def __init__(self, configurations: list[Any], kernel: Callable[..., None]) -> None:
        self.best_config = configurations[-1]
        self._kernel = kernel

    def __getitem__(self, grid: Callable[[dict[str, Any]], tuple[int]]) -> Callable[..., Any]:
        def launch(*arguments: Any, **constants: Any) -> Any:
            a, b, c, m, n, _ = arguments
            (programs,) = grid({"m": m, "n": n, **self.best_config.values})
            assert 1 <= programs <= 3
            c[...] = a @ b
            told.append(constants)
            metadata = SimpleNamespace(shared=1024)
            return SimpleNamespace(n_regs=80, n_spills=2, metadata=metadata)

        return launch


told: list[Any] = []


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    torch = ModuleType("torch")
    matmul = SimpleNamespace()
    facts: dict[str, Any] = {
        "mm": lambda a, b, out: np.matmul(a, b, out=out),
        "backends": SimpleNamespace(cuda=SimpleNamespace(matmul=matmul)),
        "set_float32_matmul_precision": told.append,
        "compile": lambda function, **how: told.append(how) or function,
        "_dynamo": SimpleNamespace(config=SimpleNamespace()),
    }
    torch.__dict__.update(facts)
    triton, language = ModuleType("triton"), ModuleType("triton.language")
    language.constexpr = int  # type: ignore[attr-defined]
    triton.__dict__.update(
        language=language,
        jit=lambda function: function,
        autotune=lambda configurations, **_key: lambda kernel: Tuned(configurations, kernel),
        cdiv=lambda a, b: -(-a // b),
        Config=lambda values, **how: SimpleNamespace(values=values, **how),
    )
    for module in (torch, triton, language):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, KERNEL, raising=False)
    told.clear()
    yield torch
    sys.modules.pop(KERNEL, None)
    vars(gemm).pop("_triton_matmul", None)


def rival(name: str) -> CallVariant:
    variant = of_op("gemm")[name]
    assert isinstance(variant, CallVariant)
    return variant


class Tensor(np.ndarray):
    """An array with the attribute of tensors that says that it is not on a GPU."""

    is_cuda = False

    def is_contiguous(self) -> bool:
        return self.flags.c_contiguous


def computed(name: str, dtype: str) -> tuple[Any, bool]:
    """Return the function of a rival, and whether it computes the product."""
    call = rival(name).build(None, dtype)
    a, b = (np.random.default_rng(1).random(shape).view(Tensor) for shape in ((5, 7), (7, 3)))
    c = np.full((5, 3), np.nan)
    call(a, b, c)
    return call, bool(np.allclose(c, a @ b))


@pytest.mark.parametrize("name", RIVALS)
def test_each_rival_computes_into_the_tensor_that_it_is_given(name: str) -> None:
    for dtype in rival(name).dtypes:
        assert computed(name, dtype)[1], dtype


@pytest.mark.parametrize("name", ["torch_matmul", "torch_compile"])
def test_rivals_use_tf32_only_for_the_dtype_tf32(name: str, packages: ModuleType) -> None:
    computed(name, "float32")
    computed(name, "tf32")
    assert [text for text in told if isinstance(text, str)] == ["highest", "high"]
    settings = packages.backends.cuda.matmul
    assert settings.allow_fp16_reduced_precision_reduction is False
    assert settings.allow_bf16_reduced_precision_reduction is False


def test_compiled_functions_are_tuned_for_each_size(packages: ModuleType) -> None:
    computed("torch_compile", "bfloat16")
    assert {"mode": "max-autotune-no-cudagraphs", "dynamic": False} in told
    assert packages._dynamo.config.recompile_limit == 1000


def test_triton_gets_ieee_or_tf32_and_reports_the_chosen_configuration() -> None:
    for dtype, precision in (
        ("float32", "ieee"),
        ("tf32", "tf32"),
        ("bf16x6", "bf16x6"),
        ("float16", "ieee"),
    ):
        call, right = computed("triton_matmul", dtype)
        assert right
        assert told[-1]["precision"] == precision
        assert str(call.algorithm) == str(call._tuned.best_config)
        resources = call.resources
        assert (resources.registers, resources.spill_bytes, resources.shared_bytes) == (80, 8, 1024)


def test_the_hash_of_triton_matmul_covers_its_kernel() -> None:
    assert {path.name for path in rival("triton_matmul").sources} == {
        "triton_matmul.py",
        "_triton_matmul.py",
    }


def test_compare_cublas_measures_rivals_only_with_the_option() -> None:
    for dtype, expected in (("bfloat16", set(RIVALS)), ("float64", {"torch_matmul"})):
        sweep = Sweep(dtypes=(dtype,))
        assert set(RIVALS) & set(with_libraries(sweep, "cuda", ())) == set()
        assert set(RIVALS) & set(with_libraries(sweep, "cuda", (), rivals=True)) == expected
        asked = with_libraries(sweep, "cuda", ("naive",), rivals=True)
        assert asked[0] == "naive"
        assert set(asked) == {"naive", "cublas", "cublaslt"} | expected


def test_a_rival_without_its_package_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("gpubench.model.variant")
    monkeypatch.setattr(module, "_is_installed", lambda package: package == "torch")
    problem = Problem(op="gemm", m=8, n=8, k=8, dtype="tf32")
    assert rival("torch_matmul").why_not(None, problem) is None
    assert (
        rival("triton_matmul").why_not(None, problem) == "needs triton, which Python does not find"
    )


def test_the_example_on_the_cpu_is_a_description_of_the_same_form() -> None:
    folder = Path(__file__).parents[2] / "examples" / "functions"
    example = of_op("gemm", folder)["torch_cpu"]
    assert isinstance(example, CallVariant)
    c = np.empty((2, 2))
    example.build(None, "float64")(np.eye(2), np.ones((2, 2)), c)
    assert (c == 1).all()


def test_the_examples_of_frameworks_for_a_gpu_are_short_descriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    language = SimpleNamespace(constexpr=object)
    stand_in = SimpleNamespace(jit=lambda function: function, language=language)
    monkeypatch.setitem(sys.modules, "triton", stand_in)
    monkeypatch.setitem(sys.modules, "triton.language", language)
    gluon = SimpleNamespace(jit=stand_in.jit, language=language)
    monkeypatch.setitem(sys.modules, "triton.experimental", SimpleNamespace(gluon=gluon))
    monkeypatch.setitem(sys.modules, "triton.experimental.gluon", gluon)
    folder = Path(__file__).parents[2] / "examples" / "functions"
    tensors = {}
    for path in folder.glob("*.py"):
        described = load(path, "gemm")
        assert isinstance(described, CallVariant)
        tensors[path.stem] = described.tensors
        assert len([line for line in path.read_text().splitlines() if line.strip()]) <= 25
    assert tensors == {
        "torch_cpu": "torch",
        "torch_gpu": "torch",
        "triton_product": "torch",
        "gluon_product": "torch",
        "numba_cuda": "",
        "jax_matmul": "jax.numpy",
        "pallas_product": "jax.numpy",
    }
