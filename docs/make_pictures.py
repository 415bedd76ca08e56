"""Make the README's picture from a results file: time against tile size, one line a variant.

    python docs/make_pictures.py results/h200/sweep.csv docs/images/tile-sizes.svg

Needs matplotlib (`pip install '.[dev]'`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt

from gpubench.show.tables import best_of
from gpubench.table import Row, read

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""

SIZE = "2048"
MARKS = "osD^"


def main(source: str, target: str) -> None:
    """Read the CSV, write the picture."""
    rows = [row for row in read(Path(source)) if row.size == SIZE and row.median_us]
    device, dtype = rows[0].device, rows[0].dtype
    plt.rcParams |= {"svg.hashsalt": "gpubench", "font.size": 10}
    figure, axes = plt.subplots(figsize=(7.2, 4.0), layout="constrained")
    tiled = [row for row in rows if row.tile]
    for index, variant in enumerate(dict.fromkeys(row.variant for row in tiled)):
        draw(axes, [row for row in tiled if row.variant == variant], COLOURS[index], MARKS[index])
    blas = best_of(row for row in rows if not row.tile)
    axes.axhline(blas.median_us / 1e3, color="#555555", linestyle="--", linewidth=1)
    axes.annotate(
        f"cuBLAS {blas.median_us / 1e3:.2f} ms", (1, blas.median_us / 1e3 * 1.1), color="#555555"
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = (1, 2, 4, 8, 16, 32)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlabel("tile size")
    axes.set_ylabel("time per launch, ms")
    axes.set_title(f"{dtype} product, {SIZE}×{SIZE}, on {device}", loc="left", fontsize=11)
    axes.grid(visible=True, which="major", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right", ncols=2)
    figure.patch.set_facecolor("white")
    figure.savefig(target, metadata={"Date": None})


def draw(axes: plt.Axes, rows: list[Row], colour: str, mark: str) -> None:
    """One variant's curve; its best tile larger, tiles that use local memory hollow."""
    rows = sorted(rows, key=lambda row: int(row.tile))
    tiles = [int(row.tile) for row in rows]
    axes.plot(tiles, [row.median_us / 1e3 for row in rows], color=colour, label=rows[0].variant)
    best = best_of(rows)
    for row in rows:
        axes.plot(
            int(row.tile),
            row.median_us / 1e3,
            marker=mark,
            markersize=8 if row is best else 4,
            color=colour,
            markerfacecolor="white" if row.local_bytes else colour,
            linestyle="",
        )


if __name__ == "__main__":
    main(*sys.argv[1:3])
