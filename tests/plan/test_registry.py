"""Variants are found by their files, in gpubench and in a user's folder of the same form."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from commandline import OWN as ON_CPU
from commandline import OWN_CUDA as ON_CUDA

from gpubench.commands.explain.build import choose_kernels
from gpubench.errors import UsageError
from gpubench.model import DTYPES, OPERATIONS, CallVariant, CudaVariant, Variant
from gpubench.plan.registry import KERNELS, choose, libraries, of_op, variants
from gpubench.plan.sweep import Sweep, plan

ALL = variants()


def baseline_of(variant: Variant) -> Variant:
    by_name = {other.name: other for other in ALL if other.op == variant.op}
    assert variant.baseline in by_name, (
        f"{variant.path}: {variant.op} has no variant '{variant.baseline}'; add it, or set "
        'baseline to another variant ("" for none)'
    )
    return by_name[variant.baseline]


def test_every_descriptor_file_is_a_variant() -> None:
    files = {
        (op, path.stem)
        for path in KERNELS.glob("*/[!_]*.py")
        for op in OPERATIONS.named_by(path.parent.name)
        if path.stem != "operation"
    }
    assert {(variant.op, variant.name) for variant in ALL} == files
    assert len(ALL) == len(files)


def test_every_variant_says_what_it_teaches_and_takes_known_dtypes() -> None:
    for variant in ALL:
        assert variant.idea
        assert set(variant.dtypes) <= set(DTYPES)
        assert variant.backend in {"cuda", "cpu"}


def test_every_baseline_is_a_variant_of_the_same_backend() -> None:
    for variant in ALL:
        if variant.baseline:
            baseline = baseline_of(variant)
            assert (baseline.op, baseline.backend) == (variant.op, variant.backend)
            assert baseline.baseline == baseline.name


def test_a_baseline_has_the_same_number_of_threads_as_its_variant() -> None:
    for variant in ALL:
        if isinstance(variant, CallVariant) and variant.baseline:
            assert variant.threads == baseline_of(variant).threads


def test_every_default_tile_is_legal_and_legal_tiles_are_taken() -> None:
    for variant in ALL:
        if variant.tiles:
            assert variant.tiles.defaults
            assert not any(map(variant.tiles.why_not, variant.tiles.defaults))
            legal = list(islice(variant.tiles, 200))  # some kernels have 16,000 tiles
            assert legal
            assert not any(map(variant.tiles.why_not, legal))


def test_without_names_a_sweep_takes_the_default_variants_of_its_backend() -> None:
    for backend in ("cuda", "cpu"):
        chosen = choose("gemm", backend, ())
        assert chosen
        assert {(v.backend, v.default) for v in chosen} == {(backend, True)}


def test_an_unknown_name_that_a_directory_here_has_suggests_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mm.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"'mm'; to use own/mm\.py, add --kernels own$"):
        choose("gemm", "cuda", ("mm",))
    (tmp_path / "own" / "gemm").mkdir()
    (tmp_path / "own" / "mm.py").rename(tmp_path / "own" / "gemm" / "mm.py")  # as of new-kernel
    with pytest.raises(UsageError, match=r"to use own/gemm/mm\.py, add --kernels own/gemm$"):
        choose("gemm", "cuda", ("mm",))
    with pytest.raises(UsageError, match=r"own/gemm/mm\.py, name mm, and add --kernels own/gemm$"):
        choose("gemm", "cuda", ("own/gemm/mm.cu",))
    with pytest.raises(UsageError, match=r"^own/none\.cu: no such file"):
        choose("gemm", "cuda", ("own/none.cu",))
    (tmp_path / "dmm.cu").touch()
    with pytest.raises(UsageError, match=r"'gpubench new-kernel dmm --from dmm\.cu' describes it"):
        choose("gemm", "cuda", ("dmm",))
    (tmp_path / "a matrix.py").touch()
    with pytest.raises(UsageError, match=r"new-kernel NAME --from 'a matrix\.py'' describes it"):
        choose("gemm", "cuda", ("a matrix.py",))
    with pytest.raises(UsageError, match="own is a folder: write --kernels own in place of"):
        choose_kernels("own", None, None)
    with pytest.raises(UsageError, match="did you mean 'dmma'"):
        choose("gemm", "cuda", ("dm",))


def test_libraries_are_the_calls_that_kernels_are_compared_with() -> None:
    assert {"cublas", "cublaslt", "cpu_blas", "triton_matmul"} <= libraries()
    assert not {"naive", "cpu_naive", "cpu_tile_parallel"} & libraries()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with `mine` for CUDA, `calls` for the CPU, and a file that is no kernel."""
    (tmp_path / "mine.py").write_text(ON_CUDA)
    (tmp_path / "mine.cu").write_text("")
    (tmp_path / "gemm").mkdir()
    (tmp_path / "gemm" / "calls.py").write_text(ON_CPU)
    (tmp_path / "_other.py").write_text("raise RuntimeError")
    return tmp_path


