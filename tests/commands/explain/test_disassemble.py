"""Running a disassembler, which a script replaces."""

from pathlib import Path

import pytest

from gpubench.commands.explain import sass as module
from gpubench.commands.explain.sass import disassemble, sections


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "nvdisasm"
    program.write_text(f"#!{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(module, "find", lambda _name: str(program))


def test_without_a_disassembler_there_is_no_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find", lambda _name: None)
    assert disassemble(b"cubin", "-c") is None


def test_the_disassembler_gets_the_cubin_and_prints_the_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, '/bin/sh\nprintf \'%s \' "$1"\ncat "$3"')
    assert disassemble(b"the cubin", "-c") == "-c the cubin"


def test_a_disassembler_that_fails_hangs_or_does_not_start_gives_no_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.5)
    for script in ("/bin/sh\nexit 1", "/no/such/shell", "/bin/sh\nexec sleep 9"):
        install(tmp_path, monkeypatch, script)
        assert disassemble(b"cubin", "-c") is None


def test_each_section_has_its_listing_and_blanks_follow_short_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = "heading\\n//---- .text.f      ----\\ncode\\n//---- .nv.info.long ----\\nfacts"
    install(tmp_path, monkeypatch, f"/bin/sh\nprintf '{printed}'")
    assert sections(b"cubin") == {".text.f": "\ncode\n", ".nv.info.long": "\nfacts"}
