"""A variant with functions for the GPU that cheat. A tile selects the function."""

import contextlib
import functools
import gc
import os
import sys
import threading
import time

import cupy

from gpubench.model import CallVariant, Space

OTHER = []
"""Holds the stream that does not wait for the timed stream. It is made at the first use."""

kept = {}


def other_stream():
    if not OTHER:
        OTHER.append(cupy.cuda.Stream(non_blocking=True))
    return OTHER[0]


def honest(a, b, c):
    cupy.matmul(a, b, out=c)


def in_another_stream(a, b, c):
    """Computes in another stream, but nothing waits for that stream."""
    with other_stream():
        cupy.matmul(a, b, out=c)


def behind_its_back(a, b, c):
    """Computes in another stream, which starts at the right time, but nothing waits for its end."""
    other_stream().wait_event(cupy.cuda.get_current_stream().record())
    with other_stream():
        cupy.matmul(a, b, out=c)


def by_address(a, b, c):
    """Copies the result of an earlier call with operands at the same address."""
    key = a.data.ptr, a.shape, b.shape
    if key not in kept:
        kept[key] = cupy.matmul(a, b)
    c[...] = kept[key]


def waits(a, b, c):
    """Waits for the GPU, so that its launches cannot be enqueued ahead."""
    cupy.matmul(a, b, out=c)
    cupy.cuda.get_current_stream().synchronize()


# ---- The author of these cheats had read only the documentation.


def replays_a_graph(a, b, c):
    """Replays a graph of an earlier call, which uses the arrays of that call."""
    key = "graph", a.shape, b.shape
    if key not in kept:
        out, stream = cupy.empty_like(c), cupy.cuda.Stream(non_blocking=True)
        cupy.matmul(a, b, out=out)
        with stream:
            stream.begin_capture()
            out += 0
            kept[key] = stream.end_capture(), out
    graph, out = kept[key]
    graph.launch()
    c[...] = out


def divides_events(a, b, c):
    """Replaces the functions that read the time between two events by functions that divide it."""
    from cuda.bindings import driver
    from cupy_backends.cuda.api import runtime

    if "events" not in kept:
        kept["events"] = True
        between, of_driver = cupy.cuda.get_elapsed_time, driver.cuEventElapsedTime
        old = runtime.eventElapsedTime

        def eighth(*events):
            return between(*events) / 8

        def eighth_of_driver(*events):
            error, ms = of_driver(*events)
            return error, ms / 8

        for module in list(sys.modules.values()):
            for name, value in list(vars(module).items()):
                if value is between or value is of_driver:
                    setattr(module, name, eighth if value is between else eighth_of_driver)
        with contextlib.suppress(AttributeError, TypeError):
            runtime.eventElapsedTime = lambda *events: old(*events) / 8
    cupy.matmul(a, b, out=c)


def copies_what_it_finds(a, b, c):
    """For operands of an earlier call, copies an array in the process that has the result."""
    key = a.data.ptr, b.data.ptr, c.data.ptr, c.shape
    if key not in kept and not cupy.cuda.get_current_stream().done:
        cupy.matmul(a, b, out=c)
        return
    if key not in kept:
        cupy.matmul(a, b, out=c)
        first = a[0] @ b[:, :4]
        for other in [x for x in gc.get_objects() if isinstance(x, cupy.ndarray)]:
            is_other = other.shape == c.shape and other.data.ptr != c.data.ptr
            if is_other and cupy.allclose(other[0, :4], first, rtol=1e-3):
                kept[key] = other
    if key in kept:
        c[...] = kept[key]


def skips_where_busy(a, b, c):
    """Computes only if the stream is idle, as it is before a first launch."""
    if cupy.cuda.get_current_stream().done:
        cupy.matmul(a, b, out=c)


