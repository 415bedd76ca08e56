"""The structure of the package: directions of imports, two files per kernel, short files."""

import ast
import re
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import gpubench
from gpubench.cli import COMMANDS
from gpubench.model import DEFAULT_FILE_OP, DEFAULT_OP, OPERATIONS

PACKAGE = Path(gpubench.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "configs" not in path.parts)
"""All modules. An installed package contains configs/, whose descriptions are no modules."""
SOURCES = sorted(
    [*FILES, *(x for end in ("cu", "cuh", "cpp", "h") for x in PACKAGE.rglob(f"*.{end}"))]
)

LAYERS = (
    {"model", "errors", "grouping", "rewording", "text"},
    {"hardware", "stats"},
    {"files", "temporary", "process"},
    {"results"},
    {"cache"},
    {"kernels", "backends"},
    {"plan", "foreign"},
    {"completion", "options", "kernel_options"},
    {"engine"},
    {"on_cpu"},
    {"view"},
    {"commands"},
    {"cli", "api"},
    {"__main__"},
)
"""Layers from the bottom up. A module imports only from its own layer and lower layers."""

ROOMS = ("operands", "judge", "measure", "child", "outside")
"""The packages of the engine, in the order in which they may import one another."""

LONGEST = 600


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """Return the part of a module: `plan` for `gpubench.plan.sweep`, empty for the package."""
    return [*module.split("."), ""][1]


MODULES = {module_of(path): path for path in FILES}


@cache
def tree_of(path: Path) -> ast.Module:
    """Return a parsed module. It is cached, because several tests use it."""
    return ast.parse(path.read_text(encoding="utf-8"))


