"""`gpubench export`: writes a kernel as a CUDA C++ file with its launches, and a Python file.

The launches in the file are correct only for one tile, one problem and one number of
multiprocessors. Other problems require another export, because a Python description computes the
launches.
"""

import math
import re
import shlex
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Any

import ml_dtypes

import gpubench
from gpubench.backends import first_device
from gpubench.engine.judge.sum_width import extents
from gpubench.engine.judge.verify import ROUNDED_ONCE
from gpubench.errors import DeviceUnavailableError, UsageError
from gpubench.files import write_all
from gpubench.hardware.architectures import DEFAULT, example
from gpubench.kernel_options import find_kernel, read_options
from gpubench.model import OPERATIONS, Config, CudaVariant, Device, Launch, Problem, TensorMap
from gpubench.model.signature import LAUNCH, TENSOR_MAP, WORKSPACE, array_index, number
from gpubench.model.sources import flattened, include_folders
from gpubench.model.tensor_map import L2_PROMOTION_BYTES, SWIZZLE_BYTES
from gpubench.plan.descriptor import launch_on
from gpubench.plan.sweep import AUTO_TILES, plan
from gpubench.view.tables import say

HERE = Path(__file__).parent


def run_export(
    name: str, options: dict[str, Any], arch: str | None, folder: Path, *, force: bool
) -> None:
    """Write `folder/NAME.cu` and `folder/NAME.py`, and print their paths and the compile command.

    Raises UsageError for a variant that is not a CUDA source, and for a tile that cannot be
    launched.
    """
    variant = find_kernel(name, options.get("op"), options.get("kernels"), "export")
    device = _device(variant, arch)
    tile, problem = _chosen(variant, options, device)
    texts = exported(variant, tile, problem, device)
    paths = [folder / f"{name}{ending}" for ending in (".cu", ".py")]
    write_all(dict(zip(paths, texts, strict=True)), overwrite=force)
    where, command = shlex.quote(str(folder)), compile_command(variant, tile, problem, device)
    say("\n".join(map(str, paths)))
    say(f"\n  cd {where} && {command} && ./{name}")


def exported(
    variant: CudaVariant, tile: Config, problem: Problem, device: Device
) -> tuple[str, str]:
    """Return the texts of the CUDA C++ file and of the Python file."""
    precision, name = problem.precision, variant.name
    launches = launch_on(variant, tile, problem, device).sequence
    workspace = max(launch.workspace_bytes for launch in launches)
    limits: Any = ml_dtypes.finfo
    underflow = 0.0
    if precision.result_roundoff:
        underflow = float(limits(precision.result).smallest_subnormal) / 2
    has_maps = any(launch.tensor_maps for launch in launches)
    sizes = map(math.prod, problem.shapes)
    words = {
        "name": name,
        "label": f"{name} {tile} in {problem.dtype}",
        "version": gpubench.__version__,
        "device": device.name or "unknown",
        "multiprocessors": device.multiprocessors,
        "command": compile_command(variant, tile, problem, device),
        "build": repr(compile_command(variant, tile, problem, device, library=True)),
        "kernel": flattened(variant.source, include_folders(variant.options(tile, problem.dtype))),
        "element": precision.cpp,
        "result": {"bfloat16": "__nv_bfloat16", "int32": "int"}.get(
            precision.result, precision.cpp
        ),
        "size": problem.size,
        "layout": problem.layout,
        "flops": problem.flops,
        **dict(zip("abc", problem.operation.arrays, strict=True)),
        **dict(zip(("a_elements", "b_elements", "c_elements"), sizes, strict=True)),
        "workspace_bytes": workspace,
        "launches": "\n".join(
            _launch_code(variant, tile, problem, launch, workspace=workspace > 0)
            for launch in launches
        ),
        "encoder": (HERE / "tensor_map.cu.txt").read_text(encoding="utf-8") if has_maps else "",
        "fill": "0x00" if variant.reads_output else "0xFF",
        "product": _product(problem),
        "tolerance": precision.tolerance,
        "rounding": ROUNDED_ONCE * precision.result_roundoff,
        "underflow": underflow,
        "shapes": problem.shapes,
        "dtypes": tuple(
            "uint8" if name.startswith("float8") else name
            for name in (precision.element, precision.element, precision.result)
        ),
        "orders": tuple("F" if columns else "C" for columns in problem.by_columns),
        "zeros": "zeros" if variant.reads_output else "empty",
    }
    return tuple(  # type: ignore[return-value] # two templates
        Template((HERE / f"template.{ending}").read_text(encoding="utf-8")).substitute(words)
        for ending in ("cu.txt", "py.txt")
    )


def compile_command(
    variant: CudaVariant, tile: Config, problem: Problem, device: Device, *, library: bool = False
) -> str:
    """Return the nvcc command that compiles the file to a program, or to a shared library."""
    number = variant.architecture("{}{}".format(*device.compute_capability or (0, 0)))
    options = " ".join(
        shlex.quote(option)
        for option in variant.options(tile, problem.dtype)
        if not include_folders([option]) and not option.startswith("--compiler=")
    )
    kind = "-shared -Xcompiler -fPIC " if library else ""
    output = f"lib{variant.name}.so" if library else variant.name
    target = f"-gencode arch=compute_{number},code=sm_{number}"
    options += " " if options else ""
    # NVRTC compiles all functions for the device, so kernels call constexpr functions that lack
    # `__device__`.
    # Warning 177: a header that the file contains has constants that the kernel does not use.
    standard = "-std=c++17 -O3 --expt-relaxed-constexpr -diag-suppress 177"
    return f"nvcc {standard} {target} {options}{kind}-o {output} {variant.name}.cu"


