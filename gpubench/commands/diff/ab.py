"""`gpubench ab`: sweep two installations or two kernel directories in turns on one device."""

import os
import random
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shutil import which
from signal import strsignal
from time import monotonic

from gpubench.backends import AUTO, first_device
from gpubench.commands.diff.compare import compare
from gpubench.commands.diff.findings import DiffVerdict, Limits
from gpubench.commands.diff.options import AB_CPU_PAIRS, AB_PAIRS, Options
from gpubench.commands.diff.run import read_limits, run_diff
from gpubench.commands.diff.sides import read_side
from gpubench.engine.pool import Pool
from gpubench.engine.prepare import prepare
from gpubench.engine.run import open_pool, run
from gpubench.engine.scatter import rounds_needed
from gpubench.errors import GpubenchError, UsageError
from gpubench.files import Output, make_directory
from gpubench.model import OPERATIONS
from gpubench.options import OPTIONS, option_texts, read_sweep
from gpubench.plan.sweep import Sweep
from gpubench.process.child import run_program, run_with_folder
from gpubench.results.result_file import ResultFile
from gpubench.stats import looks
from gpubench.temporary import temporary_folder
from gpubench.text import shown
from gpubench.view.progress import Steps
from gpubench.view.tables import say

Files = Sequence[Path]

OWN = {"budget", "rounds", "output", "samples"}
"""Options that `ab` does not pass on to its sweeps, because `ab` itself sets or uses these
options."""

MIN_PAIRS = 2
MAX_PAIRS = 1000

ORDER_SEED = 58
"""Seed of the random order in which the two sides of a pair are measured."""

BUDGET_PAIRS = 5
"""Minimum number of pairs that are measured if there is a budget."""


class SideError(UsageError):
    """A side cannot be measured. `side` is `base` or `new`."""

    def __init__(self, side: str, message: str) -> None:
        super().__init__(f"{side.upper()}{message}")
        self.side = side


