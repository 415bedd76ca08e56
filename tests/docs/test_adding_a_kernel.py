"""docs/adding-a-kernel.md and docs/own-kernels.md: the commands are typed as written."""

import shlex
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
from commandline import COMMANDS, call
from newcomer import REPOSITORY, Block, Newcomer, blocks
from stub import nothing_measured

from gpubench.backends.cuda.compile import compile_instance
from gpubench.commands.new_kernel.run import describe_source, write_pair
from gpubench.model import CudaVariant
from gpubench.plan.descriptor import load
from gpubench.plan.sweep import Sweep, plan
from gpubench.results.row import read

ADDING = blocks("adding-a-kernel.md")
OWN = blocks("own-kernels.md")

pytestmark = pytest.mark.slow

GPU = "on a machine with a GPU"

TYPED_ELSEWHERE = {"check", "explain"}
"""Commands of which docs/first-steps.md types the like, so they are read here, and not run."""


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the page's two files in it, and nothing else changed."""
    copy = tmp_path_factory.mktemp("added") / "gpubench"
    for name in ("gpubench", "configs", "tests"):
        shutil.copytree(REPOSITORY / name, copy / name)
    newcomer = Newcomer(copy, copy)
    for block in ADDING:
        if block.title.startswith("gpubench/"):
            newcomer.write(block)
    return copy


@pytest.fixture(scope="module")
def own(added: Path) -> Path:
    """A user's folder with the page's two files."""
    folder = added.parent / "own"
    folder.mkdir()
    for path in (added / "gpubench/kernels/gemm").glob("transposed_tile.*"):
        shutil.copy(path, folder)
    return folder


def newcomer_in(folder: Path) -> Newcomer:
    shutil.rmtree(folder / ".venv", ignore_errors=True)
    return Newcomer(folder, folder)


def test_the_page_adds_two_files() -> None:
    files = [block.title for block in ADDING if block.title.startswith("gpubench/")]
    stem = "gpubench/kernels/gemm/transposed_tile"
    assert files == [f"{stem}.cu", f"{stem}.py"]


def commands(page: list[Block]) -> list[str]:
    return [block.text for block in page if block.language == "sh" and not block.title]


def test_the_commands_of_the_page_work_without_a_gpu(added: Path, own: Path) -> None:
    listed, explained = commands(ADDING)
    variants, tests = listed.splitlines()
    assert all((added / path).is_file() for path in tests.split(" -m pytest ")[1].split())
    done = newcomer_in(added).type(variants)
    assert (done.returncode, "transposed_tile" in done.stdout) == (0, True), done.stderr
    # As a kernel of a user's, in this process, and at one tile.
    words = [*shlex.split(explained)[1:], "--tiles", "32", "--kernels", str(own)]
    assert "shared memory           8,320 bytes a block" in call(own, *words).out


def test_the_kernel_of_the_page_compiles_at_every_tile_and_fits(added: Path) -> None:
    kernel = load(added / "gpubench/kernels/gemm/transposed_tile.py", "gemm")
    assert isinstance(kernel, CudaVariant)
    for tile in kernel.tiles.defaults:
        name = kernel.instance(tile, "float32")
        resources = compile_instance(kernel.source, name, "sm_90").resources
        assert resources.spill_bytes == 0


def test_the_kernel_of_the_page_works_in_a_users_own_folder(own: Path) -> None:
    points = plan(Sweep(variants=("transposed_tile",), kernels=own), "cuda")
    assert [str(point.tile) for point in points] == ["1", "2", "4", "8", "16", "32"]
    assert not any(points.values())


def test_every_kind_of_kernel_on_the_page_comes_to_its_first_row_or_compiles(
    tmp_path: Path,
) -> None:
    newcomer = Newcomer(tmp_path)
    for block in OWN:
        if block.title.endswith((".cu", ".py")):
            newcomer.write(block)
    for block in OWN:
        if block.language == "sh" and not block.title:
            assert len(block.commands) == len(block.text.replace("\\\n", "").splitlines())
            done = []
            for command in block.commands:
                name, *words = shlex.split(command)
                if name in TYPED_ELSEWHERE:
                    COMMANDS[name].make_context(name, words)
                else:
                    with nothing_measured() if name == "sweep" else nullcontext():
                        done.append(call(tmp_path, name, *words))
            assert {one.code for one in done} <= {0}, done
            assert not done or "my_" in "".join(one.out for one in done), block.text
    for name in ("my_tile.cu", "my_tile.py", "my_sgemm.py"):
        assert (tmp_path / "own/gemm" / name).is_file()
    rows = {(row.variant, row.tile): row.status for row in read(tmp_path / "my_blocks.csv")}
    tiles = [("my_blocks", edge) for edge in ("8", "32", "128")]
    assert rows == dict.fromkeys([*tiles, ("cpu_blas", "")], "ok")
    assert (tmp_path / "my_blocks.svg").is_file()
    assert (tmp_path / "my_export/shared_tile.cu").is_file()


def test_commands_for_a_gpu_fail_here_only_for_lack_of_one(added: Path, tmp_path: Path) -> None:
    (tmp_path / "own" / "gemm").mkdir(parents=True)
    write_pair("my_tile", "gemm", None, tmp_path / "own", force=False)
    owner = Newcomer(tmp_path)
    owner.write(next(block for block in OWN if block.title == "sgemm.cu"))
    describe_source("my_sgemm", "gemm", tmp_path / "sgemm.cu", tmp_path / "own", force=False)
    for block in (block for block in ADDING if block.title == GPU):
        done = newcomer_in(added).type(block.text.rstrip() + " --device cuda")
        assert (done.returncode, done.stdout) == (2, "")
        assert "CUDA" in done.stderr
    lines = [line for block in OWN if block.title == GPU for line in block.commands]
    assert lines
    for line in lines:
        refused = call(tmp_path, *shlex.split(line), "--device", "cuda")
        assert (refused.code, refused.out) == (2, "")
        assert "CUDA" in refused.err
