"""Variants are found by their files, here and in any folder laid out alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench.errors import UsageError
from gpubench.model import DTYPES, CallVariant, CudaVariant, Variant
from gpubench.plan.registry import KERNELS, choose, unknown, variants

DESCRIPTOR = """
from gpubench.model import CudaVariant, Launch, edges

VARIANT = CudaVariant(
    idea="a user's own",
    tiles=edges(1, 4, because="of a test"),
    launch=lambda tile, problem: Launch(grid=(1,), block=(1,)),
    reuse=lambda tile: (1, 1),
)
"""

ALL = variants()


def by_name(name: str) -> Variant:
    (found,) = (variant for variant in ALL if variant.name == name)
    return found


def test_every_descriptor_file_is_a_variant() -> None:
    files = {
        (path.parent.name, path.stem) for path in KERNELS.glob("*/*.py") if path.stem != "__init__"
    }
    assert {(variant.op, variant.name) for variant in ALL} == files
    assert len(ALL) == len(files)


def test_every_cuda_source_has_a_descriptor() -> None:
    sources = set(KERNELS.glob("*/*.cu"))
    assert {variant.source for variant in ALL if isinstance(variant, CudaVariant)} == sources


@pytest.mark.parametrize("variant", ALL, ids=lambda variant: variant.name)
def test_every_variant_says_what_it_teaches_and_takes_known_dtypes(variant: Variant) -> None:
    assert variant.idea
    assert set(variant.dtypes) <= set(DTYPES)
    assert variant.backend in {"cuda", "cpu"}


@pytest.mark.parametrize("variant", ALL, ids=lambda variant: variant.name)
def test_every_baseline_is_a_variant_of_the_same_backend(variant: Variant) -> None:
    if variant.baseline:
        baseline = by_name(variant.baseline)
        assert (baseline.op, baseline.backend) == (variant.op, variant.backend)
        assert baseline.baseline == baseline.name


@pytest.mark.parametrize("variant", ALL, ids=lambda variant: variant.name)
def test_a_variant_is_held_against_a_blas_with_as_many_threads(variant: Variant) -> None:
    if isinstance(variant, CallVariant) and variant.baseline:
        assert variant.threads == by_name(variant.baseline).threads


@pytest.mark.parametrize("variant", ALL, ids=lambda variant: variant.name)
def test_every_default_tile_is_legal_and_every_legal_tile_is_taken(variant: Variant) -> None:
    if variant.tiles:
        assert variant.tiles.default
        assert set(variant.tiles.default) <= set(variant.tiles.legal)
        assert not any(map(variant.tiles.refuse, variant.tiles.legal))


def test_without_names_a_sweep_takes_the_default_variants_of_its_backend() -> None:
    for backend in ("cuda", "cpu"):
        chosen = choose("gemm", backend, ())
        assert chosen
        assert {(v.backend, v.default) for v in chosen} == {(backend, True)}


def test_names_choose_variants_in_their_order() -> None:
    chosen = choose("gemm", "cpu", ("cpu_tile_parallel", "cpu_blas"))
    assert [variant.name for variant in chosen] == ["cpu_tile_parallel", "cpu_blas"]


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(
        UsageError, match="unknown variant 'shard_tile'; did you mean 'shared_tile'"
    ):
        choose("gemm", "cuda", ("shard_tile",))


def test_a_name_like_no_other_gives_all() -> None:
    assert unknown("fruit", "zzz", ("apple", "pear")) == "unknown fruit 'zzz'; known: apple, pear"


def test_a_variant_of_the_other_backend_says_which_device_runs_it() -> None:
    with pytest.raises(UsageError, match="--device cuda"):
        choose("gemm", "cpu", ("shared_tile",))


def test_a_users_folder_is_read_like_our_own(tmp_path: Path) -> None:
    (tmp_path / "gemm").mkdir()
    (tmp_path / "gemm" / "mine.py").write_text(DESCRIPTOR)
    (tmp_path / "gemm" / "mine.cu").write_text("")
    (tmp_path / "gemm" / "_helper.py").write_text("raise RuntimeError")
    (mine,) = variants(tmp_path)
    assert (mine.op, mine.name) == ("gemm", "mine")
    assert mine.source == tmp_path / "gemm" / "mine.cu"


def test_a_descriptor_without_its_cuda_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gemm").mkdir()
    (tmp_path / "gemm" / "lonely.py").write_text(DESCRIPTOR)
    with pytest.raises(UsageError, match=r"lonely\.cu is missing"):
        variants(tmp_path)


@pytest.mark.parametrize("text", ["", "VARIANT = None\n", "VARIANT = 'shared_tile'\n"])
def test_a_descriptor_without_a_variant_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "gemm").mkdir()
    (tmp_path / "gemm" / "empty.py").write_text(text)
    with pytest.raises(UsageError, match=r"empty\.py: defines no VARIANT"):
        variants(tmp_path)
