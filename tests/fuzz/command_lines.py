"""Command lines of the real commands and options, with valid, unusual and hostile values."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

# Import these packages here, because imports take four times as long while memory is traced.
import jinja2  # noqa: F401 # loaded, not used
import matplotlib.pyplot as plt  # noqa: F401 # loaded, not used
import pandas as pd  # noqa: F401 # loaded, not used
import scipy.stats  # noqa: F401 # loaded, not used
from commandline import COMMANDS, outcome
from contract import (
    REFUSALS,
    STORE,
    BrokenContractError,
    call_within_contract,
    checked_message,
    contents,
)
from stub import nothing_measured
from warm import Fork

SEPARATOR = b"\0"
"""Separator of the words of a command line. No word can contain it."""

WORDS = (
    "", " ", "-", "--", "-1", "0", "1", "8", "1024", "1e9", "nan", "inf", "9" * 30, "9" * 5000,
    "8,16", "1..32", "1..9999", "1..2147483647", "64..8", "1..64:x1", "8x8x8", "3x5", "x", ",",
    "16", "128x128x8", "0x0", "128x128x8/8x8/s3", "8/k4", "gemm", "gemv", "atax", "float32",
    "int32", "float16", "cpu", "cuda", "cuda:7", "auto", "events", "cupti", "both",
    "hot", "kernel", "index", "uniform", "0.5%", "101%", "-1%", "shared_tile",
    "cpu_tile", "cpu_blas", "cublas", "naive", "quick", "p100-tiles", "tiles", "roofline",
    "json", "junit", "a.csv", "b.csv", "list.csv", "build.csv", "empty.csv", "odd.csv", "a.toml",
    "odd.toml", "a.bin", "a.npz", "folder", "missing.csv", "missing/a.csv", "a.csv/b.csv", ".",
    "..", "folder/", "n" * 300, "a\nb.csv", "\x1b[2J", "\udc80\udcff", "\u202ecsv", "[red]",
    "~", "*", "$(x)", "new.svg", "new.csv", "new.html", "new.toml", "new.bin", "new.npz",
    "new", "deep/er/new.csv", "sm_90", "sm_1", "16x16",
    "circle", "circle/a.csv", "folder.svg", "folder.csv", "light", "dark", "0.001", "1e-400",
)  # fmt: skip
"""Words of command lines. `prepared` writes the files that they name."""

CODES = {0, 1, 2, 3, 4, 130}


NEVER_1 = {"plot", "report", "show", "variants", "deviceinfo", "new-kernel", "generate", "export"}
"""Commands that never end with exit code 1, because they judge no results."""


def prepared(folder: Path) -> None:
    """Write the files that command lines name, valid and invalid."""
    import readers

    (folder / "a.csv").write_bytes(readers.READERS["csv"].seeds()[0])
    (folder / "b.csv").write_bytes(readers.READERS["csv"].seeds()[0].replace(b"10.0", b"12.0"))
    (folder / "list.csv").write_bytes(readers.READERS["problems"].seeds()[0])
    (folder / "build.csv").write_bytes(readers.READERS["build"].seeds()[0])
    (folder / "empty.csv").write_bytes(b"")
    (folder / "odd.csv").write_bytes(b"\xff\0,\n" * 9)
    (folder / "a.toml").write_bytes(b'sizes = "8"\nvariants = "cpu_blas"\ndevice = "cpu"\n')
    (folder / "odd.toml").write_bytes(b"a = [[[[")
    for name, kind in (("a.bin", "operands"), ("a.npz", "archive")):
        (folder / name).write_bytes(readers.READERS[kind].seeds()[0])
    for name in ("folder", "folder.svg", "folder.csv"):
        (folder / name).mkdir()
    (folder / "circle").symlink_to("circle")


def words(data: bytes, chance: Random) -> bytes:
    """Return a command line with edited words, which are options of its command or `WORDS`."""
    texts = data.split(SEPARATOR)
    command = COMMANDS.get(texts[0].decode(errors="replace")) or COMMANDS["sweep"]
    options = [flag for parameter in command.params for flag in parameter.opts]
    if chance.random() < 0.5:
        texts.insert(chance.randint(1, len(texts)), _bytes(chance.choice(options)))
    at = chance.randrange(len(texts) + 1)
    match chance.randrange(5):
        case 0:
            texts[at : at + 1] = []
        case 1:
            texts.insert(at, chance.choice(texts))
        case 2 if at == 0:
            texts[0] = _bytes(chance.choice(sorted(COMMANDS)))
        case _:
            texts[max(at, 1) : at + 1] = [_bytes(chance.choice(WORDS))]
    return SEPARATOR.join(texts)


def _bytes(word: str) -> bytes:
    return word.encode("utf-8", errors="surrogateescape")


def seeds() -> list[bytes]:
    """Return command lines that work, with or without a GPU."""
    lines = """
    sweep --sizes 8 --variants cpu_blas --device cpu -o new.csv
    sweep --config a.toml --rounds 2 --output deep/er/new.csv --force
    sweep --sizes 8,16 --tiles 8..16:8 --device cpu --dry-run
    sweep --resume a.csv
    compare-cublas --sizes 64 --dtypes float32,float64 --budget 5
    compare-cublas --state sustained --sizes 64 --rivals -o new.csv
    judge cpu_blas --baseline cpu_naive --sizes 8 --claim 2 --json
    sweep --sizes list.csv --device cpu --variants cpu_blas
    tune cpu_tile --sizes 8,16 --within 20%
    tune cpu_tile --sizes list.csv --winners new.toml
    ab folder folder.csv --device cpu --sizes 8 --pairs 5
    diff build.csv build.csv --format github
    diff a.csv b.csv --threshold 3% --only fake --format json
    diff --base a.csv --new b.csv --output new.toml --strict
    diff a.toml b.csv --ignore-device
    explain shared_tile --tiles 16 --sizes 512 --arch sm_80 --json
    generate new.bin --sizes 3x5 --seed 7
    run a.bin --op atax --output new.bin --device cpu
    run a.npz --op gemv -o new.npz --variants cpu_blas --force
    new-kernel mine --like shared_tile --dir new
    export shared_tile --tiles 16 --sizes 64 --arch sm_90 --dir new
    variants --op gemv --device cpu
    reproduce --list
    deviceinfo --device cpu --json
    selfcheck --device cuda:1
    report empty.csv -o new.html
    plot odd.csv --kind tiles -o new.svg
    """.strip().splitlines()
    return [SEPARATOR.join(map(_bytes, line.split())) for line in lines]


def read(data: bytes, folder: Path) -> None:
    """Run a command line in a folder of files, and check its effect on them."""
    argv = [word.decode("utf-8", errors="surrogateescape") for word in data.split(SEPARATOR)]
    if any(f"{os.path.normpath(word)}{os.sep}".startswith(f"..{os.sep}") for word in argv):
        return  # a user who names another folder wants files there
    if argv[0] == "build" and "--all" in argv:
        return  # all tiles of all kernels would take minutes
    if not (folder / "a.csv").exists():
        prepared(folder)
    checked(argv, folder)


def checked(argv: Sequence[str], folder: Path, *, kept: bool = False) -> int:
    """Run a command, require that it writes only files that it names, and return its exit code.

    Remove new files unless they are `kept`.
    """
    before = contents(folder)
    with nothing_measured():
        code = run(argv, folder)
    after = contents(folder)
    changed = {name for name, was in before.items() if after.get(name) != was}
    if changed and "--force" not in argv:
        raise BrokenContractError(f"changed: {changed}")
    for name in after.keys() - before.keys():
        if not _named(name, argv):
            raise BrokenContractError(f"written, but not asked for: {name}")
        if not kept:
            (folder / name).unlink()
    for name in changed:
        (folder / name).write_bytes(before[name])
    return code


def _named(name: str, argv: Sequence[str]) -> bool:
    """Return whether the command line names the file, or its help says that it writes there."""
    if name.startswith("results/") or (name == "report.html" and argv[0] == "report"):
        return True
    if name.startswith(f"{STORE}/"):
        return argv[0] == "fleet" or any(word.startswith("--save") for word in argv)
    if argv[0] in {"new-kernel", "export"}:
        # An empty --dir is the current folder, like every empty path.
        folders = {"new-kernel": "own/", "export": "exported/"}
        paths = (os.path.normpath(word).strip("/") for word in argv[1:])
        return name.startswith((folders[argv[0]], *("" if at == "." else at for at in paths)))
    if argv[0] == "plot" and name.endswith(".svg"):
        return True
    whole = Path(name.removesuffix(".partial"))
    for word in argv[1:]:
        for value in (word, word.partition("=")[2], word.removeprefix("-o")):
            path = Path(os.path.normpath(value))
            if value and (path == whole or (argv[0] == "reproduce" and path in whole.parents)):
                return True
    return False


def run(argv: Sequence[str], folder: Path) -> int:
    """Run a command line in this process; return its exit code, or raise what it raised."""
    if Fork.forks:
        Fork.forks.open()  # start the tests' process for forks before the command
    code: int
    code, _, message = call_within_contract(partial(outcome, *argv), folder)
    if code not in CODES and (argv[0], code) != ("bisect", 128):  # code 128 ends `git bisect run`
        raise BrokenContractError(f"exit code {code}")
    if code == 1 and argv[0] in NEVER_1:
        raise BrokenContractError(
            "exit code 1, which says of results that they are slower or wrong"
        )
    if "Traceback" in message:
        raise BrokenContractError(message)
    if code == 2 and "Usage:" not in message:
        last = message.splitlines()[-1:]
        if not last or not last[0].startswith("gpubench: "):
            raise BrokenContractError(f"exit code 2, and stderr: {message[:300]!r}")
        REFUSALS.append(checked_message(last[0]))
    return code
