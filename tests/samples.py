"""Rows like those of a sweep, for tests of pictures and pages."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fakes import measured
from rich.console import Console, RenderableType

from gpubench.results.row import Row, read
from gpubench.view.pictures.series import Source, sources

RESULTS = Path(__file__).parent.parent / "results" / "h200"
SWEEP, COMPARE = RESULTS / "sweep.csv", RESULTS / "compare.csv"


def sample(
    variant: str = "naive", tile: str = "16", n: int = 1024, median_us: float = 100.0, **facts: Any
) -> Row:
    """Return a measured row of a square product on a GPU."""
    usual = {
        "backend": "cuda",
        "device": "Fake GPU",
        "timer": "events",
        "gflops": 2 * n**3 / median_us / 1e3,
        "arithmetic_intensity": n / 6,
    }
    place = {"variant": variant, "tile": tile, "m": n, "n": n, "k": n}
    return replace(measured(median_us), **(place | usual | facts))


def printed(*parts: RenderableType, width: int = 200) -> str:
    """Return tables and lines as a terminal of this width shows them, without colours."""
    screen = Console(width=width, no_color=True)
    with screen.capture() as capture:
        for part in parts:
            screen.print(part)
    return capture.get()


def source(*rows: Row, copy_gbytes_per_s: float | None = None) -> list[Source]:
    """Return the sources of one file with these rows."""
    return sources([(Path("file.csv"), rows)], copy_gbytes_per_s)


def of_files(*paths: Path) -> list[Source]:
    """Return the sources of CSVs."""
    return sources([(path, read(path)) for path in paths])


def curve(variant: str, times_us: Sequence[float], **facts: Any) -> list[Row]:
    """Return rows of a variant at tiles 1, 2, 4, …"""
    return [
        sample(variant, str(2**place), median_us=us, **facts) for place, us in enumerate(times_us)
    ]
