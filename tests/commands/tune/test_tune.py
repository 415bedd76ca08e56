"""`tune` from plan to files, on a device with known times."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commandline import call
from fakes import FakeBackend, FakeKernel, matmul, measured, point, variant
from samples import printed
from stub import nothing_measured

from gpubench.commands.tune import run as tuning
from gpubench.commands.tune import schedule
from gpubench.commands.tune.run import (
    Settings,
    Tuned,
    confirmed_path,
    group_of,
    is_undecided,
    races,
    read_settings,
    tune,
)
from gpubench.commands.tune.view import summary
from gpubench.engine.measure.runner import Runner
from gpubench.engine.measure.trials import Trials
from gpubench.engine.pool import Executor, LocalPool, Watcher
from gpubench.errors import UsageError
from gpubench.model import Problem, Space, edges
from gpubench.plan import sweep as plan
from gpubench.plan.schedule import Visit
from gpubench.plan.tuned import read_winners
from gpubench.results.result_file import partial_of
from gpubench.results.row import read

SPACE = edges(1, 16, because="a test")
LIBRARY = variant(matmul, "library", baseline="library")
ROW = measured(100.0, point(variant(matmul, "fake", tiles=SPACE)))


class Timed(FakeBackend):
    """A backend on which the tile determines the time of a launch, ±0.1 %."""

    def __init__(self, time_us: Callable[[Any], float]) -> None:
        super().__init__()
        self.time_us = time_us
        self.taken = 0

    def sample(self, kernel: FakeKernel, launches: int, count: int) -> list[float]:
        super().sample(kernel, launches, count)
        tile = kernel.point.tile
        base_us = self.time_us(tile) if tile else 50.0
        self.taken += count
        noise = zlib.crc32(f"{tile} {self.taken}".encode()) / 2**32 - 0.5
        return [base_us * (1 + 0.002 * noise) * kernel.rows / kernel.point.problem.m] * count


class Counting(Watcher):
    """Counts the visits of a race and of its confirmation, and may raise Ctrl-C at a visit."""

    def __init__(self, ends_at: int = -1, race_ends_at: int = -1) -> None:
        self.raced = self.confirmed = 0
        self.ends = {("confirmed", ends_at), ("raced", race_ends_at)}

    def measuring(self, visit: Visit) -> None:
        assert visit.name
        kind = "confirmed" if "/" in visit.name else "raced"
        setattr(self, kind, getattr(self, kind) + 1)
        if (kind, getattr(self, kind)) in self.ends:
            raise KeyboardInterrupt


def by_edge(tile: Any) -> float:
    """Return a time: 4, 8 and 12 are fastest, 1 is slowest, others slow by 5 % per step from 8."""
    edge = tile["edge"]
    if edge in {1, 4, 8, 12}:
        return 500.0 if edge == 1 else 100.0
    return 100.0 + 5 * abs(edge - 8)


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[[Space], None]:
    """Return a function that gives the variant `fake` a space. Files are not forced to disk."""
    monkeypatch.setattr("os.fsync", lambda _file: None)
    monkeypatch.setattr(Trials, "probe", lambda *_: None)

    def install(space: Space) -> None:
        fake = variant(matmul, "fake", tiles=space, baseline="library")
        variants = {"fake": fake, "library": LIBRARY}

        def chosen(_op: str, _backend: str, names: Sequence[str], *_: object) -> Any:
            return tuple(variants[name] for name in names)

        monkeypatch.setattr(plan, "choose", chosen)
        monkeypatch.setattr(tuning, "choose", chosen)
        monkeypatch.setattr(tuning, "variants", lambda: (fake, LIBRARY))

    install(SPACE)
    return install


def settings(**options: Any) -> Settings:
    defaults = {"variants": "fake", "sizes": "16", "device": "cpu", "rounds": 2, "kernels": None}
    return read_settings(defaults | options)


def tuned(
    backend: FakeBackend | None = None,
    watcher: Watcher | None = None,
    output: Path | None = None,
    *,
    winners: Path | None = None,
    resume: bool = False,
    executor: Executor | None = None,
    **options: Any,
) -> Tuned:
    return tune(
        settings(**options),
        LocalPool(executor or Runner(backend or Timed(by_edge))),
        watcher or Watcher(),
        output=output,
        winners=winners,
        resume=resume,
    )


@pytest.mark.usefixtures("choose")
def test_the_group_has_the_equally_fast_tiles_and_all_others_leave_and_keep_their_rounds(
    tmp_path: Path,
) -> None:
    outcome = tuned(output=tmp_path / "a.csv")
    rows = {row.tile: row for row in read(tmp_path / "a.csv")}
    assert len(rows) == 16
    assert {tile for tile, row in rows.items() if row.status == "ok"} == {"4", "8", "12"}
    gone = [row for row in rows.values() if row.status == "eliminated"]
    assert len(gone) == 13
    assert all(row.rounds and row.median_us and row.gflops for row in gone)
    assert {row.reason for row in gone} == {"shown to be more than 1 % slower than the best"}
    assert max(row.rounds or 0 for row in gone) <= (rows["8"].rounds or 0)
    assert min(row.rounds or 0 for row in gone) == 3
    assert not partial_of(tmp_path / "a.csv").exists()
    assert list(outcome.race.endings.values()) == [
        "all configurations that are left are within 1 % of each other"
    ]


@pytest.mark.usefixtures("choose")
def test_winner_and_simplest_are_measured_again_beside_the_library(tmp_path: Path) -> None:
    outcome = tuned(output=tmp_path / "a.csv")
    again = read(tmp_path / "a.confirmed.csv")
    assert {row.variant for row in again} == {"fake", "library"}
    group = group_of(outcome.race.rows)
    assert {row.tile for row in again if row.tile} == {group[0].tile, "4"}
    assert all(row.rounds == 2 and row.percent_of_blas for row in again)
    (winner,) = outcome.winners
    assert (winner.simplest, winner.group, winner.configurations) == ("4", 3, 16)
    assert winner.tile in {"4", group[0].tile}
    assert winner.percent_of_blas == pytest.approx(50, rel=0.01)


@pytest.mark.usefixtures("choose")
def test_where_within_and_the_budget_are_kept_to() -> None:
    outcome = tuned(where="edge > 8 and edge % 2 == 0", within="30%")
    assert {row.tile for row in outcome.race.rows} == {"10", "12", "14", "16"}
    assert {row.tile for row in outcome.race.rows if row.status == "ok"} >= {"10", "12"}
    assert outcome.winners[0].within == 0.3
    with pytest.raises(UsageError, match="no configuration of fake fulfils this condition"):
        tuned(where="edge > 16")
    with pytest.raises(UsageError, match="--within: '200%' is not a percentage"):
        tuned(within="200%")
    with pytest.raises(UsageError, match="name a variant"):
        read_settings({"device": "cpu"})


def test_several_variants_and_sizes_are_races_of_their_own(choose: Callable[[Space], None]) -> None:
    choose(edges(1, 4, because="a test"))
    outcome = tuned(sizes="8,16")
    assert len(races(outcome.race.rows)) == 2
    assert [(winner.m, winner.n) for winner in outcome.winners] == [(8, 8), (16, 16)]
    text = text_of(outcome)
    assert text.count("fake: ") == 2
    assert "is not shown to be more than 1 % slower" in text
    assert "eliminated: shown to be more than 1 % slower than the best" in text
    assert "confirmed in fresh processes" in text


@pytest.mark.usefixtures("choose")
def test_a_tuning_that_was_interrupted_is_continued_where_it_was(tmp_path: Path) -> None:
    whole = tuned(Timed(by_edge))
    output = tmp_path / "a.csv"
    interrupted = tuned(watcher=Counting(race_ends_at=90), output=output)
    assert interrupted.race.interrupted
    assert interrupted.confirmed is None
    before = partial_of(output).read_text().count('"ok"')
    backend = Timed(by_edge)
    outcome = tuned(backend, output=output, resume=True)
    assert before == 89
    firsts = [event for event in backend.events_of("sample") if event.count <= 2]
    assert len({str(event.point and event.point.tile) for event in firsts}) < 16
    assert {row.tile for row in group_of(outcome.race.rows)} == {"4", "8", "12"}
    assert len(outcome.race.rows) == len(whole.race.rows)
    with pytest.raises(UsageError, match="exists; --force"):
        tuned(output=output, resume=True)


@pytest.mark.usefixtures("choose")
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_confirmation_that_was_interrupted_is_continued_and_its_winner_kept(
    tmp_path: Path, at: int
) -> None:
    output, winners = tmp_path / "a.csv", tmp_path / "w.toml"
    interrupted = tuned(watcher=Counting(at), output=output, winners=winners)
    assert interrupted.confirmed
    assert interrupted.confirmed.interrupted
    assert not interrupted.winners
    assert not winners.exists()
    rest = Counting()
    tuned(watcher=rest, output=output, winners=winners, resume=True)
    rows = read(confirmed_path(output))
    assert (rest.raced, rest.confirmed) == (0, 2 * len(rows) - (at - 1))
    (winner,) = read_winners(winners)
    assert winner.tile in {"4", "8", "12"}
    names = {"a.csv", "a.confirmed.csv", "w.toml"}
    assert {path.name for path in tmp_path.iterdir()} == names


@pytest.mark.usefixtures("choose")
def test_winners_that_could_not_be_written_are_kept_by_a_resumed_race(tmp_path: Path) -> None:
    output, winners = tmp_path / "a.csv", tmp_path / "w.toml"
    winners.mkdir()
    with pytest.raises(UsageError, match=r"afterwards, --resume .*a\.csv writes the winners"):
        tuned(output=output, winners=winners)
    winners.rmdir()
    rest = Counting()
    tuned(watcher=rest, output=output, winners=winners, resume=True)
    assert (rest.raced, rest.confirmed) == (0, 0)
    assert len(read_winners(winners)) == 1


@pytest.mark.usefixtures("choose")
def test_a_failed_configuration_is_a_row_and_the_race_goes_on() -> None:
    class Failing(Timed):
        def bind(self, asked_point: Any, operands: Any, rows: int | None = None) -> FakeKernel:
            kernel = super().bind(asked_point, operands, rows)
            if asked_point.tile and asked_point.tile["edge"] == 8:
                return replace(kernel, call=lambda _a, _b, c: c.fill(0))
            return kernel

    outcome = tuned(Failing(by_edge))
    statuses = {row.tile: row.status for row in outcome.race.rows}
    assert statuses["8"] == "wrong"
    assert {tile for tile, status in statuses.items() if status == "ok"} == {"4", "12"}
    assert outcome.race.failed


def test_a_race_keeps_its_rows_and_winner_if_most_configurations_are_refused(
    choose: Callable[[Space], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(edges(1, 64, because="a test"))
    every = plan.choose

    def refuse(tile: Any, _problem: Problem) -> str | None:
        return "edge is more than 2" if tile["edge"] > 2 else None

    def chosen(*arguments: Any) -> Any:
        return tuple(replace(each, refuse=refuse) for each in every(*arguments) if each.tiles)

    monkeypatch.setattr(plan, "choose", chosen)
    monkeypatch.setattr(tuning, "choose", chosen)
    outcome = tuned()
    assert outcome.race.timed
    statuses = {row.tile: row.status for row in outcome.race.rows}
    assert statuses == {str(edge): "skipped" for edge in range(1, 65)} | {
        "1": "eliminated",
        "2": "ok",
    }
    assert [winner.tile for winner in outcome.winners] == ["2"]


def test_of_a_large_space_a_sample_is_raced_and_then_the_leaders_neighbours(
    choose: Callable[[Space], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    space = Space(
        axes={"BM": range(1, 33), "BN": range(1, 33)},
        block=("BM", "BN"),
        default=("2x2",),
        constraint=lambda tile: "not both odd" if tile["BM"] % 2 and tile["BN"] % 2 else None,
    )
    choose(space)
    monkeypatch.setattr(schedule, "LARGE", 200)
    monkeypatch.setattr(schedule, "SAMPLE", 20)

    def bowl(tile: Any) -> float:
        return 100 + 3.0 * (abs(tile["BM"] - 20) + abs(tile["BN"] - 12))

    output = tmp_path / "a.csv"
    interrupted = tuned(Timed(bowl), watcher=Counting(race_ends_at=60), output=output)
    assert interrupted.race.interrupted
    outcome = tuned(Timed(bowl), output=output, resume=True)
    assert outcome.winners[0].tile == "20x12"
    assert 20 < len(outcome.race.rows) <= 200
    assert not any("odd" in (row.reason or "") for row in outcome.race.rows)


def test_a_dry_run_states_the_time_of_the_first_round(tmp_path: Path) -> None:
    options = ("--device", "cpu", "--sizes", "64", "--where", "edge <= 4", "--dry-run")
    done = call(tmp_path, "tune", "cpu_tile", *options)
    assert "4 points to race" in done.out
    assert "first round: 4 kernels to compile, about 0:0" in done.out


@pytest.mark.usefixtures("choose")
def test_an_existing_confirmation_is_not_overwritten(tmp_path: Path) -> None:
    output = tmp_path / "a.csv"
    confirmed_path(output).write_text("mine")
    with pytest.raises(UsageError, match=r"a\.confirmed\.csv exists; --force overwrites it"):
        tuned(output=output)
    assert not output.exists()


def text_of(outcome: Tuned) -> str:
    return printed(summary(outcome, 0.01))


OWN = """
from gpubench.model import CallVariant, Space

