"""Outputs that clash with each other, with an input, or with an existing file."""

import os
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


@pytest.fixture
def inputs(folder: Path) -> dict[str, bytes]:
    """Contents of the files in the folder, by name."""
    (folder / "own").mkdir()
    for name, content in INPUTS.items():
        (folder / name).write_bytes(content)
    return dict(INPUTS)


@pytest.mark.parametrize("line", SAME_LINES)
def test_no_input_is_overwritten_even_by_force(
    folder: Path, inputs: dict[str, bytes], line: str
) -> None:
    assert command_lines.run([*line.split(), "--force"], folder) == 2
    assert inputs.items() <= contents(folder).items()


# ---- an output whose path exists

OUTPUTS = {
    "sweep": (*SWEEP, "-o", "new.csv"),
    "samples": (*SWEEP, "-o", "rows.csv", "--samples", "new.csv"),
    "tune": (*RACE, "-o", "new.csv"),
    "winners": (*RACE, "-o", "rows.csv", "--winners", "new.csv"),
    "diff": ("diff", "a.csv", "b.csv", "-o", "new.csv"),
    "plot": ("plot", "a.csv", "--kind", "tiles", "-o", "new.svg"),
    "report": ("report", "a.csv", "-o", "new.csv"),
    "generate": ("generate", "--sizes", "2x3", "new.csv"),
    "run": ("run", "a.bin", "--device", "cpu", "-o", "new.csv"),
}
"""Commands that end with an output file. tests/test_output.py has all kinds of existing files."""


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("by_force", [False, True])
def test_an_existing_file_with_the_name_of_an_output_stays(
    folder: Path, inputs: dict[str, bytes], output: str, by_force: bool
) -> None:
    name = OUTPUTS[output][-1]
    if by_force:
        (folder / name).symlink_to("a.csv")
    else:
        (folder / name).write_bytes(INPUTS["a.csv"])
    assert command_lines.run([*OUTPUTS[output], *(["--force"] if by_force else [])], folder) == 2
    assert contents(folder) == inputs | {name: INPUTS["a.csv"]}


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize("output", ["sweep", "samples", "winners", "diff", "plot"])
@pytest.mark.parametrize("stem", ["a\nb", "n" * 251, "-a", os.fsdecode(b"\xff\xfe"), "\x1b[2J"])
def test_a_file_with_an_odd_name_is_written_or_refused(
    folder: Path, output: str, stem: str
) -> None:
    *line, name = OUTPUTS[output]
    name = f"{stem}{Path(name).suffix}"
    before = contents(folder).keys()
    code = command_lines.run([*line, f"./{name}"], folder)
    new = contents(folder).keys() - before
    if code == 0:
        assert name in new
    else:
        assert (code, new) == (2, set())
