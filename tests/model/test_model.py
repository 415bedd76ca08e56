"""Problems have work and shapes, and launches are fitted to a GPU."""

from dataclasses import replace

import pytest
from fakes import point, variant

from gpubench.model import Config, CudaVariant, Gpu, Launch, Problem, edges


def test_bytes_count_each_operand_and_the_result_once_and_flops_each_multiply_add_twice() -> None:
    single, double = (
        Problem(op="gemm", m=3, n=5, k=7, dtype=dtype) for dtype in ("float32", "float64")
    )
    assert single.bytes == double.bytes / 2 == 4 * (3 * 7 + 7 * 5 + 3 * 5)
    assert single.flops == 2 * 3 * 5 * 7


def test_operations_on_vectors_have_blas_shapes_and_work() -> None:
    gemv, gemv_t, atax = (
        Problem(op=op, m=3, n=5, dtype="float32") for op in ("gemv", "gemv_t", "atax")
    )
    assert (gemv.input_shapes, gemv.output_shape) == (((3, 5), (5,)), (3,))
    assert (gemv_t.input_shapes, gemv_t.output_shape) == (((3, 5), (3,)), (5,))
    assert (atax.input_shapes, atax.output_shape) == (((3, 5), (5,)), (5,))
    assert (gemv.flops, gemv_t.flops, atax.flops) == (30, 30, 60)
    assert (gemv.terms, gemv_t.terms) == (5, 3)
    assert (gemv.size, replace(gemv, m=5).size, gemv.k) == ("3x5", "5", 1)


def test_a_launch_is_fitted_to_a_gpu_by_the_function_of_its_variant() -> None:
    gpu = Gpu(multiprocessors=3, threads_per_multiprocessor=64)
    problem = Problem(op="gemv", m=1000, n=5, dtype="float32")
    plain = CudaVariant(
        idea="",
        tiles=edges(1, 1, because="of a test"),
        launch=lambda _tile, problem: Launch(grid=(problem.m,), block=(32,)),
        reuse=lambda _tile: (1, 1),
    )
    fitted = replace(
        plain,
        specialize=lambda launch, _tile, _at, gpu: replace(launch, grid=(gpu.multiprocessors,)),
    )
    assert plain.launch_on(gpu, Config.parse("1"), problem).grid == (1000,)
    assert fitted.launch_on(gpu, Config.parse("1"), problem).grid == (3,)


def test_braces_that_hold_no_parameter_are_refused() -> None:
    kernel = CudaVariant(idea="", tiles=edges(1, 1, because="of a test"), kernel="run<{edge[a]}>")
    with pytest.raises(ValueError, match="braces hold only scalar, edge"):
        kernel.instance(Config.parse("1"), "float32")


def test_each_condition_is_in_the_key_and_problems_are_compared_across_variants_and_tiles() -> None:
    usual, other = point(), point(variant(name="other"), tile=Config.parse("16"))
    for column in ("operands", "cache", "launches", "state", "scope", "timer"):
        changed = replace(usual, **{column: "other"})
        assert changed.key == usual.key._replace(**{column: "other"})
    assert other.problem_key == usual.problem_key
