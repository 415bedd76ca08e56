"""The messages about solutions that cannot be used, without torch."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import stated_problems
from commandline import call

from gpubench.errors import CompileError, DoesNotFitError
from gpubench.foreign import folder, process, solutions, sweep
from gpubench.foreign.kernelbench import Program
from gpubench.foreign.statement import Facts
from gpubench.plan import description_process
from gpubench.plan.foreign_process import ForeignProcess
from gpubench.plan.scrutiny import owner_of

BODY = "def square(x):\n    return x * x\n"


class WithoutCode:
    """A problem with the part of its code that the loading of solutions needs."""

    ENTRY = Program.ENTRY

    def solution(self, module: Any) -> Any:
        return getattr(module, "ModelNew", None)


def refused(path: Path) -> str:
    with pytest.raises((CompileError, DoesNotFitError)) as raised:
        solutions.load(WithoutCode(), path, "float32")  # type: ignore[arg-type]
    return str(raised.value)


def test_a_file_without_the_function_of_the_form_is_named_with_what_it_defines(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new.py"
    path.write_text(f"import math\nfrom pathlib import Path\n{BODY}")
    said = "new.py: the class ModelNew is missing; the file defines square"
    assert refused(path) == said


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"entry_point": "main.py::run"}, "'main.py::run': the function run is missing"),
        ({"entry_point": "main.py"}, "is not FILE::FUNCTION of one of its sources: main.py"),
        ({"entry_point": "kernel.cu::run"}, "is not FILE::FUNCTION of one of its sources"),
        ({"entry_point": 3}, "spec: entry_point: must be text, not a whole number"),
    ],
)
def test_a_solution_whose_entry_is_missing_is_one_line(
    change: dict[str, object], reason: str, tmp_path: Path
) -> None:
    path = stated_problems.solution(tmp_path / "mine.json", BODY, **change)
    assert refused(path).startswith("mine.json: ")
    assert reason in refused(path)


def test_a_solution_of_another_language_is_refused(tmp_path: Path) -> None:
    fields = {"entry_point": "main.py::run", "languages": ["tilelang"]}
    path = stated_problems.solution(tmp_path / "mine.json", BODY, **fields)
    path.write_text(path.read_text().replace("main.py", "main.cu"))
    assert refused(path) == "sources of C++ are built with the binding torch, not tilelang"


@pytest.mark.parametrize("name", ["operation", "reference"])
def test_a_solution_may_have_the_name_of_a_file_of_the_problem(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "_facts", lambda *_: Facts((), (), 256, 256, 1, ()))
    problem, path = stated_problems.model(tmp_path), tmp_path / f"{name}.py"
    path.write_text(BODY)
    home = folder.prepared("KernelBench", problem, [1], [path], "cpu")
    texts = {file.stem: file.read_text() for file in (home.path / home.op).glob("*.py")}
    assert texts.keys() == {"operation", "reference", f"{name}_solution"}
    assert "OPERATION = " in texts["operation"]
    files = (home.path / home.op / f"{each}.py" for each in ("reference", f"{name}_solution"))
    owners = sorted(owner_of(description_process.load(each, home.op)) for each in files)
    assert folder.functions_in(home.path) == owners


def test_a_compiled_solution_is_kept_for_one_version_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*facts: object) -> None:
        raise CompileError(repr(facts))

    cuda = SimpleNamespace(get_device_capability=lambda: (9, 0))
    extension = SimpleNamespace(is_ninja_available=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, __version__="2"))
    monkeypatch.setitem(sys.modules, "torch.utils", SimpleNamespace(cpp_extension=extension))
    monkeypatch.setattr("gpubench.foreign.solutions.nvcc.version", lambda: "13")
    monkeypatch.setattr(solutions, "cache_file", refuse)
    spec = solutions.Spec(entry_point="main.cu::run", binding="torch")
    with pytest.raises(CompileError, match=str(sys.implementation.cache_tag)):
        solutions._compiled(solutions.Solution("mine", spec, []), tmp_path)


def test_a_problem_that_was_removed_is_left_to_the_command_that_reports_it(tmp_path: Path) -> None:
    path = tmp_path / "removed.py"
    assert sweep.prepare_ahead([(path, [])], {"device": "cpu"}) == {}
    folder.compile_ahead(path, [1], [], "cpu", ForeignProcess(__name__))


def test_a_problem_without_solutions_says_where_they_lie(tmp_path: Path) -> None:
    problem = stated_problems.model(tmp_path)
    done = call(tmp_path, "judge", problem.name, "--device", "cpu")
    assert done.code == 2
    assert done.err.strip() == (
        "gpubench: --solution: name a solution of 7_Linear_ReLU.py; none lies beside it as "
        "solutions/7_Linear_ReLU*.py"
    )


@pytest.mark.parametrize(
    ("name", "reason"), [("x.py", "x.py: no such file"), (".", ". is a folder: name its files")]
)
def test_a_solution_that_is_no_file_is_refused_by_its_flag(
    name: str, reason: str, tmp_path: Path
) -> None:
    problem = stated_problems.model(tmp_path)
    done = call(tmp_path, "judge", problem.name, "--solution", name, "--device", "cpu")
    assert (done.code, done.err.strip()) == (2, f"gpubench: --solution: {reason}")


def test_a_process_that_makes_inputs_on_a_cpu_can_be_read_by_no_other_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A solution could otherwise compute the results before its clock starts."""
    steps: list[str] = []
    monkeypatch.setattr(process, "close_to_descendants", lambda: steps.append("closed"))
    monkeypatch.setattr(process, "_answer", lambda request: steps.append(request.what))
    monkeypatch.setattr(
        process,
        "serve_requests",
        lambda _descriptor, answer: answer(
            msgspec.msgpack.encode(process.Request("inputs", "KernelBench", "x.py", "cpu", 1))
        ),
    )
    process.serve(0)
    assert steps == ["closed", "inputs"]
