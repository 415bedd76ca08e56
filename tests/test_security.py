"""Nothing that a file or a flag says is run, but a kernel's own two files."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path

import pytest

import gpubench
from gpubench.backends.cuda.compile import SCALARS, instance
from gpubench.model import CudaVariant, Problem
from gpubench.plan.descriptor import is_name
from gpubench.plan.registry import variants

PACKAGE = Path(gpubench.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

RUNS_TEXT = {"eval", "exec", "compile", "__import__", "input"}
"""Built-in functions that make code of text."""

SHELLS = {
    ("os", "system"),
    ("os", "popen"),
    ("os", "execv"),
    ("os", "spawnv"),
    ("subprocess", "getoutput"),
    ("subprocess", "getstatusoutput"),
    ("asyncio", "create_subprocess_shell"),
}

OBJECTS_FROM_FILES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
"""Modules whose readers run what a file says."""

IMPORTERS = {"importlib", "importlib.util", "importlib.machinery", "runpy", "imp"}

IMPORTS_BY_PATH = {PACKAGE / "plan" / "descriptor.py"}
"""Where a variant's description is run: that is what it is for, and `--kernels` says so."""


def findings(path: Path, text: str) -> set[str]:
    """What a module does that nothing here may do."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules = {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules = {str(node.module)}
            found |= {
                f"{node.module}.{alias.name}"
                for alias in node.names
                if (node.module, alias.name) in SHELLS
            }
        else:
            modules = set()
        found |= {module.partition(".")[0] for module in modules} & OBJECTS_FROM_FILES
        if modules & IMPORTERS and path not in IMPORTS_BY_PATH:
            found.add("importlib")
        if isinstance(node, ast.Call):
            found |= called(node)
    return found


def called(node: ast.Call) -> set[str]:
    found: set[str] = set()
    if isinstance(node.func, ast.Name) and node.func.id in RUNS_TEXT:
        found.add(node.func.id)
    if isinstance(node.func, ast.Attribute):
        owner = node.func.value
        if isinstance(owner, ast.Name) and (owner.id, node.func.attr) in SHELLS:
            found.add(f"{owner.id}.{node.func.attr}")
        if node.func.attr in {"read_pickle", "read_hdf"}:
            found.add(node.func.attr)
    for keyword in node.keywords:
        off = isinstance(keyword.value, ast.Constant) and not keyword.value.value
        if keyword.arg in {"shell", "allow_pickle"} and not off:
            found.add(keyword.arg)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_makes_code_of_text_starts_a_shell_or_reads_objects(path: Path) -> None:
    assert findings(path, path.read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("eval('1')", "eval"),
        ("def f(x):\n    exec(x)", "exec"),
        ("import pickle", "pickle"),
        ("from marshal import loads", "marshal"),
        ("import os\nos.system('ls')", "os.system"),
        ("from os import popen", "os.popen"),
        ("import subprocess\nsubprocess.run('ls', shell=True)", "shell"),
        ("subprocess.run('ls', shell=flag)", "shell"),
        ("import numpy as np\nnp.load('x', allow_pickle=True)", "allow_pickle"),
        ("pd.read_pickle('x')", "read_pickle"),
        ("import importlib.util", "importlib"),
    ],
)
def test_the_search_finds_what_it_is_for(text: str, what: str) -> None:
    assert findings(Path("elsewhere.py"), text) == {what}


def test_the_search_lets_pass_what_is_harmless() -> None:
    text = "import re\nre.compile('x')\nsubprocess.run(['ls'], shell=False)\nmodel.eval()"
    assert findings(Path("elsewhere.py"), text) == set()


@pytest.mark.parametrize(
    "variant",
    [v for v in variants() if isinstance(v, CudaVariant)],
    ids=lambda v: f"{v.op}-{v.name}",
)
def test_a_template_instance_is_a_checked_name_a_scalar_and_numbers(variant: CudaVariant) -> None:
    problem = Problem(op=variant.op, m=64, n=64, k=64, dtype=variant.dtypes[0])
    for tile, dtype in product(variant.tiles.default, variant.dtypes):
        for launch in variant.launch(tile, problem).sequence:
            name, _, arguments = instance(variant, tile, dtype, launch.kernel).partition("<")
            scalar, *numbers = arguments.removesuffix(">").split(", ")
            assert is_name(name)
            assert scalar in SCALARS.values()
            assert all(number.isdecimal() for number in numbers)
