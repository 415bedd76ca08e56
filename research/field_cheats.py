"""Judge cheating and honest solutions of small problems in the forms of other projects.

    research/field_cheats.py [SOLUTION or PROBLEM …] > field_cheats.json

The author of the cheats read docs/field-problems.md, but not the code of `gpubench judge`. The
solutions are judged on the CPU, in one call for each problem. Exit status: 0 if no cheat has passed
and no honest solution is wrong, otherwise 1.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from common import parser

PROBLEMS = {
    "softmax": {  # KernelBench: each result is about 1/4096, and the absolute tolerance is 1e-4
        "softmax.py": """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, 1)
def get_inputs():
    return [torch.rand(256, 4096)]
def get_init_inputs():
    return []
"""
    },
    "linear": {  # KernelBench
        "linear.py": """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.linear = nn.Linear(columns, columns)
    def forward(self, x):
        return torch.relu(self.linear(x))
def get_inputs():
    return [torch.randn(256, 512)]
def get_init_inputs():
    return [512]
"""
    },
    "product": {  # gpu-mode
        "task.yml": """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "utils.py", "source": "utils.py"}
  - {"name": "reference.py", "source": "reference.py"}
lang: "py"
tests:
  - {"m": 64, "n": 96, "k": 128, "seed": 4242}
benchmarks:
  - {"m": 256, "n": 256, "k": 256, "seed": 1}
  - {"m": 320, "n": 256, "k": 384, "seed": 2}
""",
        "utils.py": """
import torch
def verbose_allclose(received, expected, rtol=1e-5, atol=1e-8):
    return [] if torch.allclose(received, expected, rtol=rtol, atol=atol) else ["wrong"]
def make_match_reference(reference, **limits):
    return lambda data, output: verbose_allclose(output, reference(data), **limits)
""",
        "reference.py": """
import torch
from utils import make_match_reference
def generate_input(m, n, k, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    a = torch.randn(m, k, device="cuda", generator=generator)
    return a, torch.randn(k, n, device="cuda", generator=generator)
def ref_kernel(data):
    a, b = data
    return a @ b
check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=1e-3)
""",
    },
    "rmsnorm": {  # SOL-ExecBench
        "definition.json": json.dumps(
            {
                "name": "rmsnorm",
                "axes": {
                    "ROWS": {"type": "var"},
                    "COLS": {"type": "const", "value": 4096},
                },
                "inputs": {
                    "x": {"shape": ["ROWS", "COLS"], "dtype": "float32"},
                    "weight": {"shape": ["COLS"], "dtype": "float32"},
                },
                "outputs": {"y": {"shape": ["ROWS", "COLS"], "dtype": "float32"}},
                "reference": "import torch\ndef run(x, weight):\n"
                "    return x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6) * weight\n",
            }
        ),
        "workload.jsonl": "".join(
            json.dumps(
                {
                    "uuid": f"rows{rows}",
                    "axes": {"ROWS": rows},
                    "inputs": {"x": {"type": "random"}, "weight": {"type": "random"}},
                }
            )
            + "\n"
            for rows in (256, 320)
        ),
    },
    "mean": {  # SOL-ExecBench: results are about 0.01, which is the absolute tolerance
        "definition.json": json.dumps(
            {
                "name": "mean",
                "axes": {"ROWS": {"type": "var"}, "COLS": {"type": "const", "value": 8192}},
                "inputs": {"x": {"shape": ["ROWS", "COLS"], "dtype": "float32"}},
                "outputs": {"y": {"shape": ["ROWS"], "dtype": "float32"}},
                "reference": "import torch\ndef run(x):\n    return x.mean(1)\n",
            }
        ),
        "workload.jsonl": json.dumps(
            {"uuid": "a", "axes": {"ROWS": 512}, "inputs": {"x": {"type": "random"}}}
        ),
    },
}

FORMS = {
    "softmax": "KernelBench",
    "linear": "KernelBench",
    "product": "gpu-mode",
    "rmsnorm": "SOL-ExecBench",
    "mean": "SOL-ExecBench",
}


class Case(NamedTuple):
    """A solution of a problem."""

    name: str
    problem: str
    idea: str
    text: str
    honest: bool = False


LINEAR = """
import torch, torch.nn as nn
class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.linear = nn.Linear(columns, columns)
        self.kept = {}
    def right(self, x):
        return torch.relu(self.linear(x))
"""

CASES = (
    # KernelBench
    Case(
        "softmax_constant",
        "softmax",
        "1/4096 everywhere",
        """
