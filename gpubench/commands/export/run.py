"""`gpubench export`: a kernel as one CUDA C++ file with its launches, and a Python file.

The launches are those of one tile, problem and number of multiprocessors, as constants: what
computes them for others is the description, which is Python.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Any

import ml_dtypes

import gpubench
from gpubench.backends.cuda.devices import cuda_device
from gpubench.engine.verify import ROUNDED_ONCE
from gpubench.errors import DeviceUnavailableError, UsageError
from gpubench.hardware.architectures import DEFAULT, example
from gpubench.hardware.occupancy import LIMITS, WARP
from gpubench.model import (
    PRECISIONS,
    Config,
    CudaVariant,
    Device,
    Gpu,
    Launch,
    Problem,
    TensorMap,
)
from gpubench.model.signature import LAUNCH, TENSOR_MAP, WORKSPACE, array_index, number
from gpubench.model.sources import flattened, include_folders
from gpubench.options import read_sweep
from gpubench.plan.descriptor import described_by
from gpubench.plan.registry import of_op, variants
from gpubench.plan.sweep import AUTO_TILES, Sweep, plan
from gpubench.results.output import Output
from gpubench.text import unknown
from gpubench.view.tables import console

HERE = Path(__file__).parent


def run_export(
    name: str, options: dict[str, Any], arch: str | None, folder: Path, *, force: bool
) -> None:
    """Write `folder/NAME.cu` and `.py`; print their paths and how to compile.

    Raises UsageError for what is not a CUDA kernel, or cannot be launched so.
    """
    device = _device(arch)
    variant, tile, problem = _chosen(name, options, device)
    texts = exported(variant, tile, problem, device)
    outputs = [
        Output(folder / f"{name}{ending}", overwrite=force, flag="") for ending in (".cu", ".py")
    ]
    for output, text in zip(outputs, texts, strict=True):
        output.write(text.encode())
    where, command = shlex.quote(str(folder)), compile_command(variant, tile, problem, device)
    console().print(
        *(output.path for output in outputs),
        f"\n  cd {where} && {command} && ./{name}",
        sep="\n",
        soft_wrap=True,
        markup=False,
    )


def exported(
    variant: CudaVariant, tile: Config, problem: Problem, device: Device
) -> tuple[str, str]:
    """The CUDA C++ file and the Python file."""
    precision, name = problem.precision, variant.name
    options = variant.options(tile, problem.dtype)
    with described_by(variant.path):
        launches = _launch(variant, tile, problem, device).sequence
    workspace = max(launch.workspace_bytes for launch in launches)
    operands = problem.operation.arrays
    limits: Any = ml_dtypes.finfo
    underflow = 0.0
    if precision.result_roundoff:
        underflow = float(limits(precision.result).smallest_subnormal) / 2
    words = {
        "name": name,
        "label": f"{name} {tile} in {problem.dtype}",
        "version": gpubench.__version__,
        "device": device.name or "unknown",
        "multiprocessors": str(device.multiprocessors),
        "command": compile_command(variant, tile, problem, device),
        "build": compile_command(variant, tile, problem, device, library=True),
        "kernel": flattened(variant.source, include_folders(options)),
        "element": precision.cpp,
        "result": {"bfloat16": "__nv_bfloat16", "int32": "int"}.get(
            precision.result, precision.cpp
        ),
        "size": problem.size,
        "layout": problem.layout,
        "flops": str(problem.flops),
        "a": operands[0],
        "b": operands[1],
        "c": operands[2],
        "a_elements": str(math.prod(problem.input_shapes[0])),
        "b_elements": str(math.prod(problem.input_shapes[1])),
        "c_elements": str(math.prod(problem.output_shape)),
        "workspace_bytes": str(workspace),
        "launches": "\n".join(
            _launch_code(variant, tile, problem, launch, workspace=workspace > 0)
            for launch in launches
        ),
        "encoder": (HERE / "tensor_map.cu.txt").read_text(encoding="utf-8")
        if any(launch.tensor_maps for launch in launches)
        else "",
        "fill": "0x00" if variant.reads_output else "0xFF",
        "product": _product(problem),
        "tolerance": repr(precision.tolerance),
        "rounding": repr(ROUNDED_ONCE * precision.result_roundoff),
        "underflow": repr(underflow),
        "shapes": repr((*problem.input_shapes, problem.output_shape)),
        "dtypes": repr((precision.element,) * 2 + (precision.result,)),
        "orders": repr(tuple("F" if columns else "C" for columns in problem.by_columns)),
        "zeros": "zeros" if variant.reads_output else "empty",
    }
    return tuple(  # type: ignore[return-value] # two templates
        Template((HERE / f"template.{ending}").read_text(encoding="utf-8")).substitute(words)
        for ending in ("cu.txt", "py.txt")
    )


def compile_command(
    variant: CudaVariant, tile: Config, problem: Problem, device: Device, *, library: bool = False
) -> str:
    """How nvcc makes a program of the file, or a shared library."""
    number = variant.architecture("{}{}".format(*device.compute_capability or (0, 0)))
    given = variant.options(tile, problem.dtype)
    options = " ".join(shlex.quote(one) for one in given if not include_folders([one]))
    kind = "-shared -Xcompiler -fPIC " if library else ""
    output = f"lib{variant.name}.so" if library else variant.name
    target = f"-gencode arch=compute_{number},code=sm_{number}"
    options += " " * bool(options)
    return f"nvcc -std=c++17 -O3 {target} {options}{kind}-o {output} {variant.name}.cu"


def _device(arch: str | None) -> Device:
    """The GPU that launches are made for: this machine's, or an example of an architecture."""
    if arch is None:
        try:
            return cuda_device(0)
        except DeviceUnavailableError:
            arch = DEFAULT
    try:
        return example(arch)
    except ValueError as error:
        raise UsageError(f"--arch: {error}") from error


