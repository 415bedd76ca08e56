"""Copies operands whose rows are not a multiple of 16 bytes into padded rows, before a product."""

from dataclasses import replace

from gpubench.kernels.tensor_cores import ALIGNED_BYTES
from gpubench.model import Config, Launch, Problem

PADDED_TO, PART_BYTES = 128, 1024
"""The bytes of a padded row are a multiple of `PADDED_TO`. A warp copies `PART_BYTES` bytes."""

THREADS = 256

WORKSPACE = 3  # index of the workspace among the kernel's arrays


def operand_shapes(problem: Problem) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the numbers of rows and columns of A and of B, as A and B lie in memory."""
    m, n, k = problem.m, problem.n, problem.k
    return (m, k), (n, k) if "B" in problem.column_major else (k, n)


def row_bytes(problem: Problem) -> list[int]:
    """Return the bytes of a row of A and of B, or 0 if the TMA takes the rows without a copy."""
    item = problem.precision.item_bytes
    each = [columns * item for _, columns in operand_shapes(problem)]
    return [of_row if of_row % ALIGNED_BYTES else 0 for of_row in each]


def takes_any_rows(_tile: Config, _problem: Problem) -> None:
    """Return None, because no problem is refused. The kernel copies rows of any length."""


def on_padded_rows(product: Launch, problem: Problem) -> Launch:
    """Return a launch that copies rows, and then computes the product.

    The tensor maps of the product describe the copies. The copies are in the workspace. The product
    may start early, and waits for the copies itself. If no rows must be copied, the launch is the
    product alone.
    """
    parts, begins, end = [], [], 0
    shapes, of_row = operand_shapes(problem), row_bytes(problem)
    if not any(of_row):
        return product
    padded = [-(-each // PADDED_TO) * PADDED_TO for each in of_row]
    for (rows, _), each, pitch in zip(shapes, of_row, padded, strict=True):
        parts.append(rows * -(-each // PART_BYTES))
        begins.append(end)
        end += rows * pitch
    maps = tuple(
        replace(
            tensor_map,
            array=WORKSPACE,
            offset_bytes=begins[tensor_map.array],
            pitch=padded[tensor_map.array] // problem.precision.item_bytes,
        )
        if tensor_map.array < len(padded) and padded[tensor_map.array]
        else tensor_map
        for tensor_map in product.tensor_maps
    )
    copied = " and ".join(name for name, each in zip("AB", of_row, strict=True) if each)
    pdl = product.pdl
    product = replace(
        product,
        tensor_maps=maps,
        workspace_bytes=end,
        takes_workspace=False,
        pdl=True,
        note=f"copies {copied} first, into rows that are multiples of {PADDED_TO} bytes",
    )
    return Launch(
        kernel="pad_rows<{scalar}>",
        grid=(-(-sum(parts) // (THREADS // 32)),),
        block=(THREADS,),
        int_arguments=(parts[0], of_row[0], shapes[1][0] if of_row[1] else 0, of_row[1] or 1),
        workspace_bytes=end,
        pdl=pdl,
        next_launches=(product,),
    )
