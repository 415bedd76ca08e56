"""A Dask task whose result is lost, because its worker ended after the task."""

from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from distributed import Client, LocalCluster


@contextmanager
def finished_on_a_closed_worker() -> Iterator[Any]:
    """Start a cluster, and yield the future of a task that no other worker may run again."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as workers,
        Client(workers) as client,
    ):
        ended: SimpleQueue[Any] = SimpleQueue()
        worker = workers.workers[0]
        future = client.submit(int, workers=[worker.address], pure=False)
        future.add_done_callback(ended.put)
        ended.get(timeout=60)
        client.sync(worker.close)
        yield future
