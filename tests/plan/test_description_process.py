"""Users' descriptions run in another process. If they misbehave, one line says how."""

from pathlib import Path

import pytest

from gpubench.errors import UsageError
from gpubench.model import Config, CudaVariant, Problem
from gpubench.plan import description_process
from gpubench.plan.descriptor import load as load_here
from gpubench.plan.registry import KERNELS
from gpubench.plan.sweep import Sweep, plan

GOOD = """
import os, sys, threading
from gpubench.model import CudaVariant, Launch, Space, edges
{before}
VARIANT = CudaVariant(idea="mine", {fields})
"""
PLAIN = "grid=1, block=32"


def described(folder: Path, *, before: str = "", fields: str = PLAIN) -> Path:
    path = folder / "mine.py"
    path.write_text(GOOD.format(before=before, fields=fields))
    path.with_suffix(".cu").touch()
    return path


def planned(path: Path) -> list[str | None]:
    """Return the reason why each point of a sweep cannot run."""
    sweep = Sweep(variants=("mine",), kernels=path.parent, sizes=((8, 8, 8),))
    return list(plan(sweep, "cuda", (9, 0)).values())


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"before": "os._exit(0)"}, "its process ended by itself with exit code 0"),
        ({"before": "sum(iter(int, 1))"}, "its process hung: no answer within 0.2 s; killed"),
        ({"before": "x = bytearray(2**50)"}, ":4: MemoryError: "),
        ({"fields": f"{PLAIN}, refuse=lambda *_: os._exit(0)"}, "VARIANT: refuse: its process end"),
        (
            {"fields": f"{PLAIN}, refuse=lambda *_: 'x' * 10**7"},
            "VARIANT: refuse: its process sent",
        ),
        ({"fields": f"{PLAIN}, refuse=lambda *_: '\\ud800'"}, "VARIANT: refuse: 'utf-8' codec"),
        (
            {"fields": "launch=lambda *_: print"},
            "VARIANT: launch: a description cannot use a builtin",
        ),
        (
            {"fields": "launch=lambda *_: Launch(grid=(-1,), block=(1,))"},
            "VARIANT: launch: the numbers of a launch must be from 0 to ",
        ),
    ],
)
def test_a_description_that_misbehaves_is_one_line_and_the_next_one_is_read(
    tmp_path: Path, parts: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = described(tmp_path, **parts)
    if "iter" in parts.get("before", ""):
        monkeypatch.setattr(description_process, "ANSWER_S", 0.2)
    with pytest.raises(UsageError) as caught:
        planned(path)
    message = str(caught.value)
    assert message.startswith(f"{path}")
    assert message.isprintable()
    assert why in message
    monkeypatch.undo()
    described(tmp_path, before="# good again")
    assert planned(path) == [None]


def test_what_a_description_leaves_behind_ends_with_its_process(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    description_process.end()
    thread = "threading.Thread(target=threading.Event().wait).start(); sys.setrecursionlimit(60)"
    path = described(tmp_path, before=f"{thread}; print('a\\x1b[2Jb')")
    assert planned(path) == [None]
    description_process.end()
    assert capfd.readouterr() == ("", f"[{path.stem}] a?[2Jb\n")


def test_a_description_is_asked_only_once_for_each_answer(tmp_path: Path) -> None:
    """The process ends before each measurement, and starts again only for a new question."""
    path = described(tmp_path, fields=f"{PLAIN}, refuse=lambda *_, n=[0]: n.append(0) or str(n)")
    variant = description_process.load(path, "gemm")
    small, large = (Problem(op="gemm", m=m, n=8, dtype="float32") for m in (8, 9))
    first = variant.why_not(None, small)
    description_process.end_between_requests()
    assert variant.why_not(None, small) == first == "[0, 0]"
    assert variant.why_not(None, large) == first


@pytest.mark.parametrize("name", ["shared_tile", "wgmma_pingpong", "splitk_cluster"])
def test_a_description_answers_as_it_does_in_this_process(name: str) -> None:
    path = KERNELS / "gemm" / f"{name}.py"
    here, there = load_here(path, "gemm"), description_process.load(path, "gemm")
    assert isinstance(here, CudaVariant)
    assert isinstance(there, CudaVariant)
    problem = Problem(op="gemm", m=640, n=512, k=333, dtype=here.dtypes[0])
    tile = here.tiles.defaults[0]
    assert there.tiles.defaults[0] == tile
    assert str(there.tiles.read(str(tile))) == str(tile)
    assert there.tiles.why_not(Config([("edge", 9999)])) == here.tiles.why_not(
        Config([("edge", 9999)])
    )
    assert there.launch(tile, problem) == here.launch(tile, problem)
    assert there.why_not(tile, problem) == here.why_not(tile, problem)
    assert there.tiles_for(problem, 132) == here.tiles_for(problem, 132)
    assert there.reuse
    assert here.reuse
    assert there.reuse(tile) == here.reuse(tile)
    for field in ("idea", "dtypes", "capability", "architecture_suffix", "compile_options"):
        assert getattr(there, field) == getattr(here, field)
    assert hash(there) == hash(description_process.load(path, "gemm"))


def test_a_description_cannot_choose_the_name_or_the_operation(tmp_path: Path) -> None:
    """The name is a part of the path of the only folder into which the function may write."""
    description_process.end()
    hostile = (
        "from gpubench.plan import description_process as d; answer = d._description\n"
        "d._description = lambda v: answer(v) | "
        "{'plain': answer(v)['plain'] | {'name': '../../..', 'op': 'other'}}"
    )
    variant = description_process.load(described(tmp_path, before=hostile), "gemm")
    description_process.end()
    assert (variant.name, variant.op) == ("mine", "gemm")


def test_this_process_checks_names_of_files_itself(tmp_path: Path) -> None:
    path = described(tmp_path).rename(tmp_path / "Mine!.py")
    with pytest.raises(UsageError, match="'Mine!' cannot name a kernel"):
        load_here(path, "gemm", read=lambda *_: pytest.fail("was read"))


@pytest.mark.parametrize("part", ["'kind': 'x'", "'plain': {'x': 1}", "'plain': {'idea': 1}"])
def test_an_answer_that_describes_no_variant_is_one_line(tmp_path: Path, part: str) -> None:
    description_process.end()
    hostile = (
        "from gpubench.plan import description_process as d; answer = d._description\n"
        f"d._description = lambda v: answer(v) | {{{part}}}"
    )
    path = described(tmp_path, before=hostile)
    with pytest.raises(UsageError, match=r"mine\.py: "):
        description_process.load(path, "gemm")
    description_process.end()
