"""Write small problems in the forms of other projects."""

import json
from pathlib import Path

DEFINITION = {
    "name": "row_scale",
    "axes": {
        "ROWS": {"type": "var"},
        "COLS": {"type": "const", "value": 96},
        "HALF": {"type": "expr", "expression": "COLS / 2"},
    },
    "inputs": {
        "x": {"shape": ["ROWS", "COLS"], "dtype": "float32"},
        "pairs": {"shape": ["ROWS", "HALF"], "dtype": "int64"},
        "factor": {"shape": None, "dtype": "float32"},
    },
    "outputs": {
        "y": {"shape": ["ROWS", "COLS"], "dtype": "float32"},
        "count": {"shape": ["ROWS"], "dtype": "int64"},
    },
    "reference": """import torch


def run(x, pairs, factor):
    return torch.softmax(x * factor, 1), pairs.sum(1)
""",
}

WORKLOADS = [
    {
        "uuid": f"w{rows}",
        "axes": {"ROWS": rows},
        "inputs": {
            "x": {"type": "random"},
            "pairs": {"type": "random"},
            "factor": {"type": "scalar", "value": 2.0},
        },
        "tolerance": {"max_atol": 1e-4, "max_rtol": 1e-3},
    }
    for rows in (40, 1000)
]

TASK = """# name: total

files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "utils.py", "source": "../utils.py"}
  - {"name": "reference.py", "source": "reference.py"}

lang: "py"

tests:
  - {"rows": 64, "seed": 53124, "is_flat": true}
benchmarks:
  - {"rows": 640, "seed": 1, "is_flat": False}
"""

UTILS = """import torch


def verbose_allclose(received, expected, rtol=1e-05, atol=1e-08):
    return [] if torch.allclose(received, expected, rtol=rtol, atol=atol) else ["mismatch"]


def make_match_reference(reference, **tolerances):
    def check(data, output):
        return verbose_allclose(output, reference(data), **tolerances)

    return check
"""

TASK_REFERENCE = """import torch
from task import COLUMNS
from utils import make_match_reference


def generate_input(rows, seed, is_flat):
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)
    x = torch.rand(rows, COLUMNS, device="cuda", generator=generator)
    return x, torch.empty(rows, device="cuda")


def ref_kernel(data):
    x, total = data
    total[...] = x.sum(1)
    return total


check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=1e-3)
"""

MODEL = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 64)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.rand(300, 128)]


def get_init_inputs():
    return [128]
"""


def definition(folder: Path) -> Path:
    """Write a problem of SOL-ExecBench."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "definition.json").write_text(json.dumps(DEFINITION))
    (folder / "workload.jsonl").write_text("\n".join(map(json.dumps, WORKLOADS)))
    return folder


def traces(folder: Path) -> Path:
    """Write a problem of FlashInfer-Trace."""
    for name in ("definitions", "workloads", "solutions"):
        (folder / name / "norms").mkdir(parents=True)
    (folder / "definitions" / "norms" / "row_scale.json").write_text(json.dumps(DEFINITION))
    lines = ({"workload": {**each, "tolerance": None}, "solution": None} for each in WORKLOADS)
    path = folder / "workloads" / "norms" / "row_scale.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return folder


def solution(path: Path, source: str, **spec: object) -> Path:
    """Write a `solution.json` of a source with the function `run`."""
    fields = {"languages": ["pytorch"], "entry_point": "main.py::run"}
    content = {
        "name": path.stem,
        "definition": "row_scale",
        "spec": {**fields, "destination_passing_style": False, **spec},
        "sources": [{"path": "main.py", "content": source}],
    }
    path.write_text(json.dumps(content))
    return path


def task(folder: Path) -> Path:
    """Write a problem of gpu-mode."""
    home = folder / "total"
    home.mkdir(parents=True)
    (folder / "utils.py").write_text(UTILS)
    (home / "task.yml").write_text(TASK)
    (home / "task.py").write_text("COLUMNS = 256\n")
    (home / "reference.py").write_text(TASK_REFERENCE)
    return home


def model(folder: Path) -> Path:
    """Write a problem of KernelBench."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "7_Linear_ReLU.py"
    path.write_text(MODEL)
    return path
