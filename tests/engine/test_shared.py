"""A sweep that is shared among workers, on fake devices here, and by processes that die."""

import errno
import os
import re
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
from dask_workers import dask_workers
from distributed import Client, get_worker
from fakes import Diary, FakeBackend, matmul, measurement, point, variant

from gpubench.backends import find_devices, first_device
from gpubench.commands.tune import run as tuning
from gpubench.commands.tune.run import Settings, tune
from gpubench.commands.tune.schedule import Racing
from gpubench.engine import cluster
from gpubench.engine import cluster_pool as shared
from gpubench.engine.cluster import (
    LOCAL,
    Member,
    connected,
    devices_of,
    members,
    present,
    require_one_kind,
)
from gpubench.engine.cluster_pool import ClusterPool, deal
from gpubench.engine.measure.runner import Runner
from gpubench.engine.measurements import Measurements, Place
from gpubench.engine.pool import LocalPool, Watcher
from gpubench.engine.prepare import prepare
from gpubench.engine.run import Outcome, run
from gpubench.errors import DeviceBusyError, DeviceUnavailableError, PeerLostError, UsageError
from gpubench.model import Timing, Variant, edges
from gpubench.plan import sweep as plan
from gpubench.plan.schedule import InRounds
from gpubench.plan.sweep import Sweep
from gpubench.plan.tuned import keep_winners, read_winners
from gpubench.results import row as table
from gpubench.results.result_file import ResultFile, encode_line
from gpubench.view.row_tables import remarks

ASKED = Sweep(
    sizes=((8, 8, 8), (16, 16, 16)),
    tiles=tuple("123456"),
    device="cpu",
    timing=Timing(rounds=2, max_wall_s=600.0),
)
TILED = variant(matmul, "tiled", baseline="blas", tiles=edges(1, 6, because="of a test"))
BLAS = variant(matmul, "blas", baseline="blas")


@pytest.fixture(autouse=True)
def fake_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(_op: str, _backend: str, names: Sequence[str], *_: object) -> tuple[Variant, ...]:
        return tuple(each for each in (TILED, BLAS) if not names or each.name in names)

    for module in (plan, tuning):
        monkeypatch.setattr(module, "choose", choose)
    monkeypatch.setattr(tuning, "variants", lambda: (TILED, BLAS))
    monkeypatch.setattr(cluster, "devices_of", lambda name: find_devices(name)[0])


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """The client of three workers in this process, without a network."""
    with dask_workers(3) as connected:
        yield connected


Opened = Callable[[int], float]


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Callable[[Opened], None]:
    """Make workers open fake devices. A function of the worker's name has the time of a launch."""
    device = first_device("cpu")

    def use(launch_us: Opened) -> None:
        @contextmanager
        def opened(*_: object, **_options: object) -> Iterator[LocalPool]:
            name = get_worker().name
            backend = FakeBackend(launch_us(int(name)), device=device)
            yield LocalPool(Runner(backend), slot=str(name))

        monkeypatch.setattr(shared, "local_pool", opened)

    return use


def run_shared(
    sweep: Sweep, client: Client, watcher: Watcher, file: ResultFile | None = None
) -> Outcome:
    pool = ClusterPool(client, sweep.device)
    return run(prepare(sweep, pool.device), pool, watcher, file)


def test_rounds_of_a_point_are_of_one_device(
    client: Client, devices: Callable[[Opened], None], tmp_path: Path
) -> None:
    devices(lambda name: 10.0 + name)
    diary = Diary()
    outcome = run_shared(ASKED, client, diary, ResultFile(tmp_path / "a.csv"))
    rows = table.read(tmp_path / "a.csv")
    assert rows == outcome.rows
    assert Counter(row.variant for row in rows) == {"tiled": 12, "blas": 2}
    assert {row.slot for row in rows} == {"0", "1", "2"}
    assert all(row.host and row.rounds == 2 and len(row.slot or "") == 1 for row in rows)
    # Each device measured the baseline, and its rows are compared with its own baseline.
    assert {row.percent_of_blas for row in rows} == {100.0}
    of_blas = Counter(taken.slot for taken in diary.seen if taken.point.variant.name == "blas")
    assert of_blas == {"0": 4, "1": 4, "2": 4}
    assert {"sampling", "waiting"} <= outcome.spent_s.keys()
    assert sum(outcome.spent_s.values()) <= outcome.wall_s
    assert diary.visits[-1].visits_left >= 1
    speeds = {row.slot: row.percent_of_devices for row in rows}
    assert speeds == pytest.approx({"0": 110.0, "1": 100.0, "2": 1100 / 12})
    assert all(
        "other workers on the same CPU, which disturb this worker: 2" in (r.reason or "")
        for r in rows
    )
    assert not (tmp_path / "a.csv.partial").exists()
    said = str(remarks(rows)[-1])
    assert "measured on 3 devices, whose speeds differ by 20.0 % at the points that all" in said


