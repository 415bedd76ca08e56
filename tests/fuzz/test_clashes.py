"""Outputs that clash with each other, with an input, or with what is in their place."""

import os
import stat
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import command_lines
import pytest
from contract import REFUSALS, contents, empty_folder
from readers import PROBLEMS, READERS, WINNER
from stub import nothing_measured

SWEEP = ("sweep", "--device", "cpu", "--sizes", "8", "--variants", "cpu_blas", "--rounds", "1")
RACE = ("tune", "cpu_tile", "--device", "cpu", "--sizes", "8", "--where", "edge <= 2")

PRECIOUS = b"precious\n"

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def folder() -> Iterator[Path]:
    with empty_folder() as here, nothing_measured():
        yield here


# ---- two outputs of one command

PAIRS = {
    "sweep": ((*SWEEP, "-o", "a.csv"), "--samples", "a.csv"),
    "tune": ((*RACE, "-o", "a.csv"), "--winners", "a.csv"),
    "tune confirmed": ((*RACE, "-o", "a.csv"), "--winners", "a.confirmed.csv"),
    "reproduce": (
        ("reproduce", "p100-tiles", "--device", "cpu", "--dir", "out", "--rounds", "1"),
        "--samples",
        "out/p100-tiles.csv",
    ),
}
"""A command with its first output, the flag of the second, and the name of the first."""

NAMES: dict[str, Callable[[str], str]] = {
    "same": lambda name: name,
    "with ./": lambda name: f"./{name}",
    "by the way of a folder": lambda name: f"sub/../{name}",
    "partial": lambda name: f"{name}.partial",
    "through a link to the folder": lambda name: f"here/{name}",
    "absolute": lambda name: str(Path(name).absolute()),
}


@pytest.mark.parametrize(
    ("pair", "name"),
    [*product(("sweep",), NAMES), *product([*PAIRS][1:], ("absolute",))],
)
def test_two_outputs_are_not_one_file(folder: Path, pair: str, name: str) -> None:
    (folder / "sub").mkdir()
    (folder / "here").symlink_to(".")
    line, flag, first = PAIRS[pair]
    code = command_lines.run([*line, flag, NAMES[name](first), "--force"], folder)
    assert code == 2
    assert flag in REFUSALS[-1]
    assert not [name for name in contents(folder) if not name.startswith("out/")]


# ---- an output that is an input

INPUTS = {
    "list.csv": PROBLEMS[0],
    "a.csv": READERS["csv"].seeds()[0],
    "b.csv": READERS["csv"].seeds()[0].replace(b"18.0", b"19.0"),
    "build.csv": READERS["build"].seeds()[0],
    "c.toml": b'sizes = "8"\nvariants = "cpu_blas"\ndevice = "cpu"\n',
    "tuned.toml": WINNER,
    "own/mine.py": READERS["descriptor"].seeds()[0],
    "a.bin": READERS["operands"].seeds()[0],
    "a.npz": READERS["archive"].seeds()[0],
}
SAME_LINES = (
    "sweep --device cpu --rounds 1 --variants cpu_blas --sizes list.csv -o list.csv",
    "sweep --device cpu --variants cpu_blas --sizes list.csv -o n.csv --samples list.csv",
    "sweep --config c.toml --rounds 1 -o n.csv --samples c.toml",
    "sweep --sizes 8 --variants cpu_tile --tiles tuned.toml -o n.csv --samples tuned.toml",
    "sweep --device cpu --sizes 8 --variants mine --kernels own -o n.csv --samples own/mine.py",
    "tune cpu_tile --device cpu --where edge<=2 --sizes list.csv -o list.csv",
    "tune cpu_tile --device cpu --where edge<=2 --sizes list.csv -o n.csv --winners list.csv",
    "diff a.csv b.csv -o a.csv",
    "diff a.csv b.csv -o b.csv",
    "diff build.csv build.csv -o build.csv",
    "plot a.csv -o a.csv",
    "report a.csv -o a.csv",
    "run a.bin --device cpu -o a.bin",
    "run a.npz --device cpu -o a.npz",
)


