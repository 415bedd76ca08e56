"""List what the libraries launch for a product, and whether any of it may start early.

    python benchmarks/edges.py library_edges.csv

Each shape is given to cuBLAS, and to each algorithm that cuBLASLt's heuristic proposes. A CUDA
graph captures the call, and another graph the same call twice. A line counts the calls that launch
the same kernels, with the programmatic edges inside a call, the programmatic edges between the two
calls, and the launch attributes of the kernels.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from cuda.bindings import driver
from shapes import MULTIPLES, random_shapes

from gpubench.backends import open_backend
from gpubench.backends.cuda import cublas, cublaslt
from gpubench.backends.cuda.gemm_types import operation_of
from gpubench.backends.cuda.graph import captured, programmatic_edges
from gpubench.model import Problem, Timer

SHAPES = {
    "bfloat16": (17, 60),
    **dict.fromkeys(("float16", "float32", "float64", "tf32", "int8", "float8_e4m3"), (16, 30)),
}
"""Seed and number of the shapes, by precision."""

ATTRIBUTES = {
    "PROGRAMMATIC_STREAM_SERIALIZATION": lambda value: value.programmaticStreamSerializationAllowed,
    "CLUSTER_DIMENSION": lambda value: (value.clusterDim.x, value.clusterDim.y, value.clusterDim.z),
    "COOPERATIVE": lambda value: value.cooperative,
}
"""How each attribute is read; one that is 0 is not listed."""

FIELDS = ("dtype", "library", "kernels", "edges_inside", "edges_between", "attributes", "calls")


def get(function: str, *arguments: Any) -> Any:
    """Return what a function of the driver returns beside its status, or None if it fails."""
    status, *values = getattr(driver, function)(*arguments)
    return None if status or not values else values[0]


def described(graph: Any) -> tuple[str, str]:
    """Return the names of what a graph launches, and the attributes of its kernels."""
    _, _, count = driver.cuGraphGetNodes(graph)
    names, attributes = [], []
    for node in driver.cuGraphGetNodes(graph, count)[1][:count]:
        kind = get("cuGraphNodeGetType", node)
        if kind != driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
            names.append(str(kind.name).rpartition("TYPE_")[2].lower())
            continue
        launch = get("cuGraphKernelNodeGetParams", node)
        by_function = int(launch.func) != 0  # or it belongs to a library that is loaded lazily
        name = (
            get("cuFuncGetName", launch.func)
            if by_function
            else get("cuKernelGetName", launch.kern)
        )
        names.append((name or b"unnamed").decode())
        for attribute, read in ATTRIBUTES.items():
            identity = getattr(driver.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{attribute}")
            value = get("cuGraphKernelNodeGetAttribute", node, identity)
            if value is not None and read(value) not in (0, (0, 0, 0)):
                attributes.append(f"{attribute.lower()}={read(value)}".replace(", ", "x"))
    return " + ".join(names), " ".join(attributes)


def products(
    xp: Any, dtype: str, shape: tuple[int, int, int]
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the library and the call of each algorithm for a shape."""
    m, n, k = shape
    problem = Problem(op="gemm", m=m, n=n, k=k, dtype=dtype)
    precision = problem.precision
    item_bytes = (precision.item_bytes, precision.item_bytes, precision.result_bytes)
    arrays = [
        xp.zeros(size, f"u{count}", order="F" if by_columns else "C")
        for size, count, by_columns in zip(
            problem.shapes, item_bytes, problem.by_columns, strict=True
        )
    ]
    a, b, _ = arrays
    yield "cublas", partial(cublas.gemm(dtype), *arrays)
    operations = operation_of(a), operation_of(b)
    for _, product in cublaslt.algorithms(dtype, (m, k, n), operations):
        yield "cublaslt", partial(product, *arrays)


def main(path: Path) -> None:
    """Write the table."""
    backend = open_backend("cuda", Timer.EVENTS)
    stream = backend.xp.cuda.get_current_stream()
    lines: Counter[tuple[object, ...]] = Counter()
    for dtype, (seed, count) in SHAPES.items():
        for shape in random_shapes(seed, count, MULTIPLES.get(dtype, 8)):
            for library, call in products(backend.xp, dtype, shape):
                call()  # loads its kernels
                stream.synchronize()
                with captured(stream.ptr, (call,), overlap=True) as graph:
                    inside, what = programmatic_edges(graph), described(graph)
                with captured(stream.ptr, (call, call), overlap=True) as graph:
                    between = programmatic_edges(graph) - 2 * inside
                lines[dtype, library, what[0], inside, between, what[1]] += 1
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(FIELDS)
        out.writerows((*line, calls) for line, calls in sorted(lines.items(), key=str))
    print(f"{sum(lines.values())} calls, {len(lines)} lines")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
