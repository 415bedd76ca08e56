"""The commands: parse, call, print. `main` is the only place that catches errors."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from gpubench.errors import GpubenchError

app = typer.Typer(
    name="gpubench",
    epilog="Try: gpubench sweep --sizes 1024,2048 --tiles 1..32",
    rich_markup_mode=None,  # Rich's help costs twice the time of the rest
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=True,
)

INTERRUPTED = 130

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
Force = Annotated[bool, typer.Option("--force", help="Overwrite --output if it exists.")]


@app.command(epilog="Example: gpubench sweep --sizes 1024,2048 --tiles 1..32")
def sweep(
    sizes: Sizes = None,
    tiles: Tiles = None,
    variants: Variants = None,
    dtypes: Dtypes = None,
    op: Annotated[str | None, typer.Option(help="Operation: gemm.")] = None,
    device: DeviceName = None,
    output: Output = None,
    config: Config = None,
    seed: Seed = None,
    rounds: Rounds = None,
    precision: Precision = None,
    cache: CacheState = None,
    scope: ScopeName = None,
    timer: TimerName = None,
    budget: Budget = None,
    launch_limit: LaunchLimit = None,
    force: Force = False,
) -> None:
    """Time kernels over tile sizes and matrix sizes; show tables, save a CSV."""
    options = {
        "op": op,
        "variants": variants,
        "sizes": sizes,
        "tiles": tiles,
        "dtypes": dtypes,
        "device": device,
        "output": output,
        "seed": seed,
        "rounds": rounds,
        "precision": precision,
        "cache": cache,
        "scope": scope,
        "timer": timer,
        "budget": budget,
        "launch_limit": launch_limit,
    }
    from gpubench.show.commands import run_sweep

    raise typer.Exit(run_sweep(options, config, force=force))


@app.command("compare-cublas", epilog="Example: gpubench compare-cublas --sizes 1024,4096")
def compare_cublas(
    sizes: Sizes = None,
    tiles: Tiles = None,
    variants: Variants = None,
    dtypes: Dtypes = None,
    device: DeviceName = None,
    output: Output = None,
    config: Config = None,
    seed: Seed = None,
    rounds: Rounds = None,
    precision: Precision = None,
    cache: CacheState = None,
    scope: ScopeName = None,
    timer: TimerName = None,
    budget: Budget = None,
    launch_limit: LaunchLimit = None,
    force: Force = False,
) -> None:
    """Each variant's best tile against cuBLAS, in the same run and compute mode."""
    options = {
        "variants": variants,
        "sizes": sizes,
        "tiles": tiles,
        "dtypes": dtypes,
        "device": device,
        "output": output,
        "seed": seed,
        "rounds": rounds,
        "precision": precision,
        "cache": cache,
        "scope": scope,
        "timer": timer,
        "budget": budget,
        "launch_limit": launch_limit,
    }
    from gpubench.show.commands import run_compare_cublas

    raise typer.Exit(run_compare_cublas(options, config, force=force))


@app.command(epilog="Example: gpubench deviceinfo --json")
def deviceinfo(
    device: DeviceName = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Also measure copy bandwidth and arithmetic rate.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Properties and theoretical peaks of every GPU, and of the CPU."""
    from gpubench.show.commands import print_deviceinfo

    print_deviceinfo(device or "auto", measure=measure, as_json=as_json)


@app.command(epilog="Example: gpubench selfcheck")
def selfcheck(
    device: Annotated[str, typer.Option(help="cuda or cuda:1. Default: cuda.")] = "cuda",
) -> None:
    """Time kernels by events and by CUPTI, and say whether this machine can be trusted."""
    from gpubench.show.commands import run_selfcheck

    raise typer.Exit(run_selfcheck(device))


@app.command(epilog="Example: gpubench variants --device cpu")
def variants(
    op: Annotated[str | None, typer.Option(help="Only this operation, such as gemm.")] = None,
    device: Annotated[str | None, typer.Option(help="Only cuda or cpu.")] = None,
) -> None:
    """What can be swept: dtypes, legal tiles and the idea of each kernel."""
    from gpubench.show.commands import print_variants

    print_variants(op, device)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Time matrix kernels over tile sizes and matrix sizes, against the hardware and cuBLAS."""
    if version:
        from gpubench import __version__

        typer.echo(f"gpubench {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; every expected failure is one line on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without × is no reason to fail
    try:
        code = app(standalone_mode=False)
    except GpubenchError as error:
        code = _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
            typer.echo(error.format_message(), err=True)
            code = 2
        else:
            code = _fail(error.format_message(), 2)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output (head, less) has gone; Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code or 0)


def _fail(message: str, code: int) -> int:
    typer.echo(f"gpubench: {' '.join(message.split())}", err=True)
    return code
