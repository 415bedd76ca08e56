"""Reading the problems of other projects, without torch."""

import codecs
import json
from pathlib import Path
from typing import Any

import pytest
import stated_problems
from commandline import call

from gpubench.errors import UsageError
from gpubench.foreign import forms, gpu_mode, values
from gpubench.foreign.statement import Tolerance


def test_each_form_is_recognized_by_content_also_in_folders_of_folders(tmp_path: Path) -> None:
    paths = [
        stated_problems.definition(tmp_path / "a" / "sol") / "definition.json",
        stated_problems.traces(tmp_path / "b") / "definitions" / "norms" / "row_scale.json",
        stated_problems.task(tmp_path / "c") / "task.yml",
        stated_problems.model(tmp_path / "d"),
    ]
    (tmp_path / "d" / "solution.py").write_text("class ModelNew: pass\n")
    names = ["SOL-ExecBench", "SOL-ExecBench", "gpu-mode", "KernelBench"]
    assert forms.find(tmp_path) == list(zip(names, paths, strict=True))
    for name, path in zip(names, paths, strict=True):
        assert forms.find(path) == [(name, path)]
    assert forms.find(tmp_path / "missing") == []


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = stated_problems.definition(tmp_path / "sol") / "definition.json"
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert forms.read("SOL-ExecBench", path).workloads
    model = stated_problems.model(tmp_path / "level1")
    model.write_bytes(codecs.BOM_UTF8 + model.read_bytes())
    assert forms.find(model) == [("KernelBench", model)]
    model.write_bytes(codecs.BOM_UTF8 + b"# coding: utf-8\nHERE = 1\n")
    assert values.module_of(model, "with_mark").HERE == 1


def test_a_definition_states_workloads_with_their_axes_and_tolerances(tmp_path: Path) -> None:
    ((form, path),) = forms.find(stated_problems.definition(tmp_path))
    statement = forms.read(form, path)
    assert [each.name for each in statement.workloads] == ["ROWS=40", "ROWS=1000"]
    assert statement.workloads[0].tolerance == Tolerance(1e-4, 1e-3, 0.99)
    assert statement.sources == (str(path.parent / "workload.jsonl"),)
    ((form, path),) = forms.find(stated_problems.traces(tmp_path / "traces"))
    assert forms.read(form, path).workloads[0].tolerance == Tolerance(1e-2, 1e-2, 1.0)


def test_a_workload_may_have_no_axes_no_name_and_no_limits(tmp_path: Path) -> None:
    folder = stated_problems.definition(tmp_path)
    (folder / "definition.json").write_text(
        json.dumps({**stated_problems.DEFINITION, "axes": {}, "inputs": {}, "outputs": {}})
    )
    limits = {"max_atol": None, "required_matched_ratio": None, "max_error_cap": None}
    (folder / "workload.jsonl").write_text(
        json.dumps({"axes": {}, "inputs": {}, "tolerance": limits})
    )
    (workload,) = forms.read("SOL-ExecBench", folder / "definition.json").workloads
    assert workload.name == "its inputs"
    assert workload.tolerance == Tolerance(1e-2, 1e-2, 0.99)


def test_a_line_of_json_may_contain_any_character(tmp_path: Path) -> None:
    folder = stated_problems.definition(tmp_path)
    file = folder / "workload.jsonl"
    file.write_bytes(
        file.read_bytes().replace(b"w40", "\u2028\x85".encode()).replace(b"\n", b"\r\n")
    )
    assert len(forms.read("SOL-ExecBench", folder / "definition.json").workloads) == 2


def test_a_task_states_tests_and_benchmarks(tmp_path: Path) -> None:
    ((form, path),) = forms.find(stated_problems.task(tmp_path))
    statement = forms.read(form, path)
    names = [each.name for each in statement.workloads]
    assert names == ["rows=64 is_flat=True", "rows=640 is_flat=False"]
    assert {Path(each).name for each in statement.sources} == {
        "task.py",
        "utils.py",
        "reference.py",
    }


def test_the_reference_of_a_task_may_lie_elsewhere_or_not_be_listed(tmp_path: Path) -> None:
    path = stated_problems.task(tmp_path) / "task.yml"
    text = path.read_text()
    line = '  - {"name": "reference.py", "source": "reference.py"}\n'
    path.write_text(text.replace(line, ""))
    assert str(path.parent / "reference.py") in forms.read("gpu-mode", path).sources
    path.write_text(text.replace('"source": "reference.py"', '"source": "right.py"'))
    (path.parent / "right.py").write_text("HERE = 1\n")
    for name in ("task.py", "reference.py", "../utils.py"):
        (path.parent / name).write_text("")
    program: Any = gpu_mode.Program(path)
    assert program._module.HERE == 1


