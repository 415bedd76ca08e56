"""Calls functions of the CUDA driver that CuPy does not wrap.

The module uses cuda-bindings, and does not need CuPy.
"""

import ctypes
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from cuda.bindings import driver

from gpubench.errors import LaunchError
from gpubench.model import PRECISIONS, Launch, Problem, TensorMap
from gpubench.model.signature import (
    LAUNCH,
    NULL,
    STREAM,
    TENSOR_MAP,
    Parameter,
    array_index,
    number,
    packed,
)
from gpubench.model.tensor_map import L2_PROMOTION_BYTES, SWIZZLE_BYTES

TENSOR_MAP_BYTES = 128

SMALL_TENSOR_BYTES = 128 * 2**10
FAULTY_UP_TO = 13010
"""Drivers up to this version (CUDA 13.1) set a bit in the tensor maps of tensors below
`SMALL_TENSOR_BYTES`. If the bit is set, accesses at the end of an allocation may fault. NVIDIA's
driver release notes list this fault as a known issue on Blackwell (595.71.05). gpubench clears the
bit on every GPU, as CUTLASS and Triton do."""

FAULTY_BIT = 64 + 21

Addresses = Sequence[int]
"""Addresses of the arrays of a set: the operands, the output, and perhaps a workspace."""


def kernel_arguments(
    parameters: Sequence[Parameter], problem: Problem, launch: Launch | None = None
) -> Callable[[Addresses], tuple[Any, ...]]:
    """Return a function that takes the addresses of a set, and returns a launch's arguments.

    The arguments are ctypes objects, in the order of the signature. The signature is read once for
    all sets. For a host function, `launch` is None, and the last address is the stream.
    """
    int_arguments = iter(launch.int_arguments if launch else ())
    maps = iter(launch.tensor_maps if launch else ())
    slots: list[Any] = []
    for parameter in parameters:
        index = array_index(parameter, problem.op) if parameter.is_pointer else None
        if index is not None:
            slots.append(index)
        elif parameter.type_name == STREAM:
            slots.append(-1)
        elif parameter.value == NULL:
            slots.append(ctypes.c_void_p(None))
        elif parameter.type_name == TENSOR_MAP:
            tensor_map = next(maps)
            slots.append((tensor_map, tensor_map.precision(problem).name))
        else:
            from_launch = parameter.value == LAUNCH
            value = next(int_arguments) if from_launch else number(parameter, problem)
            content = packed(parameter, value, problem.precision.cpp)
            argument: Any = ctypes.create_string_buffer(content, len(content))
            if parameter.is_pointer:
                argument = _pointer_to(argument)
            slots.append(argument)
    return lambda addresses: tuple(_argument(slot, addresses) for slot in slots)


def _argument(slot: Any, addresses: Addresses) -> Any:
    """Return the argument for a slot.

    A slot is the index of an array, a tensor map with its dtype, or the argument itself.
    """
    if isinstance(slot, int):
        return ctypes.c_void_p(addresses[slot])
    if isinstance(slot, tuple):
        description, dtype = slot
        return encode_tensor_map(description, addresses[description.array], dtype)
    return slot


def _pointer_to(number: Any) -> ctypes.c_void_p:
    """Return a pointer to a number in host memory. The pointer keeps the number alive."""
    pointer = ctypes.c_void_p(ctypes.addressof(number))
    pointer.number = number  # type: ignore[attr-defined]
    return pointer


def encode_tensor_map(description: TensorMap, address: int, dtype: str) -> Any:
    """Return the CUtensorMap of a matrix in the array at `address`, as a ctypes object.

    Raises LaunchError if the driver refuses the tensor map.
    """
    status, tensor_map = driver.cuTensorMapEncodeTiled(
        *tensor_map_arguments(description, address, dtype)
    )
    if status:
        raise LaunchError(f"cuTensorMapEncodeTiled refused {description}: {status.name}")
    encoded = without_faulty_bit(
        ctypes.string_at(int(tensor_map.getPtr()), TENSOR_MAP_BYTES),
        description.elements * PRECISIONS[dtype].item_bytes,
        driver_version(),
    )
    return ctypes.create_string_buffer(encoded, TENSOR_MAP_BYTES)


