"""The arguments that the CUDA driver gets, tested without a driver."""

import ctypes
from typing import Any

import pytest
from cuda.bindings import driver
from hypothesis import given
from hypothesis import strategies as st

from gpubench.backends.cuda import driver as module
from gpubench.backends.cuda.driver import (
    FAULTY_UP_TO,
    SMALL_TENSOR_BYTES,
    TENSOR_MAP_BYTES,
    encode_tensor_map,
    launch_config,
    tensor_map_arguments,
    without_faulty_bit,
)
from gpubench.errors import LaunchError
from gpubench.model import DTYPES, CudaVariant, Launch, Problem, TensorMap
from gpubench.plan.registry import of_op

encoded_maps = st.binary(min_size=TENSOR_MAP_BYTES, max_size=TENSOR_MAP_BYTES)


def words(encoded: bytes) -> list[int]:
    """The 16 words of a tensor map, of 64 bits each, as a GPU reads them."""
    return [int.from_bytes(encoded[at : at + 8], "little") for at in range(0, len(encoded), 8)]


@given(encoded_maps)
def test_only_bit_21_of_the_second_word_is_cleared_for_small_tensors(encoded: bytes) -> None:
    before = words(encoded)
    after = words(without_faulty_bit(encoded, SMALL_TENSOR_BYTES - 1, FAULTY_UP_TO))
    assert after[1] == before[1] & ~(1 << 21)
    assert [*after[:1], *after[2:]] == [*before[:1], *before[2:]]
    assert without_faulty_bit(encoded, SMALL_TENSOR_BYTES, FAULTY_UP_TO) == encoded
    assert without_faulty_bit(encoded, 16, FAULTY_UP_TO + 10) == encoded  # a newer driver


def test_a_tensor_map_describes_the_matrix_innermost_extent_first() -> None:
    described = TensorMap(array=0, shape=(96, 40), box=(64, 32), offset_bytes=256, swizzle_bytes=64)
    kind, rank, address, extents, strides, box, steps, _, swizzle, *_ = tensor_map_arguments(
        described, 0x1000, "float32"
    )
    assert kind == driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32
    assert (rank, address) == (2, 0x1100)
    assert [int(value) for value in extents] == [40, 96]
    assert [int(value) for value in strides] == [160]
    assert [int(value) for value in box] == [32, 64]
    assert [int(value) for value in steps] == [1, 1]
    assert swizzle == driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B


def test_a_batch_of_matrices_has_a_third_dimension_of_which_a_box_takes_one() -> None:
    described = TensorMap(array=0, shape=(96, 40), box=(64, 32), batch=7)
    _, rank, _, extents, strides, box, steps, *_ = tensor_map_arguments(described, 0, "bfloat16")
    assert rank == len(steps) == 3
    assert [int(value) for value in extents] == [40, 96, 7]
    assert [int(value) for value in strides] == [80, 80 * 96]
    assert [int(value) for value in box] == [32, 64, 1]


def test_the_l2_cache_fetches_128_bytes_at_a_time_unless_the_map_has_another_number() -> None:
    def promotion(**described: int) -> int:
        a_map = TensorMap(array=0, shape=(8, 8), box=(8, 8), **described)
        return int(tensor_map_arguments(a_map, 0, "float32")[-2])

    assert promotion() == promotion(l2_promotion_bytes=128) == 2
    assert [promotion(l2_promotion_bytes=size) for size in (0, 64, 256)] == [0, 1, 3]


def test_every_dtype_and_swizzle_has_its_code_in_cuda_h() -> None:
    kinds = {
        dtype: int(tensor_map_arguments(TensorMap(array=0, shape=(8, 8), box=(8, 8)), 0, dtype)[0])
        for dtype in DTYPES
    }
    assert kinds == {
        "float32": 7,
        "float64": 8,
        "int32": 3,
        "tf32": 11,
        "bf16x3": 7,
        "bf16x6": 7,
        "float16": 6,
        "float16_sum16": 6,
        "bfloat16": 9,
        "int8": 0,
        "float8_e4m3": 0,
        "float8_e4m3_split": 0,
    }
    assert module.SWIZZLE_BYTES == (0, 32, 64, 128)


def fake_driver(monkeypatch: pytest.MonkeyPatch, status: driver.CUresult, tensor_map: Any) -> None:
    """A driver that returns this result for every request for a tensor map."""
    monkeypatch.setattr(module, "driver_version", lambda: 13000)
    monkeypatch.setattr(driver, "cuTensorMapEncodeTiled", lambda *_: (status, tensor_map))