@pytest.mark.parametrize("alone", [False, True])
def test_after_ctrl_c_what_was_measured_is_kept_and_the_rest_is_measured_on_resuming(
    client: Client, devices: Callable[[Opened], None], tmp_path: Path, *, alone: bool
) -> None:
    devices(lambda _name: 10.0)
    path = tmp_path / "a.csv"
    stopped = run_shared(ASKED, client, Diary(stop_after=9), ResultFile(path))
    assert stopped.interrupted
    assert len((tmp_path / "a.csv.partial").read_text().splitlines()) == 1 + 9
    finished = {row.key for row in stopped.rows if row.rounds == 2}
    diary, file = Diary(), ResultFile(path, resume=True)
    if alone:
        pool = LocalPool(Runner(FakeBackend(10.0, device=first_device("cpu"))))
        outcome = run(prepare(ASKED, pool.device), pool, diary, file)
    else:
        outcome = run_shared(ASKED, client, diary, file)
    assert not outcome.interrupted
    assert len(outcome.rows) == 14
    assert all(row.rounds == 2 for row in outcome.rows)
    again = {taken.point.key for taken in diary.seen if taken.point.variant.name != "blas"}
    assert not again & finished


def test_a_device_that_is_busy_leaves_its_points_to_the_others_and_only_all_together_fail(
    client: Client, devices: Callable[[Opened], None]
) -> None:
    def busy(*names: int) -> Opened:
        def launch_us(name: int) -> float:
            if name in names:
                raise DeviceBusyError(f"device {name} is being measured")
            return 10.0

        return launch_us

    devices(busy(1))
    rows = run_shared(ASKED, client, Watcher()).rows
    assert len(rows) == 14
    assert {row.slot for row in rows} <= {"0", "2"}
    devices(busy(0, 1, 2))
    with pytest.raises(DeviceBusyError, match="is being measured"):
        run_shared(ASKED, client, Watcher())


def test_a_sweep_without_baselines_has_a_few_points_in_common() -> None:
    alone = replace(TILED, baseline="")
    points = [point(alone, size=(n, n, n)) for n in range(1, 31)]
    assert [p.problem.m for p in InRounds().common(points)] == [1, 11, 21]
    blas = point(BLAS)
    assert InRounds().common([point(TILED), blas]) == [blas]


def test_all_sizes_of_a_kernel_are_in_one_share_and_neighbouring_tiles_in_different_ones() -> None:
    kernels = [variant(matmul, f"v{number}") for number in range(6)]
    dealt = deal([point(each, size=(n, n, n)) for n in (8, 16) for each in kernels], 2, InRounds())
    assert [[p.variant.name for p in share[::2]] for share in dealt] == [
        ["v0", "v3", "v4"],
        ["v1", "v2", "v5"],
    ]
    assert [len(share) for share in deal([point(kernels[0])], 5, InRounds())] == [1]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_shares_of_tiles_that_cost_more_and_more_cost_the_same(count: int) -> None:
    kernels = [variant(matmul, f"v{number}") for number in range(count * 2)]
    dealt = deal([point(each) for each in kernels], count, InRounds())
    costs = [sum(int(p.variant.name[1:]) for p in share) for share in dealt]
    assert costs == [costs[0]] * count


def test_devices_differ_by_the_median_of_the_points_that_several_measured() -> None:
    points = [point(variant(matmul, name)) for name in ("a", "b", "c", "only here")]

    measurements = Measurements(prepare(ASKED, first_device("cpu")))

    def take(place: Place, times_us: dict[str, float]) -> None:
        for each in points:
            if each.variant.name in times_us:
                taken = measurement(times_us[each.variant.name], each)
                measurements.add(place.put_into(taken))

    first, second = Place("host", "0", "GPU-a"), Place("host", "1", "GPU-b")
    take(first, {"a": 10, "b": 20, "c": 5})
    assert measurements.device_speeds() == {}
    take(second, {"a": 30, "b": 20, "only here": 7})
    assert measurements.device_speeds() == pytest.approx(
        {first: 150.0, second: (200 / 3 + 100) / 2}
    )


