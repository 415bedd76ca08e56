"""Compare gpubench's times with the hardware profilers' and with those of other timers.

Every kernel is timed at every size by gpubench (`events`: time per launch in a stream; `cupti`:
execution), by the profilers (Nsight Compute's `gpu__time_duration.sum`; CUPTI's activity records
taken without gpubench) and by common timers for Python (`cupyx.profiler.benchmark`,
`triton.testing.do_bench`, a plain pair of events), each in its own process, alternating, three
times. The report shows the times side by side, then gpubench's ratio to each profiler and the
launch gap, then a verdict on every bound that gpubench promises to keep.

results/h200/agreement.md and .csv come from this command in the repository's root, with gpubench
installed (or PYTHONPATH=.):

    python3 benchmarks/agreement.py --output results/h200/agreement

A tool that is missing or fails leaves its column blank; the reason follows the tables.
Exit status: 0 all bounds hold, 1 a bound is broken, 2 usage, 3 a bound could not be judged.
"""

from __future__ import annotations

import argparse
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from agreement_readings import COLUMNS, Settings, find_ncu, read
from agreement_report import arrange, page, save, verdicts
from agreement_timers import Case, Reading, describe

VARIANTS = "cublas,naive:32,shared_tile:16,register_tile:4"
SIZES = "64,128,256,512,1024,1536,2048,4096"

PACKAGES = ("cupti-python", "nvidia-cuda-cupti", "triton", "torch")


def main() -> int:
    options = parse_options()
    settings = Settings(rounds=options.rounds, timeout_s=options.timeout, ncu=options.ncu)
    cases = [
        Case(variant=variant, tile=tile, size=size)
        for variant, tile in options.variants
        for size in options.sizes
    ]
    facts = environment(settings)
    readings: list[Reading] = []
    for timer in options.timers * options.passes:
        start_s = time.perf_counter()
        new = read(timer, cases, settings)
        report_progress(timer, new, time.perf_counter() - start_s)
        readings += new
        if options.output:  # after every timer: an interrupted run keeps its results
            lines = arrange(cases, readings)
            save(options.output, page(lines, readings, verdicts(lines), facts), lines)
    lines = arrange(cases, readings)
    judged = verdicts(lines)
    print(page(lines, readings, judged, facts))
    outcomes = {verdict.outcome for verdict in judged}
    return 1 if "FAIL" in outcomes else 3 if "NOT JUDGED" in outcomes else 0


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--output",
        type=Path,
        metavar="PREFIX",
        help="write PREFIX.md and PREFIX.csv after every timer (default: print only)",
    )
    add(
        "--variants",
        type=variant_list,
        default=VARIANTS,
        metavar="LIST",
        help="kernels, as NAME or NAME:TILE, comma separated (default: %(default)s)",
    )
    add(
        "--sizes",
        type=size_list,
        default=SIZES,
        metavar="LIST",
        help="edges of the square matrices, comma separated (default: %(default)s)",
    )
    add(
        "--timers",
        type=timer_list,
        default=",".join(COLUMNS),
        metavar="LIST",
        help="timers to run, in this order (default: %(default)s)",
    )
    add("--rounds", type=positive, default=1, metavar="R", help="of gpubench (default: 1)")
    add(
        "--passes",
        type=positive,
        default=3,
        metavar="P",
        help="number of runs of every timer, alternating; medians are reported (default: 3)",
    )
    add(
        "--timeout",
        type=positive,
        default=240,
        metavar="SECONDS",
        help="stop a timer that takes longer; its readings so far are kept (default: %(default)s)",
    )
    add(
        "--ncu",
        default="",
        metavar="COMMAND",
        help="Nsight Compute's command (default: ncu on the PATH, or where CUDA installs it)",
    )
    return parser.parse_args(arguments)


def variant_list(text: str) -> list[tuple[str, str]]:
    """`cublas,naive:32` as (variant, tile) pairs; the tile is empty where none is given."""
    pairs = []
    for item in text.split(","):
        name, colon, tile = (part.strip() for part in item.partition(":"))
        if not name or bool(colon) != bool(tile):
            raise argparse.ArgumentTypeError(f"'{item}' is neither NAME nor NAME:TILE")
        pairs.append((name, tile))
    return list(dict.fromkeys(pairs))


def size_list(text: str) -> list[int]:
    return list(dict.fromkeys(positive(item) for item in text.split(",")))


def timer_list(text: str) -> list[str]:
    names = [item.strip() for item in text.split(",")]
    for name in names:
        if name not in COLUMNS:
            raise argparse.ArgumentTypeError(f"unknown timer '{name}'; known: {', '.join(COLUMNS)}")
    return list(dict.fromkeys(names))


def positive(text: str) -> int:
    if not (text.strip().isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive integer")
    return int(text)


def environment(settings: Settings) -> dict[str, str]:
    """What the times depend on; a fact that is not available says why."""
    facts = {
        "command": shlex.join(("python3", *sys.argv)),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }
    try:
        import gpubench
        from gpubench.backends.cuda.devices import cuda_device

        facts["gpubench"] = gpubench.__version__
        device = cuda_device(0)
        facts |= {"GPU": device.name, **device.versions}
    except Exception as error:  # the blank columns give the reason too
        facts["GPU"] = describe(error)
    if "driver" not in facts:
        facts["driver"] = last_line(
            "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"
        )
    try:
        facts["ncu"] = last_line(find_ncu(settings.ncu), "--version")
    except OSError as error:
        facts["ncu"] = describe(error)
    for package in PACKAGES:
        try:
            facts[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            facts[package] = "not installed"
    return facts | {"python": platform.python_version()}


def last_line(*command: str) -> str:
    """The last line that a command prints."""
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return describe(error)
    return finished.stdout.strip().rpartition("\n")[2].strip()


def report_progress(timer: str, readings: Sequence[Reading], duration_s: float) -> None:
    """Say on stderr how many readings a timer gave, and why others are blank."""
    given = sum(reading.us is not None for reading in readings)
    print(f"{timer}: {given} of {len(readings)} readings, {duration_s:.0f} s", file=sys.stderr)
    for reason in dict.fromkeys(reading.reason for reading in readings if reading.us is None):
        print(f"  blank: {reason}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