def test_the_tolerances_of_a_task_are_those_of_its_check(tmp_path: Path) -> None:
    path = stated_problems.task(tmp_path) / "task.yml"
    (path.parent / "task.py").write_text("")
    (tmp_path / "utils.py").write_text(
        "def verbose_allclose(received, expected, rtol=1e-2, atol=3.0):\n    return []\n"
    )
    (path.parent / "reference.py").write_text(
        "from utils import verbose_allclose\n\n\n"
        "def check_implementation(data, output):\n    return verbose_allclose(output, data)\n"
    )
    assert gpu_mode.Program(path).tolerances(([1.0],), [1.0]) == [Tolerance(3.0, 1e-2)]


def test_solutions_lie_beside_their_problem(tmp_path: Path) -> None:
    root = stated_problems.traces(tmp_path)
    path = root / "solutions" / "mine.json"
    stated_problems.solution(path, "run = None")
    (root / "solutions" / "other.json").write_text('{"definition": "another"}')
    ((form, file),) = forms.find(root)
    assert forms.solutions(form, file) == [path]
    model = stated_problems.model(tmp_path / "level1")
    (tmp_path / "level1" / "solutions").mkdir()
    names = f"{model.stem}.py", f"{model.stem}_fused.py", f"{model.stem}6.py", "8_Softmax.py"
    paths = [tmp_path / "level1" / "solutions" / name for name in names]
    for each in paths:
        each.write_text("class ModelNew: pass\n")
    assert forms.solutions("KernelBench", model) == paths[:2]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"axes": {}}, "ROWS"),
        ({"inputs": {"x": {"shape": ["COLS - 96"], "dtype": "float32"}}}, "no element"),
        ({"axes": {"ROWS": {"type": "other"}}}, "axes: type: unknown value 'other'"),
        ({"reference": 3}, ": reference: must be text, not a whole number"),
    ],
)
def test_a_definition_that_cannot_be_used_is_one_line(
    change: dict[str, object], reason: str, tmp_path: Path
) -> None:
    stated_problems.definition(tmp_path)
    path = tmp_path / "definition.json"
    path.write_text(json.dumps({**stated_problems.DEFINITION, **change}))
    with pytest.raises(UsageError, match=r"definition.json: SOL-ExecBench: ") as error:
        forms.read("SOL-ExecBench", path)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("folder", ["sol", "traces"])
def test_a_workload_that_cannot_be_used_is_named_by_its_line(folder: str, tmp_path: Path) -> None:
    write = stated_problems.traces if folder == "traces" else stated_problems.definition
    ((form, path),) = forms.find(write(tmp_path))
    (workloads,) = tmp_path.rglob("*.jsonl")
    for text, reason in [
        ('{"uuid": ', "truncated"),
        ("{}", "(is missing|must be a table, not nothing)"),
        ("3", "must be a table"),
    ]:
        workloads.write_text(f"{workloads.read_text().splitlines()[0]}\n\n{text}\n")
        with pytest.raises(UsageError, match=f"{workloads.name}, line 3: .*{reason}"):
            forms.read(form, path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tests:\n  - {1: 2}\n", "does not name its values"),
        ("tests:\n  - {__import__('os')}\n", "cannot read"),
        ("tests:\n", "has no workload"),
    ],
)
def test_a_task_that_cannot_be_used_is_one_line(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "task.yml"
    path.write_text(text)
    with pytest.raises(UsageError, match=reason):
        forms.read("gpu-mode", path)


def test_a_form_is_one_module_of_at_most_150_lines() -> None:
    for form in forms.FORMS.values():
        assert len(Path(str(form.__file__)).read_text().splitlines()) <= 150


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("levl1", (), "KERNEL: levl1: no such file or folder"),
        ("empty", (), "no problem of SOL-ExecBench, FlashInfer-Trace, gpu-mode or KernelBench"),
        ("level1", ("--sizes", "abc"), "'abc' is not understood; the workloads of a problem are"),
        ("level1", ("--sizes", "1x2"), "'1x2' is not understood; the workloads of a problem are"),
        ("level1", ("--kernels", "mine"), "a problem has its own folder of kernels"),
    ],
)
def test_a_mistake_about_a_problem_is_named(
    tmp_path: Path, name: str, options: tuple[str, ...], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    stated_problems.model(tmp_path / "level1")
    (tmp_path / "new.py").write_text("class ModelNew: pass\n")
    words = "judge", name, "--solution", "new.py", "--device", "cpu", *options
    done = call(tmp_path, *words)
    assert done.code == 2
    assert message in done.err


def test_the_current_folder_may_be_a_folder_of_problems(tmp_path: Path) -> None:
    stated_problems.model(tmp_path / "level1")
    done = call(tmp_path, "judge", ".", "--device", "cpu")
    assert done.code == 2
    assert "--solution: name a solution of 7_Linear_ReLU.py" in done.err