def test_a_directory_that_is_named_like_a_description_is_left_out(folder: Path) -> None:
    (folder / "gemm" / "x.py").mkdir()
    assert set(of_op("gemm", folder)) - set(of_op("gemm")) == {"mine", "calls"}


def test_a_users_variants_stand_beside_ours(folder: Path) -> None:
    by_name = of_op("gemm", folder)
    assert set(by_name) - set(of_op("gemm")) == {"mine", "calls"}
    mine, calls = by_name["mine"], by_name["calls"]
    assert (mine.op, mine.name, mine.path) == ("gemm", "mine", folder / "mine.py")
    assert isinstance(mine, CudaVariant)
    assert mine.source == folder / "mine.cu"
    assert calls.path == folder / "gemm" / "calls.py"


def test_a_users_variants_are_swept_with_ours_or_by_name(folder: Path) -> None:
    assert "calls" in {variant.name for variant in choose("gemm", "cpu", (), folder)}
    assert "mine" in {variant.name for variant in choose("gemm", "cuda", (), folder)}
    names = ("mine", "cublas")
    assert tuple(v.name for v in choose("gemm", "cuda", names, folder)) == names


def test_a_relative_folder_means_the_same_after_a_change_of_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    (mine,) = choose("gemm", "cuda", ("mine",), Path(folder.name))
    assert mine.path == folder / "mine.py"


def refusal(folder: Path, backend: str = "cuda", names: tuple[str, ...] = ()) -> str:
    with pytest.raises(UsageError) as caught:
        choose("gemm", backend, names, folder)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize(
    ("file", "text", "backend", "message"),
    [
        ("naive.py", ON_CPU, "cuda", "/naive.py: gpubench has a variant 'naive' already; rename"),
        ("calls.py", ON_CPU, "cuda", "have the same name"),
        ("gemm/calls.py", ON_CUDA, "cpu", "run on cuda, but the device is cpu; choose it with --d"),
    ],
)
def test_a_users_folder_with_clashing_names_or_for_another_device_is_refused(
    folder: Path, file: str, text: str, backend: str, message: str
) -> None:
    (folder / file).write_text(text)
    (folder / file).with_suffix(".cu").touch()
    assert message in refusal(folder, backend)


def test_a_single_kernel_for_another_device_is_refused_with_the_flag_of_its_device(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text(ON_CUDA)
    (tmp_path / "mine.cu").touch()
    assert "--kernels: mine runs on cuda, but the device is cpu" in refusal(tmp_path, "cpu")
    named = refusal(tmp_path, "cpu", ("mine",))
    assert "lists what runs there, and --device cuda chooses the variant's device" in named
    assert named.endswith("; without a GPU, use 'gpubench check' and 'gpubench explain'")


def test_an_unknown_baseline_suggests_the_nearest(folder: Path) -> None:
    (folder / "gemm" / "calls.py").write_text(ON_CPU.replace("cpu_blas", "cpu_blaz"))
    message = refusal(folder, names=("calls",))
    assert "calls.py: VARIANT: baseline: unknown variant 'cpu_blaz'; did you" in message


def test_a_missing_or_empty_folder_is_refused(tmp_path: Path) -> None:
    assert "nowhere is not a directory" in refusal(tmp_path / "nowhere")
    (tmp_path / "_other.py").write_text("")
    assert "holds no gemm kernel; 'gpubench new-kernel NAME" in refusal(tmp_path)
    (tmp_path / "mine.cu").touch()
    assert "kernel: mine.cu has no description mine.py; 'gpubench" in refusal(tmp_path)
    assert "gpubench new-kernel" in refusal(tmp_path)


def test_the_command_for_a_missing_kernel_fits_the_operation(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="new-kernel NAME --op gemv --dir "):
        of_op("gemv", tmp_path)
    with pytest.raises(UsageError, match="no softmax kernel; 'gpubench new-operation NAME' writes"):
        of_op("softmax", tmp_path)


def test_one_broken_file_does_not_block_the_others_and_is_a_skip_with_its_reason(
    folder: Path,
) -> None:
    (folder / "broken.py").write_text("import numpy\n1 / 0\nVARIANT = 1")
    (folder / "half.cu").write_text("")
    assert [each.name for each in choose("gemm", "cuda", ("mine",), folder)] == ["mine"]
    planned = plan(Sweep(kernels=folder, sizes=((64, 64, 64),)), "cpu")
    reasons = {point.variant.name: reason for point, reason in planned.items() if reason}
    assert reasons["broken"] == f"{folder}/broken.py:2: ZeroDivisionError: division by zero"
    assert "half.py is missing" in str(reasons["half"])
    assert {point.variant.name for point, reason in planned.items() if not reason} >= {"calls"}


def test_a_pattern_means_every_variant_of_the_backend_that_fits() -> None:
    names = [variant.name for variant in choose("gemm", "cpu", ("cpu_tile*",))]
    assert names == ["cpu_tile", "cpu_tile_parallel"]
    assert {variant.backend for variant in choose("gemm", "cpu", ("*",))} == {"cpu"}
    with pytest.raises(UsageError, match="unknown variant 'gpu_\\*'"):
        choose("gemm", "cpu", ("gpu_*",))
