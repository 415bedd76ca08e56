"""`gpubench history`: moves of saved times, their causes, and distances from an anchor."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from commandline import outcome
from diffs import row

from gpubench.results import store
from gpubench.results.row import Row, encode

Call = Callable[..., tuple[int, str, str]]
SIZES = (64, 128, 256, 512, 1024, 2048)


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBENCH_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def call() -> Call:
    return partial(outcome, "history")


def sweep(number: int, *, code: str = "a", library: str = "1", **factors: float) -> list[Row]:
    """Return rows of a sweep that scatter by 0.2 %. `own` and `cublas` are factors of times."""
    rng = np.random.default_rng(number)
    rows = []
    for name in ("cublas", "own", "other"):
        own_code = {"own": code, "other": "o"}.get(name)
        for size in SIZES:
            factor = factors.get(name, 1.0) * factors.get("machine", 1.0)
            noise = float(np.exp(0.002 * rng.standard_normal()))
            rows.append(
                replace(
                    row(name, size, factor * noise),
                    code_hash=own_code,
                    source_hash=own_code or library,
                    library=library,
                )
            )
    return rows


def moved(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith(("moved", "NVIDIA"))]


def keep(sweeps: Sequence[Sequence[Row]], name: str = "main") -> list[Path]:
    return [store.save(rows, name) for rows in sweeps]


def test_a_kernel_that_became_slower_has_a_move_at_its_first_slow_result(call: Call) -> None:
    kept = keep(
        [sweep(n) if n < 4 else sweep(n, code="b", own=1.05) for n in range(7)],
    )
    code, out, _ = call("main")
    lines = moved(out)
    assert code == 0
    assert len(lines) == len(SIZES)
    day, _, time = kept[4].stem.partition("T")
    at = f"{day[:4]}-{day[4:6]}-{day[6:]} {time[:2]}:{time[2:4]}:{time[4:6]}"
    assert all(f"at {at}: kernel, whose source changed" in line for line in lines)
    assert all(line.startswith(("moved +4.", "moved +5.")) for line in lines)
    assert max(map(len, out.splitlines())) <= 80
    assert moved(call("main", "--only", "other")[1]) == []


def test_a_history_in_which_only_the_library_moved_convicts_no_kernel(call: Call) -> None:
    keep([sweep(n, library="12" if n < 3 else "13", cublas=1 - 0.06 * (n > 2)) for n in range(6)])
    lines = moved(call("main")[1])
    assert len(lines) == len(SIZES)
    assert all(line.endswith("library, 12 → 13") for line in lines)


def test_a_move_of_all_unchanged_code_is_a_move_of_the_machine(call: Call) -> None:
    keep([sweep(n, machine=1.04 if n > 3 else 1.0) for n in range(8)])
    (line,) = moved(call("main")[1])
    assert line.startswith("NVIDIA H200: moved +")
    assert line.split(": ")[2].startswith("machine, unchanged code moved")


def test_a_result_without_unchanged_code_shows_no_move_of_the_machine(call: Call) -> None:
    for n in range(8):
        rows = sweep(n, machine=1.04 if n > 3 else 1.0)
        keep([[replace(x, driver="2" if n > 3 else "1") for x in rows]])
        own = [x for x in rows if x.variant == "own"]
        driver = "2" if n > 2 else "1"
        keep([[replace(x, op="gemv", k=1, code_hash=None, driver=driver) for x in own]])
    lines = call("main")[1].splitlines()
    (place,) = (at for at, line in enumerate(lines) if line.startswith("NVIDIA H200: "))
    assert lines[place].startswith("NVIDIA H200: moved +4.")
    assert " ".join(lines[place : place + 2]).rstrip().endswith("driver 1 → 2")


def test_a_move_of_unchanged_code_that_others_do_not_share_has_no_known_cause(call: Call) -> None:
    keep([sweep(n, own=1.08 if n > 3 else 1.0) for n in range(8)])
    lines = moved(call("main")[1])
    assert len(lines) == len(SIZES)
    assert all(line.endswith("unknown, the code is the same") for line in lines)


def test_a_regression_that_was_fixed_has_two_moves(call: Call) -> None:
    slow = {3: "b", 4: "b"}
    keep([sweep(n, code=slow.get(n, "a"), own=1.1 if n in slow else 1.0) for n in range(9)])
    lines = moved(call("main", "--only", "own,64")[1])
    assert [line[:7] for line in lines] == ["moved +", "moved -"]


def test_two_results_show_no_scatter_and_no_move(call: Call) -> None:
    keep([sweep(1), sweep(2, own=1.5)])
    assert moved(call("main")[1]) == []


def test_a_slow_drift_without_a_visible_step_is_found_against_a_fixed_anchor(call: Call) -> None:
    keep([sweep(100 + n) for n in range(3)], "v1")
    keep([sweep(n, code=str(n), own=1.012**n) for n in range(4)])
    code, out, _ = call("main", "--against", "v1")
    lines = [line for line in out.splitlines() if line.startswith("since v1 ")]
    assert code == 1
    assert len(lines) == 3 * len(SIZES)
    assert sum(line.endswith(": slower") for line in lines) == len(SIZES)
    assert call("main", "--against", "v1", "--only", "other")[0] == 0


def test_an_anchor_of_another_device_or_name_is_refused_in_one_line(call: Call) -> None:
    keep([sweep(1)])
    keep([[replace(each, device="NVIDIA H100") for each in sweep(1)]], "v1")
    for name, said in (("v1", "comes from the device of this"), ("v0", "nothing is saved as 'v0'")):
        code, out, err = call("main", "--against", name)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert said in err


@pytest.mark.parametrize("others", [{"device": "NVIDIA H100"}, {"op": "gemv", "k": 1}])
def test_newer_results_of_another_device_or_operation_hide_no_slower_point(
    call: Call, others: dict[str, object]
) -> None:
    keep([sweep(100 + n) for n in range(3)], "v1")
    keep([sweep(n, code="b", own=1.1) for n in range(4)])
    assert call("main", "--against", "v1")[0] == 1
    keep([[replace(each, **others) for each in sweep(n)] for n in range(10)])
    code, out, _ = call("main", "--against", "v1")
    assert code == 1
    assert sum(line.endswith(": slower") for line in out.splitlines()) == len(SIZES)


def test_a_result_of_the_anchor_that_cannot_be_read_is_named(call: Call) -> None:
    damaged = keep([sweep(100 + n) for n in range(4)], "v1")[-1]
    keep([sweep(n) for n in range(4)])
    damaged.write_text("damaged")
    code, _, err = call("main", "--against", "v1")
    assert code == 0
    assert str(damaged) in err


def test_a_newest_result_of_the_anchor_without_rows_is_skipped(call: Call) -> None:
    empty = keep([sweep(100 + n) for n in range(4)], "v1")[-1]
    empty.write_bytes(encode([]))
    keep([sweep(n) for n in range(4)])
    code, out, err = call("main", "--against", "v1")
    assert (code, "since v1" in out) == (0, True)
    assert f"--against skips {empty}, which has no row" in err.replace("\n", "")


def test_an_anchor_without_a_time_is_refused_with_this_reason(call: Call) -> None:
    keep([sweep(1)])
    keep([[replace(each, status="error", median_us=None) for each in sweep(2)]], "v1")
    code, out, err = call("main", "--against", "v1")
    assert (code, out) == (2, "")
    assert err == "gpubench: --against: no result saved as 'v1' has a time\n"


def test_another_library_is_not_other_code_of_a_kernel(call: Call) -> None:
    def on_library(version: str, factor: float) -> list[Row]:
        rows = sweep(1, library=version, own=factor, cublas=factor)
        return [replace(each, code_hash=None) for each in rows]  # no reference

    keep([on_library("12", 1.0)], "v1")
    keep([on_library("12", 1.0), on_library("13", 1.02)])
    out = call("main", "--against", "v1")[1]
    changes = [line[:14] for line in out.splitlines() if line.startswith("since v1 ")]
    assert Counter(changes) == {
        "since v1 +2.0 ": len(SIZES),  # the library: only the newest result has its code
        "since v1 +1.0 ": len(SIZES),  # the kernel `own`: both results have its code
        "since v1 +0.0 ": len(SIZES),
    }


def test_a_slower_tile_that_another_tile_now_beats_is_reported(call: Call) -> None:
    def tiled(number: int, factor: float) -> list[Row]:
        rows = sweep(number, code=str(factor))
        slow, fast = sweep(number + 50, own=1.2), sweep(number + 90, code=str(factor), own=factor)
        own = [replace(each, tile="8") for each in slow if each.variant == "own"]
        own += [replace(each, tile="16") for each in fast if each.variant == "own"]
        return [*(each for each in rows if each.variant != "own"), *own]

    keep([tiled(100 + n, 1.0) for n in range(3)], "v1")
    keep([tiled(n, 1.5) for n in range(4)])
    code, out, _ = call("main", "--against", "v1", "--only", "own")
    assert code == 1
    lines = out.splitlines()
    assert [before for before, line in pairwise(lines) if line.endswith(": slower")] == [
        f"own 16 at {size} float32 on NVIDIA H200" for size in SIZES
    ]
    assert call("main", "--against", "v1", "--only", "8")[0] == 0