def _device(variant: CudaVariant, arch: str | None) -> Device:
    """Return the GPU that launches are made for: this machine's GPU, or an example of `arch`."""
    if arch is None:
        try:
            return first_device(variant.backend)
        except DeviceUnavailableError:
            arch = DEFAULT
    try:
        return example(arch)
    except ValueError as error:
        raise UsageError(f"--arch: {error}") from error


def _chosen(
    variant: CudaVariant, options: dict[str, Any], device: Device
) -> tuple[Config, Problem]:
    """Return the tile and the problem. Raises UsageError if the kernel cannot be exported."""
    operation = OPERATIONS[variant.op]
    if operation.is_chain or not operation.is_product:
        raise UsageError(
            f"{variant.op} cannot be exported: the exported program checks only a single product"
        )
    auto = options.get("tiles") in {None, AUTO_TILES}
    sweep = read_options(variant, options | {"tiles": None} if auto else options, size="4096")
    if len(sweep.tiles) > 1 and not auto:
        raise UsageError(f"--tiles: name one tile, not {len(sweep.tiles)}")
    if auto and sweep.tiles and device.multiprocessors:
        sweep = replace(sweep, tiles=(AUTO_TILES,))
    planned = plan(sweep, variant.backend, device.compute_capability, device.multiprocessors)
    point, reason = next(iter(planned.items()))
    if reason or point.tile is None:
        raise UsageError(f"{variant.name} {reason}")
    return point.tile, point.problem


def _launch_code(
    variant: CudaVariant, tile: Config, problem: Problem, launch: Launch, *, workspace: bool
) -> str:
    """Return the C++ code of a launch, enclosed in braces."""
    maps, arguments = _arguments(variant, problem, launch, workspace=workspace)
    instance = variant.instance(tile, problem.dtype, launch.kernel)
    grid, block, cluster = (
        f"dim3({', '.join(map(str, extents))})"
        for extents in (launch.dimensions[:3], launch.dimensions[3:], launch.cluster)
    )
    pdl = str(bool(launch.pdl)).lower()
    settings = f"{grid}, {block}, {launch.shared_bytes}, {cluster}, {pdl}, stream"
    call = f"if (enqueue({instance}, {settings}, {', '.join(arguments)})) return 1;"
    return "\n".join(("  {", *(f"    {line}" for line in (*maps, call)), "  }"))


def _arguments(
    variant: CudaVariant, problem: Problem, launch: Launch, *, workspace: bool
) -> tuple[list[str], list[str]]:
    """Return C++ lines that make the tensor maps of a launch, and the arguments of the launch."""
    arrays, scalar = (*problem.operation.arrays, WORKSPACE), problem.precision.cpp
    int_arguments, maps = iter(launch.int_arguments), iter(launch.tensor_maps)
    lines: list[str] = []
    arguments: list[str] = []
    for parameter in variant.parameters(launch, workspace=workspace):
        cpp = re.sub(r"\bScalar\b", scalar, parameter.cpp)
        if parameter.is_pointer:
            index = array_index(parameter, problem.op)
            arguments.append(f"({cpp}){'nullptr' if index is None else arrays[index]}")
        elif parameter.type_name == TENSOR_MAP:
            tensor_map = next(maps)
            name = f"map{len(lines)}"
            code = _encode(tensor_map, arrays[tensor_map.array], problem)
            lines.append(f"const CUtensorMap {name} = {code};")
            arguments.append(name)
        else:
            from_launch = parameter.value == LAUNCH
            value = next(int_arguments) if from_launch else number(parameter, problem)
            arguments.append(f"({cpp}){value}")
    return lines, arguments


def _encode(tensor_map: TensorMap, array: str, problem: Problem) -> str:
    """Return the C++ call that makes a tensor map. The numbers in the call are from cuda.h."""
    rows, columns = tensor_map.shape
    box_rows, box_columns = tensor_map.box
    swizzle = SWIZZLE_BYTES.index(tensor_map.swizzle_bytes)
    promotion = L2_PROMOTION_BYTES.index(tensor_map.l2_promotion_bytes)
    precision = tensor_map.precision(problem)
    return (
        f"encode({precision.tensor_map_code}, (char*){array} + {tensor_map.offset_bytes}, {rows}, "
        f"{columns}, {tensor_map.pitch or columns}, {precision.item_bytes}, "
        f"{box_rows}, {box_columns}, {swizzle}, {promotion})"
    )


def _product(problem: Problem) -> str:
    """Return the extents of the product and the strides of its arrays, as a C++ initializer."""
    a, b, c = (
        (1, 0) if len(shape) == 1 else (1, shape[0]) if by_columns else (shape[1], 1)
        for shape, by_columns in zip(problem.shapes, problem.by_columns, strict=True)
    )
    if problem.operation.first_is_transposed:
        a = a[::-1]
    numbers = (*extents(problem), *a, *b, *c)
    return f"{{{', '.join(map(str, numbers))}}}"