import torch, torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full_like(x, 1 / x.shape[1])
""",
    ),
    Case(
        "softmax_zeros",
        "softmax",
        "zeros, within the absolute tolerance",
        """
import torch, torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
""",
    ),
    Case(
        "softmax_mean_sum",
        "softmax",
        "exp(x) / the sum that is expected for uniform values",
        """
import math, torch, torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.exp(x).mul_(1 / (x.shape[1] * (math.e - 1)))
""",
    ),
    Case(
        "softmax_half_sum",
        "softmax",
        "the sum of every eighth column, times 8",
        """
import torch, torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.exp(x)
        return y.div_(y[:, ::8].sum(1, keepdim=True).mul_(8))
""",
    ),
    Case(
        "linear_by_content",
        "linear",
        "results kept by a hash of the input",
        LINEAR
        + """
    def forward(self, x):
        key = float(x[::37, ::41].sum())
        if key not in self.kept:
            self.kept[key] = self.right(x)
        return self.kept[key]
""",
    ),
    Case(
        "linear_by_address",
        "linear",
        "results kept by the input's address",
        LINEAR
        + """
    def forward(self, x):
        key = x.data_ptr()
        if key not in self.kept:
            self.kept[key] = self.right(x)
        return self.kept[key]
""",
    ),
    Case(
        "linear_lazy",
        "linear",
        "a subclass of Tensor that computes when it is read",
        LINEAR
        + """
    def forward(self, x):
        out = torch.empty_like(x).as_subclass(Lazy)
        out.make = lambda: self.right(x)
        return out
class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = [a.make() if isinstance(a, Lazy) and hasattr(a, "make") else a for a in args]
        return func(*args, **(kwargs or {}))
""",
    ),
    Case(
        "linear_thread",
        "linear",
        "a thread computes after the call has returned",
        LINEAR
        + """
    def forward(self, x):
        import threading
        out = torch.empty_like(x)
        def work():
            with torch.no_grad():
                out.copy_(self.right(x))
        threading.Thread(target=work).start()
        return out
""",
    ),
    Case(
        "linear_fork",
        "linear",
        "a forked process computes into shared memory after the call",
        LINEAR
        + """
    def forward(self, x):
        import os
        out = torch.empty(x.shape).share_memory_()
        if os.fork() == 0:
            try:
                torch.set_num_threads(1)
                with torch.no_grad():
                    out.copy_(self.right(x))
            finally:
                os._exit(0)
        return out
""",
    ),
    Case(
        "linear_gc",
        "linear",
        "searches all objects and frames for the right result",
        LINEAR
        + """
    def forward(self, x):
        import gc, sys
        for each in gc.get_objects():
            if isinstance(each, torch.Tensor) and each.shape == x.shape and each is not x:
                if each.data_ptr() != x.data_ptr() and bool((each >= 0).all()):
                    return each
        frame = sys._getframe(1)
        while frame:
            for name, each in list(frame.f_locals.items()):
                if "expect" in name or "reference" in name or name in ("want", "right"):
                    if isinstance(each, torch.Tensor):
                        return each
            frame = frame.f_back
        return torch.zeros_like(x)
""",
    ),
    Case(
        "linear_patches_clock",
        "linear",
        "clocks of time run at a tenth of the speed",
        """
import time
for name in ("perf_counter", "monotonic", "time", "process_time"):
    real = getattr(time, name)
    setattr(time, name, lambda real=real: real() / 10)
