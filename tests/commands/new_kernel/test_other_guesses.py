"""`new-kernel --from` tries other guesses if results are wrong, and keeps only a right guess."""

from pathlib import Path

import pytest

from gpubench.commands.new_kernel import run
from gpubench.commands.new_kernel.proof import Proof
from gpubench.commands.new_kernel.run import describe_source
from gpubench.errors import UsageError
from gpubench.model import Variant
from gpubench.plan.descriptor import load

KERNEL = """
__global__ void mine(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.x * blockDim.x + threadIdx.x, col = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  C[row * N + col] = sum;
}
"""
FIRST_GRID = 'grid=("N/32", "M/32")'


def described(folder: Path, text: str = KERNEL) -> str:
    """Describe a source, and return the description."""
    (folder / "mine.cu").write_text(text)
    describe_source("tried", "gemm", folder / "mine.cu", folder / "own", force=True)
    return (folder / "own/gemm/tried.py").read_text()


@pytest.mark.slow
def test_a_description_states_the_guess_that_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 'grid=("M/32", "N/32")' in described(tmp_path)
    out = capsys.readouterr().out
    assert "complete: its results at 256x512x64 and 512x256x32 are right" in out
    assert "only right if blockIdx.x counts rows of C, so the description states this" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("C[row * N", "C[row * M"), ("k = 0", "k = 1"), ("A[row * K", "A[row * N")],
)
def test_no_guess_makes_a_wrong_kernel_complete(
    right: str, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert FIRST_GRID in described(tmp_path, KERNEL.replace(right, wrong))
    out = capsys.readouterr().out
    assert "Not proved: " in out
    assert "complete" not in out


def wrong_proof(*_: object, **__: object) -> Proof:
    return Proof(reason="its results are wrong", is_wrong=True)


def test_a_refused_guess_leaves_the_first_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = []

    def refuse_others(path: Path, op: str) -> Variant:
        loaded.append(text := path.read_text())
        if FIRST_GRID not in text:
            raise UsageError("refused")
        return load(path, op)

    monkeypatch.setattr(run, "load", refuse_others)
    monkeypatch.setattr(run, "prove", wrong_proof)
    assert FIRST_GRID in described(tmp_path)
    assert any(FIRST_GRID not in text for text in loaded), "another guess was tried"
    assert "Not proved: its results are wrong." in capsys.readouterr().out


def test_an_interrupt_while_a_guess_is_tried_leaves_the_first_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, as_is: bool = False) -> Proof:
        if as_is:
            raise KeyboardInterrupt
        return wrong_proof()

    monkeypatch.setattr(run, "prove", interrupt)
    with pytest.raises(KeyboardInterrupt):
        described(tmp_path)
    assert FIRST_GRID in (tmp_path / "own/gemm/tried.py").read_text()
