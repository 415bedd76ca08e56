"""Copy thirty problems of other projects into a folder, and compare two judgements of the folder.

    research/field_folder.py make DIR SOL-ExecBench reference-kernels KernelBench
    gpubench judge DIR --sizes 1 --budget 9m --json > first.json    # and second.json
    research/field_folder.py table OUT.csv first.json second.json

The problems have honest solutions: the examples of SOL-ExecBench in PyTorch, Triton and CUDA C++,
and the references of the other projects. The two judgements use different secret seeds.
"""

import csv
import json
import shutil
import sys
import tempfile
from pathlib import Path

from common import parser
from field_problems import RIGHT, Case, cases

LANGUAGES = ("cuda_cpp", "pytorch", "triton")
LEFT_OUT = {"matmul_py"}  # its solutions are judged by field_problems.py


def make(folder: Path, checkouts: list[Path]) -> int:
    """Copy each problem with a solution beside it, and return the number of problems."""
    count = 0
    with tempfile.TemporaryDirectory() as scratch:
        for checkout in checkouts:
            for case in cases(checkout, Path(scratch), "cuda"):
                if case.expected == RIGHT and case.problem.name not in LEFT_OUT:
                    count += _copied(case, checkout, folder)
    return count


def _copied(case: Case, checkout: Path, folder: Path) -> bool:
    """Copy a problem with its solution. Return False if its language is not in `LANGUAGES`."""
    problem = case.problem
    if problem.is_file():  # a problem of KernelBench
        solutions = folder / "level1" / "solutions"
        solutions.mkdir(parents=True, exist_ok=True)
        shutil.copy(problem, solutions.parent)
        shutil.copy(case.solution, solutions / f"{problem.stem}_new.py")
        return True
    place = folder / problem.relative_to(checkout)
    if "examples" in place.parts:  # a problem of SOL-ExecBench
        if problem.parent.name in LANGUAGES:
            shutil.copytree(problem, place)
        return problem.parent.name in LANGUAGES
    shutil.copytree(problem, place, ignore=shutil.ignore_patterns("solutions", "submission*.py"))
    shutil.copy(case.solution, place / "submission.py")
    for shared in problem.parent.glob("*.py"):
        shutil.copy(shared, place.parent)
    return True


def table(out: Path, documents: list[Path]) -> int:
    """Write the verdicts of two judgements side by side, and return the number that differ."""
    judged = []
    for document in documents:
        content, verdicts = json.loads(document.read_text()), {}
        reasons = iter(content["verdicts"])  # the verdicts have the order of the scores
        for problem in content["problems"]:
            for score in problem["scores"]:
                key = problem["form"], problem["op"], score["solution"]
                verdicts[key] = score["passes"], score["verdict"], next(reasons)["reason"]
        judged.append(verdicts)
    first, second = judged
    with out.open("w", newline="") as file:
        lines = csv.writer(file)
        columns = ("passes", "verdict", "reason")
        again = (f"{name}_again" for name in columns)
        lines.writerow(("form", "problem", "solution", *columns, *again))
        for key in first | second:
            lines.writerow((*key, *first.get(key, ("",) * 3), *second.get(key, ("",) * 3)))
    return sum(first.get(key, ())[:2] != second.get(key, ())[:2] for key in first | second)


def main() -> int:
    """Make the folder, or write the table. Return 1 if verdicts differ."""
    options = parser(__doc__)
    options.add_argument("what", choices=("make", "table"))
    options.add_argument("out", type=Path)
    options.add_argument("sources", type=Path, nargs="+")
    asked = options.parse_args()
    if asked.what == "make":
        print(make(asked.out, asked.sources), "problems")
        return 0
    differing = table(asked.out, asked.sources)
    print(differing, "verdicts differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
