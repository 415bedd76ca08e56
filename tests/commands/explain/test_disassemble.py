"""Finding and running a disassembler, for which a script stands in."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubench.commands.explain import sass as module
from gpubench.commands.explain.sass import disassemble, nvdisasm

SCRIPT = """#!/bin/sh
printf '%s ' "$1"
cat "$3"
"""


@pytest.fixture(autouse=True)
def no_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without any CUDA toolkit."""
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path / "site-packages"))
    nvdisasm.cache_clear()
    yield
    nvdisasm.cache_clear()


def install(directory: Path, script: str = SCRIPT) -> Path:
    directory.mkdir(parents=True)
    program = directory / "nvdisasm"
    program.write_text(script, encoding="utf-8")
    program.chmod(0o755)
    return program


def test_without_a_disassembler_there_is_no_listing() -> None:
    assert nvdisasm() is None
    assert disassemble(b"cubin", "-c") is None


def test_a_toolkit_comes_before_the_wheel_and_what_is_on_path_before_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = install(tmp_path / "site-packages" / "nvidia" / "cu13" / "bin")
    assert nvdisasm() == wheel
    toolkit = install(tmp_path / "cuda" / "bin")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    nvdisasm.cache_clear()
    assert nvdisasm() == toolkit
    on_path = install(tmp_path / "here")
    monkeypatch.setenv("PATH", f"{on_path.parent}:/bin")
    nvdisasm.cache_clear()
    assert nvdisasm() == on_path


def test_a_disassembler_that_fails_or_does_not_start_gives_no_listing(tmp_path: Path) -> None:
    program = install(tmp_path / "site-packages" / "nvidia" / "cu13" / "bin")
    assert disassemble(b"the cubin", "-c") == "-c the cubin"
    for script in ("#!/bin/sh\nexit 1\n", "#!/no/such/shell\n"):
        program.write_text(script, encoding="utf-8")
        assert disassemble(b"cubin", "-c") is None


def test_a_disassembler_that_hangs_gives_no_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site-packages" / "nvidia" / "cu13" / "bin", "#!/bin/sh\nexec sleep 9\n")
    monkeypatch.setattr(module, "TIMEOUT_S", 0.01)
    assert disassemble(b"cubin", "-c") is None