def test_workers_of_several_kinds_or_with_several_threads_are_refused(client: Client) -> None:
    device = first_device("cpu")
    mine = Member("0", "node1", device, "abc")
    for other, difference in (
        (replace(device, name="Other"), f"{device.name} and Other"),
        (replace(device, versions={"driver": "1"}), "and driver 1"),
    ):
        workers = {"a": mine, "b": Member("1", "node2", other, "abc")}
        with pytest.raises(UsageError, match=f"node1 0 and node2 1 .*{re.escape(difference)}"):
            require_one_kind(workers)
    with pytest.raises(UsageError, match="gpubench files abc and gpubench files def"):
        require_one_kind({"a": mine, "b": mine._replace(tree_hash="def")})
    assert len(members(client, "cpu")[0]) == 3
    crowded = Mock(status="running")
    crowded.sync.return_value = {"workers": {"tcp://node1:1": {"nthreads": 2}}}
    with pytest.raises(UsageError, match=r"tcp://node1:1 has 2 threads.*--nthreads 1"):
        members(crowded, "cpu")


def test_workers_are_found_although_the_answer_that_dask_stores_has_none(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "scheduler_info", lambda **_: {"workers": {}})  # as its timer does
    assert len(members(client, "cpu")[0]) == 3


def test_workers_that_do_not_answer_are_named() -> None:
    def describe(_function: object, *_: object, workers: list[str], **_options: object) -> Any:
        if workers == ["tcp://node2:1"]:
            raise OSError("Timed out trying to connect to tcp://node2:1")
        return {workers[0]: Member("w1", "node1", first_device("cpu"), "abc")}

    two = Mock(status="running", run=describe)
    two.sync.return_value = {
        "workers": {
            f"tcp://node{n}:1": {"nthreads": 1, "name": f"w{n}", "host": f"node{n}"} for n in (1, 2)
        }
    }
    pool = ClusterPool(two, "cpu")
    assert pool.notices == (
        "shared among 1 device: node1 w1",
        "left out: node2 w2: Timed out trying to connect to tcp://node2:1",
    )


def test_an_ended_connection_to_the_scheduler_is_opened_once_more() -> None:
    client = Mock(status="running")
    client.sync.side_effect = [OSError, {"workers": {"tcp://node1:1": {}}}, OSError, OSError]
    assert [*present(client)] == ["tcp://node1:1"]
    assert present(client) == {}


def test_a_cluster_whose_workers_are_gone_is_one_line() -> None:
    for status, workers in (("running", {}), ("connecting", {"tcp://node1:1": {"nthreads": 1}})):
        empty = Mock(status=status)
        empty.sync.return_value = {"workers": workers}
        with pytest.raises(PeerLostError, match=r"^--on: no worker is left$"):
            ClusterPool(empty, "cpu")


def test_an_on_without_cluster_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ANSWER_S", 0.2)
    scheduler_file = tmp_path / "scheduler.json"
    scheduler_file.write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it never answers
        silent_address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        closed = "tcp://127.0.0.1:1"
        for on in ("nowhere", str(scheduler_file), closed, silent_address, "pigeon://here"):
            with pytest.raises(UsageError, match=r"^--on: .*") as refused, connected(on, "cpu"):
                pass
            assert "\n" not in str(refused.value)
    with pytest.raises(UsageError, match="not only cuda:1"), connected(LOCAL, "cuda:1"):
        pass