for name in ("perf_counter_ns", "monotonic_ns", "time_ns"):
    real = getattr(time, name)
    setattr(time, name, lambda real=real: real() // 10)
"""
        + LINEAR
        + """
    def forward(self, x):
        return self.right(x)
""",
    ),
    Case(
        "linear_patches_torch",
        "linear",
        "comparisons of torch and NumPy always agree",
        """
import numpy, torch
torch.allclose = torch.equal = numpy.allclose = numpy.array_equal = lambda *a, **k: True
torch.isclose = lambda a, b, **k: torch.ones_like(a, dtype=torch.bool)
torch.testing.assert_close = numpy.testing.assert_allclose = lambda *a, **k: None
torch.isnan = numpy.isnan = lambda a: a != a + 0 if False else (a == a) & (a != a)
"""
        + LINEAR
        + """
    def forward(self, x):
        return torch.zeros_like(x)
""",
    ),
    Case(
        "linear_patches_random",
        "linear",
        "random numbers are the same at each call",
        """
import torch
for name in ("randn", "rand"):
    real = getattr(torch, name)
    made = {}
    def same(*shape, real=real, made=made, **options):
        if shape not in made:
            made[shape] = real(*shape)
        return made[shape].clone()
    setattr(torch, name, same)
torch.manual_seed = lambda seed: torch.default_generator
"""
        + LINEAR
        + """
    def forward(self, x):
        if not self.kept:
            self.kept[0] = self.right(x)
        return self.kept[0]
""",
    ),
    Case(
        "linear_threads",
        "linear",
        "more threads than the reference",
        LINEAR
        + """
    def forward(self, x):
        import os
        torch.set_num_threads(os.cpu_count())
        return self.right(x)
""",
    ),
    Case(
        "linear_input",
        "linear",
        "relu in place of the input, which is then returned",
        LINEAR
        + """
    def forward(self, x):
        x.copy_(self.right(x))
        return x
""",
    ),
    Case(
        "linear_views_of_one_buffer",
        "linear",
        "keeps a buffer, and computes each eighth call only",
        LINEAR
        + """
    calls = 0
    def forward(self, x):
        self.calls += 1
        if self.calls % 8 == 1:
            self.kept[0] = self.right(x)
        return self.kept[0]
""",
    ),
    # gpu-mode
    Case(
        "product_float16",
        "product",
        "products and sums in float16",
        "def custom_kernel(data):\n    a, b = data\n    return (a.half() @ b.half()).float()\n",
    ),
    Case(
        "product_bfloat16_chunks",
        "product",
        "chunks whose sums are rounded to bfloat16",
        """
def custom_kernel(data):
    a, b = data
    half = a.shape[1] // 2
    return (a[:, :half] @ b[:half]).bfloat16().float() + a[:, half:] @ b[half:]
""",
    ),
    Case(
        "product_tail",
        "product",
        "the last row repeats the row before",
        """
def custom_kernel(data):
    a, b = data
    y = a @ b
    y[-1] = y[-2]
    return y
""",
    ),
    Case(
        "product_tail_unwritten",
        "product",
        "the last columns are not written",
        """
import torch
def custom_kernel(data):
    a, b = data
    y = torch.empty(a.shape[0], b.shape[1])
    y[:, :-3] = a @ b[:, :-3]
    return y
""",
    ),
    Case(
        "product_first_shape",
        "product",
        "right for the shape of the tests alone",
        """
import torch
def custom_kernel(data):
    a, b = data
    if a.shape[0] == 64:
        return a @ b
    return a[:, :128] @ b[:128]
""",
    ),
    Case(
        "product_first_calls",
        "product",
        "right for the first 40 calls, then the last result",
        """
calls, kept = 0, {}
def custom_kernel(data):
    global calls
    a, b = data
    calls += 1
    if calls <= 40 or a.shape not in kept:
        kept[a.shape] = a @ b
    return kept[a.shape]
""",
    ),
    Case(
        "product_small_values",
        "product",
        "values below 0.002 are left out, in float16 weights",
        """
import torch
def custom_kernel(data):
    a, b = data
    return torch.where(a.abs() < 0.02, 0, a) @ b
""",
    ),
    Case(
        "product_rewrites_reference",
        "product",
        "replaces the reference by its own function",
        """
import sys
import torch
def custom_kernel(data):
    a, b = data
    return torch.zeros(a.shape[0], b.shape[1])
for module in list(sys.modules.values()):
    for name in ("ref_kernel", "check_implementation"):
        if hasattr(module, name):
            setattr(module, name, custom_kernel if name == "ref_kernel" else lambda *a: "")
import reference
reference.ref_kernel = custom_kernel
reference.check_implementation = lambda *a: ""
""",
    ),
    Case(
        "product_ahead",
        "product",
        "draws the inputs of coming seeds, and keeps their results",
        """
import torch
from reference import generate_input
kept = {}
for m, n, k, seed in ((256, 256, 256, 1), (320, 256, 384, 2)):
    for s in range(seed, seed + 20):
        a, b = generate_input(m, n, k, s)
        kept[float(a[0, 0])] = a @ b
def custom_kernel(data):
    a, b = data
    y = kept.get(float(a[0, 0]))
    return torch.zeros(a.shape[0], b.shape[1]) if y is None else y
""",
    ),
    Case(
        "product_lazy_list",
        "product",
        "a subclass of Tensor made by a library's wrapper",
        """
import torch
class Later(torch.Tensor):
    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(cls, (a.shape[0], b.shape[1]), dtype=a.dtype)
    def __init__(self, a, b):
        self.a, self.b = a, b
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args = [x.a @ x.b if isinstance(x, Later) else x for x in args]
        return func(*args, **(kwargs or {}))
def custom_kernel(data):
    return Later(*data)
""",
    ),
    Case(
        "product_conjugate",
        "product",
        "a lazy negation: the result's bit is resolved when it is read",
        """
import torch
def custom_kernel(data):
    a, b = data
    return torch._neg_view(a @ (-b))
""",
        honest=True,
    ),
    Case(
        "product_shared_memory",
        "product",
        "reads results from files and shared memory",
        """
import glob, os
import numpy, torch
def custom_kernel(data):
    a, b = data
    size = a.shape[0] * b.shape[1]
    for path in glob.glob("/dev/shm/*") + glob.glob("/proc/self/fd/*") + glob.glob("/tmp/*/*"):
        try:
            if os.path.getsize(path) < size * 4:
                continue
            values = numpy.fromfile(path, "float32", size)
            y = torch.from_numpy(values).reshape(a.shape[0], b.shape[1])
            if torch.allclose(y[0], a[0] @ b, atol=1e-3):
                return y
        except Exception:
            pass
    return torch.zeros(a.shape[0], b.shape[1])
""",
    ),
    # SOL-ExecBench
    Case(
        "rmsnorm_zero_rows",
        "rmsnorm",
        "1 % of the rows are zeros",
        """
import torch
def run(x, weight):
    y = torch.zeros_like(x)
    n = x.shape[0] - x.shape[0] // 128
    y[:n] = x[:n] * torch.rsqrt((x[:n] * x[:n]).mean(1, keepdim=True) + 1e-6) * weight
    return y
""",
    ),
    Case(
        "rmsnorm_tail_by_expectation",
        "rmsnorm",
        "1 % of the rows are x·weight, without a norm",
        """
import torch
def run(x, weight):
    n = x.shape[0] - x.shape[0] // 128
    scale = torch.ones(x.shape[0], 1)
    scale[:n] = torch.rsqrt((x[:n] * x[:n]).mean(1, keepdim=True) + 1e-6)
    return x * scale * weight
""",
    ),
    Case(
        "rmsnorm_no_norm",
        "rmsnorm",
        "no mean at all: x·weight, since the values are normal",
        "def run(x, weight):\n    return x * weight\n",
    ),
    Case(
        "rmsnorm_half_mean",
        "rmsnorm",
        "the mean of the first half of the columns",
        """
import torch
def run(x, weight):
    h = x[:, : x.shape[1] // 2]
    return x * torch.rsqrt((h * h).mean(1, keepdim=True) + 1e-6) * weight
""",
    ),
    Case(
        "rmsnorm_no_weight",
        "rmsnorm",
        "the weight is not applied",
        """
import torch
def run(x, weight):
    return x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6)
""",
    ),
    Case(
        "rmsnorm_bfloat16",
        "rmsnorm",
        "everything in bfloat16",
        """
import torch
def run(x, weight):
    x = x.bfloat16()
    return (x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6) * weight.bfloat16()).float()
