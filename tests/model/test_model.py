"""Problems, their work, launches and operations."""

from dataclasses import replace

from gpubench.model import Config, CudaVariant, Gpu, Launch, Problem, edges


def test_a_product_makes_two_operations_for_each_of_its_multiply_adds() -> None:
    assert Problem(op="gemm", m=3, n=5, k=7, dtype="float32").flops == 2 * 3 * 5 * 7


def test_bytes_count_each_operand_and_the_result_once() -> None:
    single = Problem(op="gemm", m=3, n=5, k=7, dtype="float32")
    double = Problem(op="gemm", m=3, n=5, k=7, dtype="float64")
    assert single.bytes == 4 * (3 * 7 + 7 * 5 + 3 * 5)
    assert double.bytes == 2 * single.bytes


def test_a_square_size_prints_as_one_number() -> None:
    assert Problem(op="gemm", m=8, n=8, k=8, dtype="int32").size == "8"
    assert Problem(op="gemm", m=8, n=8, k=9, dtype="int32").size == "8x8x9"


def test_a_launch_counts_its_blocks_and_threads() -> None:
    launch = Launch(grid=(3, 5), block=(8, 4, 2))
    assert (launch.blocks, launch.threads_per_block) == (15, 64)


def test_a_vector_has_no_third_extent_and_a_size_of_two_numbers() -> None:
    for op in ("gemv", "gemv_t", "atax"):
        problem = Problem(op=op, m=3, n=5, dtype="float32")
        assert (problem.k, problem.size) == (1, "3x5")
        assert Problem(op=op, m=3, n=3, dtype="float32").size == "3"
        assert problem.bytes == 4 * (15 + sum(problem.input_shapes[1]) + sum(problem.output_shape))


def test_operations_on_vectors_have_blas_shapes_and_work() -> None:
    gemv, gemv_t, atax = (
        Problem(op=op, m=3, n=5, dtype="float32") for op in ("gemv", "gemv_t", "atax")
    )
    assert (gemv.input_shapes, gemv.output_shape) == (((3, 5), (5,)), (3,))
    assert (gemv_t.input_shapes, gemv_t.output_shape) == (((3, 5), (3,)), (5,))
    assert (atax.input_shapes, atax.output_shape) == (((3, 5), (5,)), (5,))
    assert (gemv.flops, gemv_t.flops, atax.flops) == (30, 30, 60)
    assert (gemv.terms, gemv_t.terms) == (5, 3)


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
        specialize=lambda launch, _tile, _problem, gpu: replace(
            launch, grid=(gpu.multiprocessors,)
        ),
    )
    assert plain.launch_on(gpu, Config.parse("1"), problem).grid == (1000,)
    assert fitted.launch_on(gpu, Config.parse("1"), problem).grid == (3,)