def test_an_encoded_tensor_map_is_128_bytes_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = driver.CUtensorMap()
    answer.opaque = [driver.cuuint64_t(2**64 - 1 - index) for index in range(16)]
    fake_driver(monkeypatch, driver.CUresult.CUDA_SUCCESS, answer)
    for rows, cleared in ((512, 0), (511, 1 << 21)):  # 512 rows of 256 bytes are 128 KiB
        described = TensorMap(array=0, shape=(rows, 64), box=(8, 8))
        encoded = encode_tensor_map(described, 0, "float32")
        assert ctypes.sizeof(encoded) == TENSOR_MAP_BYTES
        expected = [2**64 - 1 - index for index in range(16)]
        expected[1] &= ~cleared
        assert words(encoded.raw) == expected


def test_a_refused_tensor_map_is_a_launch_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch, driver.CUresult.CUDA_ERROR_INVALID_VALUE, None)
    with pytest.raises(LaunchError, match=r"refused TensorMap.*CUDA_ERROR_INVALID_VALUE"):
        encode_tensor_map(TensorMap(array=0, shape=(8, 8), box=(8, 8)), 0, "float32")


def attributes(launch: Launch) -> tuple[Any, dict[str, Any]]:
    """Return the driver's config of a launch, and its attributes by name."""
    config = launch_config(launch, 7)
    assert config.numAttrs == len(config.attrs)
    return config, {attribute.id.name: attribute.value for attribute in config.attrs}


def test_a_tensor_map_of_a_result_has_the_type_of_results(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = of_op("gemm")["wgmma_bytes"]
    assert isinstance(kernel, CudaVariant)
    encoded_types: list[tuple[int, str]] = []
    monkeypatch.setattr(
        module,
        "encode_tensor_map",
        lambda described, _, dtype: encoded_types.append((described.array, dtype)),
    )
    for dtype, result in (("int8", "int32"), ("float8_e4m3", "bfloat16")):
        problem = Problem(op="gemm", m=256, n=256, k=256, dtype=dtype)
        (tile, *_) = kernel.tiles.defaults
        launch = kernel.launch(tile, problem)
        module.kernel_arguments(kernel.parameters(launch), problem, launch)((1, 2, 3))
        assert encoded_types == [(0, dtype), (1, dtype), (2, result)]
        encoded_types.clear()


def test_a_launch_config_has_the_dimensions_and_the_stream() -> None:
    config, by_name = attributes(Launch(grid=(6, 5), block=(32, 4, 2), shared_bytes=99))
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (6, 5, 1)
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (32, 4, 2)
    assert (config.sharedMemBytes, int(config.hStream)) == (99, 7)
    assert by_name == {}


def test_clusters_and_programmatic_dependent_launches_are_attributes() -> None:
    cluster = Launch(grid=(8,), block=(32,), cluster=(2, 1, 1))
    pdl = Launch(grid=(8,), block=(32,), pdl=True)
    both = Launch(grid=(8, 4), block=(32,), cluster=(4, 2, 1), pdl=True)
    _, by_name = attributes(both)
    size = by_name["CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"].clusterDim
    assert (size.x, size.y, size.z) == (4, 2, 1)
    allowed = by_name["CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"]
    assert allowed.programmaticStreamSerializationAllowed == 1
    assert list(attributes(cluster)[1]) == ["CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"]
    assert list(attributes(pdl)[1]) == ["CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"]


@pytest.mark.parametrize(("answer", "limits"), [((0, 2**20), [0]), ((0, 0), []), ((801, None), [])])
def test_lines_that_a_kernel_pinned_in_the_l2_cache_are_unpinned(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[int, Any], limits: list[int]
) -> None:
    calls: list[str] = []
    set_limits: list[int] = []
    monkeypatch.setattr(driver, "cuCtxGetLimit", lambda _limit: answer)
    monkeypatch.setattr(driver, "cuCtxSetLimit", lambda _limit, value: set_limits.append(value))
    monkeypatch.setattr(driver, "cuCtxResetPersistingL2Cache", lambda: calls.append("lines"))
    monkeypatch.setattr(driver, "cuCtxSetCacheConfig", lambda kind: calls.append(kind.name))
    module.reset_caches()
    assert set_limits == limits
    assert calls == ["lines", "CU_FUNC_CACHE_PREFER_NONE"]
