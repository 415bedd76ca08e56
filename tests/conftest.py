"""Settings of all tests: they use their own caches, and no GPU."""

import gc
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import numba
import pytest
from hypothesis import settings
from warm import Fork, Forks, Popen

import gpubench
from gpubench.model import OPERATIONS

gc.disable()  # off until all tests are collected

# Hypothesis generates the same examples in each run, so a failure can be repeated, and no test
# depends on the speed of the machine.
settings.register_profile("gpubench", deadline=None, derandomize=True, database=None)
settings.load_profile("gpubench")


@pytest.fixture(scope="session", autouse=True)
def own_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep compiled kernels for this run of the tests, in all its processes and commands.

    In a later run, a test could pass with a kernel that an earlier version compiled. Commands run
    in other folders, so PYTHONPATH names the package under test.
    """
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "caches"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(gpubench.__file__).parent.parent))
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setenv("GPUBENCH_STORE", str(own / "store"))
        patch.setenv("NUMBA_CACHE_DIR", str(folder / "numba"))
        patch.setattr(numba.config, "CACHE_DIR", str(folder / "numba"))  # read at import
        # Cold operands must exceed the last-level cache, and some machines report 260 MiB.
        patch.setenv("GPUBENCH_CPU_CACHE_MIB", "2")
        # The tests expect no GPU, so they get none on any machine.
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        if os.environ.get("PYTHONDONTWRITEBYTECODE"):
            # Without bytecode, each of the tests' thousand processes would compile all modules.
            # The user wants no bytecode beside the modules, so it is in a folder of this run.
            patch.delenv("PYTHONDONTWRITEBYTECODE")
            patch.setenv("PYTHONPYCACHEPREFIX", str(folder / "bytecode"))
        patch.delenv("COLUMNS", raising=False)
        patch.setenv("TERM", "xterm")
        patch.delenv("FORCE_COLOR", raising=False)
        yield folder


@pytest.fixture(scope="session", autouse=True)
def forks(own_caches: Path) -> Iterator[None]:  # noqa: ARG001 # runs first, so that forks get this environment
    """Start the tests' Python processes as forks, if the system is Linux."""
    if sys.platform != "linux":
        yield
        return
    Fork.forks = forks = Forks()
    subprocess.Popen = Fork
    yield
    subprocess.Popen = Popen
    forks.close()


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start new Python processes, as users do, and no forks."""
    monkeypatch.setattr(Fork, "forks", None)


@pytest.fixture
def only_ours_afterwards() -> Iterator[None]:
    """Forget, after the test, the operations of users that the test reads."""
    before = dict(OPERATIONS._by_name)
    yield
    OPERATIONS._by_name = before


LONGEST = (
    "test_kernels.py", "test_cli.py", "test_emulated.py", "test_compiled.py", "test_build.py",
    "test_check.py", "test_new_operation.py", "test_worker.py", "test_files.py",
    "test_accidents.py", "test_students.py", "test_cpu.py", "test_accesses.py", "test_cheats.py",
    "test_wall.py", "test_stream_k.py", "test_processes.py", "test_proof.py", "test_epilogue.py",
    "test_sizes.py",
    "test_wrong.py", "test_bisect.py", "test_typed_pages.py", "test_fuzz.py", "test_limits.py",
    "test_kinds.py", "test_export.py", "test_foreign.py", "test_ends_of_commands.py",
    "test_host_functions.py", "test_scaled.py", "test_from_source.py", "test_shared.py",
    "test_grouped.py", "test_layouts.py", "test_ab.py", "test_neighbours.py", "test_claims.py",
    "test_explain.py", "test_from_python.py", "test_nvcc.py", "test_streams.py", "test_clashes.py",
    "test_structure.py",
)  # fmt: skip
"""The test files that take longest, in this order. The first two make things that other files need
too: the runtime for g++, and the rates of the CPU."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Start one more process than CPUs, because some processes wait for commands that they test."""
    return 1 + len(os.sched_getaffinity(0))


def pytest_configure(config: pytest.Config) -> None:
    """Make pytest-xdist distribute files in the order of `LONGEST`, not by number of tests."""
    config.option.loadscopereorder = False


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let the processes of pytest-xdist collect directories in different orders.

    The first process that imports a module rewrites its assertions and compiles it for the others.
    """
    report = yield
    if isinstance(collector, pytest.Dir) and report.result:
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        start = len(report.result) * (worker // 2) // 2
        turned = [*report.result[start:], *report.result[:start]]
        report.result = turned[::-1] if worker % 2 else turned
    return report


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out tests by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark exhaustive tests as slow, and start the longest files first.

    `-m "not slow"` replaces the `-m "not exhaustive"` of pyproject.toml, so it must leave out
    exhaustive tests too. The longest files would run alone at the end if they started late.
    """
    for item in items:
        if item.get_closest_marker("exhaustive"):
            item.add_marker("slow")
    place = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (place.get(item.path.name, len(LONGEST)), item.path))


def pytest_collection_finish() -> None:
    """Collect garbage more rarely than usual. It took a tenth of the time.

    `gc.freeze` is no alternative: Hypothesis could not find the references to its generators.
    """
    gc.enable()
    gc.set_threshold(10_000)