def _chosen(
    name: str, options: dict[str, Any], device: Device
) -> tuple[CudaVariant, Config, Problem]:
    """The kernel, its tile and the problem. Raises UsageError."""
    op, folder = options["op"], options["kernels"]
    every = of_op(op or Sweep().op, folder) if op or folder else {v.name: v for v in variants()}
    if name not in every:
        raise UsageError(unknown("variant", name, every))
    variant = every[name]
    if not isinstance(variant, CudaVariant):
        raise UsageError(f"'{name}' is not a CUDA source, and export writes only those")
    if variant.op == "atax":
        raise UsageError("atax cannot be exported: two products, and no check of them in one file")
    options = options | {"op": variant.op, "variants": name, "device": "cuda"}
    options["sizes"] = options["sizes"] or "4096"
    options["dtypes"] = options["dtypes"] or variant.dtypes[0]
    options["tiles"] = options["tiles"] or AUTO_TILES
    asked = read_sweep(options)
    if asked.tiles == (AUTO_TILES,):
        asked = replace(asked, tiles=_first_picks(variant, asked, device))
    planned = plan(asked, "cuda", device.compute_capability)
    if len(planned) > 1:
        raise UsageError("export writes one tile, size and dtype; name one of each")
    ((point, reason),) = planned.items()
    if reason or point.tile is None:
        raise UsageError(f"{name} {reason}")
    return variant, point.tile, point.problem


def _first_picks(variant: CudaVariant, sweep: Sweep, device: Device) -> tuple[str, ...]:
    """Return the tile that suits each problem of a sweep best, or the first default tile."""
    if not device.multiprocessors:
        return variant.tiles.default[:1]
    problems = [
        Problem(op=variant.op, m=m, n=n, k=k, dtype=dtype)
        for m, n, k in sweep.sizes
        for dtype in sweep.dtypes
    ]
    with described_by(variant.path):
        best = [variant.tiles_for(problem, device.multiprocessors)[0] for problem in problems]
    return tuple(dict.fromkeys(map(str, best)))


def _launch(variant: CudaVariant, tile: Config, problem: Problem, device: Device) -> Launch:
    limits = LIMITS.get(device.compute_capability or (0, 0))
    if limits is None or not device.multiprocessors:
        return variant.launch(tile, problem)
    threads = limits.warps * WARP
    gpu = Gpu(multiprocessors=device.multiprocessors, threads_per_multiprocessor=threads)
    return variant.launch_on(gpu, tile, problem)


