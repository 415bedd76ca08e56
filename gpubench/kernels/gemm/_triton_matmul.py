"""The kernel of `triton_matmul`, in its own file because it imports Triton."""

from typing import Any

import torch
import triton
import triton.language as tl

from gpubench.model import Resources

TENSOR_CORES = (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (128, 128, 64, 3, 4),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (64, 64, 64, 4, 4),
    (128, 128, 32, 4, 8),
    (64, 128, 32, 4, 4),
)
CORES = (
    (128, 128, 16, 3, 8),
    (128, 64, 16, 3, 8),
    (64, 64, 16, 3, 4),
    (64, 32, 16, 3, 4),
)
"""BM, BN, BK, stages, warps: for tensor cores, and for multiply-adds in float32."""

KEY = ["m", "n", "k", "a_by_columns", "b_by_columns"]
"""Arguments: Triton times the configurations again if one of their values is new."""

GROUP = 8
"""Rows of tiles that are taken together, so that shared operands are in the L2 cache."""


# Triton compiles annotations too, so only Triton's own annotations are here.
@triton.jit  # type: ignore[untyped-decorator]
def product(  # type: ignore[no-untyped-def]
    a_at, b_at, c_at, m, n, k,
    bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr,
    precision: tl.constexpr, grouped: tl.constexpr,
    a_by_columns: tl.constexpr, b_by_columns: tl.constexpr,
):  # fmt: skip
    """C = A·B: each program takes every `num_programs`-th tile of C, which is row-major."""
    down, across = tl.cdiv(m, bm), tl.cdiv(n, bn)
    for tile in range(tl.program_id(0), down * across, tl.num_programs(0)):
        group = tile // (grouped * across)
        rows_in_group = min(down - group * grouped, grouped)
        inside = tile % (grouped * across)
        row = group * grouped + inside % rows_in_group
        col = inside // rows_in_group
        rows = (row * bm + tl.arange(0, bm)).to(tl.int64)
        cols = (col * bn + tl.arange(0, bn)).to(tl.int64)
        depth = tl.arange(0, bk).to(tl.int64)
        # Rows and columns outside wrap around. Their results are not stored.
        if a_by_columns:
            a_tile = a_at + (rows % m)[:, None] + depth[None, :] * m
            a_step = bk * m.to(tl.int64)
        else:
            a_tile = a_at + (rows % m)[:, None] * k + depth[None, :]
            a_step = bk
        if b_by_columns:
            b_tile = b_at + depth[:, None] + (cols % n)[None, :] * k
            b_step = bk
        else:
            b_tile = b_at + depth[:, None] * n + (cols % n)[None, :]
            b_step = bk * n.to(tl.int64)
        sums = tl.zeros((bm, bn), dtype=tl.float32)
        for start in range(0, k, bk):
            a = tl.load(a_tile, mask=depth[None, :] < k - start, other=0.0)
            b = tl.load(b_tile, mask=depth[:, None] < k - start, other=0.0)
            sums = tl.dot(a, b, sums, input_precision=precision)
            a_tile += a_step
            b_tile += b_step
        inside_c = (rows[:, None] < m) & (cols[None, :] < n)
        c_tile = c_at + rows[:, None] * n + cols[None, :]
        tl.store(c_tile, sums.to(c_at.dtype.element_ty), mask=inside_c)


class TritonMatmul:
    """Product of torch tensors in a precision. At a new size Triton times the configurations."""

    def __init__(self, dtype: str) -> None:
        shapes: tuple[tuple[int, ...], ...] = CORES if dtype == "float32" else TENSOR_CORES
        in_parts = dtype in {"tf32", "bf16x3", "bf16x6"}  # Triton's names, too
        self._precision = dtype if in_parts else "ieee"
        halved = 2 if in_parts else 1  # elements of four bytes: half the number along k
        configurations = [
            triton.Config(
                {"bm": bm, "bn": bn, "bk": bk // halved}, num_stages=stages, num_warps=warps
            )
            for bm, bn, bk, stages, warps in shapes
        ]
        self._tuned = triton.autotune(configurations, key=KEY)(product)
        self._programs = 0
        self._compiled: Any = None

    def __call__(self, a: Any, b: Any, c: Any) -> None:
        """Launch."""
        (m, k), n = a.shape, b.shape[1]
        if not self._programs:
            cuda = a.is_cuda  # or Triton's interpreter runs it
            self._programs = (
                torch.cuda.get_device_properties(a.device).multi_processor_count if cuda else 3
            )
        self._compiled = self._tuned[self._grid](
            *(a, b, c, m, n, k),
            precision=self._precision,
            grouped=GROUP,
            a_by_columns=not a.is_contiguous(),
            b_by_columns=not b.is_contiguous(),
        )

    def _grid(self, chosen: dict[str, Any]) -> tuple[int]:
        m, n = chosen["m"], chosen["n"]
        return (min(self._programs, triton.cdiv(m, chosen["bm"]) * triton.cdiv(n, chosen["bn"])),)

    @property
    def algorithm(self) -> str:
        """The configuration that was the fastest at the last size, as Triton prints it."""
        return str(getattr(self._tuned, "best_config", ""))

    @property
    def resources(self) -> Resources | None:
        """The report of Triton's compiler on the last launch. Spills are in bytes per thread."""
        if not hasattr(self._compiled, "n_regs"):
            return None
        spilled = 4 * int(self._compiled.n_spills)
        return Resources(
            registers=int(self._compiled.n_regs),
            local_bytes=spilled,
            spill_bytes=spilled,
            shared_bytes=int(self._compiled.metadata.shared),
        )