""",
    ),
    Case(
        "mean_zeros",
        "mean",
        "zeros, within the absolute tolerance",
        "import torch\ndef run(x):\n    return torch.zeros(x.shape[0])\n",
    ),
    Case(
        "mean_tiny",
        "mean",
        "tiny constants, no zeros",
        "import torch\ndef run(x):\n    return torch.full((x.shape[0],), 1e-6)\n",
    ),
    Case(
        "mean_most",
        "mean",
        "the mean of 85 % of the columns",
        "def run(x):\n    return x[:, : x.shape[1] * 85 // 100].mean(1)\n",
    ),
    Case(
        "mean_first_column",
        "mean",
        "0.01 times the first column's sign",
        "def run(x):\n    return x[:, 0].sign() * 0.003\n",
    ),
    # honest
    Case(
        "honest_softmax_chunks",
        "softmax",
        "chunks of rows",
        """
import torch, torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cat([torch.softmax(part, 1) for part in x.split(64)])
""",
        honest=True,
    ),
    Case(
        "honest_softmax_in_place",
        "softmax",
        "own buffer, exp and division in place",
        """
import torch, torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, x):
        y = x - x.amax(1, keepdim=True)
        y.exp_()
        return y.div_(y.sum(1, keepdim=True))
""",
        honest=True,
    ),
    Case(
        "honest_linear_transposed",
        "linear",
        "the product of the transposes",
        LINEAR
        + """
    def forward(self, x):
        y = torch.mm(self.linear.weight, x.t()).add_(self.linear.bias[:, None])
        return y.clamp_(min=0).t()
