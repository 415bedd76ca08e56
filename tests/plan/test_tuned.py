"""The file of winners, and the tiles that `--tiles tuned` takes from it."""

from pathlib import Path
from typing import Any

import pytest
from fakes import CPU, measured

from gpubench.engine.prepare import prepare
from gpubench.errors import UsageError
from gpubench.options import read_sweep
from gpubench.plan.descriptor import load
from gpubench.plan.registry import KERNELS
from gpubench.plan.sweep import TUNED, plan
from gpubench.plan.tuned import Winner, keep_winners, read_winners
from gpubench.results.provenance import source_hash
from gpubench.results.row import encode as rows
from gpubench.results.tile_table import TileRow, encode

TILE = load(KERNELS / "gemm" / "cpu_tile.py", "gemm")


def winner(tile: str = "16", n: int = 512, **facts: Any) -> Winner:
    place = {"device": CPU.name, "op": "gemm", "variant": "cpu_tile", "dtype": "float32"}
    size = {"m": n, "n": n, "k": n, "layout": "row-major"}
    race = {"simplest": "8", "group": 3, "configurations": 256, "within": 0.01, "median_us": 12.5}
    facts_now = {"percent_of_blas": None, "source_hash": source_hash(TILE), "gpubench": "0.1.0"}
    usual = {**place, **size, **race, **facts_now, "tuned_utc": "2026-01-01T00:00:00+00:00"}
    return Winner(**{"tile": tile, **usual, **facts})


def chosen(*, tiles: str = "tuned", **options: Any) -> tuple[dict[tuple[str, str], str], list[str]]:
    """Return the tile of each variant and size, and the notes."""
    asked = {"variants": "cpu_tile", "device": "cpu", "tiles": tiles} | options
    job = prepare(read_sweep(asked), CPU)
    return {(p.variant.name, p.problem.size): str(p.tile) for p in job.planned}, list(job.notes)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_winners_are_read_as_they_were_kept_and_newer_ones_take_their_place() -> None:
    first, odd = winner(), winner(n=1000, device='A "GPU" \\ é', percent_of_blas=98.5)
    keep_winners(TUNED, [first, odd])
    assert read_winners(TUNED) == [first, odd]
    keep_winners(TUNED, [winner("4", 64), winner("32")])
    assert read_winners(TUNED) == [winner("32"), odd, winner("4", 64)]  # their order stays


def test_each_size_has_its_own_winner_or_that_of_the_nearest_size() -> None:
    keep_winners(TUNED, [winner("16", 512), winner("48", 4096), winner("3", 512, device="other")])
    tiles, notes = chosen(sizes="256,512,1024,3000,8192")
    assert [tiles["cpu_tile", n] for n in ("256", "512", "1024", "3000", "8192")] == [
        "16",
        "16",
        "16",
        "48",
        "48",
    ]
    assert notes == []


def test_a_kernel_that_was_not_tuned_keeps_its_default_tiles_with_a_note() -> None:
    keep_winners(TUNED, [winner("16")])
    tiles, notes = chosen(sizes="64", variants="cpu_tile,cpu_tile_parallel,cpu_blas")
    assert tiles["cpu_tile", "64"] == "16"
    assert tiles["cpu_blas", "64"] == "None"
    assert ("cpu_tile_parallel", "64") in tiles
    assert notes == ["cpu_tile_parallel was not tuned on this device: its default tiles are used"]
    other, _ = chosen(sizes="64", dtypes="float64")
    assert other["cpu_tile", "64"] in {str(tile) for tile in TILE.tiles.defaults}  # type: ignore[union-attr]


def test_a_changed_source_is_noted() -> None:
    keep_winners(TUNED, [winner(source_hash="0123456789ab")])
    _, notes = chosen(sizes="64")
    assert notes == ["cpu_tile has changed since it was tuned: run 'gpubench tune' again"]


