"""research/operating.py simulates comparisons, races and fleets. The tests run a few."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "research"))
import operating


def cells(table: str, item: object, number: int) -> dict[str, str]:
    """Return the cells of a line of a table by heading."""
    line, _, heading = operating.TABLES[table]
    return dict(zip(heading, map(str, line(item, number, fit=True)), strict=True))


def test_a_slow_down_that_diff_says_it_would_find_is_found() -> None:
    name = "each BLAS point has two speeds, 8 % apart"
    (place,) = (
        place
        for place, case in enumerate(operating.CASES)
        if (case.name, case.slowed) == (name, "")
    )
    line = cells("blind", place, 4)
    assert [line[f"{name}, found"] for name in ("everything", "one kernel")] == ["4 of 4"] * 2


def test_lines_of_tune_and_fleet_count_what_they_are_about() -> None:
    line = cells("tune", "8 configurations", 10)
    assert int(line["group holds the best"].split()[0]) >= 9
    fleet = cells("fleet", operating.operating_fleet.LINES.index(("normal, 0.25 %", 8)), 8)
    assert int(fleet["20% in one unit"].split()[0]) >= 7
    assert fleet["false alarms"] == "0 of 8"
    of_three = operating.operating_fleet.DISTURBED.index(("normal, 0.25 %", 8, 3, ""))
    assert cells("fleet_disturbed", of_three, 6)["a slow device found"] == "6 of 6"
    assert cells("fleet_disturbed", 0, 6)["false alarms"] == "0 of 6"


def test_a_history_of_one_build_has_no_move_and_one_with_a_slower_kernel_has() -> None:
    line = cells("history", operating.operating_history.LINES.index(("as recorded", 10, 50)), 2)
    assert line["a move in a history of one build"] == "0 of 2"
    assert line["found: +5 %"] == "2 of 2"


def test_the_tables_name_the_sweeps_whose_rounds_they_draw() -> None:
    named = re.fullmatch(
        r"Rounds of (\S+) \(commit [0-9a-f]{12}\) and (\S+) \(commit [0-9a-f]{12}\)\.",
        operating.source(),
    )
    assert named
    assert [operating.ROOT / "results" / name for name in named.groups()] == operating.SWEEPS
