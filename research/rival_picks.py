"""Compare picks of NVIDIA's nvMatmulHeuristics with picks of the cost model, without a GPU.

    pip install nvidia-matmul-heuristics==0.1.0.27
    python research/rival_picks.py results/h200/shapes/alone_every_53*.csv

The wheel predicts times of CUTLASS's kernels. They are compared with measured configurations of the
same tile, cluster and number of parts of K. At equal predictions, the fastest configuration counts.
"""

from ctypes import byref
from dataclasses import fields
from operator import attrgetter, itemgetter
from pathlib import Path
from statistics import geometric_mean, mean

from common import parser, table
from fit_tiles import modelled_us, timed

from gpubench.grouping import grouped
from gpubench.kernels.tile_costs import COSTS, PICKS_TOGETHER, Tile
from gpubench.model import Problem

CODES = {"bfloat16": "TST", "float16": "HSH", "float8_e4m3": "QQTST", "int8": "BII"}
HEADING = "precision|picks|shapes|configurations|wheel|model, same|model|wheel ratio|model ratio"

Kernel = tuple[int, ...]  # rows, columns, blocks down and across, parts of K
kernel_of = attrgetter(*(f"choice.{field.name}" for field in fields(Tile)))


def predicted(problem: Problem, kernels: set[Kernel]) -> tuple[set[Kernel], dict[Kernel, float]]:
    """Return the wheel's list for an H200, and predicted times of this list and of `kernels`.

    The list is for A·B in rows and for Bᵀ·Aᵀ in columns. The wheel rejects some kernels.
    """
    import nvMatmulHeuristics as wheel  # noqa: N813 # the name of the package is long

    target, code = wheel.NvMatmulHeuristicsTarget.CUTLASS3, CODES[problem.dtype]
    flags = wheel.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING
    metric = int(wheel.NvMatmulHeuristicsSiliconMetric.RUNTIME_RELATIVE_FAST_S)
    gpu = wheel.NvMatmulHeuristicsNvidiaGpu.H200_SXM
    model = wheel.NvMatmulHeuristicsInterfaceEx(backend=target, flags=flags, gpu=gpu)
    estimate, backend = model.nvMatmulHeuristicsEstimateSiliconMetricEx, model.createBackend(target)
    layouts = ("NT_ROW", "TN_COL") if "B" in problem.column_major else ("NN_ROW", "NN_COL")
    products, listed, times = {}, set[Kernel](), dict[Kernel, float]()
    for step, name in zip((1, -1), layouts, strict=True):  # -1 exchanges rows and columns
        layout = wheel.NvMatmulHeuristicsMatmulLayout[f"{name}_MAJOR"]
        extents = *(problem.m, problem.n)[::step], problem.k
        products[step] = model.makeNvMatmulHeuristicsProblem(*extents, layout)
        for entry in model.get(products[step], 512, code):  # the list has fewer than 512 kernels
            each = entry["nvmmhKernelConfiguration"]
            listed.add((*each.cta[:2][::step], *each.cluster[::step], each.splitK))
    for kernel in kernels | listed:
        for step, product in products.items():
            (rows, columns), depth = kernel[:2][::step], 128 // problem.precision.item_bytes
            tiles = (rows, columns, depth), (64, columns, depth), (64, 8, depth // 4)
            each = model.nvmmhKernelConfiguration(*tiles, kernel[4], 4, 1, 0, kernel[2:4][::step])
            arguments = byref(product), byref(each), metric, model.hardware_descriptor
            if seconds := estimate(model.handle, code.encode(), backend, *arguments):
                times[kernel] = min(seconds, times.get(kernel, seconds))
    return listed, times


def main() -> None:
    options = parser(__doc__)
    options.add_argument("files", nargs="+", type=Path)
    rows = [row for path in options.parse_args().files for row in timed(path)]
    outcomes: dict[tuple[str, str], list[list[float]]] = {}
    for problem, of_shape in grouped(rows, attrgetter("problem")).items():
        listed, times = predicted(problem, set(map(kernel_of, of_shape)))
        by_model = sorted(of_shape, key=lambda row: modelled_us(row, COSTS[row.problem.dtype]))
        for picks, kernels, count in (
            ("first in list", {min(listed, key=times.__getitem__)}, 1),
            ("first measured in list", listed, 1),
            ("best of 8 in list", listed, PICKS_TOGETHER),
            ("first rated", set(times), 1),
            ("best of 8 rated", set(times), PICKS_TOGETHER),
        ):
            numbers = outcomes.setdefault((problem.dtype, picks), [])
            same = [row for row in by_model if kernel_of(row) in kernels]
            by_wheel = sorted(same, key=lambda row: (times[kernel_of(row)], row.median_us))
            if same:
                orders = by_wheel[:count], same[:count], by_model[:count]
                slower = [min(row.median_us / row.best_us for row in order) for order in orders]
                numbers.append([len(same), same[0].library_us / same[0].best_us, *slower])
    lines = []
    for group, numbers in filter(itemgetter(1), outcomes.items()):
        counts, libraries, *ratios = zip(*numbers, strict=True)
        cells = [f"{100 * mean(each) - 100:.1f} %" for each in ratios]
        cells += [f"{geometric_mean(libraries) / geometric_mean(x):.3f}" for x in ratios[::2]]
        lines.append([*group, len(numbers), f"{mean(counts):.1f}", *cells])
    print(table(HEADING.split("|"), lines))


if __name__ == "__main__":
    main()