def test_what_cannot_be_used_is_refused() -> None:
    with pytest.raises(UsageError, match=r"results/tuned\.toml does not exist; 'gpubench tune"):
        chosen(sizes="64")
    keep_winners(TUNED, [winner(device="another")])
    with pytest.raises(
        UsageError, match="has winners of another, not of Fake CPU; 'gpubench tune'"
    ):
        chosen(sizes="64")
    keep_winners(TUNED, [winner(variant="cpu_naive")])
    with pytest.raises(UsageError, match="no winner of cpu_tile on Fake CPU; 'gpubench tune'"):
        chosen(sizes="64")
    with pytest.raises(UsageError, match="tuned tiles are for sweep and compare-cublas"):
        plan(read_sweep({"tiles": "tuned", "device": "cpu"}), "cpu")
    TUNED.write_text("[[winner]]\ntile = 3\n")
    with pytest.raises(UsageError, match=r"results/tuned\.toml: .*winner 1: "):
        chosen(sizes="64")
    with pytest.raises(UsageError, match=r"winner 1: "):
        keep_winners(TUNED, [winner()])
    TUNED.write_text("x = 1\n")
    with pytest.raises(UsageError, match="unknown key 'x'"):
        chosen(sizes="64")


def test_no_winner_is_lost_when_several_processes_write() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: keep_winners(TUNED, [winner("8", n)]), range(1, 25)))
    assert {each.n for each in read_winners(TUNED)} == set(range(1, 25))
    assert [path.name for path in TUNED.parent.iterdir()] == [TUNED.name]


def test_winners_of_older_files_have_the_layout_of_their_precision() -> None:
    keep_winners(TUNED, [winner(dtype="float32"), winner(dtype="int8")])
    text = TUNED.read_text(encoding="utf-8")
    TUNED.write_text(text.replace('layout = "row-major"\n', ""), encoding="utf-8")
    assert [old.layout for old in read_winners(TUNED)] == ["row-major", "column-major B"]


def test_each_layout_takes_the_winner_of_its_own_layout() -> None:
    nearer, of_nt = winner(tile="8"), winner(n=64, tile="16", layout="column-major B")
    keep_winners(TUNED, [nearer, of_nt])
    assert set(chosen(sizes="512")[0].values()) == {"8"}
    assert set(chosen(sizes="512", layouts="nt")[0].values()) == {"16"}


def in_table(tile: str, n: int, device: str = CPU.name) -> TileRow:
    """Return a row of a table: cpu_tile at a square."""
    place = {"op": "gemm", "m": n, "n": n, "k": n, "dtype": "float32", "layout": "row-major"}
    return TileRow(
        **place, variant="cpu_tile", tile=tile, device=device, source_hash=source_hash(TILE)
    )


def test_tiles_are_taken_from_a_table_at_its_sizes_or_the_nearest() -> None:
    Path("best.csv").write_bytes(encode([in_table("16", 512), in_table("48", 4096)]))
    tiles, notes = chosen(tiles="best.csv", sizes="512,3000", variants="cpu_tile,cpu_naive")
    assert (tiles["cpu_tile", "512"], tiles["cpu_tile", "3000"]) == ("16", "48")
    assert notes == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            encode([in_table("16", 512, "NVIDIA H200")]),
            "has winners of NVIDIA H200, not of Fake CPU",
        ),
        (b"name,m,n,k\na,8,8,8\n", "not a table of 'gpubench tune --table'"),
        (rows([measured()]), "not a table of 'gpubench tune --table': column 'ties' is missing"),
        (b"", "not a table of 'gpubench tune --table': the file is empty"),
        (encode([in_table("16", 512)]).replace(b"512", b"-1"), "best.csv:2: '-1' in column 'm'"),
        (None, "best.csv does not exist; 'gpubench tune --table best.csv' writes it"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(content: bytes | None, message: str) -> None:
    if content is not None:
        Path("best.csv").write_bytes(content)
    with pytest.raises(UsageError, match="--tiles: ") as refused:
        chosen(tiles="best.csv", sizes="64")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