def _launch_code(
    variant: CudaVariant, tile: Config, problem: Problem, launch: Launch, *, workspace: bool
) -> str:
    """A launch in C++, in a block of its own."""
    maps, arguments = _arguments(variant, problem, launch, workspace=workspace)
    settings = {
        "gridDim": f"dim3({', '.join(map(str, launch.dimensions[:3]))})",
        "blockDim": f"dim3({', '.join(map(str, launch.dimensions[3:]))})",
        "dynamicSmemBytes": launch.shared_bytes,
        "stream": "stream",
        "attrs": "attributes",
        "numAttrs": launch.pdl + (launch.cluster != (1, 1, 1)),
    }
    allow = (
        "if (failed(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, "
        f"{launch.shared_bytes}))) return 1;"
    )
    lines = (
        f"auto* const kernel = {variant.instance(tile, problem.dtype, launch.kernel)};",
        *([allow] if launch.shared_bytes else []),
        *maps,
        *_attributes(launch),
        "cudaLaunchConfig_t config = {};",
        *(f"config.{name} = {value};" for name, value in settings.items()),
        f"if (failed(cudaLaunchKernelEx(&config, kernel, {', '.join(arguments)}))) return 1;",
    )
    return "\n".join(("  {", *(f"    {line}" for line in lines), "  }"))


def _arguments(
    variant: CudaVariant, problem: Problem, launch: Launch, *, workspace: bool
) -> tuple[list[str], list[str]]:
    """Lines that make the tensor maps, and what a launch's kernel is given, in C++."""
    arrays, scalar = (*problem.operation.arrays, WORKSPACE), problem.precision.cpp
    given, maps = iter(launch.int_arguments), iter(launch.tensor_maps)
    lines: list[str] = []
    arguments: list[str] = []
    for parameter in variant.parameters(launch, workspace=workspace):
        cpp = re.sub(r"\bScalar\b", scalar, parameter.cpp)
        if parameter.is_pointer:
            arguments.append(f"({cpp}){arrays[array_index(parameter, problem.op) or 0]}")
        elif parameter.type_name == TENSOR_MAP:
            wanted = next(maps)
            name = f"map{len(lines)}"
            code = _encode(wanted, arrays[wanted.array], problem)
            lines.append(f"const CUtensorMap {name} = {code};")
            arguments.append(name)
        else:
            value = next(given) if parameter.value == LAUNCH else number(parameter, problem)
            arguments.append(f"({cpp}){value}")
    return lines, arguments


def _attributes(launch: Launch) -> Iterator[str]:
    """Lines that declare and fill the launch's attributes."""
    yield "cudaLaunchAttribute attributes[2] = {};"
    place = 0
    if launch.cluster != (1, 1, 1):
        yield "attributes[0].id = cudaLaunchAttributeClusterDimension;"
        for axis, extent in zip("xyz", launch.cluster, strict=True):
            yield f"attributes[0].val.clusterDim.{axis} = {extent};"
        place = 1
    if launch.pdl:
        yield f"attributes[{place}].id = cudaLaunchAttributeProgrammaticStreamSerialization;"
        yield f"attributes[{place}].val.programmaticStreamSerializationAllowed = 1;"


def _encode(wanted: TensorMap, array: str, problem: Problem) -> str:
    """The call that makes a tensor map; the numbers are those of cuda.h."""
    rows, columns = wanted.shape
    box_rows, box_columns = wanted.box
    swizzle = {0: 0, 32: 1, 64: 2, 128: 3}[wanted.swizzle_bytes]
    promotion = {0: 0, 64: 1, 128: 2, 256: 3}[wanted.l2_promotion_bytes]
    of_result = wanted.array == len(problem.input_shapes)
    precision = PRECISIONS[problem.precision.result] if of_result else problem.precision
    return (
        f"encode({precision.tensor_map_code}, (char*){array} + {wanted.offset_bytes}, {rows}, "
        f"{columns}, {precision.item_bytes}, {box_rows}, {box_columns}, {swizzle}, {promotion})"
    )


def _product(problem: Problem) -> str:
    """Rows, columns and depth of the product, and the steps of each index in each array."""
    m, n, k = problem.m, problem.n, problem.k
    a_columns, b_columns, c_columns = problem.by_columns
    if problem.op == "gemm":
        a = (1, m) if a_columns else (k, 1)
        b = (1, k) if b_columns else (n, 1)
        c = (1, m) if c_columns else (n, 1)
        return f"{{{m}, {n}, {k}, {a[0]}, {a[1]}, {b[0]}, {b[1]}, {c[0]}, {c[1]}}}"
    down, across = (1, m) if a_columns else (n, 1)
    if problem.op == "gemv":
        return f"{{{m}, 1, {n}, {down}, {across}, 1, 0, 1, 0}}"
    return f"{{{n}, 1, {m}, {across}, {down}, 1, 0, 1, 0}}"