@dataclass(frozen=True, kw_only=True)
class Build:
    """One side of `ab`: an interpreter with gpubench, and possibly a directory of kernels."""

    name: str
    """`base` or `new`. The names of the side's files begin with this word."""

    interpreter: str
    kernels: Path | None = None

    def options_of(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options for a sweep that measures this side for one round."""
        own = {"kernels": str(self.kernels)} if self.kernels else {}
        return {**options, "rounds": "1", **own}

    def sweep(self, options: Mapping[str, str], output: Path) -> None:
        """Measure one round by running `gpubench sweep` in a child process, which writes `output`.

        The child process is ended when this process ends.

        Raises UsageError with the sweep's message if the sweep writes no file, and
        KeyboardInterrupt if the sweep is interrupted.
        """
        command = [self.interpreter, "-P", "-m", "gpubench", "sweep"]  # no module of this folder
        texts = self.options_of(options) | {"output": str(output)}
        command += [f"{OPTIONS[name].flag}={text}" for name, text in texts.items()]
        ended = run_with_folder(command)
        if ended.returncode in {-2, 130}:
            raise KeyboardInterrupt
        if not output.exists():
            lines = [
                line for line in ended.stderr.decode(errors="replace").splitlines() if line.strip()
            ]
            why = lines[-1].removeprefix("gpubench: ") if lines else f"exit code {ended.returncode}"
            if ended.returncode < 0:  # a killed child's last line is only its progress
                why = f"crashed: {strsignal(-ended.returncode)} (signal {-ended.returncode})"
            raise UsageError(why)


@dataclass(frozen=True, kw_only=True)
class OpenBuild(Build):
    """A side that is a directory of kernels on a CPU, and that this process itself measures.

    Starting `gpubench sweep` takes longer than measuring a round. Therefore all sweeps of this side
    share the process that starts the measuring children. Each sweep has new children.
    """

    pool: Pool

    def sweep(self, options: Mapping[str, str], output: Path) -> None:
        """Measure one round, and write it to `output`.

        Raises GpubenchError if the round cannot be measured, and KeyboardInterrupt if the
        measurement is interrupted.
        """
        self.pool.renew()
        texts = self.options_of(options) | {"output": str(output)}
        job = prepare(read_sweep(texts), self.pool.device)
        if run(job, self.pool, file=ResultFile(output)).interrupted:
            raise KeyboardInterrupt


@contextmanager
def opened(side: Build, options: Mapping[str, str], sweep: Sweep) -> Iterator[Build]:
    """Yield an `OpenBuild` for a directory of kernels on a CPU. Yield any other side unchanged.

    A directory that states its own operation is also yielded unchanged. Two directories may state
    operations with the same name, so each directory needs its own process.
    """
    is_shared = OPERATIONS.is_ours(sweep.op) and _on_cpu(sweep.device)
    if side.kernels is None or not is_shared:
        yield side
        return
    with ExitStack() as stack:
        with named(side):
            pool = stack.enter_context(open_pool(read_sweep(side.options_of(options))))
        yield OpenBuild(**vars(side), pool=pool)


@contextmanager
def named(side: Build) -> Iterator[None]:
    """Turn an error of a side into a SideError that names the side."""
    try:
        yield
    except GpubenchError as error:
        raise SideError(side.name, f" ({side.interpreter}): {error}") from error


def build(name: str, path: Path) -> Build:
    """Return the side that a path names: an interpreter, an environment, or a kernel directory.

    Raises SideError if the path names no side.
    """
    for interpreter in (path, path / "bin" / "python"):
        if interpreter.is_file() and os.access(interpreter, os.X_OK):
            # Links are not followed: the interpreter of an environment is a link to a file outside.
            return Build(name=name, interpreter=os.path.abspath(interpreter))  # noqa: PTH100 # resolve() follows links
    if path.is_dir() and any(path.rglob("*.py")):
        return Build(name=name, interpreter=sys.executable, kernels=path)
    raise SideError(
        name,
        f": '{shown(str(path))}' is neither a Python interpreter, such as "
        "old/.venv/bin/python, nor a directory of kernels",
    )


@contextmanager
def unpacked(name: str, path: Path) -> Iterator[Path]:
    """Yield the path of a side. A path such as `REV:DIRECTORY` is first unpacked from git.

    The unpacked files are removed when the `with` block ends.

    Raises SideError if git does not find the revision or the directory.
    """
    if path.exists() or ":" not in str(path):
        yield path
        return
    git = which("git")
    if git is None:
        raise SideError(name, f": '{shown(str(path))}' needs git, which is not installed")
    # In a folder of a repository, `git archive` would archive only the same folder of the tree.
    tree, top = (
        os.fsdecode(run_program((git, "rev-parse", *words)).stdout).removesuffix("\n")
        for words in (("--verify", "--quiet", str(path)), ("--show-toplevel",))
    )
    archive = run_program((git, "-C", top, "archive", "--format=tar", tree or str(path)))
    if archive.returncode:
        why = archive.stderr.decode(errors="replace").strip().removeprefix("fatal: ")
        raise SideError(
            name, f": '{shown(str(path))}': {why}; name a commit and its directory of kernels"
        )
    with temporary_folder() as scratch:
        # Not tarfile: its safe filter is missing in Python 3.11.0 to 3.11.3, as in Debian 12.
        run_program(("tar", "-x", "-C", scratch), archive.stdout).check_returncode()
        yield scratch


def compare_builds(
    base: Path,
    new: Path,
    options: Mapping[str, object],
    settings: Options,
    *,
    config: Path | None,
    pairs: int | None,
    to_find: str | None = None,
    results: Path | None,
) -> int:
    """Measure both sides in turns, compare them, and return the exit code of `diff`.

    Raises UsageError for sides, options and files that cannot be used, before anything is measured.
    """
    texts = option_texts(options, config)
    settings = replace(settings, format=settings.chosen_format)
    if settings.output:
        Output(settings.output, overwrite=settings.force)
    with unpacked("base", base) as old, unpacked("new", new) as latest:
        sides = build("base", old), build("new", latest)
        kernels = sides[1].kernels or sides[0].kernels
        if kernels and "kernels" in texts:
            raise UsageError(
                "--kernels: one side is already a directory of kernels; leave out --kernels"
            )
        # The directory may state the operation.
        sweep = read_sweep(texts | {"kernels": str(kernels)} if kernels else texts)
        pairs, settings = _max_pairs(sweep, pairs, to_find, settings)
        limits = read_limits(settings)
        texts = {name: text for name, text in texts.items() if name not in OWN}
        directory = results or Path("results") / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-ab"
        if directory.is_dir() and any(directory.iterdir()):
            raise UsageError(f"--results: {directory} is not empty")
        is_new = not directory.exists()
        make_directory(directory, "--results")
        has_ours = OPERATIONS.is_ours(sweep.op) and all(side.kernels for side in sides)
        if has_ours and "variants" not in texts:
            say(
                "gpubench's own kernels, which are the same on both sides, are measured too; "
                "--variants NAME,cpu_blas measures only your kernel and the BLAS",
                err=True,
            )
        again = _command_of_diff(directory, settings)
        decided = partial(_decided, limits)
        try:
            with opened(sides[0], texts, sweep) as first, opened(sides[1], texts, sweep) as second:
                files, q = measure_in_turns(
                    (first, second), texts, directory, pairs, sweep.timing.budget_s, decided
                )
        except KeyboardInterrupt:
            if any(directory.glob("base-*.csv")) and any(directory.glob("new-*.csv")):
                say(f"stopped; to compare what was measured: {again}", err=True)
            raise
        finally:
            if is_new:
                with suppress(OSError):  # the directory has results
                    directory.rmdir()
    code = run_diff(*files, settings, (str(base), str(new)), q=q)
    say(f"again: {again}", err=True)
    return code


def _command_of_diff(directory: Path, settings: Options) -> str:
    """Return the command that compares the sweeps in a directory again."""
    folder = shlex.quote(str(directory))
    command = f"gpubench diff --base {folder}/base-*.csv --new {folder}/new-*.csv"
    command += f" --threshold {shlex.quote(settings.threshold)}" if settings.threshold else ""
    return command + (" --strict" if settings.strict else "")


def _max_pairs(
    sweep: Sweep, pairs: int | None, to_find: str | None, settings: Options
) -> tuple[int, Options]:
    """Return the maximum number of pairs, and the settings.

    If `to_find` is given, the returned settings have the threshold that belongs to it.

    Raises UsageError for options that contradict each other.
    """
    budget_s = sweep.timing.budget_s
    if budget_s and pairs:
        raise UsageError(
            "--pairs: --budget chooses the number of pairs; leave out --pairs or --budget"
        )
    if to_find:
        if pairs or budget_s:
            raise UsageError(
                "--to-find chooses the number of pairs: leave out --pairs and --budget"
            )
        return _to_find(to_find, sweep.device, settings)
    if pairs is None:
        pairs = AB_CPU_PAIRS if _on_cpu(sweep.device) else AB_PAIRS
    if not MIN_PAIRS <= pairs <= MAX_PAIRS:
        raise UsageError(
            f"--pairs: {pairs} is out of range: it must be from {MIN_PAIRS} to {MAX_PAIRS}"
        )
    return pairs, settings


def _to_find(percent: str, device: str, settings: Options) -> tuple[int, Options]:
    """Return the number of pairs needed to find a slow-down of `percent`, and the settings."""
    threshold = read_limits(settings).threshold if settings.threshold else None
    rounds = rounds_needed(percent, first_device(device), threshold)
    say(rounds.sentence, err=True)
    if rounds.needed.kernel is None:
        raise UsageError(
            f"--to-find: {percent} needs more than 200 pairs; name a larger percentage"
        )
    settings = replace(settings, threshold=f"{100 * rounds.threshold:g}%")
    return max(MIN_PAIRS, rounds.needed.kernel), settings


def measure_in_turns(
    sides: tuple[Build, Build],
    options: Mapping[str, str],
    directory: Path,
    pairs: int,
    budget_s: float | None,
    decided: Callable[[tuple[Files, Files], float], bool],
) -> tuple[tuple[Files, Files], float]:
    """Measure pairs of sweeps. Return the files of each side, and the false discovery rate.

    The order within a pair is random, so that no periodic work beside the sweeps favours a side.
    Every second pair has the reversed order of the previous pair, so that a drift favours neither
    side. With a budget, at least BUDGET_PAIRS pairs are measured, and further pairs until the next
    pair would exceed the budget. While the pairs are measured, they are compared several times,
    each time with a part of the false discovery rate. Measuring ends when a comparison decides the
    exit code.
    """
    order = random.Random(ORDER_SEED)  # noqa: S311 # an order, not a secret
    began_s, first = monotonic(), 0
    files: tuple[list[Path], list[Path]] = ([], [])
    max_pairs = MAX_PAIRS if budget_s else pairs
    with Steps() as steps:
        for pair in range(max_pairs):
            passed_s = monotonic() - began_s
            if budget_s and pair >= BUDGET_PAIRS and passed_s * (pair + 1) / pair > budget_s:
                break
            q = Limits.q * looks.share(pair, max_pairs, is_last=False)
            if q and decided(files, q):
                say(f"decided after {pair} pairs", err=True)
                return files, q
            first = order.randrange(2) if pair % 2 == 0 else 1 - first
            for place in (first, 1 - first):
                side = sides[place]
                at_most = "" if budget_s else f" of at most {pairs}"
                now = f"pair {pair + 1}{at_most}: measuring the {side.name} side"
                steps.show(f"{now}; {passed_s:.0f} s so far")
                path = directory / f"{side.name}-{pair + 1:03}.csv"
                with named(side):
                    side.sweep(options, path)
                    # This fails if an older gpubench lacks a column, or if a source was edited.
                    read_side([*files[place][:1], path])
                files[place].append(path)
    return files, Limits.q * looks.share(len(files[0]), max_pairs, is_last=True)


def _decided(limits: Limits, files: tuple[Files, Files], q: float) -> bool:
    """Return whether the exit code is decided, so that no more pairs are needed."""
    base, new = (read_side(paths).pooled for paths in files)
    counts = compare(base, new, replace(limits, q=q)).counts
    failed = counts[DiffVerdict.BROKEN] or counts[DiffVerdict.SLOWER]
    return bool(failed) or not counts[DiffVerdict.AMBIGUOUS]


def _on_cpu(name: str) -> bool:
    """Return whether `--device` names a CPU. For `auto`, return whether no GPU is found."""
    backend = name.partition(":")[0]
    return (first_device(AUTO).backend if backend == AUTO else backend) == "cpu"
