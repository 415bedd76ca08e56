"""Judge problems and solutions of other projects, from checkouts of their repositories.

    research/field_problems.py OUT.csv SOL-ExecBench flashinfer-bench reference-kernels KernelBench

Each argument after the first is a checkout. The table has a line for each problem and solution:
what was expected, the verdict, and its reason. The extents of KernelBench's problems are
reduced, because the tensors of its softmax and norms have 4 to 8 GB.
"""

import csv
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from common import parser

from gpubench.backends import first_device
from gpubench.errors import UsageError
from gpubench.model import Status
from gpubench.results.row import read

RIGHT, WRONG, REFUSED = "right", "wrong", "refused"

TASKS = (
    "pmpp_v2/vectoradd_py", "pmpp_v2/vectorsum_py", "pmpp_v2/grayscale_py", "pmpp_v2/sort_py",
    "pmpp_v2/prefixsum_py", "pmpp_v2/histogram_py", "pmpp_v2/conv2d_py", "amd/identity",
    "helion/causal_conv1d_py", "helion/fp8_quant_py", "helion/gated_deltanet_chunk_fwd_h_py",
    "helion/gated_deltanet_recompute_w_u_py", "bioml/trimul", "linalg/qr_v2",
)  # fmt: skip
"""Problems of gpu-mode. The reference of each is judged as if it were a submission."""

WITHOUT_TOLERANCE = {"linalg/qr_v2"}  # its check compares by rules other than a tolerance

MODELS = (1, 2, 3, 4, 12, 16, 23, 33, 36, 40)
"""Numbers of problems of KernelBench's first level: products, a softmax, and norms."""

LARGEST = {"cpu": (512, 32), "cuda": (4096, 64)}
"""Maps a device to two largest extents: for problems of KernelBench with up to three extents, and
for problems with more extents."""

FEW_EXTENTS = 3

_EXTENT = re.compile(r"^(\w+) = ([\d* ]*\d)", re.MULTILINE)


class Case(NamedTuple):
    """A solution of a problem."""

    problem: Path
    solution: Path
    expected: str
    sizes: str = "1"


def cases(checkout: Path, scratch: Path, device: str) -> Iterator[Case]:
    """Yield the cases of a checkout."""
    yield from _sol(checkout)
    for definition in checkout.glob("examples/**/definitions/gemm*.json"):
        path = _written(scratch / "product.py", "def run(a, b):\n    return a @ b.T\n")
        yield Case(definition, path, RIGHT, "32")
    problems = checkout / "problems"
    product = problems / "pmpp" / "matmul_py"
    if product.is_dir():
        yield Case(product, product / "solutions" / "correct" / "ref.py", RIGHT, "1,4")
        yield Case(product, product / "solutions" / "wrong" / "low-precision.py", WRONG, "1,4")
        vector_sum = problems / "pmpp_v2" / "vectorsum_py"
        yield Case(vector_sum, vector_sum / "solutions" / "wrong" / "cheat.py", WRONG, "6")
    for name in TASKS if problems.is_dir() else ():
        text = "from reference import ref_kernel as custom_kernel\n"
        expected = REFUSED if name in WITHOUT_TOLERANCE else RIGHT
        yield Case(problems / name, _written(scratch / "as_submission.py", text), expected)
    for file in sorted(checkout.glob("KernelBench/level1/*.py")):
        if int(file.name.partition("_")[0]) in MODELS:
            yield _of_model(file, scratch, device)


def _sol(checkout: Path) -> Iterator[Case]:
    examples = checkout / "examples"
    for hack in sorted(checkout.glob("tests/samples/rmsnorm/solution_hack_*.json")):
        yield Case(examples / "cuda_cpp" / "rmsnorm", hack, REFUSED)
    for solution in sorted(examples.glob("*/*/solution*.json")):
        yield Case(solution.parent, solution, RIGHT)


def _of_model(file: Path, scratch: Path, device: str) -> Case:
    text = file.read_text()
    few, many = LARGEST[device]
    largest = few if len(_EXTENT.findall(text)) <= FEW_EXTENTS else many
    text = _EXTENT.sub(partial(_smaller, largest), text)
    problem = _written(_folder(scratch / "KernelBench") / file.name, text)
    new = text.replace("class Model(", "class ModelNew(").replace("super(Model,", "super(ModelNew,")
    return Case(problem, _written(scratch / f"new_{file.stem}.py".lower(), new), RIGHT)


def _smaller(largest: int, extent: re.Match[str]) -> str:
    factors = [int(each) for each in extent[2].split("*")]
    return f"{extent[1]} = {min(math.prod(factors), largest)}"


def _folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def judge(case: Case, scratch: Path, device: str) -> tuple[str, str]:
    """Return the verdict on a solution, and the reason."""
    out = scratch / "rows.csv"
    out.unlink(missing_ok=True)  # the rows of the previous case
    command = [sys.executable, "-m", "gpubench", "judge", str(case.problem)]
    command += ["--solution", str(case.solution), "--device", device, "--sizes", case.sizes]
    command += ["--force", "-o", str(out)]
    if "KernelBench" not in str(case.problem):  # a round in 10 s shows if a solution is right
        command += ["--budget", "10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 1, 3}:
        line = done.stderr.strip().splitlines()[-1].removeprefix("gpubench: ")
        return REFUSED, line.replace(f"{case.problem.parent}/", "")
    verdicts = {word for word in ("faster", "slower") if f"\n{word} " in done.stdout}
    rows = [row for row in read(out) if row.variant != "reference"]
    row = next((each for each in rows if each.status != Status.OK), rows[0])
    names: dict[str, str] = {Status.OK: RIGHT, Status.SKIPPED: REFUSED, Status.ERROR: REFUSED}
    return " ".join([names.get(str(row.status), WRONG), *verdicts]), row.reason or ""


def main() -> int:
    """Judge the cases of all checkouts, and write the table."""
    options = parser(__doc__)
    options.add_argument("out", type=Path)
    options.add_argument("checkouts", type=Path, nargs="+")
    asked = options.parse_args()
    device = first_device("auto").backend
    with tempfile.TemporaryDirectory() as folder, asked.out.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["repository", "problem", "solution", "expected", "verdict", "reason"])
        for checkout in asked.checkouts:
            for case in cases(checkout, Path(folder), device):
                try:
                    verdict, reason = judge(case, Path(folder), device)
                except UsageError as error:
                    verdict, reason = REFUSED, str(error)
                name = case.problem.stem if case.problem.is_file() else case.problem.name
                line = checkout.name, name, case.solution.stem, case.expected, verdict, reason
                table.writerow(line)
                file.flush()
                print(*line, sep="  ", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
