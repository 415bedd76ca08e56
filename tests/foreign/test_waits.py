"""Whether a reference waits for the GPU, on a stand-in for a GPU that counts its work."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gpubench.foreign import bound


class Gpu:
    """A GPU that ends its work when the host waits."""

    def __init__(self) -> None:
        self.work = 0
        """Number of pieces of work that are enqueued and have not ended."""

        gpu = self

        class Event:
            def record(self) -> None:
                self._before = gpu.work

            def query(self) -> bool:
                return not self._before or gpu.has_ended

        self.has_ended = False
        self.cuda = SimpleNamespace(_sleep=lambda _: self.enqueue(), Event=Event)

    def enqueue(self) -> None:
        self.work += 1

    def wait(self) -> None:
        self.work, self.has_ended = 0, True


@pytest.mark.parametrize(
    ("calls", "waits"),
    [
        ((Gpu.enqueue,), False),
        ((Gpu.enqueue, Gpu.wait), True),
        ((Gpu.enqueue, Gpu.wait, Gpu.enqueue), True),
    ],
    ids=["never", "at the end", "in between"],
)
def test_a_reference_waits_even_if_it_enqueues_more_afterwards(
    calls: tuple[Callable[[Gpu], None], ...], waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu: Any = Gpu()
    monkeypatch.setitem(sys.modules, "torch", gpu)
    monkeypatch.setattr(bound.values, "device", lambda: SimpleNamespace(type="cuda"))
    monkeypatch.setattr(bound, "_on_device", lambda *_: (None, None))
    monkeypatch.setattr(bound, "_results", lambda *_: [call(gpu) for call in calls])
    found = bound.waits(*(Any,) * 3, memoryview(b""))  # type: ignore[arg-type]
    assert found == waits
