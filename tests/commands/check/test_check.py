"""`gpubench check`: right kernels pass, wrong ones are caught, without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench.commands.check import on_cpu
from gpubench.commands.check.run import FAULTY, NOT_RUN, run_check
from gpubench.errors import UsageError

WRONG = Path(__file__).parent.parent.parent / "wrong"

CALL = """
from gpubench.model import CallVariant

def build(tile, dtype):
    def call(a, b, c):
        {body}
    return call

VARIANT = CallVariant(idea="of a test", runs_on="{on}", build=build, baseline="")
"""


def check(name: str, kernels: Path | None = None, tiles: str | None = None) -> int:
    return run_check(name, kernels, None, tiles, None)


def own(folder: Path, body: str, on: str = "cpu") -> Path:
    (folder / "mine.py").write_text(CALL.format(body=body, on=on))
    return folder


@pytest.mark.slow
def test_a_right_kernel_is_compiled_run_and_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("shared_tile", tiles="2,3") == 0
    out = capsys.readouterr().out
    assert "compiled for sm_90, float32:" in out
    assert "shared_tile is right and clean on the CPU:\n" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.slow
def test_a_missing_barrier_is_a_fault_with_its_case_and_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check("missing_barrier", WRONG) == FAULTY
    out = capsys.readouterr().out
    assert "fault: missing_barrier " in out
    assert "ThreadSanitizer: data race" in out
    assert "missing_barrier.cu line " in out


def test_a_source_that_does_not_compile_is_a_fault_with_the_compilers_first_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpubench.commands.new_kernel.run import write_pair

    write_pair("mine", None, None, tmp_path, force=False)
    source = tmp_path / "gemm" / "mine.cu"
    source.write_text(source.read_text().replace("{", "{ oops;", 1))
    assert check("mine", tmp_path) == FAULTY
    assert "does not compile for sm_90: " in capsys.readouterr().out


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_cpu.shutil, "which", lambda _name: None)
    with pytest.raises(UsageError, match=r"g\+\+ is missing"):
        check("naive", tiles="1")


def test_a_function_of_the_cpu_is_called_at_odd_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("mine", own(tmp_path, "c[:] = a @ b")) == 0
    assert "mine is right and clean on the CPU:\n18 calls" in capsys.readouterr().out


def test_a_wrong_element_is_named_with_what_it_must_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("mine", own(tmp_path, "c[:-1] = a[:-1] @ b")) == FAULTY
    out = capsys.readouterr().out
    assert (
        "wrong: mine at 1 float32: 1 of 1 elements are wrong, the first at [0, 0]: nan, not" in out
    )
    assert "more cases" in out


def test_what_a_description_raises_is_one_line_with_its_type(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mine\.py, line 6: ZeroDivisionError: "):
        check("mine", own(tmp_path, "1 / 0"))


def test_what_cannot_be_run_here_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    assert check("mine", own(tmp_path, "pass", on="cuda")) == NOT_RUN


def test_unknown_names_and_tiles_are_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'shared_tile'"):
        check("shard_tile")
    with pytest.raises(UsageError, match="--tiles: shared_tile takes edges 1 to 32"):
        check("shared_tile", tiles="33")
