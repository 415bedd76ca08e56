"""What every test shares: caches of their own, no GPU, and small things to measure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numba
import pytest
from hypothesis import settings

import gpubench

# Counterexamples are searched for from the same start each time: a red run stays red, and no test
# depends on how fast the machine is.
settings.register_profile("gpubench", deadline=None, derandomize=True, database=None)
settings.load_profile("gpubench")


@pytest.fixture(scope="session", autouse=True)
def own_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Compiled kernels are kept for the run, in all its processes and in the commands they start.

    Those run in other folders, and must find the package under test.

    Not for longer, or a test would pass on what an earlier version compiled.
    """
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "caches"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(gpubench.__file__).parent.parent))
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setenv("GPUBENCH_STORE", str(own / "store"))
        patch.setenv("NUMBA_CACHE_DIR", str(folder / "numba"))
        patch.setattr(numba.config, "CACHE_DIR", str(folder / "numba"))  # read when it was imported
        # The tests say what happens without a GPU, so there is none, on any machine.
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        patch.delenv("COLUMNS", raising=False)
        patch.delenv("FORCE_COLOR", raising=False)
        yield folder


LONGEST = ("test_kernels.py", "test_compile_blocks.py", "test_cpu.py", "test_first_steps.py")
"""Files of tests that take a minute or more."""


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest-xdist give out files in the order below, not by how many tests they have."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest files first, so that none is still running when all others are done."""
    items.sort(key=lambda item: item.path.name not in LONGEST)
