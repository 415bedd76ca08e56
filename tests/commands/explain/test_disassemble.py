"""Finding and running a disassembler, played by a script."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubench.commands.explain import disassemble as module
from gpubench.commands.explain.disassemble import disassemble, nvdisasm

PLAYER = """#!/bin/sh
printf '%s ' "$1"
cat "$2"
"""


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without any CUDA toolkit; what was found before is forgotten."""
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path / "site-packages"))
    nvdisasm.cache_clear()
    yield
    nvdisasm.cache_clear()


def install(folder: Path, script: str = PLAYER) -> Path:
    folder.mkdir(parents=True)
    program = folder / "nvdisasm"
    program.write_text(script, encoding="utf-8")
    program.chmod(0o755)
    return program


def test_without_a_disassembler_there_is_no_code() -> None:
    assert nvdisasm() is None
    assert disassemble(b"cubin") is None


def test_the_one_on_path_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site-packages" / "nvidia" / "cu13" / "bin")
    on_path = install(tmp_path / "here")
    monkeypatch.setenv("PATH", f"{on_path.parent}:/bin")
    assert nvdisasm() == on_path


def test_a_toolkit_is_searched_and_then_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = install(tmp_path / "site-packages" / "nvidia" / "cu13" / "bin")
    assert nvdisasm() == wheel
    toolkit = install(tmp_path / "cuda" / "bin")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    nvdisasm.cache_clear()
    assert nvdisasm() == toolkit


def test_the_cubin_is_given_to_it_and_its_answer_is_the_code(tmp_path: Path) -> None:
    install(tmp_path / "site-packages" / "nvidia" / "cu13" / "bin")
    assert disassemble(b"the cubin") == "-c the cubin"


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", "#!/no/such/shell\n"])
def test_one_that_does_not_know_the_architecture_or_does_not_run_says_nothing(
    tmp_path: Path, script: str
) -> None:
    install(tmp_path / "site-packages" / "nvidia" / "cu13" / "bin", script)
    assert nvdisasm()
    assert disassemble(b"cubin") is None


def test_one_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site-packages" / "nvidia" / "cu13" / "bin", "#!/bin/sh\nexec sleep 9\n")
    monkeypatch.setattr(module, "TIMEOUT_S", 0.01)
    assert disassemble(b"cubin") is None
