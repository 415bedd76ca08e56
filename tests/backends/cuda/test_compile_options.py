"""A kernel's own compile options, and architectures with features of one GPU only."""

from pathlib import Path

import pytest

from gpubench.backends.cuda.compile import compile_instance
from gpubench.errors import CompileError

SOURCE = """
#ifndef FACTOR
#define FACTOR 2
#endif
__global__ void scale(float* C) {
  C[threadIdx.x] *= FACTOR;
#ifdef WGMMA
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel that the options decide on, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "scale.cu"
    path.write_text(SOURCE)
    return path


def test_options_decide_the_code_and_are_part_of_the_caches_key(source: Path) -> None:
    chosen: tuple[tuple[str, ...], ...] = ((), ("-DFACTOR=3",), ("-DFACTOR=3", "-lineinfo"))
    for _ in range(2):  # compiled, then from the cache
        cubins = [compile_instance(source, "scale", "sm_90", options).cubin for options in chosen]
        assert len(set(cubins)) == len(chosen)
    assert len(list((source.parent / "cache").rglob("cubin/*"))) == len(chosen)


def test_the_instructions_of_one_gpu_need_its_own_architecture(source: Path) -> None:
    options = ("-DWGMMA",)
    assert compile_instance(source, "scale", "sm_90a", options).cubin.startswith(b"\x7fELF")
    with pytest.raises(CompileError, match="scale for sm_90: "):
        compile_instance(source, "scale", "sm_90", options)