def test_a_peer_that_stops_answering_is_named_and_what_it_raises_is_raised() -> None:
    with pytest.raises(PeerLostError, match=r"^worker x has not answered for 0.01 s$"):
        cluster.within(0.01, "worker x", Event().wait)
    with pytest.raises(ZeroDivisionError):
        cluster.within(60, "worker x", lambda: 1 // 0)
    assert cluster.within(60, "worker x", lambda: 5) == 5


def test_a_silent_worker_is_noticed_and_the_last_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s, signs = 0.0, {"a": 1, "b": 1}
    for module in (cluster, shared):
        monkeypatch.setattr(module, "perf_counter", lambda: clock_s)
    monkeypatch.setattr(
        shared, "present", lambda _client: {x: {"last_seen": sign} for x, sign in signs.items()}
    )
    alive = shared._Alive(SimpleNamespace(status="running"))
    alive.look()
    assert alive.workers() == ["a", "b"]
    clock_s, signs["b"] = 26.0, 2
    alive.look()
    assert alive.workers() == ["b"]
    signs["a"] = 2
    alive.look()
    assert alive.workers() == ["a", "b"]
    clock_s = 60.0
    with pytest.raises(PeerLostError, match=r"^worker a has been silent .*, with or without --on$"):
        alive.look()
    signs.clear()
    with pytest.raises(PeerLostError, match=r"^no worker is left; "):
        alive.look()


def test_shares_that_no_worker_can_measure_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    workers: dict[str, dict[str, float]] = {"a": {"last_seen": 1.0}, "b": {"last_seen": 1.0}}
    monkeypatch.setattr(shared, "present", lambda _client: workers)
    client = Mock(status="running")
    client.submit.side_effect = futures = [Mock(key=key) for key in ("first", "second")]
    running, alive = shared._Running(client, Mock()), shared._Alive(client)
    running.submit(Mock())
    running.submit(Mock(), ["b"])
    monkeypatch.setattr(alive._heartbeats, "silent", lambda _workers: {"a"})
    for keys in ([], ["first"]):  # the scheduler gives a share to a worker that is already silent
        client.processing.return_value = {"a": keys}
        alive.look()
        assert [future.key for future in alive.stuck(running)] == keys
    workers["c"] = workers.pop("b")  # the worker has started again, and has another address
    alive.look()
    assert alive.stuck(running) == futures


def test_a_result_that_is_lost_with_its_worker_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "ANSWER_S", 0.2)
    done: SimpleQueue[Any] = SimpleQueue()
    with dask_workers(2) as client:
        worker = client.cluster.workers[0]
        future = client.submit(int, workers=[worker.address], pure=False)  # on no other worker
        future.add_done_callback(done.put)
        done.get(timeout=60)
        client.sync(worker.close)
        assert cluster.within(60, "Dask", lambda: cluster.result_of(future)) is None


def test_the_connection_is_named_and_no_task_if_dask_cancels_a_future() -> None:
    future = Mock(status="cancelled")
    future.result.side_effect = CancelledError("share-7 cancelled: scheduler-connection-lost.")
    with pytest.raises(PeerLostError, match=r"^the connection to the scheduler ended$"):
        cluster.result_of(future)
    with pytest.raises(PeerLostError, match=r": the connection to the scheduler ended; the measur"):
        shared._result(future)


def test_a_share_whose_result_is_lost_is_measured_again(
    client: Client, devices: Callable[[Opened], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    devices(lambda _name: 10.0)
    result, lost = shared._result, list[object]()

    def lose_the_first(future: Any) -> shared.ShareResult | None:
        if lost:
            return result(future)
        lost.append(future)
        return None

    monkeypatch.setattr(shared, "_result", lose_the_first)
    rows = run_shared(ASKED, client, Watcher()).rows
    assert len(rows) == 14
    assert all(row.rounds == 2 for row in rows)


def test_workers_that_do_not_start_and_a_missing_dask_end_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import distributed

    def broken(**_: object) -> None:
        raise RuntimeError("Nanny failed to start.") from OSError("no more processes")

    monkeypatch.setattr(distributed, "SpecCluster", broken)
    why = r"^--on local: not all .*no more processes; a script"
    with pytest.raises(DeviceUnavailableError, match=why), connected(LOCAL, "cpu"):
        pass

    def refused() -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    why = r"^--on local needs a /dev/shm that can be written: Read-only file system$"
    monkeypatch.setattr(cluster.multiprocessing, "Lock", refused)
    with pytest.raises(DeviceUnavailableError, match=why), connected(LOCAL, "cpu"):
        pass
    for package in ("cryptography", "distributed"):
        why = rf"on several devices needs {package}: pip install '.*\[fleet\]'"
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UsageError, match=why), connected(LOCAL, "cpu"):
            pass
        monkeypatch.undo()


def test_devices_are_searched_for_in_another_process() -> None:
    assert [device.name for device in devices_of("cpu")] == [
        device.name for device in find_devices("cpu")[0]
    ]
    with pytest.raises(DeviceUnavailableError, match="no NVIDIA driver"):
        devices_of("cuda")


@pytest.mark.slow
def test_a_local_worker_that_hangs_while_it_starts_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "START_LIMIT_S", 2.0)

    def stop_the_worker() -> None:
        for _ in range(600):
            for process in psutil.Process().children():
                with suppress(psutil.Error):
                    if any("spawn_main" in word for word in process.cmdline()):
                        process.suspend()
                        if not ended.wait(60):
                            too_late.append(process.kill())
                        return
            ended.wait(0.05)

    ended, too_late = Event(), list[None]()
    with (
        closing(SimpleNamespace(close=ended.set)),
        ThreadPoolExecutor(1) as beside,
    ):
        beside.submit(stop_the_worker)
        with (
            suppress(DeviceUnavailableError),  # older versions of Dask start the worker again
            connected(LOCAL, "cpu"),
        ):
            pass
        ended.set()
    assert not too_late


