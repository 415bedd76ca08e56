"""Options that several commands share: a type for each, with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Sizes = Annotated[
    str | None,
    typer.Option(help="Matrix sizes: 1024,2048 or 320x640x320 (MxNxK) or 64..512:64 or 1..64:x2."),
]
Tiles = Annotated[
    str | None,
    typer.Option(help="Tile sizes: 16 or 1..32 or 1..64:x2. Default: each variant's own."),
]
Variants = Annotated[
    str | None,
    typer.Option(help="Kernels, comma separated; see 'gpubench variants'. Default: all."),
]
Dtypes = Annotated[str | None, typer.Option(help="float32,float64,int32. Default: float32.")]
DeviceName = Annotated[
    str | None, typer.Option(help="auto, cuda, cuda:1 or cpu. Default: auto, the GPU if any.")
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", help="CSV to write. Default: results/<time>-<device>-<op>.csv."),
]
Config = Annotated[
    Path | None,
    typer.Option(help='TOML file with any of these options, as sizes = "1024,2048"; flags win.'),
]
Seed = Annotated[str | None, typer.Option(help="Seed of the operands, such as 2006.")]
Rounds = Annotated[
    str | None,
    typer.Option(help="Measure all points so many times, each in a new order. Default: 3."),
]
Precision = Annotated[
    str | None,
    typer.Option(help="Sample until the 95 % interval is within this, as 0.5%. Default: 0.5%."),
]
CacheState = Annotated[
    str | None, typer.Option("--cache", help="cold, hot or both. Default: cold.")
]
ScopeName = Annotated[
    str | None,
    typer.Option("--scope", help="kernel, end-to-end (with copies) or both. Default: kernel."),
]
TimerName = Annotated[
    str | None,
    typer.Option(
        "--timer", help="events (time in a stream) or cupti (execution). Default: events."
    ),
]
Budget = Annotated[
    str | None, typer.Option(help="Seconds for all points together, shared out among them.")
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
