"""Which points `--rerun` measures, for which side, and how."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeBackend, measured, point, variant

from gpubench.commands.diff import rerun as module
from gpubench.commands.diff.compare import MODES, Comparison, DiffVerdict, compare
from gpubench.commands.diff.report import covering_options
from gpubench.commands.diff.rerun import installed_hashes, measure_again, rerun
from gpubench.commands.diff.sides import Side
from gpubench.engine.pool import LocalPool, Watcher
from gpubench.engine.runner import Runner
from gpubench.errors import UsageError
from gpubench.model import Cache, Timer, Variant, edges
from gpubench.options import read_sweep
from gpubench.plan import sweep as plan
from gpubench.results.row import Row

QUIET = tuple(100 + 0.1 * number for number in range(10))
ROUGH = (100.0, 130.0, 90.0, 110.0, 105.0, 140.0, 95.0, 101.0, 99.0, 120.0)


def row(size: int, rounds: Sequence[float], source: str) -> Row:
    of_size = measured(100.0, point(size=(size, size, size)))
    return replace(of_size, round_medians_us=";".join(map(repr, rounds)), source_hash=source)


def side(name: str, *rows: Row) -> Side:
    return Side(files={Path(name): rows}, name=name)


def judged(base: Side, new: Side) -> Comparison:
    return compare(base.pooled, new.pooled)


class Machine:
    """Measures every point in 100 µs, or a little more, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[int], int]] = []
        """The sizes and the number of rounds."""

        self.timer = Timer.HOST

    def measure(self, rows: Sequence[Row], rounds: int, _watcher: object) -> list[Row]:
        self.calls.append(([asked.m for asked in rows], rounds))
        times = [100 + 0.1 * number for number in range(rounds)]
        return [replace(row(asked.m, times, "here"), timer=self.timer) for asked in rows]

    def rerun(self, base: Side, new: Side) -> tuple[Side, Side, list[str]]:
        installed = {("gemm", "fake"): "here"}
        return rerun(judged(base, new), base, new, self.measure, lambda: installed)


def test_a_point_that_both_sides_share_is_measured_for_both_in_turns() -> None:
    base = side("base.csv", row(1, ROUGH, "here"), row(2, QUIET, "here"))
    slower = row(1, [1.03 * time for time in ROUGH], "here")
    new = side("new.csv", slower, row(2, QUIET[::-1], "here"))
    verdicts = [finding.verdict for finding in judged(base, new).findings.values()]
    assert verdicts == ["ambiguous", "same"]

    machine = Machine()
    base, new, notes = machine.rerun(base, new)
    assert machine.calls == [([1], 20)]
    key = base.rows[-1].key
    assert base.pooled[key].rounds_us == pytest.approx([100 + 0.2 * n for n in range(10)])
    assert new.pooled[key].rounds_us == pytest.approx([100.1 + 0.2 * n for n in range(10)])
    assert judged(base, new).counts == {DiffVerdict.SAME: 2}
    assert "the same kernels for both sides, in turns, 10 rounds or more each" in notes[0]


def test_rounds_join_the_new_side_where_only_its_kernels_are_here() -> None:
    base = side("base.csv", row(1, ROUGH, "old"))
    new = side("new.csv", row(1, [1.03 * time for time in ROUGH], "here"))
    machine = Machine()
    base, new, notes = machine.rerun(base, new)
    assert machine.calls == [([1], 10)]
    (key,) = base.pooled
    assert len(base.pooled[key].rounds_us) == 10
    assert list(map(len, new.pooled[key].sweeps_us)) == [10, 10]
    assert "added 10 rounds or more to the new side of 1 point" in notes[0]


def test_a_point_of_other_kernels_is_left_and_said_to_be() -> None:
    base = side("base.csv", row(1, ROUGH, "here"))
    new = side("new.csv", row(1, [1.03 * time for time in ROUGH], "newer"))
    before = judged(base, new)
    machine = Machine()
    base, new, notes = machine.rerun(base, new)
    assert not machine.calls
    assert judged(base, new) == before
    assert "1 ambiguous point" in notes[0]


def on_gpu(*rounds: float) -> Row:
    gpu = row(1, rounds, "here")
    return replace(gpu, timer=Timer.EVENTS)


