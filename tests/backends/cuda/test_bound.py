"""The CUDA backend on a stand-in for CuPy: its calls of the driver, and what it notes of calls."""

import ctypes
import importlib
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import fakes
import numpy as np
import pytest
from fakes import install_modules
from test_timer import FakeStream

from gpubench.backends.cuda.timer import BlockedBatchTimer
from gpubench.backends.functions import Prepared
from gpubench.errors import CompileError, DoesNotFitError, LaunchError
from gpubench.hardware.architectures import example
from gpubench.model import (
    Cache,
    CudaVariant,
    HostVariant,
    Launch,
    Launches,
    Point,
    Problem,
    Resources,
    Scope,
    State,
    Timer,
)
from gpubench.plan.registry import of_op

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_signature"
PROBLEM = Problem(op="gemm", m=40, n=50, k=60, dtype="float32")
MODULES = (
    "launching",
    "stream",
    "kernel",
    "gauge",
    "backend",
    "cupti",
    "cublas",
    "cublaslt",
    "emulated",
)


class OnDevice(np.ndarray):  # type: ignore[type-arg]
    """An array of CuPy, which `get` copies to the host."""

    def get(self) -> Any:
        return np.array(self)


class Hook:
    """CuPy's MemoryHook: the memory pool calls the hooks that are active."""

    entered: list[Any] = []  # noqa: RUF012 # CuPy has such a list for each thread

    def __enter__(self) -> Self:
        self.entered.append(self)
        return self

    def __exit__(self, *_error: object) -> None:
        self.entered.remove(self)


def allocate(count_bytes: int) -> None:
    for hook in Hook.entered:
        hook.malloc_preprocess(device_id=0, size=count_bytes, mem_size=512)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The backend's modules with the stand-in, and the launches that the driver received."""
    launched: list[tuple[Any, ...]] = []
    loaded = SimpleNamespace(
        load=lambda _cubin: None, get_function=lambda _name: SimpleNamespace(ptr=7)
    )
    stream = SimpleNamespace(ptr=0)
    parts: dict[str, dict[str, Any]] = {
        "cupy": {"empty": lambda *_: SimpleNamespace(data=SimpleNamespace(ptr=0x900), nbytes=64)},
        "cupy.cuda": {
            "Device": lambda: SimpleNamespace(compute_capability="90"),
            "MemoryHook": Hook,
            "Module": lambda: loaded,
            "get_current_stream": lambda: stream,
        },
        "cupy.cuda.device": {},
        "cupy.cuda.runtime": {},
        "cupy_backends": {},
        "cupy_backends.cuda": {},
        "cupy_backends.cuda.api": {},
        "cupy_backends.cuda.api.driver": {"launchKernel": lambda *launch: launched.append(launch)},
    }
    install_modules(monkeypatch, parts)
    package = importlib.import_module("gpubench.backends.cuda")
    before = {name: sys.modules.pop(f"{package.__name__}.{name}", None) for name in MODULES}
    modules = {
        name: importlib.import_module(f"{package.__name__}.{name}")
        for name in ("launching", "kernel", "backend")
    }
    yield SimpleNamespace(**modules, launched=launched)
    for name, module in before.items():
        sys.modules.pop(f"{package.__name__}.{name}", None)
        vars(package).pop(name, None)
        if module:
            sys.modules[f"{package.__name__}.{name}"] = module


def instances(cuda: SimpleNamespace) -> Any:
    device = example("sm_90")
    return cuda.launching.Instances(
        replace(device, multiprocessors=132, facts={"threads_per_multiprocessor": 2048})
    )


def point(variant: Any, tile: Any = None) -> Point:
    return fakes.point(variant, tile=tile, size=(40, 50, 60), cache=Cache.HOT, timer=Timer.EVENTS)


def arrays(*addresses: int) -> list[Any]:
    return [SimpleNamespace(data=SimpleNamespace(ptr=address)) for address in addresses]


def test_a_kernel_with_its_own_signature_gets_its_arguments(cuda: SimpleNamespace) -> None:
    sgemm = of_op("gemm", EXAMPLE)["sgemm"]
    assert isinstance(sgemm, CudaVariant)
    at = point(sgemm, sgemm.tiles.read("8/kernel=sgemm_shared"))
    routine = instances(cuda).routine(at, PROBLEM)
    launch = routine.bind(arrays(0x100, 0x200, 0x300))
    launch()
    ((function, *dimensions, shared, _stream, arguments, _extra),) = cuda.launched
    assert (function, dimensions, shared) == (7, [7, 5, 1, 64, 1, 1], 0)
    pointers = (ctypes.c_void_p * 8).from_address(arguments)
    kinds = [ctypes.c_int] * 3 + [ctypes.c_float] + [ctypes.c_void_p] * 2
    kinds += [ctypes.c_float, ctypes.c_void_p]
    values = [kind.from_address(at).value for kind, at in zip(kinds, pointers, strict=True)]
    assert values == [40, 50, 60, 1.0, 0x100, 0x200, 0.0, 0x300]
    assert routine.resources.shared_bytes == 2 * 4 * 64


