"""Draw every picture of the README and of docs/plots.md from results/.

    python research/make_pictures.py    # writes docs/images/*.svg

`gpubench plot` draws the pictures by the commands below. This script itself draws the ratios at
random shapes and the recording of a terminal.
"""

import io
import os
import re
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent.parent))  # this tree's package
sys.path.insert(0, str(Path(__file__).parent))  # the folder of shape_tables.py

from common import load, measured_file
from matplotlib.axes import Axes
from rich.console import Console
from rich.text import Text
from shape_tables import ALONE, card, in_pairs, outcomes_alone, path_alone, path_of_squares

from gpubench.cli import app
from gpubench.files import Output
from gpubench.view.pictures import Theme
from gpubench.view.pictures.style import (
    Picture,
    compose,
    ink,
    legend,
    look,
    provenance,
    save,
    y_title,
)

IMAGES = Path("docs/images")

(DEVICE,) = load(measured_file("deviceinfo.json"))["devices"]
COPY_GBYTES_PER_S = round(DEVICE["facts"]["measured_copy_gbytes_per_s"])

COMMANDS = (
    (
        "gpubench plot results/h200/sweep.csv --only "
        "2048,naive_uncoalesced,naive,register_tile,shared_tile,cublas "
        "-o docs/images/tile-sizes.svg"
    ),
    "gpubench plot results/h200/compare.csv --only float32 -o docs/images/sizes.svg",
    "gpubench plot results/h200/ladder.csv --kind blas -o docs/images/ladder.svg",
    (
        "gpubench plot results/h200/compare.csv --only float32 --kind roofline "
        f"--bandwidth {COPY_GBYTES_PER_S} -o docs/images/roofline.svg"
    ),
    "gpubench plot results/h200/bits.csv --kind bits -o docs/images/bits.svg",
)

RECORDED = (
    (
        "gpubench show results/h200/sweep.csv --only "
        "2048,naive,naive_uncoalesced,register_tile,shared_tile,4,8,12,16,24,32"
    ),
    "gpubench diff results/h200/sweep.csv results/h200/sweep_again.csv --only shared_tile,2048",
)
"""Commands that the recording of a terminal shows."""

WIDTH = 80
"""Number of characters in a line of the recording."""


def make(folder: Path) -> list[Path]:
    """Draw every picture into a folder.

    The current directory must be the root of the repository.
    """
    made = []
    for command in COMMANDS:
        *arguments, target = shlex.split(command)[1:]
        made.append(folder / Path(target).name)
        app([*arguments, str(made[-1]), "--force"], standalone_mode=False)
    made.append(folder / "shapes.svg")
    files = [path for dtype in ALONE for path in (path_alone(dtype), path_of_squares(dtype))]
    files = [path for path in files if path.exists()]
    save(random_shapes(), Output(made[-1], overwrite=True), provenance("shapes", files))
    made.append(folder / "terminal.svg")
    made[-1].write_text(recording(), encoding="utf-8")
    return made


def random_shapes() -> Picture:
    """Return a picture of the ratios at random shapes and at squares in long runs, by precision."""
    every = [result for dtype in ALONE for result in outcomes_alone(dtype)]
    precisions = list(ALONE)

    def draw(axes: Axes) -> float:
        lines = []
        groups: dict[str, list[tuple[str, float]]] = {}
        for outcome in sorted(every, key=lambda outcome: outcome.shape_class):
            groups.setdefault(outcome.shape_class, []).append((outcome.own.dtype, outcome.ratio))
        groups["square, sustained"] = [
            (dtype, ratio.ratio) for dtype in precisions for _, ratio in in_pairs(dtype)
        ]
        for number, (name, points) in enumerate(groups.items()):
            beside = (number - (len(groups) - 1) / 2) * 0.13
            lines += axes.plot(
                [precisions.index(dtype) + beside for dtype, _ in points],
                [ratio for _, ratio in points],
                color=look(number).colour,
                marker=look(number).marker,
                markersize=4,
                linestyle="",
                label=name,
            )
        axes.set_xticks(range(len(precisions)), precisions)
        y_title(axes, "times as fast as the library")
        axes.axhline(1, color=ink(), linewidth=1)
        legend(axes, lines)
        return 3.2

    cards = sorted({card(path_alone(dtype)) for dtype in ALONE})
    title = f"gemm on NVIDIA {' and '.join(cards)}, launches alone"
    return compose("Speed over the better of cuBLAS and cuBLASLt", [(title, draw)], Theme.BOTH)


def recording() -> str:
    """Return an SVG that shows the terminal after the commands of `RECORDED`.

    The SVG loads no font.
    """
    screen = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    in_colour = {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1"}
    for command in RECORDED:
        printed = io.StringIO()
        with patch.dict(os.environ, in_colour), redirect_stdout(printed):
            app(shlex.split(command)[1:], standalone_mode=False)
        screen.print(Text(f"$ {command}", style="bold"))
        screen.print(Text.from_ansi(f"{printed.getvalue().strip()}\n"))
    svg = screen.export_svg(title="gpubench", unique_id="terminal")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("font-family: Fira Code, monospace", "font-family: monospace")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


if __name__ == "__main__":
    make(IMAGES)
