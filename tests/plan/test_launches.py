"""`--launches`: the points of a sweep, some of which are one point under two names."""

import pytest

from gpubench.errors import UsageError
from gpubench.model import Cache, Launches, State, Timer
from gpubench.options import read_sweep
from gpubench.plan.sweep import Sweep, plan

PDL = "128x128x64/s7/cluster=1x1/group=8/pdl"
BOTH = (f"{PDL}=0", f"{PDL}=1")
HOPPER = (9, 0)


def planned(**options: object) -> dict[tuple[str, str, str], str | None]:
    """Return why each point is skipped, or None, by variant, tile and launches."""
    sweep = Sweep(sizes=((512, 512, 512),), dtypes=("bfloat16",), **options)  # type: ignore[arg-type]
    return {
        (point.variant.name, str(point.tile or ""), str(point.launches)): reason
        for point, reason in plan(sweep, "cuda", HOPPER).items()
    }


def test_launches_are_alone_unless_the_user_says_otherwise() -> None:
    assert {name[2] for name in planned(variants=("cublas",))} == {"alone"}
    sweep = read_sweep({"launches": ",".join(Launches)})
    assert sweep.launches == tuple(Launches)
    with pytest.raises(UsageError, match=r"--launches: .*queue.*alone, overlapped, graph"):
        read_sweep({"launches": "queue"})


def test_a_kernel_whose_launches_never_overlap_is_measured_once() -> None:
    points = planned(variants=("wgmma",), launches=tuple(Launches))
    reasons = {name[2]: reason for name, reason in points.items()}
    assert reasons["alone"] is reasons["graph"] is None
    assert (
        reasons["overlapped"]
        == "the launches never overlap, so the time is that of --launches alone"
    )
    assert str(reasons["graph_overlapped"]).endswith("--launches graph")
    (alone,) = set(planned(variants=("wgmma",), launches=(Launches.OVERLAPPED,)).values())
    assert alone is None


def test_a_kernel_that_may_start_early_and_a_library_are_measured_in_each_way() -> None:
    points = planned(
        variants=("wgmma_fitted", "cublas"), tiles=(BOTH[1],), launches=tuple(Launches)
    )
    assert len(points) == 2 * len(Launches)
    assert set(points.values()) == {None}


def test_tiles_that_differ_only_in_pdl_are_one_when_launches_are_alone() -> None:
    points = planned(variants=("wgmma_fitted",), tiles=BOTH)
    assert points["wgmma_fitted", BOTH[1], "alone"] is None
    assert "differs only in pdl" in str(points["wgmma_fitted", BOTH[0], "alone"])
    overlapped = planned(variants=("wgmma_fitted",), tiles=BOTH, launches=(Launches.OVERLAPPED,))
    assert set(overlapped.values()) == {None}
    alone = planned(variants=("wgmma_fitted",), tiles=BOTH[:1])
    assert set(alone.values()) == {None}


def test_default_tiles_that_are_one_are_not_listed_twice() -> None:
    tiles = {name[1] for name in planned(variants=("wgmma_persistent",))}
    assert tiles == {"128x256x64/s4/pdl=1", "64x128x64/s8/pdl=1"}


@pytest.mark.parametrize("launches", [Launches.GRAPH, Launches.WAITED])
@pytest.mark.parametrize(
    "options", [{"states": (State.SUSTAINED,), "caches": (Cache.HOT,)}, {"timer": Timer.CUPTI}]
)
def test_graphs_and_waits_are_only_for_bursts_that_are_timed_by_events(
    launches: Launches, options: dict[str, object]
) -> None:
    with pytest.raises(UsageError, match=f"--launches {launches} needs --state burst and"):
        planned(variants=("cublas",), launches=(launches,), **options)


def test_launches_on_a_cpu_are_alone() -> None:
    sweep = Sweep(variants=("cpu_blas",), launches=(Launches.ALONE, Launches.GRAPH))
    reasons = list(plan(sweep, "cpu").values())
    assert reasons == [None, "a CPU takes only --launches alone"]
    with pytest.raises(UsageError, match="a CPU takes only --launches alone"):
        plan(Sweep(variants=("cpu_blas",), launches=(Launches.GRAPH,)), "cpu")
