"""The reason why g++ cannot compile a source: a header without its folder, or nvcc's own code."""

from pathlib import Path

from gpubench.on_cpu.only_nvcc import why_only_nvcc


def test_a_librarys_header_without_its_folder_is_named_before_the_library(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text('#include "kittens.cuh"\nusing namespace kittens;\n')
    source, folder = tmp_path / "mine.cu", tmp_path / "include"
    source.write_text('#include <cstdio>\n#include "kernel.cu"\n')
    assert why_only_nvcc(source, ()) == (
        'kittens.cuh is not found: name its folder in compile_options, such as "-I../include"'
    )
    folder.mkdir()
    (folder / "kittens.cuh").touch()
    assert why_only_nvcc(source, [f"-I{folder}"]) == (
        "g++ cannot compile its CUDA library. A sweep on a GPU verifies its results"
    )
    source.write_text("int x;")
    assert not why_only_nvcc(source, ())
