"""Ten access faults. They were written before the analysis that must find them.

Each fault has a kernel of `kernels/`, replacements of texts, and a text that only the faulty line
has.
"""

from dataclasses import dataclass
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A change that makes the accesses of a kernel slower and leaves its result right."""

    name: str
    op: str
    kernel: str
    edits: tuple[tuple[str, str], ...]
    line: str
    """A text that only the faulty line has after the edits."""

    @property
    def file(self) -> str:
        return {"gemm": "foreign_products", "gemv": "foreign_vectors"}[self.op]


FAULTS = (
    Fault(
        name="a warp walks down a column",
        op="gemm",
        kernel="mysgemm_v1",
        edits=(
            ("x = blockIdx.x * 32 + threadIdx.x % 32", "x = blockIdx.x * 32 + threadIdx.x / 8"),
            ("y = blockIdx.y * 8 + threadIdx.x / 32", "y = blockIdx.y * 8 + threadIdx.x % 8"),
        ),
        line="tmp += A[OFFSET(y, i, K)]",
    ),
    Fault(
        name="two scalars with a stride instead of a float2",
        op="gemm",
        kernel="mysgemm_float2",
        edits=(
            (
                "    const float2 b = reinterpret_cast<const float2 *>(B + i * N)[pair];\n",
                """    float2 b;
    b.x = B[i * N + 2 * pair];
    b.y = B[i * N + 2 * pair + 1];
""",
            ),
        ),
        line="b.x = B[i * N + 2 * pair];",
    ),
    Fault(
        name="the padding of the transposed tile is gone",
        op="gemm",
        kernel="mysgemm_tiled",
        edits=(("As[32][33]", "As[32][32]"),),
        line="As[tx][ty] = row < M",
    ),
    Fault(
        name="the tile of B is loaded by columns",
        op="gemm",
        kernel="mysgemm_tiled",
        edits=(
            (
                "Bs[ty][tx] = col < N && t + ty < K ? B[(t + ty) * N + col] : 0.f;",
                """const int c = blockIdx.x * 32 + ty;
    Bs[tx][ty] = c < N && t + tx < K ? B[(t + tx) * N + c] : 0.f;""",
            ),
        ),
        line="? B[(t + tx) * N + c]",
    ),
    Fault(
        name="the padding of a tile that is read by float4 is gone",
        op="gemm",
        kernel="mysgemm_v7",
        edits=(("As[BK][BM + 4]", "As[BK][BM]"),),
        line="As[a_col + 0][a_row] = from_a.x",
    ),
    Fault(
        name="a thread's vectors lie side by side",
        op="gemm",
        kernel="mysgemm_v7",
        edits=(
            ("Bs[i][tx * 4])", "Bs[i][tx * 8])"),
            ("Bs[i][tx * 4 + 64]", "Bs[i][tx * 8 + 4]"),
            ("tx * 4 + half * 64", "tx * 8 + half * 4"),
        ),
        line="b_frag[0]) = FETCH_FLOAT4(Bs",
    ),
    Fault(
        name="each lane sums a part of the row of its own",
        op="gemv",
        kernel="matvec_warp",
        edits=(
            (
                "for (int j = lane; j < cols; j += 32) {",
                """const int share = (cols + 31) / 32;
  for (int j = lane * share; j < min(cols, lane * share + share); j++) {""",
            ),
        ),
        line="s += mat[(size_t)r * cols + j] * vec[j]",
    ),
    Fault(
        name="a warp starts three elements before a sector",
        op="gemv",
        kernel="matvec_warp",
        edits=(
            (
                "for (int j = lane; j < cols; j += 32) {",
                "for (int j = lane - 3; j < cols; j += 32) {",
            ),
            ("    s += mat[", "    if (j >= 0) s += mat["),
        ),
        line="if (j >= 0) s += mat[(size_t)r * cols + j]",
    ),
    Fault(
        name="interleaved partners in a reduction",
        op="gemv",
        kernel="matvec_block",
        edits=(
            ("const unsigned pairs = 128 / n;", "const unsigned at = 2 * n * tid;"),
            (
                "if (tid < pairs) sums[tid] += sums[tid + pairs];",
                "if (at < 256) sums[at] += sums[at + n];",
            ),
        ),
        line="sums[at] += sums[at + n]",
    ),
    Fault(
        name="the rows of partial sums have no padding",
        op="gemv",
        kernel="matvec_strips",
        edits=(("part[32][33]", "part[32][32]"),),
        line="s += part[tx][j]",
    ),
)
