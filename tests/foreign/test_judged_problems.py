"""Solutions of problems of other projects, judged on the CPU with torch."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import stated_problems
from commandline import run

from gpubench.foreign import folder, forms
from gpubench.foreign.sweep import prepare_ahead
from gpubench.model import Status
from gpubench.results.row import read

pytestmark = [pytest.mark.exhaustive]

pytest.importorskip("torch")

QUICK = ("--device", "cpu", "--force", "-o", "rows.csv")


def reasons(problem: Path, folder: Path, *more: str) -> dict[str, str]:
    """Sweep the solutions in a problem's folder; return the reason for each, empty if right."""
    run(folder, "sweep", "--op", str(problem), "--rounds", "1", *QUICK, *more)
    rows = [row for row in read(folder / "rows.csv") if row.variant != "reference"]
    return {row.variant: "" if row.status == Status.OK else str(row.reason) for row in rows}


def right(found: dict[str, str]) -> set[str]:
    return {name for name, reason in found.items() if not reason}


def sol_solution(folder: Path, name: str, body: str) -> None:
    text = f"import torch\n\n\ndef run(x, pairs, factor):\n    {body}\n"
    stated_problems.solution(folder / f"solution_{name}.json", text)


def test_solutions_of_sol_execbench_are_judged(tmp_path: Path) -> None:
    home = stated_problems.definition(tmp_path / "problem")
    softmax, count = "torch.softmax(x * factor, 1)", "pairs.sum(1)"
    sol_solution(home, "right", f"return {softmax}, {count}")
    sol_solution(home, "half", f"return {softmax}.half(), {count}")
    sol_solution(home, "zeros", f"return torch.zeros_like(x), {count}")
    sol_solution(home, "miscounted", f"return {softmax}, {count} + 1")
    sol_solution(home, "lacking", f"return {softmax}")
    into = "import torch\n\n\ndef run(x, pairs, factor, y, count):\n"
    into += "    torch.softmax(x * factor, 1, out=y)\n    count.copy_(pairs.sum(1))\n"
    path = home / "solution_into.json"
    stated_problems.solution(path, into, destination_passing_style=True)
    found = reasons(home, tmp_path, "--sizes", "2")
    assert right(found) == {"solution_right", "solution_into"}
    assert "the function returns float16, not float32" in found["solution_half"]
    assert "all zeros" in found["solution_zeros"]
    assert "the function returns 1" in found["solution_lacking"]


def test_submissions_of_gpu_mode_are_judged_without_a_gpu(tmp_path: Path) -> None:
    home = stated_problems.task(tmp_path / "problems")
    bodies = {
        "right": "x, total = data\n    torch.sum(x, 1, out=total)\n    return total",
        "returned": "return data[0].to('cuda').sum(1)",
        "tail": "result = data[0].sum(1)\n    result[-3:] = 128\n    return result",
        "half_sums": "return data[0][:, ::2].sum(1) * 2",
        "kept": "global KEPT\n    KEPT = globals().get('KEPT', data[0].sum(1))\n    return KEPT",
        "thread": "import threading, time\n    threading.Thread(target=time.sleep, args=(9,), "
        "daemon=True).start()\n    return data[0].sum(1)",
    }
    for name, body in bodies.items():
        text = f"import torch\n\n\ndef custom_kernel(data):\n    {body}\n"
        (home / f"submission_{name}.py").write_text(text)
    found = reasons(home, tmp_path, "--sizes", "1")
    assert right(found) == {"submission_right", "submission_returned"}
    assert "leaves a thread" in found["submission_thread"]


@pytest.fixture
def one_cpu() -> Iterator[None]:
    """Run the commands on one CPU.

    On two busy CPUs, the first round may choose two threads for one of two equal functions only.
    With two threads, this function then took 20 times as long in 2 of 6 runs.
    """
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    yield
    os.sched_setaffinity(0, cpus)


@pytest.mark.usefixtures("cold", "one_cpu")
def test_a_model_of_kernelbench_is_neither_faster_nor_slower_than_itself(tmp_path: Path) -> None:
    problem = stated_problems.model(tmp_path / "level1")
    new = stated_problems.MODEL.replace("Model(nn", "ModelNew(nn")
    (tmp_path / "new.py").write_text(new)
    lossy = new.replace("self.linear(x)", "self.linear(x.bfloat16().float())")
    (tmp_path / "lossy.py").write_text(lossy)
    named = "--solution", "new.py", "--solution", "lossy.py"
    done = run(tmp_path, "judge", str(problem), *named, "--rounds", "3", "--json", *QUICK)
    document = json.loads(done.out)
    verdicts = {each["variant"]: each["verdict"] for each in document["verdicts"]}
    assert verdicts["new"] in {"same", "not decided"}
    assert verdicts["lossy"] == "wrong"
    assert (done.code, document["exit_code"]) == (1, 1)
    (stated,) = document["problems"]
    assert stated["workloads"]["1"]["reference_in_float64"]


def test_a_folder_of_problems_is_one_table_and_is_continued(tmp_path: Path) -> None:
    root = stated_problems.traces(tmp_path / "traces")
    text = "import torch\n\n\ndef run(x, pairs, factor):\n"
    text += "    return torch.softmax(x * factor, 1), pairs.sum(1)\n"
    stated_problems.solution(root / "solutions" / "norms" / "mine.json", text)
    home = stated_problems.task(tmp_path / "problems")
    (home / "submission.py").write_text("from reference import ref_kernel as custom_kernel\n")
    words = "judge", str(tmp_path), "--device", "cpu", "--rounds", "3", "--budget"
    first = run(tmp_path, *words, "600", "-o", "rows")
    assert first.out.count("mine") >= 2
    assert first.out.count("submission") >= 2
    again = run(tmp_path, *words, "60", "--resume", "rows")
    assert again.out == first.out


def test_references_that_ran_at_once_do_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = stated_problems.definition(tmp_path / "problem")
    sol_solution(home, "mine", "return x, pairs.sum(1)")
    paths = [home / "definition.json", stated_problems.task(tmp_path / "problems") / "task.yml"]
    solutions = {paths[0]: [home / "solution_mine.json"], paths[1]: []}
    prepare_ahead([*solutions.items()], {"device": "cpu", "sizes": "1"})
    monkeypatch.setattr(folder.process, "ask_for", None)
    for path, beside in solutions.items():
        ((form, _),) = forms.find(path)
        assert folder.prepared(form, path, [1], beside, "cpu").path.is_dir()