VARIANT = CallVariant(
    idea="NumPy's product in strips",
    runs_on="cpu",
    tiles=Space(
        axes={"edge": (8, 16, 64), "way": ("by_rows", "at_once")},
        block=("edge",),
        default=("8/way=by_rows",),
    ),
    build=print,
    threads=1,
    baseline="cpu_blas",
)
"""


def test_a_kernel_of_ones_own_is_tuned_by_the_command_and_a_sweep_takes_its_winner(
    tmp_path: Path,
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "strips.py").write_text(OWN)
    here = ("--sizes", "64", "--device", "cpu", "--kernels", "own")
    where = ("--where", 'way == "at_once" and edge > 16', "--output", "a.csv", "--rounds", "1")
    with nothing_measured():
        done = call(tmp_path, "tune", "strips", *here, *where)
        assert (done.code, "1 of 1 configuration" in done.out) == (0, True), done
        confirmed = read(tmp_path / "a.confirmed.csv")
        assert {row.variant for row in confirmed} == {"strips", "cpu_blas"}
        words = ("--variants", "strips", "--tiles", "tuned", "--rounds", "1", "-o", "b.csv")
        assert call(tmp_path, "sweep", *here, *words).code == 0
    assert [row.tile for row in read(tmp_path / "b.csv")] == ["64/way=at_once"]


@pytest.mark.usefixtures("choose")
def test_a_race_that_the_budget_ended_is_undecided_and_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter(range(10**6))
    defaults = schedule.Races.__init__.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "clock", lambda: float(next(ticks)))
    outcome = tuned(budget="30")
    assert outcome.undecided
    assert outcome.winners == []
    text = " ".join(text_of(outcome).split())
    assert "undecided." in text
    assert "No winner is kept" in text
    assert "not shown to be" not in text


@pytest.mark.usefixtures("choose")
def test_a_race_that_got_no_time_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    visits = Counting()
    defaults = schedule.Races.__init__.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "clock", lambda: 100.0 * visits.raced)
    outcome = tuned(watcher=visits, budget="30", sizes="16,32")
    assert [[len(race), is_undecided(race)] for race in races(outcome.race.rows)] == 2 * [
        [16, True]
    ]
    assert [*outcome.race.endings.values()] == [
        "--budget ended after 1 round",
        "--budget ended after 0 rounds",
    ]


def test_a_winner_is_judged_by_seven_rounds_or_was_the_only_configuration_measured() -> None:
    def asked_point(rounds: int, status: str = "ok", reason: str = "") -> Any:
        return replace(ROW, rounds=rounds, status=status, reason=reason)

    assert not is_undecided([asked_point(7), asked_point(9), asked_point(1, "eliminated")])
    assert is_undecided([asked_point(7), asked_point(6)])
    assert not is_undecided([asked_point(2), asked_point(1, "eliminated")])
    unmeasured = asked_point(0, "skipped", schedule.SkipReason.BUDGET_ENDED)
    assert is_undecided([asked_point(1, "error"), unmeasured])
    assert is_undecided([asked_point(2), unmeasured])