@pytest.mark.slow
def test_a_cluster_that_is_interrupted_while_it_starts_is_closed_as_a_whole() -> None:
    closed: list[str] = []

    def make() -> SimpleNamespace:
        os.kill(os.getpid(), signal.SIGINT)
        return SimpleNamespace(close=lambda: closed.append("closed"))

    with pytest.raises(KeyboardInterrupt):
        cluster._whole(make)
    assert closed == ["closed"]


def test_a_cluster_of_our_own_listens_on_the_loopback_alone_and_asks_for_its_keys() -> None:
    def listening() -> set[tuple[str, int]]:
        ours = [psutil.Process(), *psutil.Process().children(recursive=True)]
        sockets = [connection for process in ours for connection in process.net_connections()]
        return {tuple(s.laddr) for s in sockets if s.status == psutil.CONN_LISTEN}

    before = listening()
    with connected(LOCAL, "cpu") as client:
        address = client.scheduler_info()["address"]
        its_own = listening() - before
        assert len(its_own) > 2  # the ports of scheduler, nanny and worker
        assert {ip for ip, _port in its_own} == {"127.0.0.1"}
        assert address.startswith("tls://127.0.0.1:")
        workers, _ = members(client, "not looked for again")
        assert [member.device.name for member in workers.values()] == [devices_of("cpu")[0].name]
        with pytest.raises((UsageError, OSError)), connected(address, "cpu"):
            pass


LIES: dict[str, Callable[[bytes], object]] = {
    "JSON is malformed": lambda _line: b"x" * 2**22,
    "is not a point of this sweep": lambda line: re.sub(rb"tiled|blas", b"other", line),
    "-1.0 is not a number from": lambda line: re.sub(rb"10.0", b"-1.0", line),
    "bytes-like": lambda _line: 5,
}


@pytest.mark.parametrize("by", ["event", "result"])
@pytest.mark.parametrize("reason", LIES)
def test_a_worker_that_sends_no_valid_measurement_ends_the_sweep_with_one_line(
    client: Client, monkeypatch: pytest.MonkeyPatch, reason: str, by: str
) -> None:
    job = prepare(ASKED, first_device("cpu"))
    lie = LIES[reason](encode_line(measurement(10.0, job.points[0])))

    def lying(share: shared.Share) -> shared.ShareResult:
        if by == "event":
            get_worker().log_event(share.topic, lie)
        return shared.ShareResult(get_worker().address, [lie])  # type: ignore[list-item] # a lie

    monkeypatch.setattr(shared, "measure_share", lying)
    with pytest.raises(
        PeerLostError, match=r"^a worker sent data that is not a measurement: "
    ) as ended:
        run_shared(ASKED, client, Watcher())
    assert reason in str(ended.value)