@pytest.mark.parametrize("line", SAME_LINES)
def test_no_input_is_overwritten_even_by_force(folder: Path, line: str) -> None:
    (folder / "own").mkdir()
    for name, content in INPUTS.items():
        (folder / name).write_bytes(content)
    before = contents(folder)
    code = command_lines.run([*line.split(), "--force"], folder)
    after = contents(folder)
    assert {name: after.get(name) for name in before} == before
    assert code == 2


# ---- what is in the place of an output

OUTPUTS = {
    "sweep": ((*SWEEP, "-o"), ".csv"),
    "samples": ((*SWEEP, "-o", "rows.csv", "--samples"), ".csv"),
    "tune": ((*RACE, "-o"), ".csv"),
    "winners": ((*RACE, "-o", "rows.csv", "--winners"), ".toml"),
    "diff": (("diff", "in/a.csv", "in/b.csv", "-o"), ".md"),
    "plot": (("plot", "in/a.csv", "--kind", "tiles", "-o"), ".svg"),
    "report": (("report", "in/a.csv", "-o"), ".html"),
    "generate": (("generate", "--sizes", "2x3"), ".bin"),
    "run": (("run", "in/a.bin", "--device", "cpu", "-o"), ".bin"),
}


PLACES: dict[str, Callable[[Path], object]] = {
    "a file": lambda path: path.write_bytes(PRECIOUS),
    "a directory": lambda path: path.mkdir(),
    "a symbolic link": lambda path: path.symlink_to("in/precious"),
    "a link that leads nowhere": lambda path: path.symlink_to("in/missing"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "/dev/full": lambda path: path.symlink_to("/dev/full"),
    "a FIFO": os.mkfifo,
    "a socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
    "a hard link, without --force": lambda path: path.hardlink_to(path.parent / "in" / "precious"),
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_in_the_place_of_an_output_stays(folder: Path, output: str, place: str) -> None:
    line, suffix = OUTPUTS[output]
    (folder / "in").mkdir()
    for name, content in {**INPUTS, "precious": PRECIOUS}.items():
        if "/" not in name:
            (folder / "in" / name).write_bytes(content)
    path = folder / f"new{suffix}"
    PLACES[place](path)
    before, facts = contents(folder / "in"), path.lstat()
    force = [] if place in {"a file", "a hard link, without --force"} else ["--force"]
    code = command_lines.run([*line, path.name, *force], folder)
    assert code == 2
    assert contents(folder / "in") == before
    now = path.lstat()
    assert (now.st_ino, now.st_mode, now.st_size) == (facts.st_ino, facts.st_mode, facts.st_size)
    assert not (folder / "rows.csv").exists()


LONG = 255
"""Maximum number of bytes of a name."""

ODD = {
    "a line's end": "a\nb",
    "an emoji": "🚀",
    "255 bytes": "n",
    "a blank": " a b ",
    "a leading dash": "-a",
    "not UTF-8": os.fsdecode(b"\xff\xfe"),
    "markup": "[red]<b>",
    "an escape sequence": "\x1b[2J",
}


@pytest.mark.parametrize(
    ("output", "odd"),
    [
        *product(("sweep", "diff"), ODD),
        *product(("samples", "winners", "plot"), ("not UTF-8",)),
    ],
)
def test_a_file_with_an_odd_name_is_written_or_refused(folder: Path, output: str, odd: str) -> None:
    line, suffix = OUTPUTS[output]
    (folder / "in").mkdir()
    for name, content in INPUTS.items():
        if "/" not in name:
            (folder / "in" / name).write_bytes(content)
    name = f"{ODD[odd]}{suffix}"
    if odd == "255 bytes":
        name = f"{'n' * (LONG - len(suffix))}{suffix}"
    before = set(contents(folder))
    code = command_lines.run([*line, f"./{name}"], folder)
    new = set(contents(folder)) - before
    if code == 0:
        assert name in new
    else:
        assert code == 2
        assert not new