ASKED_FOR = (ast.Import, ast.ImportFrom, ast.Call, ast.keyword, ast.Dict)


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return the nodes of a module. They are cached, because a walk takes as long as to parse."""
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, ASKED_FOR)]


@cache
def imports(path: Path) -> set[str]:
    """Return every imported module, at the top or in functions, with exact names of our modules."""
    names: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                names.add(whole if whole in MODULES else str(node.module))
    return names


def layer_of(part: str) -> int:
    (layer,) = (number for number, parts in enumerate(LAYERS) if part in parts)
    return layer


def test_imports_run_one_way() -> None:
    for path in FILES:
        part = part_of(module_of(path))
        own = {each for each in imports(path) if each.startswith("gpubench.")}
        # The package itself imports the library's calls when they are first used.
        above = {each for each in own if part and layer_of(part_of(each)) > layer_of(part)}
        assert above == set(), path


def test_every_part_has_one_layer() -> None:
    parts = {part_of(module) for module in MODULES} - {""}
    assert parts == set().union(*LAYERS), "name each part of gpubench/ in one row of LAYERS"


def test_no_imports_go_in_circles() -> None:
    graph = {
        module: {each for each in imports(path) if each in MODULES and each != "gpubench"}
        for module, path in MODULES.items()
        if module != "gpubench"
    }
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert set(order) >= set(graph)


def test_packages_do_not_import_one_another_in_circles() -> None:
    # A module in gpubench/ itself is a part of its own.
    folders = {
        module: path if path.parent == PACKAGE else path.parent for module, path in MODULES.items()
    }
    graph: dict[Path, set[Path]] = {folder: set() for folder in folders.values()}
    for module, path in MODULES.items():
        ours = {name for name in imports(path) if name in MODULES and name != "gpubench"}
        graph[folders[module]] |= {folders[name] for name in ours} - {folders[module]}
    assert set(TopologicalSorter(graph).static_order()) >= set(graph)  # raises CycleError


def test_a_room_of_the_engine_imports_only_those_before_it() -> None:
    for number, room in enumerate(ROOMS):
        for path in (PACKAGE / "engine" / room).glob("*.py"):
            own = {
                name.split(".")[2] for name in imports(path) if name.startswith("gpubench.engine.")
            }
            assert own <= set(ROOMS[: number + 1]), path


def packages(path: Path) -> set[str]:
    """Return the top-level names of the modules that a module imports."""
    return {name.partition(".")[0] for name in imports(path)}


def test_nouns_need_the_standard_library_only_planning_no_arrays_and_one_backend_cupy() -> None:
    cuda = {"cupy", "cupyx", "cupy_backends", "cuda", "cupti", "pynvml"}
    for path in FILES:
        folder = path.relative_to(PACKAGE).parent
        if folder == Path("model"):
            assert packages(path) <= {*sys.stdlib_module_names, "gpubench"}, path
        if folder == Path("plan"):
            assert not packages(path) & {"numpy", "pandas", "numba"}, path
        if folder != Path("backends/cuda"):
            assert not packages(path) & cuda, path


def test_commands_do_not_import_one_another() -> None:
    for path in (PACKAGE / "commands").rglob("*.py"):
        command = module_of(path).split(".")[2:3]
        others = {
            name.split(".")[2]
            for name in imports(path)
            if name.count(".") > 1 and name.startswith("gpubench.commands.")
        }
        assert others <= set(command), path


def test_the_core_names_no_command_that_is_optional() -> None:
    # The core writes or reads the files of the other commands.
    needed = {"sweep", "compare-cublas", "tune", "show", "diff", "build"}
    names = "|".join(name.replace("-", ".") for name in COMMANDS if name not in needed)
    optional = re.compile(rf"gpubench ({names})\b|\b(fleet|new.kernel|operand_files|reproduce)\b")
    for part in ("engine", "results", "view"):
        for path in sorted((PACKAGE / part).rglob("*.py")):
            text = path.read_text(encoding="utf-8").replace("install_command('fleet')", "")  # Dask
            assert not optional.search(text), path


def test_views_run_nothing_and_know_no_backend() -> None:
    for path in sorted((PACKAGE / "view").rglob("*.py")):
        tree = tree_of(path)
        typing_only = {
            node
            for block in ast.walk(tree)
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
            for node in ast.walk(block)
        }
        runs = {
            f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node not in typing_only
            for alias in node.names
            if part_of(str(node.module)) in {"backends", "engine", "kernels"}
        }
        # The methods of this class do nothing. The progress overrides them.
        assert runs <= {"gpubench.engine.pool.Watcher"}, path


def test_nothing_but_the_command_line_ends_the_process() -> None:
    for path in FILES:
        if path.name not in {"cli.py", "__main__.py"}:
            text = path.read_text(encoding="utf-8")
            assert "sys.exit" not in text, path
            assert "SystemExit" not in text, path


def test_every_program_starts_behind_a_warden() -> None:
    starts = re.compile(
        r"\b(?:subprocess\.(?!TimeoutExpired|DEVNULL)|import Popen|os\.(?:fork|spawn|system|popen))"
    )
    for path in FILES:
        if path.parent != PACKAGE / "process":
            calls = starts.findall(path.read_text(encoding="utf-8"))
            assert not calls, (path, calls)


def test_clocks_are_bound_when_a_module_is_loaded_before_any_kernel_can_patch_them() -> None:
    for path in FILES:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert "import time" not in map(str.strip, lines), path


def test_a_cuda_variant_is_one_source_and_one_descriptor() -> None:
    for path in sorted((PACKAGE / "kernels").glob("*/*.cu")):
        of_its_name = sorted(p.name for p in path.parent.iterdir() if p.stem == path.stem)
        assert of_its_name == [f"{path.stem}.cu", f"{path.stem}.py"], path
        # The kernel has the file's name, and the parameters that `CudaVariant` passes by default.
        text = path.read_text(encoding="utf-8")
        first = f"// {path.stem}: "
        assert text.startswith(first), f"{path}: the first line must start with '{first}'"
        operation = OPERATIONS[OPERATIONS.named_by(path.parent.name)[0]]
        types = {"": "Scalar", "float32": "float", "int32": "int"}
        operands = (rf"const {types[x.dtype]}\* {x.name}" for x in operation.inputs)
        begin = r",\s+".join((*operands, rf"Scalar\* {operation.output.name}"))
        workspace = r"(,\s+Scalar\* workspace)?"
        extents = "".join(rf",\s+int {extent}" for extent in operation.extents)
        maps = r"(,\s+const __grid_constant__ CUtensorMap \w+)*"
        parameters = rf"{begin}{workspace}{extents}(,\s+int \w+)*{maps}"
        expected = ", ".join((begin, *(f"int {extent}" for extent in operation.extents)))
        expected = expected.replace(r",\s+", ", ").replace("\\", "")
        assert re.search(rf"^{path.stem}\({parameters}\) {{$", text, re.MULTILINE), (
            f"{path}: a line must start with '{path.stem}({expected}'"
        )


def test_a_file_reads_in_one_sitting() -> None:
    for path in SOURCES:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= LONGEST, f"{path} has {lines} lines: split it"


def test_only_the_judge_makes_a_measurement_wrong() -> None:
    judge = PACKAGE / "engine" / "judge" / "verdict.py"
    makers = set()
    for path in FILES:
        for node in nodes_of(path):
            if isinstance(node, ast.keyword) and node.arg == "status":
                names = {ast.unparse(part) for part in ast.walk(node.value)}
                if names & {"Status.WRONG", "'wrong'", "Status('wrong')"}:
                    makers.add(path)
    assert makers == {judge}


def test_no_operation_is_named_outside_its_folder_but_as_a_default() -> None:
    defaults = PACKAGE / "model" / "operation.py"
    for path in FILES:
        if path.is_relative_to(PACKAGE / "kernels"):
            continue
        named = [
            node.value
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Constant) and OPERATIONS.is_ours(node.value)
        ]
        assert named == ([DEFAULT_OP, DEFAULT_FILE_OP] if path == defaults else []), path


def test_modules_of_tests_have_different_names() -> None:
    """Pytest imports a module by its name without the folder, so one of two would not run."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert {name for name, count in names.items() if count > 1} == set()
