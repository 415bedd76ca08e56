"""The pages for newcomers work: tests save their files and type their commands as written."""

import shlex
import shutil
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest
from commandline import COMMANDS, Done, call
from newcomer import REPOSITORY, blocks, write
from stub import nothing_measured

from gpubench.backends.cuda.compile import compile_instance
from gpubench.model import CudaVariant
from gpubench.plan.descriptor import load
from gpubench.plan.sweep import Sweep, plan
from gpubench.results.row import read

pytestmark = pytest.mark.slow

_INSTALL, *FIRST_STEPS = blocks("first-steps.md")
ADDING = blocks("adding-a-kernel.md")
OWN = blocks("own-kernels.md")

GPU = "on a machine with a GPU"

TYPED_ELSEWHERE = {"check", "explain"}
"""Commands that the test of first-steps.md types. Those of own-kernels.md are only parsed."""


def typed(folder: Path, command: str) -> Done:
    """Run a command that must succeed, and return its outcome. A sweep measures nothing."""
    name, *words = shlex.split(command)
    with nothing_measured() if name == "sweep" else nullcontext():
        done = call(folder, name, *words)
    assert done.code == 0, f"{command}\n{done.err}"
    return done


def test_every_first_step_works_as_written(tmp_path: Path) -> None:
    outputs = {}
    for block in FIRST_STEPS:
        if block.language == "text":
            printed = [line.split() for line in outputs[block.title]]
            assert all(line.split() in printed for line in block.text.splitlines())
        elif block.language != "sh":
            write(block, tmp_path)
        assert not block.commands or len(block.commands) == len(block.text.splitlines())
        for command in block.commands:
            name, *words = shlex.split(command)
            if words[-1:] == ["second.csv"]:  # the page runs the same sweep again
                shutil.copy(tmp_path / "first.csv", tmp_path / "second.csv")
            elif words[:2] == ["my_tile", "--kernels"]:  # the tests of `check` run it
                COMMANDS[name].make_context(name, words)
            else:
                outputs[words[0]] = typed(tmp_path, command).out.splitlines()
                for option, value in pairwise(words):
                    if option in {"-o", "--output"} and "--dry-run" not in words:
                        assert (tmp_path / value).stat().st_size
    assert {row.variant for row in read(tmp_path / "rows.csv")} == {"cpu_rows", "cpu_blas"}
    for name in ("first.csv", "second.csv", "rows.csv"):
        assert {row.status for row in read(tmp_path / name)} == {"ok"}


def test_the_times_of_both_kernels_on_the_first_page_are_those_of_the_file() -> None:
    rows = read(REPOSITORY / "results/h200/main.csv")
    first, second = (
        next(row.median_us for row in rows if (row.variant, row.tile, row.m) == (name, "32", 1024))
        for name in ("naive_uncoalesced", "naive")
    )
    page = (REPOSITORY / "docs/first-steps.md").read_text(encoding="utf-8")
    times = [f"{(median_us or 0) / 1000:.3g} ms" for median_us in (first, second)]
    assert " for the first kernel, and ".join(times) in page


def test_the_page_adds_a_kernel_of_two_files_that_compiles_at_every_tile(tmp_path: Path) -> None:
    files = [block for block in ADDING if block.title.startswith("gpubench/")]
    stem = "gpubench/kernels/gemm/transposed_tile"
    assert [block.title for block in files] == [f"{stem}.cu", f"{stem}.py"]
    *_, description = [write(block, tmp_path) for block in files]
    kernel = load(description, "gemm")
    assert isinstance(kernel, CudaVariant)
    points = plan(Sweep(variants=("transposed_tile",), kernels=description.parent), "cuda")
    assert [str(point.tile) for point in points] == ["1", "2", "4", "8", "16", "32"]
    for tile in kernel.tiles.defaults:
        built = compile_instance(kernel.source, kernel.instance(tile, "float32"), "sm_90")
        assert built.resources.spill_bytes == 0
    assert built.resources.shared_bytes == 8320  # the figure on the page


def test_every_kind_of_kernel_on_the_page_comes_to_its_first_row_or_compiles(
    tmp_path: Path,
) -> None:
    for block in OWN:
        if block.title.endswith((".cu", ".py")):
            write(block, tmp_path)
    for block in OWN:
        if block.language == "sh" and not block.title:
            assert len(block.commands) == len(block.text.replace("\\\n", "").splitlines())
            run = [line for line in block.commands if line.split()[0] not in TYPED_ELSEWHERE]
            out = "".join(typed(tmp_path, command).out for command in run)
            assert not run or "my_" in out, block.text
    for name in ("my_tile.cu", "my_tile.py"):
        assert (tmp_path / "own/gemm" / name).is_file()
    (described,) = (block.text for block in OWN if block.text.startswith("VARIANT = CudaVariant"))
    assert (tmp_path / "own/gemm/my_sgemm.py").read_text().endswith(described)
    rows = {(row.variant, row.tile): row.status for row in read(tmp_path / "my_blocks.csv")}
    tiles = [("my_blocks", edge) for edge in ("8", "32", "128")]
    assert rows == dict.fromkeys([*tiles, ("cpu_blas", "")], "ok")
    assert (tmp_path / "my_blocks.svg").is_file()
    assert (tmp_path / "my_export/shared_tile.cu").is_file()
    lines = [line for block in OWN if block.title == GPU for line in block.commands]
    assert lines
    for line in lines:
        refused = call(tmp_path, *shlex.split(line), "--device", "cuda")
        assert (refused.code, refused.out) == (2, "")
        assert "CUDA" in refused.err