@pytest.mark.slow
def test_a_sweep_outlives_workers_that_are_killed_silent_or_late(
    devices: Callable[[Opened], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = Event()
    opened: SimpleQueue[int] = SimpleQueue()

    def waits_unless_late(name: int) -> float:
        opened.put(name)
        if name < 2:
            ends.wait()
        return 10.0

    devices(waits_unless_late)
    present = cluster.present
    signs = {"1": {"last_seen": 0.0}}  # the second worker is silent from now on
    monkeypatch.setattr(
        shared,
        "present",
        lambda client: {
            address: facts | signs.get(str(facts["name"]), {})
            for address, facts in present(client).items()
        },
    )
    monkeypatch.setattr(cluster, "SILENT_S", 0.5)
    with (
        dask_workers(2) as client,
        ThreadPoolExecutor(1) as beside,
        closing(SimpleNamespace(close=ends.set)),
    ):
        sweep = beside.submit(run_shared, ASKED, client, Watcher())
        assert {opened.get(timeout=60) for _ in range(2)} == {0, 1}
        client.cluster.scale(3)
        killed = client.cluster.workers[0]
        client.sync(killed.close, executor_wait=False)
        rows = sweep.result(timeout=60).rows
    assert all(row.status == "ok" and row.rounds == 2 for row in rows)
    assert {row.slot for row in rows} == {"2"}


CALLS, ENDS, NOTICED = Counter[str](), Event(), list[bool]()
"""State of `measure_or_wait`, which Dask pickles by its name."""


def measure_or_wait(share: shared.Share) -> shared.ShareResult:
    """Send measurements from worker 1, and wait in worker 0, until a fourth share is measured."""
    worker = get_worker()
    CALLS[str(worker.name)] += 1
    if CALLS.total() > 3:  # the share of the silent worker
        ENDS.set()
    elif str(worker.name) == "0":
        ENDS.wait(20)
    elif str(worker.name) == "1":
        point = prepare(ASKED, first_device("cpu")).points[0]
        for _ in range(60):
            worker.log_event(share.topic, encode_line(measurement(10.0, point)))
            if ENDS.wait(0.1):
                break
        NOTICED.append(ENDS.is_set())
    return shared.ShareResult(worker.address, [])


def test_a_silent_worker_is_noticed_while_another_worker_sends_measurements(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = cluster.present
    monkeypatch.setattr(
        shared,
        "present",
        lambda client: {
            address: facts | ({"last_seen": 0.0} if str(facts["name"]) == "0" else {})
            for address, facts in present(client).items()
        },
    )
    monkeypatch.setattr(shared, "measure_share", measure_or_wait)
    monkeypatch.setattr(cluster, "SILENT_S", 1.5)
    run_shared(ASKED, client, Watcher())
    assert NOTICED == [True]


def test_each_race_runs_on_one_device_and_the_devices_share_the_races(
    client: Client, devices: Callable[[Opened], None], tmp_path: Path
) -> None:
    devices(lambda name: 10.0 + name)
    sizes = tuple((n, n, n) for n in (8, 12, 16, 20))
    asked = replace(ASKED, variants=("tiled",), sizes=sizes)
    settings = Settings(sweep=asked, racing=Racing(where="edge != 5", within=0.01))
    pool = ClusterPool(client, "cpu")
    tuned = tune(settings, pool, output=tmp_path / "a.csv")
    assert not tuned.race.interrupted
    places: dict[str, set[str | None]] = {}
    for row in tuned.race.rows:
        places.setdefault(row.size, set()).add(row.slot)
    assert {len(slots) for slots in places.values()} == {1}
    assert len(set().union(*places.values())) > 1
    assert {row.tile for row in tuned.race.rows} == set("12346")
    assert len(tuned.race.endings) == len(sizes)
    assert tuned.confirmed
    assert {row.variant for row in tuned.confirmed.rows} == {"tiled", "blas"}
    assert tuned.confirmed.endings == {}  # the confirmation is another job, without races
    assert [winner.m for winner in tuned.winners] == [8, 12, 16, 20]


def test_tuned_tiles_are_resolved_before_a_sweep_is_shared(
    client: Client, devices: Callable[[Opened], None], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("gpubench.plan.tuned.choose", lambda *_: (TILED, BLAS))
    devices(lambda _name: 10.0)
    winners = tmp_path / "tuned.toml"
    settings = Settings(
        sweep=replace(ASKED, variants=("tiled",)), racing=Racing(where=None, within=0.01)
    )
    keep_winners(winners, tune(settings, ClusterPool(client, "cpu"), output=None).winners)
    best = {(winner.m, winner.tile) for winner in read_winners(winners)}
    rows = run_shared(replace(ASKED, tiles=(str(winners),)), client, Watcher()).rows
    assert {(row.m, row.tile) for row in rows if row.tile} == best
    assert all(row.status == "ok" for row in rows)