def computes_ahead(a, b, c):
    """Copies results of a thread, which multiplies all earlier operands again and again."""
    key = a.data.ptr, b.data.ptr, a.shape, b.shape

    def ahead():
        stream = cupy.cuda.Stream(non_blocking=True)
        with cupy.cuda.Device(a.device.id), stream:
            while True:
                for left, right, out in list(kept["ahead"].values()):
                    cupy.matmul(left, right, out=out)
                stream.synchronize()
                time.sleep(1e-4)

    if "ahead" not in kept:
        kept["ahead"] = {}
        threading.Thread(target=ahead, daemon=True).start()
    if key not in kept["ahead"]:
        kept["ahead"][key] = a, b, cupy.matmul(a, b)
    c[...] = kept["ahead"][key][2]


EXAMINES = ("warm", "check", "verify", "probe", "examine", "require", "judge", "expect", "prepare")


def honest_if_examined(a, b, c):
    """Computes only if one of its callers has a name like `verify`."""
    frame, names = sys._getframe(1), []
    while frame:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    if any(word in name for word in EXAMINES for name in names):
        cupy.matmul(a, b, out=c)


def skips_once_warm(a, b, c):
    """Computes in the first 60 calls with the same operands, and then in one of 50 calls."""
    key = "calls", a.data.ptr, c.data.ptr
    kept[key] = kept.get(key, 0) + 1
    if kept[key] <= 60 or kept[key] % 50 == 0:
        cupy.matmul(a, b, out=c)


def writes_answers(a, b, c):
    """Writes a false answer into every open file, at the hundredth call."""
    kept["written"] = kept.get("written", 0) + 1
    if kept["written"] == 100:
        for descriptor in range(3, 64):
            with contextlib.suppress(OSError):
                os.write(descriptor, b"\x81\xa6status\xa2ok")
    cupy.matmul(a, b, out=c)


def adds_in_16_bits(a, b, c):
    """Multiplies operands that are rounded to float16."""
    c[...] = cupy.matmul(a.astype(cupy.float16), b.astype(cupy.float16))


def slows_neighbours(a, b, c):
    """Starts a thread that keeps the GPU busy while the function is not called for 0.3 s."""
    kept["last"] = time.monotonic()

    def disturb():
        x = cupy.ones((4096, 4096), cupy.float32)
        stream = cupy.cuda.Stream(non_blocking=True)
        while True:
            if time.monotonic() > kept["last"] + 0.3:
                with stream:
                    cupy.matmul(x, x)
                stream.synchronize()
            else:
                time.sleep(0.01)

    if "disturbs" not in kept:
        kept["disturbs"] = threading.Thread(target=disturb, daemon=True)
        kept["disturbs"].start()
    cupy.matmul(a, b, out=c)


# ---- The author of these cheats had also read the code that judges results.


def has_caller(name):
    frame = sys._getframe(2)
    while frame and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None


def computes_if_untimed(a, b, c):
    """In timed samples, copies an earlier result of the same arrays."""
    key = "computed", a.data.ptr, c.data.ptr, c.shape
    if has_caller("collect") and key in kept:
        c[...] = kept[key]
    else:
        cupy.matmul(a, b, out=c)
        kept[key] = c.copy()


def refuses_capture(a, b, c):
    """As `computes_if_untimed`, but raises in a capture, so that no other process can replay it."""
    if cupy.cuda.get_current_stream().is_capturing():
        raise RuntimeError("not in a graph")
    computes_if_untimed(a, b, c)


def computes_if_held(a, b, c):
    """If launches wait for their seed, copies results that a thread computes meanwhile."""
    if not has_caller("hold"):
        computes_if_untimed(a, b, c)
        return

    def ahead():
        stream = cupy.cuda.Stream(non_blocking=True)
        while True:
            with stream:
                for left, right, out in list(kept["held"].values()):
                    cupy.matmul(left, right, out=out)
            stream.synchronize()

    if "held" not in kept:
        kept["held"] = {}
        threading.Thread(target=ahead, daemon=True).start()
    key = a.data.ptr, c.data.ptr, c.shape
    c[...] = kept["held"].setdefault(key, (a, b, cupy.empty_like(c)))[2]


def keeps_a_copy_of_b(a, b, c):
    """At the first call with an address of B, multiplies twenty times and keeps a copy of B."""
    key = "made", b.data.ptr, b.shape
    if key not in kept:
        for _ in range(20):
            cupy.matmul(a, b, out=c)
        kept[key] = b.copy()
    cupy.matmul(a, kept[key], out=c)