def test_rounds_with_two_modes_are_measured_again_and_then_decide() -> None:
    base = side("base.csv", on_gpu(100.0, 108.1, 100.2, 100.1, 100.3))
    new = side("new.csv", on_gpu(108.0, 108.2, 108.1, 108.3, 108.0))
    (before,) = judged(base, new).findings.values()
    assert (before.verdict, before.modes) == (DiffVerdict.AMBIGUOUS, 2)
    assert before.reason == f"{MODES}: 0.1001 and 0.1081 ms"

    machine = Machine()
    machine.timer = Timer.EVENTS
    after = judged(*machine.rerun(base, new)[:2])
    assert machine.calls == [([1], 20)]
    assert after.counts == {DiffVerdict.SAME: 1}


# ---- measuring again

TILED = variant(name="tiled", tiles=edges(1, 32, because="of a test"))
OTHER = variant(name="other")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """A fake machine with two fake variants."""
    fake = FakeBackend(1e4)

    def choose(_op: str, _backend: str, names: tuple[str, ...], *_: object) -> tuple[Variant, ...]:
        return tuple(known for known in (TILED, OTHER) if known.name in names)

    monkeypatch.setattr(module, "local_pool", lambda *_: nullcontext(LocalPool(Runner(fake))))
    monkeypatch.setattr(plan, "choose", choose)
    return fake


def tiled(size: int, tile: str) -> Row:
    return replace(measured(9.0, point(TILED, size=(size, size, size))), tile=tile)


def test_just_the_points_asked_for_are_measured_and_in_rounds(backend: FakeBackend) -> None:
    wanted = [tiled(16, "8"), tiled(32, "4"), measured(9.0, point(OTHER, size=(16, 16, 16)))]
    fresh = measure_again(wanted, 5, Watcher())
    samples = {
        (event.point.variant.name, event.rows)
        for event in backend.events_of("sample")
        if event.point
    }
    assert samples == {("tiled", 16), ("tiled", 32), ("other", 16)}
    assert {row.key for row in fresh} == {row.key for row in wanted}
    assert [row.rounds for row in fresh] == [5, 5, 5]
    assert {row.median_us for row in fresh} == {1e4}


def test_another_machine_is_refused(backend: FakeBackend) -> None:
    elsewhere = replace(tiled(16, "8"), device="NVIDIA H200")
    with pytest.raises(UsageError, match=r"NVIDIA H200.*Fake CPU"):
        measure_again([elsewhere], 5, Watcher())
    assert not backend.events


def test_variants_of_one_name_are_told_apart_by_their_operation() -> None:
    hashes = installed_hashes()
    assert hashes["gemm", "cpu_blas"] != hashes["gemv", "cpu_blas"]


def test_the_options_of_a_covering_sweep_are_those_of_the_command_line() -> None:
    hot = replace(
        tiled(32, "4"), cache=Cache.HOT, state="sustained", compute_mode="tf32", timer=Timer.CUPTI
    )
    assert covering_options([tiled(16, "8"), hot]) == {
        "sizes": "16,32",
        "tiles": "8,4",
        "variants": "tiled",
        "dtypes": "float32,tf32",
        "cache": "both",
        "state": "both",
        "timer": "cupti",
        "device": "cpu",
    }
    index = replace(tiled(16, "8"), operands="index")
    assert covering_options([index])["operands"] == "index"


def test_the_options_of_a_covering_sweep_name_layouts_and_operands_that_are_not_the_default() -> (
    None
):
    transposed = replace(tiled(16, "8"), layout="column-major B", operands="zeros")
    options = covering_options([tiled(16, "8"), transposed])
    assert (options["layouts"], options["operands"]) == ("nn,nt", "uniform,zeros")
    assert not {"layouts", "operands"} & covering_options([tiled(16, "8")]).keys()


@pytest.mark.parametrize("layout", ["row-major", "column-major A", "column-major A B"])
def test_a_rerun_has_the_points_of_the_rows_in_their_layout_and_with_their_operands(
    layout: str,
) -> None:
    first = replace(
        measured(100.0, point(size=(16, 16, 16))), variant="cpu_blas", tile="", layout=layout
    )
    rows = [replace(first, operands=fill) for fill in ("ones", "normal")]
    planned = {point.key for point in plan.plan(read_sweep(covering_options(rows)), "cpu")}
    assert {row.key for row in rows} == planned
