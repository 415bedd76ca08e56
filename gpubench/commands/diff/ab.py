"""`gpubench ab`: sweeps of two installations or two kernel directories, in turns on one device."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from rich.console import Console

from gpubench.errors import UsageError
from gpubench.results.output import make_directory
from gpubench.text import shown

MIN_PAIRS = 5
"""Pairs of sweeps without which no point can be judged."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """One side: the gpubench that runs and the kernels that it adds."""

    name: str
    """`base` or `new`: the beginning of its files' names."""

    interpreter: str
    kernels: Path | None = None

    def sweep(self, options: Mapping[str, str], output: Path) -> None:
        """Measure one round into `output`, by the command line alone.

        Raises UsageError with the side's own message if it made no file, and KeyboardInterrupt if
        it was interrupted.
        """
        words = [self.interpreter, "-m", "gpubench", "sweep"]
        texts = {**options, "rounds": "1", "output": str(output)}
        if self.kernels:
            texts["kernels"] = str(self.kernels)
        words += [f"--{name.replace('_', '-')}={text}" for name, text in texts.items()]
        ended = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
        if ended.returncode in {130, -2}:
            raise KeyboardInterrupt
        if not output.exists():
            said = [line for line in ended.stderr.splitlines() if line.strip()]
            why = said[-1].removeprefix("gpubench: ") if said else f"exit {ended.returncode}"
            raise UsageError(f"{self.name} side ({self.interpreter}): {shown(why, 300)}")


def build(name: str, path: Path) -> Build:
    """Return the side that a path names: an interpreter, an environment, or kernels.

    Raises UsageError if it names neither.
    """
    for interpreter in (path, path / "bin" / "python"):
        if interpreter.is_file() and os.access(interpreter, os.X_OK):
            # Not resolved: the interpreter of an environment is a link out of it.
            return Build(name=name, interpreter=os.path.abspath(interpreter))
    if path.is_dir() and any(path.rglob("*.py")):
        return Build(name=name, interpreter=sys.executable, kernels=path)
    raise UsageError(
        f"{name.upper()}: '{shown(str(path))}' is neither a Python interpreter, such as "
        "old/.venv/bin/python, nor a directory of kernels"
    )


def measure_in_turns(
    sides: tuple[Build, Build],
    options: Mapping[str, str],
    directory: Path,
    pairs: int,
    budget_s: float | None,
    screen: Console,
) -> tuple[list[Path], list[Path]]:
    """Measure pairs of sweeps, and return the files of each side in the order of the pairs.

    Every other pair begins with the new side, so that a drift favours neither. With a budget, pairs
    are added until the next one would exceed it, but at least MIN_PAIRS.
    """
    make_directory(directory, "--results")
    began_s = monotonic()
    files: tuple[list[Path], list[Path]] = ([], [])
    with screen.status("") as status:
        for pair in range(pairs):
            passed_s = monotonic() - began_s
            if budget_s and pair >= MIN_PAIRS and passed_s * (pair + 1) / pair > budget_s:
                break
            for side in (0, 1) if pair % 2 == 0 else (1, 0):
                number = f"pair {pair + 1}" + (f" of {pairs}" if budget_s is None else "")
                status.update(f"{number}: measuring the {sides[side].name} side")
                path = directory / f"{sides[side].name}-{pair + 1:02}.csv"
                sides[side].sweep(options, path)
                files[side].append(path)
    return files