def test_no_further_kernel_is_compiled_after_ctrl_c(
    cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[object] = []

    def build(key: object) -> None:
        built.append(key)
        time.sleep(0.02)

    def interrupt(_count: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cuda.launching, "cpu_threads", lambda: 1)
    naive, kept = of_op("gemm")["naive"], instances(cuda)
    monkeypatch.setattr(kept, "_build", build)
    points = [point(naive, naive.tiles.read(str(edge))) for edge in range(1, 33)]
    with pytest.raises(KeyboardInterrupt):
        kept.compile(points, interrupt)
    assert len(built) < len(points) / 2


def test_a_function_is_built_once_for_all_that_it_is_bound_to(cuda: SimpleNamespace) -> None:
    built: list[object] = []

    def build(_tile: object, dtype: str) -> Any:
        built.append(dtype)
        return lambda *tensors: built.append(tensors)

    variant = fakes.variant(runs_on="cuda", build=build, tensors="numpy")
    kept = instances(cuda)
    arrays = [np.zeros(2) for _ in range(3)]
    for _ in range(2):
        kept.routine(point(variant), PROBLEM).bind(arrays)()
    assert built[0] == "float32"
    assert len(built) == 3
    assert all(isinstance(array, np.ndarray) for array in built[1])


def test_the_result_that_a_function_returns_is_copied_in_the_launch(
    cuda: SimpleNamespace,
) -> None:
    variant = fakes.variant(
        runs_on="cuda", build=lambda _tile, _dtype: np.matmul, returns=True, tensors="numpy"
    )
    *inputs, output = np.full((2, 2), 3.0), np.eye(2), np.zeros((2, 2))
    routine = instances(cuda).routine(point(variant), PROBLEM)
    launch = routine.bind([*inputs, output])
    assert not output.any()
    launch()
    assert (output == inputs[0]).all()
    assert routine.call is np.matmul  # a row shows its attributes


def test_a_call_is_prepared_before_the_launch(cuda: SimpleNamespace) -> None:
    prepared: list[object] = []

    def bind(*tensors: object) -> Any:
        prepared.append(tensors)
        return lambda: cuda.launched.append(tensors)

    variant = fakes.variant(runs_on="cuda", build=lambda _tile, _dtype: Prepared(bind))
    launch = instances(cuda).routine(point(variant), PROBLEM).bind(arrays(1, 2, 3))
    assert (len(prepared), cuda.launched) == (1, [])
    launch()
    launch()
    assert (len(prepared), cuda.launched) == (1, [*prepared, *prepared])


def test_cublas_has_its_own_handle(cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def __getattr__(self, function: str) -> Any:
            return lambda *_arguments: cuda.launched.append(function)

    cublas = importlib.import_module("gpubench.backends.cuda.cublas")
    monkeypatch.setattr(cublas.cublaslt, "library", lambda _name: Library())
    values = np.ones((4, 4), np.float32)
    facts = {name: getattr(values, name) for name in ("flags", "itemsize", "shape", "strides")}
    matrix = SimpleNamespace(data=SimpleNamespace(ptr=0x100), **facts)
    product, vector = cublas.gemm("float32"), cublas.gemv("float32")
    launches = [product.bind(matrix, matrix, matrix) for _ in range(2)]
    assert [name.removesuffix("_v2") for name in cuda.launched] == [
        "cublasCreate", "cublasSetStream", "cublasSetWorkspace", "cublasSetMathMode",
    ]  # fmt: skip
    launches.append(vector.bind(matrix, matrix, matrix))
    del cuda.launched[:]
    for launch in launches:
        launch()
    assert cuda.launched == ["cublasGemmEx", "cublasGemmEx", "cublasSgemv_v2"]


@pytest.mark.parametrize("overlap", [False, True])
def test_launches_that_cannot_be_captured_leave_no_graph(
    cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, overlap: bool
) -> None:
    module = importlib.import_module(f"{cuda.kernel.__package__}.graph")
    numbers, graphs = itertools.count(), set()

    def made(*_arguments: object) -> tuple[int, int]:
        graphs.add(number := next(numbers))
        return 0, number

    calls: dict[str, Any] = {
        "cuGraphCreate": made,
        "cuStreamBeginCapture": lambda *_: (0,),
        "cuStreamEndCapture": made,
        "cuGraphAddChildGraphNode": lambda *_: (0, "node"),
        "cuGraphDestroy": graphs.discard,
    }
    for name, call in calls.items():
        monkeypatch.setattr(module.driver, name, call)

    def refuses() -> None:
        raise RuntimeError("of this test")

    with (
        pytest.raises(DoesNotFitError, match="of this test"),
        module.captured(0, [lambda: None, refuses], overlap=overlap),
    ):
        pass
    assert next(numbers) > 0
    assert graphs == set()


def test_a_size_that_cublas_does_not_emulate_is_an_error(
    cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"{cuda.kernel.__package__}.emulated")
    monkeypatch.setattr(module, "call", lambda *_arguments: None)
    bits = iter([55, -1])
    vars(sys.modules["cupy.cuda.runtime"])["memGetInfo"] = lambda: (2**30, 2**30)
    counter = SimpleNamespace(get=lambda: [next(bits)], data=SimpleNamespace(ptr=0))
    vars(sys.modules["cupy"])["zeros"] = lambda *_: counter
    monkeypatch.setattr(module, "new_handle", lambda *_: None)
    multiply = module.EmulatedGemm()

    def matrix(size: int) -> SimpleNamespace:
        return SimpleNamespace(shape=(size, size), data=SimpleNamespace(ptr=0))

    for _ in range(2):
        multiply(*[matrix(64)] * 3)
    with pytest.raises(LaunchError, match="did not emulate"):
        multiply(*[matrix(8)] * 3)


def test_float8_is_allocated_as_bytes_end_to_end(cuda: SimpleNamespace) -> None:
    vars(sys.modules["cupy.cuda"])["using_allocator"] = lambda _allocator: nullcontext()
    kinds: list[str] = []

    def empty(_shape: object, kind: np.dtype[Any]) -> SimpleNamespace:
        kinds.append(kind.name)
        return SimpleNamespace(set=lambda _host: None, get=lambda out: out.fill(1))

    routine = SimpleNamespace(bind=lambda _arrays: lambda: None, workspace_bytes=0)
    element = Problem(op="gemm", m=2, n=2, k=2, dtype="float8_e4m3").types[0]
    result = np.zeros((2, 2), np.float32)
    cuda.backend._end_to_end(routine, (np.zeros((2, 2), element), result), empty)()
    assert kinds == ["uint8", "float32"]
    assert result.all()


def test_a_timestamp_too_many_replaces_the_oldest(cuda: SimpleNamespace) -> None:
    module = sys.modules[f"{cuda.kernel.__package__}.stream"]
    count = module.MAX_TIMESTAMPS
    stream = object.__new__(module.CudaStream)
    stream._events, stream._used = list(range(count)), 0
    assert [stream._next_timestamp().slot for _ in range(count + 2)] == [*range(count), 0, 1]
    stream._stream = SimpleNamespace(synchronize=lambda: None)
    stream._host_timestamps = np.zeros((count, 3))
    stream._timestamps = np.ones((count, 3)).view(OnDevice)
    stream.synchronize()
    assert stream._host_timestamps.all()


def watched(
    cuda: SimpleNamespace, launch: Any, stream: FakeStream, overlap: Any = (False, ""), **facts: Any
) -> str:
    timers = SimpleNamespace(events=BlockedBatchTimer(stream))
    usual = {"launches": Launches.ALONE, "state": State.BURST, "timer": Timer.EVENTS}
    kernel = SimpleNamespace(
        routine=SimpleNamespace(call=print),
        point=SimpleNamespace(**usual | facts),
        timers=timers,
        rotation=iter(lambda: launch, None),
        _computes_elsewhere=lambda: False,
        _overlap=overlap,
    )
    kernel._may_wait = cuda.kernel.CudaKernel._may_wait.fget(kernel)
    note: str = cuda.kernel.CudaKernel.watch(kernel)
    return note


def test_memory_of_cupys_pool_and_of_torch_is_seen(
    cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert watched(cuda, lambda: None, FakeStream()) == ""
    said = watched(cuda, lambda: allocate(4_000_000), FakeStream())
    assert said == "each call allocates memory (4,000,000 bytes seen)"
    total = itertools.count(step=2048)
    stats = SimpleNamespace(memory_stats=lambda: {"allocated_bytes.all.allocated": next(total)})
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=stats))
    assert "2,048 bytes seen" in watched(cuda, lambda: None, FakeStream())


def test_a_row_notes_whether_calls_overlap_or_if_that_is_unknown(cuda: SimpleNamespace) -> None:
    for overlap, state, said in (
        ((True, ""), State.BURST, "overlap in a stream, so they are timed in a graph with full"),
        ((True, ""), State.SUSTAINED, "overlap, so the sustained time is the time per launch in"),
        ((False, "why"), State.BURST, "it is not known whether the launches overlap: why"),
    ):
        assert said in watched(cuda, lambda: None, FakeStream(), overlap, state=state)


def test_a_function_is_allowed_the_shared_memory_and_the_cluster_that_it_needs(
    cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[tuple[str, int]] = []

    def set_attribute(_function: Any, attribute: Any, value: int) -> tuple[int]:
        allowed.append((attribute.name.removeprefix("CU_FUNC_ATTRIBUTE_"), value))
        return (0,)

    monkeypatch.setattr(cuda.launching.driver, "cuFuncSetAttribute", set_attribute)
    for cluster in (8, 16):
        launch = Launch(grid=(16,), block=(64,), shared_bytes=10**5, cluster=(cluster, 1, 1))
        cuda.launching.allow(SimpleNamespace(ptr=1), launch)
    memory = ("MAX_DYNAMIC_SHARED_SIZE_BYTES", 10**5)
    assert allowed == [memory, memory, ("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)]


def resources(registers: int) -> Resources:
    return Resources(registers=registers, local_bytes=0, spill_bytes=0, shared_bytes=0)


@pytest.mark.parametrize(
    ("threads", "registers", "needed"),
    [((32, 32), 64, ""), ((32, 32), 65, "73,728"), ((512,), 128, ""), ((512,), 129, "69,632")],
)
def test_a_block_with_too_many_registers_is_an_error_with_the_numbers(
    cuda: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    threads: tuple[int, ...],
    registers: int,
    needed: str,
) -> None:
    variant = CudaVariant(
        idea="of a test", name="mine", op="gemm", path=EXAMPLE.with_name("mine.py"),
        kernel="mine", signature="const float* A, const float* B, float* C", block=threads,
        dtypes=("float32",), grid=("N/32", "M/32"),
    )  # fmt: skip
    kept = instances(cuda)
    built = SimpleNamespace(resources=resources(registers), note="", cubin=b"")
    monkeypatch.setattr(kept, "_load", lambda _key: (built, None))
    (tile,) = variant.tiles
    says = rf"{registers} registers each needs {needed} registers, .*65,536.*__launch_bounds__"
    with pytest.raises(LaunchError, match=says) if needed else nullcontext():
        kept.routine(point(variant, tile), PROBLEM)


def test_a_launch_alone_does_not_start_before_the_previous_launch_has_ended(
    cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[bool] = []
    built = SimpleNamespace(resources=resources(32), note="", cubin=b"")
    monkeypatch.setattr(cuda.launching, "allow", lambda *_: None)
    monkeypatch.setattr(
        cuda.launching,
        "bind_launch",
        lambda _function, launch, *_args, **_kept: lambda: starts.append(launch.pdl),
    )

    def started(name: str, launches: Launches) -> list[bool]:
        starts.clear()
        variant = of_op("gemm")[name]
        assert variant.tiles
        at = replace(point(variant, variant.tiles.defaults[0]), launches=launches)
        kept = instances(cuda)
        monkeypatch.setattr(kept, "_load", lambda _key: (built, None))
        kept.routine(at, PROBLEM).bind(arrays(0x100, 0x200, 0x300, 0x400))()
        return list(starts)

    assert started("splitk_cluster", Launches.OVERLAPPED) == [True]
    assert started("splitk_cluster", Launches.GRAPH_OVERLAPPED) == [True]
    assert started("splitk_cluster", Launches.ALONE) == [False]
    assert started("splitk_cluster", Launches.GRAPH) == [False]
    assert started("splitk", Launches.OVERLAPPED) == [False, False]


@pytest.mark.parametrize(
    ("scope", "timer"), [(Scope.END_TO_END, Timer.EVENTS), (Scope.KERNEL, Timer.CUPTI)]
)
def test_only_graphs_are_captured(cuda: SimpleNamespace, scope: Scope, timer: Timer) -> None:
    at = SimpleNamespace(launches=Launches.ALONE, scope=scope, timer=timer)
    # The stand-in cannot launch, so a capture would fail.
    kernel = SimpleNamespace(routine=SimpleNamespace(call=print), point=at)
    assert cuda.kernel.CudaKernel._overlap.func(kernel) == (False, "")


def test_a_launch_precedes_capture(cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(cuda.kernel, "overlaps", lambda *_: bool(done.append("capture")))
    kernel = SimpleNamespace(
        routine=SimpleNamespace(call=print),
        point=SimpleNamespace(launches=Launches.ALONE, scope=Scope.KERNEL, timer=Timer.EVENTS),
        timers=SimpleNamespace(stream=SimpleNamespace(pointer=0)),
        rotation=iter(lambda: lambda: done.append("launch"), None),
    )
    kernel._launched = lambda: cuda.kernel.CudaKernel._launched(kernel)
    assert cuda.kernel.CudaKernel._overlap.func(kernel) == (False, "")
    assert done == ["launch", "capture"]


def test_a_call_that_waits_for_the_gpu_is_an_error_that_says_so(cuda: SimpleNamespace) -> None:
    stream = FakeStream()
    with pytest.raises(LaunchError, match=r"the call waits for the GPU.*--launches waited"):
        watched(cuda, stream.synchronize, stream)
    for timed in ({"launches": Launches.WAITED}, {"timer": Timer.CUPTI}):
        note = watched(cuda, stream.synchronize, stream, **timed)
        assert note == "each call waits for the GPU"


def test_launches_that_are_waited_for_are_timed_with_each_wait(cuda: SimpleNamespace) -> None:
    done: list[str] = []
    host_us: list[float] = []
    stream = SimpleNamespace(
        record_start=lambda: done.append("start"),
        record_stop=lambda: done.append("stop"),
        synchronize=lambda: done.append("wait"),
        elapsed_us=lambda *_events: 24.0,
    )
    vars(sys.modules["cupy.cuda"])["get_current_stream"] = lambda: stream
    kernel = SimpleNamespace(
        timers=SimpleNamespace(
            stream=stream,
            flush=lambda: done.append("flush"),
            events=SimpleNamespace(add_host_us=host_us.append),
        ),
        rotation=iter(lambda: lambda: done.append("launch"), None),
        point=SimpleNamespace(scope=Scope.KERNEL, launches=Launches.WAITED),
    )
    for flush in (kernel.timers.flush, None):
        done.clear()
        assert cuda.kernel.CudaKernel._sample_unblocked(kernel, 2, 2, flush) == [12.0, 12.0]
        sample = ["wait", "start", "launch", "wait", "launch", "wait", "stop", "wait"]
        assert done == 2 * (["flush", *sample] if flush else sample)
    assert len(host_us) == 8


def test_a_host_function_gets_the_arrays_addresses(cuda: SimpleNamespace, tmp_path: Path) -> None:
    source = tmp_path / "mine.c"
    source.write_text("void run(int m, float a, const float *A, float *C) { *C = *A * a + m; }")
    library = ["gcc", "-shared", "-fPIC", "-o", tmp_path / "mine.so", source]
    subprocess.run(library, check=True)
    variant = HostVariant(
        idea="of a test", entry="run", file="mine.so", path=tmp_path / "mine.py", op="gemm",
        signature="int M, float a=2, const float* A, float* C",
    )  # fmt: skip
    factor, result = np.full(1, 1.5, np.float32), np.zeros(1, np.float32)
    addresses = [factor.ctypes.data, 0, result.ctypes.data]
    routine = instances(cuda).routine(point(variant), PROBLEM)
    routine.bind(arrays(*addresses))()
    assert result[0] == 43
    assert (routine.resources, routine.algorithm, routine.workspace_bytes) == (None, "", 0)


def test_whatever_a_function_raises_is_an_error_row(cuda: SimpleNamespace) -> None:
    def fails(*_: object) -> Any:
        raise KeyError("mode")

    with pytest.raises(LaunchError, match="mode"):
        watched(cuda, fails, FakeStream())
    with pytest.raises(CompileError, match=r"cannot be built: .*mode"):
        instances(cuda).routine(point(fakes.variant(runs_on="cuda", build=fails)), PROBLEM)


def test_a_function_without_enough_memory_is_skipped_and_not_judged_wrong(
    cuda: SimpleNamespace,
) -> None:
    class OutOfMemoryError(RuntimeError):
        """torch's error, which is not a MemoryError."""

    def fails(*_: object) -> Any:
        raise OutOfMemoryError("Tried to allocate 2.00 GiB.")

    with pytest.raises(DoesNotFitError, match=r"out of device memory: Tried to allocate 2.00 GiB"):
        watched(cuda, fails, FakeStream())
    with pytest.raises(DoesNotFitError, match="out of memory: Tried"):
        instances(cuda).routine(point(fakes.variant(runs_on="cuda", build=fails)), PROBLEM)