def tensor_map_arguments(description: TensorMap, address: int, dtype: str) -> tuple[Any, ...]:
    """Return the arguments with which cuTensorMapEncodeTiled encodes a tensor map.

    The arguments select no interleaving, and zeros for elements outside the matrix.
    """
    rows, columns = description.shape
    box_rows, box_columns = description.box
    row_bytes = (description.pitch or columns) * PRECISIONS[dtype].item_bytes
    # The innermost extent comes first: columns, rows, matrices.
    extents, strides, box = [columns, rows], [row_bytes], [box_columns, box_rows]
    if description.batch:
        extents.append(description.batch)
        strides.append(rows * row_bytes)
        box.append(1)
    u32, u64 = driver.cuuint32_t, driver.cuuint64_t
    return (
        driver.CUtensorMapDataType(PRECISIONS[dtype].tensor_map_code),
        len(extents),
        address + description.offset_bytes,
        tuple(map(u64, extents)),
        tuple(map(u64, strides)),
        tuple(map(u32, box)),
        tuple(u32(1) for _ in box),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle(SWIZZLE_BYTES.index(description.swizzle_bytes)),
        driver.CUtensorMapL2promotion(L2_PROMOTION_BYTES.index(description.l2_promotion_bytes)),
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )


def without_faulty_bit(encoded: bytes, tensor_bytes: int, version: int) -> bytes:
    """Return an encoded tensor map without the bit that `FAULTY_UP_TO` describes."""
    if version > FAULTY_UP_TO or tensor_bytes >= SMALL_TENSOR_BYTES:
        return encoded
    cleared = int.from_bytes(encoded, "little") & ~(1 << FAULTY_BIT)
    return cleared.to_bytes(TENSOR_MAP_BYTES, "little")


@cache
def driver_version() -> int:
    """Return the CUDA version that the driver supports, such as 13010 for CUDA 13.1."""
    status, version = driver.cuDriverGetVersion()
    if status:
        raise LaunchError(f"cuDriverGetVersion: {status.name}")
    return int(version)


def launch_config(launch: Launch, stream: int) -> Any:
    """Return the CUlaunchConfig of a launch.

    The attributes of the CUlaunchConfig select a cluster and programmatic dependent launch, if the
    launch uses these.
    """
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.dimensions[:3]
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.dimensions[3:]
    config.sharedMemBytes = launch.shared_bytes
    config.hStream = driver.CUstream(stream)
    attributes = []
    if launch.cluster != (1, 1, 1):
        cluster = driver.CUlaunchAttribute()
        cluster.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dimensions = cluster.value.clusterDim
        dimensions.x, dimensions.y, dimensions.z = launch.cluster
        attributes.append(cluster)
    if launch.pdl:
        pdl = driver.CUlaunchAttribute()
        pdl.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        pdl.value.programmaticStreamSerializationAllowed = 1
        attributes.append(pdl)
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


def reset_caches() -> None:
    """Undo what kernels set for the caches of the current context.

    - Lines of the L2 cache that a kernel pinned (`evict_last`, an access policy window) become
      normal lines, and none of the cache is set aside for such lines.
    - The context prefers neither L1 cache nor shared memory.

    Errors are ignored. GPUs before compute capability 8.0 have no such lines. If a fault has ended
    the context, the next launch reports the fault.
    """
    limit = driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
    status, set_aside_bytes = driver.cuCtxGetLimit(limit)
    if not status and set_aside_bytes:
        driver.cuCtxSetLimit(limit, 0)
    driver.cuCtxResetPersistingL2Cache()
    driver.cuCtxSetCacheConfig(driver.CUfunc_cache.CU_FUNC_CACHE_PREFER_NONE)


def device_uuid(index: int) -> str:
    """Return a GPU's UUID as nvidia-smi prints it, or an empty text if the UUID is unknown.

    CuPy's properties cut the UUID at its first zero byte, which one GPU in 16 has.
    """
    driver.cuInit(0)
    status, device = driver.cuDeviceGet(index)
    if not status:
        status, number = driver.cuDeviceGetUuid(device)
    return "" if status else f"GPU-{uuid.UUID(bytes=number.bytes)}"
