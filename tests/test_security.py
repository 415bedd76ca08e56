"""No file or flag is run as code, except the two files of a kernel."""

from __future__ import annotations

import ast
from pathlib import Path

import gpubench

PACKAGE = Path(gpubench.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

RUNS_TEXT = {"eval", "exec", "compile", "__import__", "input"}
"""Built-in functions that run text as code."""

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
"""Modules whose readers run code that a file holds."""

IMPORTERS = {"importlib", "importlib.util", "importlib.machinery", "runpy", "imp"}

IMPORTS_BY_NAME = {
    PACKAGE / "cli.py",
    PACKAGE / "plan" / "descriptor.py",
    PACKAGE / "backends" / "__init__.py",
    PACKAGE / "backends" / "calls.py",
    PACKAGE / "model" / "variant.py",
    PACKAGE / "view" / "pictures" / "__init__.py",
}
"""Where the description of a kernel is run, which the help of `--kernels` says; where backends are
found by their folders inside the package; the packages that a descriptor asks for; where matplotlib
is; and the packages of the commands, which `COMMANDS` lists."""


def findings(path: Path, text: str) -> set[str]:
    """What a module does that no module of the package may do."""
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
        if modules & IMPORTERS and path not in IMPORTS_BY_NAME:
            found.add("importlib")
        if isinstance(node, ast.Call):
            found |= findings_in_call(node)
    return found


def findings_in_call(node: ast.Call) -> set[str]:
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


def test_no_module_makes_code_of_text_starts_a_shell_or_reads_objects() -> None:
    for path in FILES:
        assert findings(path, path.read_text(encoding="utf-8")) == set(), path


def test_the_search_finds_what_it_is_for() -> None:
    for text, finding in (
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
    ):
        assert findings(Path("elsewhere.py"), text) == {finding}, text


def test_the_search_ignores_what_is_harmless() -> None:
    text = "import re\nre.compile('x')\nsubprocess.run(['ls'], shell=False)\nmodel.eval()"
    assert findings(Path("elsewhere.py"), text) == set()
