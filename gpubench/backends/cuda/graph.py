"""Captures launches as CUDA graphs, counts the edges between launches, and times replays.

While a stream is captured, enqueued work becomes nodes of a graph. The edge between two kernels is
programmatic if the second kernel has the attribute of programmatic dependent launch. The second
kernel may then start before the first kernel has ended. All other edges are full.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, repeat
from typing import Any

from cuda.bindings import driver

from gpubench.backends.cuda.timer import BlockedBatchTimer
from gpubench.errors import DoesNotFitError, first_line

RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
"""The capture mode in which a library may allocate memory while its call is captured."""

PROGRAMMATIC = driver.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.value

_get_edges = getattr(driver, "cuGraphGetEdges_v2", driver.cuGraphGetEdges)
"""The driver's function that also returns the types of edges. In CUDA 12, its name is
cuGraphGetEdges_v2."""

Launch = Callable[[], None]


class GraphTimer(BlockedBatchTimer):
    """Times replays of a graph. A sample is one replay, which is enqueued behind a blocking kernel.

    The overhead of a replay is calibrated with graphs of empty kernels.
    """

    def __init__(self, stream: Any, *, overlap: bool) -> None:
        super().__init__(stream)
        self._overlap = overlap
        self._launches = 1  # number of launches in the graph that is replayed

    def sample(
        self, rotation: Iterator[Launch], launches: int, count: int, before: Launch | None = None
    ) -> list[float]:
        """Time `count` replays of a graph with `launches` launches. Return microseconds per launch.

        Raises DoesNotFitError if a launch cannot be captured, and the errors of the base class.
        """
        stream, self._launches = self._stream.pointer, launches
        with (
            captured(stream, islice(rotation, launches), overlap=self._overlap) as graph,
            uploaded(stream, graph) as replay,
        ):
            times_us = super().sample(repeat(replay), 1, count, before)
        return [time_us / launches for time_us in times_us]

    def _group_size(self, replays: int, sample_us: float, samples: int) -> int:
        """Return the number of samples to enqueue before the host waits for the device."""
        return super()._group_size(self._launches * replays, sample_us, samples)


@contextmanager
def captured(stream: int, launches: Iterable[Launch], *, overlap: bool) -> Iterator[Any]:
    """Capture launches as a graph, and yield the graph.

    Each launch is a child graph, and the edges between child graphs are full. With `overlap`, all
    launches are captured together, and the attributes of the kernels determine the edges. Raises
    DoesNotFitError if a launch cannot be captured.
    """
    graph = _capture(stream, launches) if overlap else _must(driver.cuGraphCreate(0))
    try:
        before: list[Any] = []
        for launch in () if overlap else launches:
            child = _capture(stream, (launch,))
            node = driver.cuGraphAddChildGraphNode(graph, before, len(before), child)
            driver.cuGraphDestroy(child)  # the graph has a copy of the child
            before = [_must(node)]
        yield graph
    finally:
        driver.cuGraphDestroy(graph)


@contextmanager
def uploaded(stream: int, graph: Any) -> Iterator[Launch]:
    """Copy a graph to the device, and yield a function that enqueues a replay of the graph."""
    program = _must(driver.cuGraphInstantiate(graph, 0))
    enqueue = driver.cuGraphLaunch
    try:
        _must(driver.cuGraphUpload(program, stream))
        _must(driver.cuStreamSynchronize(stream))
        yield lambda: _must(enqueue(program, stream))
    finally:
        driver.cuStreamSynchronize(stream)
        driver.cuGraphExecDestroy(program)


def overlaps(stream: int, launch: Launch) -> bool:
    """Return whether a call may begin before the previous call ended. Raises DoesNotFitError."""
    with captured(stream, (launch,), overlap=True) as graph:
        inside = programmatic_edges(graph)
    with captured(stream, (launch, launch), overlap=True) as graph:
        return programmatic_edges(graph) > 2 * inside


def programmatic_edges(graph: Any) -> int:
    """Return the number of programmatic edges of a graph."""
    *_, count = _all(_get_edges(graph))
    if not count:
        return 0
    _, _, edges, _ = _all(_get_edges(graph, count))
    return sum(edge.type == PROGRAMMATIC for edge in edges)


def node_names(graph: Any) -> list[str]:
    """Return the symbols of a graph's kernels, and the types of its other nodes.

    Raises DoesNotFitError.
    """
    _, count = _all(driver.cuGraphGetNodes(graph))
    nodes, _ = _all(driver.cuGraphGetNodes(graph, count)) if count else ((), 0)
    names: list[str] = []
    for node in nodes:
        kind = _must(driver.cuGraphNodeGetType(node)).name.removeprefix("CU_GRAPH_NODE_TYPE_")
        if kind == "KERNEL":
            run = _must(driver.cuGraphKernelNodeGetParams(node))
            function, kernel = run.func, run.kern  # a library's kernel may be bound to no context
            get_name = driver.cuFuncGetName if int(function) else driver.cuKernelGetName
            names.append(_must(get_name(function if int(function) else kernel)).decode())
        elif kind == "GRAPH":
            names += node_names(_must(driver.cuGraphChildGraphNodeGetGraph(node)))
        elif kind != "EMPTY":
            names.append(kind.lower())
    return names


def _capture(stream: int, launches: Iterable[Launch]) -> Any:
    """Return the graph of the work that launches enqueue. Raises DoesNotFitError."""
    _must(driver.cuStreamBeginCapture(stream, RELAXED))
    refused = ""
    try:
        for launch in launches:
            launch()
    except Exception as error:  # a library's call may refuse to be captured
        refused = first_line(error)
    finally:
        status, graph = driver.cuStreamEndCapture(stream)
    if refused or status:
        if not status:
            driver.cuGraphDestroy(graph)
        raise DoesNotFitError(f"cannot be captured in a CUDA graph: {refused or status.name}")
    return graph


def _all(answer: Sequence[Any]) -> Sequence[Any]:
    """Return a driver's answer without its status. Raises DoesNotFitError for an error."""
    status, *values = answer
    if status:
        raise DoesNotFitError(f"CUDA graphs: {status.name}")
    return values


def _must(answer: Sequence[Any]) -> Any:
    """Return the first value of a driver's answer, or None. Raises DoesNotFitError for an error."""
    values = _all(answer)
    return values[0] if values else None
