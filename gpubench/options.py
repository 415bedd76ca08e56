"""Options that several commands share: a type for each, with its help and what the shell offers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpubench import completion

Sizes = Annotated[
    str | None,
    typer.Option(
        help="Matrix sizes: 1024,2048 or 320x640x320 (MxNxK) or 64..512:64 or 1..64:x2; for gemv, "
        "gemv_t and atax 8192x32768 (MxN)."
    ),
]
Tiles = Annotated[
    str | None,
    typer.Option(help="Tile sizes: 16 or 1..32 or 1..64:x2. Default: each variant's own."),
]
Variants = Annotated[
    str | None,
    typer.Option(
        help="Kernels, such as shared_tile,cublas; 'gpubench variants' lists them. Default: all.",
        autocompletion=completion.variants,
    ),
]
Dtypes = Annotated[
    str | None,
    typer.Option(
        help="Element types, such as float32,float64. Default: float32.",
        autocompletion=completion.dtypes,
    ),
]
Op = Annotated[
    str | None,
    typer.Option(
        help="Operation: gemm, gemv, gemv_t or atax. Default: gemm.",
        autocompletion=completion.operations,
    ),
]
DeviceName = Annotated[
    str | None,
    typer.Option(
        help="auto, cuda, cuda:1 or cpu. Default: auto, the GPU if any.",
        autocompletion=completion.devices,
    ),
]
Kernels = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Sweep your own kernels too: mine.cu and mine.py in DIR, or in DIR/gemm. "
        "This runs the code of every .py there, as you.",
        autocompletion=completion.folders,
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        help="CSV to write, such as a.csv. Default: results/<time>-<device>-<op>.csv.",
        autocompletion=completion.results,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        help='TOML file such as quick.toml, with any of these options, as sizes = "1024,2048"; '
        "flags win. Its kernels lie beside it, its output below the current folder.",
        autocompletion=completion.configs,
    ),
]
Seed = Annotated[str | None, typer.Option(help="Seed of the operands, such as 2006.")]
Operands = Annotated[
    str | None,
    typer.Option(help="What they hold: uniform (random) or index (0, 1, 2, …). Default: uniform."),
]
Rounds = Annotated[
    str | None,
    typer.Option(help="Measure all points so many times, each in a new order. Default: 3."),
]
Precision = Annotated[
    str | None,
    typer.Option(help="Sample until the 95 % interval is within this, as 0.5%. Default: 0.5%."),
]
CacheState = Annotated[
    str | None,
    typer.Option(
        "--cache",
        help="cold, hot or both. Default: cold.",
        autocompletion=completion.words("cold", "hot", "both"),
    ),
]
ScopeName = Annotated[
    str | None,
    typer.Option(
        "--scope",
        help="kernel, end-to-end (with copies) or both. Default: kernel.",
        autocompletion=completion.words("kernel", "end-to-end", "both"),
    ),
]
TimerName = Annotated[
    str | None,
    typer.Option(
        "--timer",
        help="events (time in a stream) or cupti (execution). Default: events.",
        autocompletion=completion.words("events", "cupti"),
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(help="Seconds for all points together, shared out among them, such as 60."),
]
LaunchLimit = Annotated[
    str | None,
    typer.Option(
        help="Skip points whose launch is estimated to take more seconds. "
        "Default: 10; for compare-cublas 1."
    ),
]
PointLimit = Annotated[
    str | None,
    typer.Option(
        help="Take a point for hung after so many seconds, and go on. "
        "Default: 60 and 6 times the launch limit."
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(help="Go on with a sweep that ended early, by the CSV it was writing: a.csv."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite --output if it exists.")]
Bandwidth = Annotated[
    float | None,
    typer.Option(
        help="Copy bandwidth in GB/s for the roofline, where the CSV does not tell it; "
        "'gpubench deviceinfo --measure' does.",
        min=0.001,
    ),
]


def named(arguments: dict[str, object]) -> dict[str, str | None]:
    """A command's arguments as options of a sweep: each is named like its option there."""
    own = {"config", "resume", "force", "dry_run", "ladder"}
    return {
        name: None if value is None else str(value)
        for name, value in arguments.items()
        if name not in own
    }
