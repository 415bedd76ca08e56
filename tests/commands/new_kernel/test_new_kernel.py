"""`new-kernel` writes the two files of a user's own kernel."""

import re
from pathlib import Path

import pytest

from gpubench.commands.new_kernel.run import write_pair
from gpubench.errors import UsageError
from gpubench.model import Config, CudaVariant, Problem
from gpubench.model.sources import whole_source
from gpubench.plan.registry import choose, of_op, variants

SOURCES = [variant for variant in variants() if isinstance(variant, CudaVariant)]
PROBLEM = Problem(op="gemm", m=100, n=70, k=30, dtype="float32")


def written(folder: Path, name: str = "mine", like: str | None = None) -> CudaVariant:
    write_pair(name, None, like, folder, force=False)
    (described,) = choose("gemm", "cuda", [name], folder)
    assert isinstance(described, CudaVariant)
    return described


def refusal(
    folder: Path, name: str = "mine", op: str | None = None, like: str | None = None
) -> str:
    with pytest.raises(UsageError) as caught:
        write_pair(name, op, like, folder, force=False)
    return str(caught.value)


def code_of(variant: CudaVariant) -> str:
    """Return the source without comments, and without the kernel's name."""
    lines = variant.source.read_text().splitlines()
    code = "\n".join(line for line in lines if "//" not in line)
    return re.sub(rf"\b{variant.name}\b", "NAME", code)


def test_the_pair_is_the_plainest_kernel_under_the_new_name(tmp_path: Path) -> None:
    mine = written(tmp_path)
    naive = of_op("gemm")["naive"]
    assert isinstance(naive, CudaVariant)
    assert mine.source == tmp_path / "gemm" / "mine.cu"
    assert code_of(mine) == code_of(naive)
    assert mine.path.read_text().count("naive") == 1
    assert (mine.after, mine.idea) == ("naive", "what mine teaches, in a line")
    lesson = mine.source.read_text().partition("template")[0].splitlines()
    assert lesson[0] == "// mine: what it teaches, in a line."
    assert "One change against `naive`" in lesson[2]
    tile = Config.parse("16")
    assert mine.launch(tile, PROBLEM) == naive.launch(tile, PROBLEM)


def test_a_kernel_with_headers_may_be_the_start_and_brings_them(tmp_path: Path) -> None:
    longest = {start.op: start for start in sorted(SOURCES, key=lambda each: len(each.sources))}
    for start in longest.values():
        folder = tmp_path / start.op
        write_pair("mine", start.op, start.name, folder, force=False)
        mine = of_op(start.op, folder)["mine"]
        assert isinstance(mine, CudaVariant)
        code = re.sub(r'(["/])_(\w+\.cu")', r"\1\2", code_of(mine))  # another's source
        assert code == code_of(start)
        assert (mine.dtypes, mine.tiles.defaults) == (start.dtypes, start.tiles.defaults)
        assert (mine.after, mine.idea) == (start.name, "what mine teaches, in a line")
        headers = whole_source(mine.source)[1:]
        names = [path.name for path in start.sources[2:]]
        assert [path.name.lstrip("_") for path in headers] == names
        assert all(path.is_relative_to(folder) for path in headers)
    write_pair("shortest", "gemv", None, tmp_path, force=False)
    gemv = [each for each in SOURCES if each.op == "gemv"]
    shortest = min(gemv, key=lambda each: sum(map(len, map(Path.read_bytes, each.sources))))
    assert of_op("gemv", tmp_path)["shortest"].after == shortest.name


def test_existing_headers_stay_and_the_next_commands_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my kernels"
    written(folder, like="pipelined")
    header = folder / "pipelined_tile.cuh"
    header.write_text("// changed")
    capsys.readouterr()
    written(folder, name="second", like="pipelined")
    assert header.read_text() == "// changed"
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == [f"{folder}/gemm/second.cu", f"{folder}/gemm/second.py"]
    last = f"gpubench sweep --kernels '{folder}' --variants pipelined,second"
    assert out[-1].strip().startswith(last)


def test_nothing_is_overwritten_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "gemm").mkdir()
    (tmp_path / "gemm" / "mine.py").write_text("precious")
    assert "mine.py exists; --force overwrites it" in refusal(tmp_path)
    assert [path.name for path in (tmp_path / "gemm").iterdir()] == ["mine.py"]
    assert (tmp_path / "gemm" / "mine.py").read_text() == "precious"
    write_pair("mine", None, None, tmp_path, force=True)
    assert "mine" in of_op("gemm", tmp_path)


def test_a_wrong_name_start_operation_or_folder_is_refused(tmp_path: Path) -> None:
    for name in ("", "Mine", "2nd", "a-b", "../mine", "a b", "mine.cu", "_x"):
        assert "cannot name a kernel: a name has at most" in refusal(tmp_path, name)
    for name in ("float", "main", "xor"):
        assert "has a meaning in C++" in refusal(tmp_path, name)
    assert "already" in refusal(tmp_path, "cublas")
    assert "did you mean 'shared_tile'" in refusal(tmp_path, like="shard_tile")
    assert "--like: 'cublas' is a function that runs on cuda" in refusal(tmp_path, like="cublas")
    assert "did you mean 'gemv_t'" in refusal(tmp_path, op="gemv_x")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    assert "cannot write" in refusal(tmp_path / "file")
