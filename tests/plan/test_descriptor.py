"""The description of a variant is read, checked, and read again when it changes."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from commandline import OWN_CUDA as GOOD

from gpubench.errors import UsageError
from gpubench.model import Config, CudaVariant
from gpubench.plan.descriptor import load
from gpubench.plan.python_file import described_by, is_name
from gpubench.plan.ranges import parse_tiles
from gpubench.plan.registry import KERNELS
from gpubench.plan.sweep import Sweep, plan

PLAIN = """
from gpubench.model import Config, CudaVariant

VARIANT = CudaVariant(idea="without Python", grid=('N/2', 'M/2'), block=64, )
"""


def with_default(default: str) -> str:
    space = f"Space(axes={{'edge': range(1, 5)}}, block=('edge',), default={default})"
    edges = 'edges(1, 4, because="of a test")'
    return GOOD.replace("import edges", "import Space").replace(edges, space)


FUNCTION = """
from gpubench.model import CallVariant
VARIANT = CallVariant(idea="mine", dtypes=("float32",), runs_on="cpu", build=print)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a valid description, with an empty source beside it."""
    (tmp_path / "mine.cu").write_text("")
    (tmp_path / "mine.py").write_text(GOOD)
    return tmp_path / "mine.py"


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        load(path, "gemm")
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert message.startswith(str(path))
    return message.removeprefix(str(path))


def test_a_file_that_changed_is_read_again_however_soon(path: Path) -> None:
    before = load(path, "gemm")
    path.write_text(GOOD.replace("a user's own", "an user's ow"))  # the size stays the same
    assert (before.idea, load(path, "gemm").idea) == ("a user's own", "an user's ow")


def test_a_description_may_define_classes_of_its_own(path: Path) -> None:
    # dataclasses find their module by its name.
    path.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Warps:\n    count: int = 4\n" + GOOD
    )
    assert load(path, "gemm").idea == "a user's own"


def test_lower_case_identifiers_are_names_and_other_texts_are_not() -> None:
    ours = [path.stem for path in KERNELS.glob("*/*.py") if path.stem[0] != "_"]
    assert all(map(is_name, ["a", "x2", "kernel_" + "9" * 53, *ours]))
    for name in [
        "",
        "Mine",
        "2nd",
        "_mine",
        "my-kernel",
        "my kernel",
        "a,b",
        "a<b>",
        "é",
        "x" * 61,
        "a\n",
        "naive<float, 4>; //",
        "=1+1",
        "../a",
    ]:
        assert not is_name(name)


@pytest.mark.parametrize("name", ["Mine.py", "my-kernel.py", "=1+1.py", "a<b>.py"])
def test_a_file_without_a_valid_name_is_refused_unread(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("raise RuntimeError")
    assert "cannot name a kernel" in refusal(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ": defines no VARIANT"),
        ("VARIANT = (", ":1: SyntaxError: '(' was never closed"),
        ("\n\nVARIANT = nothing", ":3: NameError: name 'nothing' is not defined"),
        ("import nowhere\nVARIANT = 1", ":1: ModuleNotFoundError: No module named 'nowhere'"),
        ("VARIANT = exit(3)", ":1: SystemExit: 3"),
        ("raise ValueError('a\\nb')\nVARIANT = 1", ":1: ValueError: a"),
        ("VARIANT = None", ": VARIANT is of type NoneType, not a CudaVariant, a HostVariant"),
        (GOOD + "\nVARIANT = CudaVariant", ": VARIANT is of type type, not a "),
        (GOOD.replace("a user's own", " "), ": VARIANT: idea must be a line"),
        (GOOD.replace("reuse=", "dtypes=('float23',), reuse="), ": VARIANT: dtypes must be a "),
        (GOOD.replace("reuse=", "baseline=None, reuse="), ": VARIANT: baseline: must be text"),
        (GOOD.replace("reuse=", "libraries=[[]], reuse="), ": VARIANT: libraries 1: must be text"),
        (GOOD.replace("reuse=", "speed=9, reuse="), ":5: TypeError: "),
        (GOOD.replace("lambda tile: (1, 1)", "(1, 1)"), ": VARIANT: reuse must be a "),
        (GOOD.replace("launch=lambda", "launch=None and (lambda").replace("),\n    re", ")),\n re"),
         ": VARIANT: launch must be a function"),
        (PLAIN.replace("N/2", "N/P"), ": VARIANT: grid: 'P' is not a number here; use M, N, K"),
        (PLAIN.replace("N/2", "N/(M-M)"), ": VARIANT: grid: 'N/(M-M)' divides by zero"),
        (PLAIN.replace("64", "'open(1)'"), ": VARIANT: block: 'open(1)': an expression has only "),
        (PLAIN.replace("64", "6.4"), ": VARIANT: block: 6.4 is neither a number nor a text"),
        (PLAIN.replace("64", "(8, 8, 1, 1)"), ": VARIANT: block: more than the three "),
        (PLAIN.replace("grid=('N/2', 'M/2'),", ""), ": VARIANT: a kernel must have "),
        (GOOD.replace("reuse=", "block=64, reuse="), ": VARIANT: a kernel must have "),
        (GOOD.replace('edges(1, 4, because="of a test")', "16"), ": VARIANT: tiles must be a "),
        (with_default("('5',)"), ": VARIANT: tiles.default must name"),
        (with_default("('1..4',)"), ": ValueError: '1..4' is not a tile"),
        (with_default("('1',)").replace("'edge': r", "'Edge': r"), ":7: ValueError: "),
        (FUNCTION.replace("build=", "threads=-3, build="), ": VARIANT: threads must be 0 (the "),
    ],
)  # fmt: skip
def test_a_broken_description_is_one_line_with_file_and_problem(
    path: Path, text: str, problem: str
) -> None:
    path.write_text(text)
    assert refusal(path).startswith(problem)


@pytest.mark.parametrize("text", [b"\xff\xfe", b"VARIANT = 1\0"])
def test_a_file_that_is_not_python_is_refused(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    assert "Error: " in refusal(path)


def test_a_file_without_a_variant_is_not_run(path: Path) -> None:
    path.write_text("open('touched', 'w')\n")
    assert "defines no VARIANT" in refusal(path)
    assert not (path.parent / "touched").exists()


def test_a_description_without_its_cuda_source_is_refused(path: Path) -> None:
    load(path, "gemm")
    path.with_suffix(".cu").unlink()  # the file was read before, which must not matter
    assert "its source mine.cu is missing beside it" in refusal(path)


@pytest.mark.parametrize(
    "broken",
    [
        GOOD.replace("grid=(1,)", "grid=(1 // (problem.n - 8),)"),
        GOOD.replace("Launch(grid=(1,), block=(1,))", "None"),
        GOOD.replace("reuse=", "refuse=lambda tile, problem: 1, reuse="),
        GOOD.replace("import ", "import Space, ").replace(
            'edges(1, 4, because="of a test")',
            "Space(axes={'edge': range(1, 5)}, block=('edge',), default=('1',), "
            "constraint=lambda tile: 1 // (tile['edge'] - 3) * '' or None)",
        ),
    ],
    ids=["launch raises", "launch gives nothing", "refuse gives a number", "space raises"],
)  # fmt: skip
def test_a_function_of_a_description_that_fails_in_planning_is_named(
    path: Path, broken: str
) -> None:
    path.write_text(broken)
    sweep = Sweep(variants=("mine",), kernels=path.parent, sizes=((8, 8, 8),), tiles=("2", "3"))
    with pytest.raises(
        UsageError, match=r"mine\.py.*: (ZeroDivisionError: |VARIANT: (launch|refuse): must be )"
    ) as caught:
        plan(sweep, "cuda")
    assert len(str(caught.value).splitlines()) == 1


def test_a_kernel_needs_neither_a_tile_nor_python(path: Path) -> None:
    path.write_text(PLAIN)
    mine = load(path, "gemm")
    assert isinstance(mine, CudaVariant)
    assert load(path, "gemm") is mine
    assert hash(mine) == hash(pickle.loads(pickle.dumps(mine)))  # noqa: S301 # bytes of the test
    assert mine.instance(Config(), "float32") == "mine<float>"
    sweep = Sweep(variants=("mine",), kernels=path.parent, sizes=((9, 8, 8),))
    ((point, reason),) = plan(sweep, "cuda").items()
    assert (point.key.tile, reason) == ("-", None)
    launch = mine.launch(Config(), point.problem)
    assert (launch.grid, launch.block) == ((4, 5), (64,))


def test_a_kernel_without_a_tile_refuses_tiles_and_others_take_them(path: Path) -> None:
    path.write_text(PLAIN)
    sweep = Sweep(variants=("mine",), kernels=path.parent, sizes=((8, 8, 8),), tiles=("16",))
    with pytest.raises(UsageError, match="mine has no tile parameters, so it takes '-', not 16"):
        plan(sweep, "cuda")
    for tiles in ("8,16", "-,8"):
        both = replace(sweep, variants=("mine", "naive"), tiles=parse_tiles(tiles))
        reasons = {(p.variant.name, p.key.tile): why for p, why in plan(both, "cuda").items()}
        assert reasons["naive", "8"] is None
        assert "no tile parameters" in str(reasons["mine", "8"])
        assert reasons.get(("mine", "-"), "no point") == (None if "-" in tiles else "no point")


def test_a_grid_that_cannot_be_launched_skips_the_point(path: Path) -> None:
    path.write_text(PLAIN.replace("N/2", "N//16").replace("M/2", "M//8"))
    sizes = ((8, 8, 8), (8, 16, 8), (2**20, 16, 8))
    planned = plan(Sweep(variants=("mine",), kernels=path.parent, sizes=sizes), "cuda")
    assert list(planned.values()) == [
        "a grid of 0×1 blocks of 64 threads cannot be launched",
        None,
        "a grid of 1×131072 blocks: the maximum in y and z is 65535",
    ]


def test_ctrl_c_while_a_description_runs_is_not_an_error_of_the_description(path: Path) -> None:
    def interrupted() -> None:
        with described_by(path):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
