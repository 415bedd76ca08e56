"""Lists of problems are read strictly; equal problems are merged; each problem is planned."""

import gzip
import re
from pathlib import Path

import pytest
from fakes import CPU

from gpubench.engine.prepare import prepare
from gpubench.errors import UsageError
from gpubench.options import read_sweep
from gpubench.plan.problems import ListedProblem, read_problems, with_dtypes
from gpubench.plan.sweep import plan

CONFIGS = Path(__file__).parents[2] / "configs"


def written(folder: Path, text: str) -> Path:
    path = folder / "model.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_list_may_have_comments_blanks_and_weights(tmp_path: Path) -> None:
    path = written(tmp_path, "# source\nName, M, N, K, weight\n\nup,16,64,32,12\nhead,1,99,32,\n")
    assert read_problems(path, "gemm") == (
        ListedProblem(name="up", m=16, n=64, k=32, weight=12.0),
        ListedProblem(name="head", m=1, n=99, k=32),
    )


def test_a_list_of_products_with_a_vector_has_no_k(tmp_path: Path) -> None:
    path = written(tmp_path, "name;m;n\nup;16;64\n")
    assert read_problems(path, "gemv") == (ListedProblem(name="up", m=16, n=64, k=1),)
    with pytest.raises(UsageError, match="'k' is missing"):
        read_problems(path, "gemm")


def test_a_compressed_list_is_read(tmp_path: Path) -> None:
    path = tmp_path / "list.csv.gz"
    path.write_bytes(gzip.compress(b"name,m,n,k\nup,8,8,8\n"))
    (problem,) = read_sweep({"sizes": str(path), "device": "cpu"}).problems
    assert (problem.name, problem.size) == ("up", (8, 8, 8))


def test_several_lists_are_one_whose_names_say_which(tmp_path: Path) -> None:
    (tmp_path / "small.csv").write_text("name,m,n,k\nup,8,8,8\nout,1,2,3\n", encoding="utf-8")
    model = written(tmp_path, "name,m,n,k,weight\nup,16,16,16,3\nhead,1,2,3,2\n")
    sweep = read_sweep({"sizes": f"{tmp_path}/small.csv,{model}", "device": "cpu"})
    assert [(each.name, each.size, each.weight) for each in sweep.problems] == [
        ("small: up", (8, 8, 8), 1.0),
        ("small: out + model: head", (1, 2, 3), 3.0),
        ("model: up", (16, 16, 16), 3.0),
    ]
    with pytest.raises(UsageError, match="is the file of --sizes"):
        read_sweep({"sizes": f"{tmp_path}/small.csv,{model}", "output": model})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'name' is missing"),
        ("name,m,n,k,wieght\na,1,1,1,1\n", "did you mean 'weight'"),
        ("Name,m,n,k,Wieght\na,1,1,1,1\n", "unknown column 'Wieght'"),
        ("name,m,n,k\na,1,1\n", "has 3 fields, but there are 4 columns"),
        ("name,m,n,k\n,1,1,1\n", "name: must be text that is not empty"),
        ("name,m,n,k\na,0,1,1\n", "'a,0,1,1': m: must be a whole number of at least 1"),
        ("name,m,n,k\na,1.5,1,1\n", "m: must be a whole number, not text"),
        ("name,m,n,k\na,1,1,\n", "k: must be a whole number, not text"),
        ("name,m,n,k,weight\na,1,1,1,nan\n", "weight: must be a number above 0.0"),
        ("name,m,n,k,dtype\na,1,1,1,float31\n", "did you mean 'float32'"),
        ("name,m,n,k\na,1,1,1\na,2,2,2\n", "the name 'a' has two sizes"),
    ],
)
def test_a_wrong_list_is_refused_in_a_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_problems(written(tmp_path, text), "gemm")
    assert message in str(refused.value)
    assert str(refused.value).startswith("--sizes: ")
    assert "\n" not in str(refused.value)


def test_equal_problems_become_one_with_both_names_and_the_sum_of_weights() -> None:
    problems = [
        ListedProblem(name="query", m=8, n=8, k=8, weight=2),
        ListedProblem(name="output", m=8, n=8, k=8),
        ListedProblem(name="head", m=8, n=9, k=8, dtype="float64"),
    ]
    assert with_dtypes(problems, ["float32", "int32"]) == (
        ListedProblem(name="query + output", m=8, n=8, k=8, weight=3, dtype="float32"),
        ListedProblem(name="query + output", m=8, n=8, k=8, weight=3, dtype="int32"),
        ListedProblem(name="head", m=8, n=9, k=8, dtype="float64"),
    )


def test_each_problem_is_planned_in_its_own_dtype_alone(tmp_path: Path) -> None:
    path = written(tmp_path, "name,m,n,k,dtype\na,4,5,6,fp64\nb,7,8,9,\n")
    sweep = read_sweep({"sizes": str(path), "dtypes": "float32", "variants": "cpu_naive"})
    planned = {(point.problem.size, point.problem.dtype) for point in plan(sweep, "cpu")}
    assert planned == {("4x5x6", "float64"), ("7x8x9", "float32")}


def test_rows_get_the_name_and_the_weight_of_their_problem(tmp_path: Path) -> None:
    path = written(tmp_path, "name,m,n,k,weight\nup,4,5,6,12\n")
    job = prepare(read_sweep({"sizes": str(path), "variants": "cpu_naive", "device": "cpu"}), CPU)
    (point,) = job.points
    assert job.listed(point.key) == {"problem": "up", "weight": 12.0}
    assert job.listed(point.key._replace(m=7)) == {}


def test_a_sweep_of_a_list_is_resumed_with_the_same_list_only(tmp_path: Path) -> None:
    path = written(tmp_path, "name,m,n,k\nup,4,5,6\n")
    options = {"sizes": str(path), "variants": "cpu_naive", "device": "cpu"}
    before = prepare(read_sweep(options), CPU).context
    assert prepare(read_sweep(options), CPU).context == before
    written(tmp_path, "name,m,n,k\ndown,4,5,6\n")
    assert prepare(read_sweep(options), CPU).context != before


def test_the_lists_of_models_are_read_and_say_where_they_come_from() -> None:
    for path in CONFIGS.glob("*.csv"):
        text = path.read_text(encoding="utf-8")
        named = re.search(r"--op (\w+)", text)
        problems = read_problems(path, named[1] if named else "gemm")
        assert len(problems) >= 5
        assert all(problem.dtype for problem in problems)
        assert "# Source: " in text
