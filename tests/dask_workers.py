"""A small Dask cluster in the process of the test."""

from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client, LocalCluster


@contextmanager
def dask_workers(count: int) -> Iterator[Client]:
    """Start workers with one thread each, and yield a client of their cluster."""
    with (
        LocalCluster(
            n_workers=count, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client
