"""The folder of a user's operation is written, checked, swept and compared."""

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from commandline import call
from newcomer import blocks
from newcomer import write as write_block

from gpubench.commands.check.cases import problems
from gpubench.commands.check.wrong import why_wrong
from gpubench.commands.new_operation.run import write_operation
from gpubench.errors import UsageError
from gpubench.model import OPERATIONS, Config, CudaVariant
from gpubench.on_cpu.case import right_result
from gpubench.plan.operations import operation_named
from gpubench.plan.registry import choose
from gpubench.results.row import read, write

pytestmark = pytest.mark.usefixtures("only_ours_afterwards")

EXAMPLES = Path(__file__).parents[3] / "examples" / "operations"


def test_the_folder_has_a_statement_and_kernels_and_replaces_nothing(tmp_path: Path) -> None:
    write_operation("rms", tmp_path, force=False)
    assert operation_named("rms", tmp_path) == "rms"
    x = np.array([[3.0, 4.0]])
    np.testing.assert_allclose(OPERATIONS["rms"].reference(np, x), x / 12.5**0.5)
    assert choose("rms", "cuda", ["rms_thread"], tmp_path)
    assert len(choose("rms", "cpu", (), tmp_path)) == 2
    with pytest.raises(UsageError, match="exists"):
        write_operation("rms", tmp_path, force=False)
    refused = r"operation 'gemm' already|cannot name an operation|a meaning in the Python files"
    for name in ("gemm", "Rms", "../up", "lambda", "np"):
        with pytest.raises(UsageError, match=refused):
            write_operation(name, tmp_path, force=False)


def test_its_kernel_is_checked_at_odd_sizes_within_the_stated_tolerance(tmp_path: Path) -> None:
    write_operation("rms", tmp_path, force=False)
    (variant,) = choose(
        "rms", operation_named("rms", tmp_path) and "cuda", ["rms_thread"], tmp_path
    )
    assert isinstance(variant, CudaVariant)
    listed = problems(variant, Config(), "float32")
    assert len(listed) > 3
    assert any(problem.shapes[0][1] % 2 for problem in listed)
    right, allowed = right_result(listed[1])
    output = right.astype(np.float32)
    assert why_wrong(output, right, allowed, variant) == ""
    output[-1, -1] *= 1.0001
    assert "1 of" in why_wrong(output, right, allowed, variant)
    output[-1, -1] = np.nan
    assert "1 of" in why_wrong(output, right, allowed, variant)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "even", "further", "right", "wrong", "cheat"),
    [
        ("softmax", "64x40", "rows=64;cols=40", "rows", "pairs", "kept"),
        pytest.param("total", "640", "", "loop", "fours", "sampled", marks=pytest.mark.exhaustive),
        pytest.param(
            "attention",
            "40x16",
            "s=40;d=16",
            "online",
            "pairs",
            "kept",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_a_right_a_wrong_and_a_cheating_kernel_are_told_apart(
    tmp_path: Path, op: str, even: str, further: str, right: str, wrong: str, cheat: str
) -> None:
    names = [f"{op}_{kind}" for kind in (right, wrong, cheat)]
    right, wrong, cheat = names
    on = ("--op", op, "--kernels", str(EXAMPLES), "--device", "cpu")
    swept = call(
        tmp_path,
        "sweep",
        *on,
        "--rounds",
        "1",
        "--sizes",
        even,
        "-o",
        "even.csv",
        "--variants",
        f"{','.join(names)},{op}_numpy",
    )
    assert swept.code == 1
    rows = {row.variant: row for row in read(tmp_path / "even.csv")}
    assert rows[right].status == rows[f"{op}_numpy"].status == "ok"
    assert "the kernel does not check its bounds" in (rows[wrong].notes or "")
    assert rows[cheat].status == "wrong"
    assert rows[right].extents == further
    for name, code, said in ((right, 0, f"{right} is right"), (wrong, 1, "wrong: ")):
        checked = call(tmp_path, "check", name, *on[:4])
        assert (checked.code, said in checked.out) == (code, True), checked
    again = [
        replace(row, median_us=row.median_us and 1.1 * row.median_us, round_medians_us="9.5;9.7")
        for row in rows.values()
        if row.median_us
    ]
    write(again, tmp_path / "again.csv")
    assert f"{right} at {even}" in call(tmp_path, "diff", "even.csv", "again.csv").out
    assert even in call(tmp_path, "show", "even.csv").out
    assert call(tmp_path, "report", "even.csv", "-o", "page.html").code == 0
    assert even in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_judge_calls_the_cheat_wrong_and_the_right_kernel_not(tmp_path: Path) -> None:
    judged = call(
        tmp_path,
        "judge",
        "total_loop",
        "total_sampled",
        "--baseline",
        "total_numpy",
        "--op",
        "total",
        "--kernels",
        str(EXAMPLES),
        "--device",
        "cpu",
        "--json",
        "--sizes",
        "640",
        "--rounds",
        "3",
    )
    verdicts = {each["variant"]: each for each in json.loads(judged.out)["verdicts"]}
    assert verdicts["total_sampled"]["verdict"] == "wrong"
    assert "relative error" in verdicts["total_sampled"]["reason"]
    assert verdicts["total_loop"]["verdict"] != "wrong"
    assert judged.code == 1


NUMPY_KERNEL = """import numpy as np
from gpubench.model import CallVariant

def compute({inputs}, y):
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    y[:] = powers / powers.sum(axis=1, keepdims=True){product}

VARIANT = CallVariant(
    idea="NumPy", runs_on="cpu", dtypes=("float32",), build=lambda _tile, _dtype: compute
)
"""


@pytest.fixture
def of_the_page(tmp_path: Path) -> tuple[str, ...]:
    """Write the statements of the page into `own`, with a kernel for each. Return their names."""
    statements = [block for block in blocks("operations.md") if block.title.endswith(".py")]
    kernels = {"softmax": ("x", ""), "weighted": ("x, v", " @ v")}
    assert [Path(block.title).parent.name for block in statements] == list(kernels)
    for block in statements:
        folder = write_block(block, tmp_path).parent
        inputs, product = kernels[folder.name]
        text = NUMPY_KERNEL.format(inputs=inputs, product=product)
        (folder / f"{folder.name}_numpy.py").write_text(text)
    return tuple(kernels)


@pytest.mark.slow
def test_the_statements_of_the_page_accept_a_right_kernel(
    tmp_path: Path, of_the_page: tuple[str, ...]
) -> None:
    for op in of_the_page:
        checked = call(tmp_path, "check", "--op", op, "--kernels", "own")
        assert (checked.code, "is right" in checked.out) == (0, True), checked


@pytest.mark.exhaustive
@pytest.mark.usefixtures("of_the_page")
def test_two_copies_of_a_statement_and_its_kernel_are_compared(tmp_path: Path) -> None:
    copytree(tmp_path / "own", tmp_path / "old")
    options = ("--op", "softmax", "--variants", "softmax_numpy", "--sizes", "32x40", "--pairs", "2")
    compared = call(tmp_path, "ab", "old", "own", "--device", "cpu", *options)
    assert compared.code in {0, 1}, compared  # equal sides may differ by chance in two pairs
    assert "of 1 point" in compared.out