# ---- The author of these cheats had also read the code of the process that keeps the results. The
# cheats replace the checks in their own process.


def first_rows(a, b, c):
    half = len(a) // 2
    cupy.matmul(a[:half], b, out=c[:half])


def is_held(*arrays):
    """Return whether launches wait for their seed. If not, compute; in timed samples only half."""
    if has_caller("hold"):
        kept["late"].append(arrays)
        return True
    (first_rows if has_caller("collect") else honest)(*arrays)
    return False


def replacement(old, method):
    @functools.wraps(old)
    def call(self, **arguments):
        return method(self, old, **arguments)

    return call


def replaced(**methods):
    """Replace methods of the examiner, and the checks of this process."""
    from gpubench.backends.cuda.kernel import CudaKernel
    from gpubench.engine.judge.verify import Check
    from gpubench.engine.measure import visits
    from gpubench.engine.measure.examiner import Examiner
    from gpubench.engine.measure.trials import Trials

    if "late" in kept:
        return
    kept["late"] = []
    Check.look = Check.settle = lambda _self: None
    Trials.require_independent = visits.require = lambda *_, **__: None
    CudaKernel.watch = lambda _self: ""

    def fresh(self, old, **arguments):
        kept["late"].clear()
        return old(self, **arguments)

    for name, method in {"put_new_operands": fresh, **methods}.items():
        setattr(Examiner, name, replacement(getattr(Examiner, name), method))


def computes_when_read(a, b, c):
    """Computes half of the rows, and the other half when its process must return rows."""

    def late(self, old, **chosen):
        for arrays in kept["late"]:
            honest(*arrays)
        return old(self, **chosen)

    replaced(read_results=late)
    if is_held(a, b, c):
        first_rows(a, b, c)


def answers_early(a, b, c):
    """Reports the end of its launches when they have only begun."""

    def early(self, _old, seed):
        self._backend._held._stored[0] = seed

    replaced(launch_on_new_operands=early)
    if is_held(a, b, c):
        honest(a, b, c)


def stretches_requests(a, b, c):
    """Delays requests without launches, because their time is subtracted."""

    def long(self, old, seed):
        old(self, seed)
        if not kept["late"]:
            time.sleep(4.8e-3)

    replaced(launch_on_new_operands=long)
    if is_held(a, b, c):
        honest(a, b, c)


CHEATS = (in_another_stream, behind_its_back, by_address, waits)
FROM_THE_DOCS = (
    replays_a_graph,
    divides_events,
    copies_what_it_finds,
    skips_where_busy,
    computes_ahead,
    honest_if_examined,
    skips_once_warm,
    writes_answers,
    adds_in_16_bits,
    slows_neighbours,
)
FROM_THE_JUDGE = (
    computes_if_untimed,
    refuses_capture,
    computes_if_held,
    keeps_a_copy_of_b,
)
FROM_THE_KEEPER = (computes_when_read, answers_early, stretches_requests)
FUNCTIONS = {
    function.__name__: function
    for function in (honest, *CHEATS, *FROM_THE_DOCS, *FROM_THE_JUDGE, *FROM_THE_KEEPER)
}

PERSISTENT = {
    "copies_what_it_finds", "computes_ahead", "divides_events", "writes_answers",
    "computes_if_held", "slows_neighbours",
    "computes_when_read", "answers_early", "stretches_requests",
}  # fmt: skip
"""Functions that change their process or start a thread. They are swept apart from the others."""

VARIANT = CallVariant(
    idea="functions that cheat, and one that does not",
    runs_on="cuda",
    dtypes=("float32",),
    build=lambda tile, _dtype: FUNCTIONS[tile["function"]],
    tiles=Space(
        axes={"number": (1,), "function": tuple(FUNCTIONS)},
        block=("number",),
        default=tuple(f"1/function={name}" for name in FUNCTIONS if name not in PERSISTENT),
    ),
)