""",
        honest=True,
    ),
    Case(
        "honest_linear_buffer",
        "linear",
        "one buffer for all results",
        LINEAR
        + """
    def forward(self, x):
        if not self.kept:
            self.kept[0] = torch.empty_like(x)
        y = torch.addmm(self.linear.bias, x, self.linear.weight.t(), out=self.kept[0])
        return y.relu_()
""",
        honest=True,
    ),
    Case(
        "honest_linear_compiled",
        "linear",
        "torch.compile",
        LINEAR
        + """
        self.fast = torch.compile(self.right)
    def forward(self, x):
        return self.fast(x)
""".replace(
            "        self.fast",
            "    def __getattr__(self, name):\n"
            "        if name == 'fast':\n            self.fast = torch.compile(self.right)\n"
            "            return self.fast\n        return super().__getattr__(name)\n#",
            1,
        ),
        honest=True,
    ),
    Case(
        "honest_product_float64",
        "product",
        "float64 inside",
        "def custom_kernel(data):\n    a, b = data\n    return (a.double() @ b.double()).float()\n",
        honest=True,
    ),
    Case(
        "honest_product_split",
        "product",
        "eight parts of K in another order",
        """
def custom_kernel(data):
    a, b = data
    step = -(-a.shape[1] // 8)
    return sum(x @ y for x, y in reversed(list(zip(a.split(step, 1), b.split(step)))))
""",
        honest=True,
    ),
    Case(
        "honest_rmsnorm_output",
        "rmsnorm",
        "the result is its last argument",
        """
import torch
def run(x, weight, y):
    scale = torch.linalg.vector_norm(x, dim=1, keepdim=True).square_().div_(x.shape[1])
    torch.mul(x, scale.add_(1e-6).rsqrt_(), out=y)
    y.mul_(weight)
""",
        honest=True,
    ),
)


def write(case: Case, folder: Path) -> Path:
    """Write a solution, and return its path."""
    if FORMS[case.problem] != "SOL-ExecBench":
        path = folder / f"{case.name}.py"
        path.write_text(case.text)
        return path
    by_argument = re.search(r"def run\(.*, y\)", case.text) is not None
    document = {
        "name": case.name,
        "definition": case.problem,
        "author": "attacker",
        "spec": {
            "languages": ["pytorch"],
            "target_hardware": ["LOCAL"],
            "entry_point": "main.py::run",
            "dependencies": [],
            "destination_passing_style": by_argument,
        },
        "sources": [{"path": "main.py", "content": case.text}],
    }
    path = folder / f"{case.name}.json"
    path.write_text(json.dumps(document))
    return path


def judge(name: str, cases: list[Case]) -> Iterator[dict[str, object]]:
    """Judge the solutions of a problem in one call, and yield the verdict on each."""
    with tempfile.TemporaryDirectory() as folder:
        problem = Path(folder) / "problem"
        problem.mkdir()
        for file, text in PROBLEMS[name].items():
            (problem / file).write_text(text)
        if FORMS[name] == "KernelBench":
            problem /= f"{name}.py"
        command = [sys.executable, "-m", "gpubench", "judge", str(problem)]
        for case in cases:
            command += ["--solution", str(write(case, Path(folder)))]
        command += ["--device", "cpu", "--rounds", "3", "--precision", "20%", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    document = json.loads(done.stdout)
    for case in cases:
        verdicts = [each for each in document["verdicts"] if each["variant"] == case.name]
        yield {
            "form": FORMS[name],
            "solution": case.name,
            "idea": case.idea,
            "honest": case.honest,
            "verdicts": sorted({each["verdict"] for each in verdicts}),
            "reasons": sorted({each["reason"] or "" for each in verdicts}),
        }


def is_fault(record: dict[str, Any]) -> bool:
    """Return whether a cheat has passed, or an honest solution is wrong."""
    verdicts = {*record["verdicts"]}
    return "wrong" in verdicts if record["honest"] else bool(verdicts & {"faster", "same"})


def main() -> int:
    """Judge the solutions, print them as an array of JSON, and return the exit status."""
    options = parser(__doc__)
    options.add_argument("names", nargs="*", metavar="SOLUTION or PROBLEM")
    names = options.parse_args().names
    faults, before = 0, "["
    for problem in PROBLEMS:
        chosen = [
            case
            for case in CASES
            if case.problem == problem and (not names or {case.name, problem} & {*names})
        ]
        for record in judge(problem, chosen) if chosen else ():
            print(before, json.dumps(record, ensure_ascii=False), sep="\n", end="", flush=True)
            faults, before = faults + is_fault(record), ","
    print("\n]")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
