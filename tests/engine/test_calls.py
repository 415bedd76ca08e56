"""Calls and their results pass between the processes."""

import os
import socket
from itertools import repeat
from threading import Thread
from types import SimpleNamespace
from typing import Any

import fakes
import msgspec
import pytest
from fakes import measurement

from gpubench.engine.child.calls import (
    Call,
    bound,
    decode_arguments,
    decode_result,
    encode,
    encode_call,
)
from gpubench.engine.measure.runner import Runner
from gpubench.errors import ChildLostError, UsageError
from gpubench.model import Cache, PairedTimes, Point, Status
from gpubench.plan.registry import of_op
from gpubench.process import requests
from gpubench.process.channel import Channel

POINTS = tuple(
    fakes.point(variant, size=(8, 9, 7), dtype="bfloat16", tile=tile, cache=Cache.HOT)
    for variant in (of_op("gemm")[name] for name in ("cublas", "shared_tile", "wgmma_split"))
    for tile in (variant.tiles.defaults if variant.tiles else (None,))
)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.label)
def test_a_call_arrives_as_it_was_made(point: Point) -> None:
    arguments = bound(Runner.measure, point, 0.5, measurement(at=point), seed=3)
    call = msgspec.msgpack.decode(encode_call(Runner.measure, arguments), type=Call)
    received = decode_arguments(Runner.measure, call)
    assert call.method == "Runner.measure"
    assert received == arguments
    assert repr(received) == repr(arguments)  # equal tiles may have differently named parts


def test_an_argument_of_another_type_is_refused() -> None:
    content = encode_call(Runner.measure, {"point": POINTS[0], "seed": "1"})
    call = msgspec.msgpack.decode(content, type=Call)
    with pytest.raises(msgspec.ValidationError, match="Expected `int "):
        decode_arguments(Runner.measure, call)


def test_a_result_comes_back_with_the_points_that_were_requested() -> None:
    points = {"point": POINTS[1], "library": POINTS[0]}
    pairs = PairedTimes(times_us=(2.0,), library_times_us=(3.0,))
    for method, result in (
        (Runner.measure, measurement(at=POINTS[1])),
        (Runner.measure_pairs, pairs),
        (Runner.measure_pairs, "too short"),
        (Runner.ceilings, {"copy": 1.0}),
    ):
        assert decode_result(method, points, msgspec.Raw(encode(result))) == result


@pytest.mark.parametrize(
    "changed", [{"seed": "1"}, {"status": "fine"}, {"status": "ok", "series": None}]
)
def test_a_result_that_is_no_possible_measurement_is_refused(changed: dict[str, object]) -> None:
    taken = measurement(at=POINTS[0])
    assert taken.status == Status.OK
    content = msgspec.msgpack.encode(msgspec.msgpack.decode(encode(taken)) | changed)
    with pytest.raises(ValueError, match=r"Expected `int|Invalid enum|has no times"):
        decode_result(Runner.measure, {"point": POINTS[0]}, msgspec.Raw(content))


def test_only_the_answer_to_this_request_counts_and_each_step_has_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair()
    channel, reported = Channel(theirs), list[int]()
    monkeypatch.setattr(requests, "perf_counter", lambda: 50.0 * len(reported))

    def answer_as_several_processes() -> None:
        token = channel.receive()[: requests.TOKEN_BYTES]
        for answer in (
            requests._Answer(bytes(requests.TOKEN_BYTES), value=b"of an earlier request"),
            *(requests._Answer(token, steps=step) for step in (1, 2)),
            requests._Answer(token, value=b"right"),
        ):
            channel.send(msgspec.msgpack.encode(answer))

    answering = Thread(target=answer_as_several_processes)
    answering.start()
    child: Any = SimpleNamespace(socket=ours)
    assert requests.ask(child, b"", repeat(60.0), reported.append) == b"right"
    assert reported == [1, 2]
    answering.join()
    reported.clear()  # a child that only reports steps is lost after the last limit
    answering = Thread(target=answer_as_several_processes)
    answering.start()
    with pytest.raises(ChildLostError, match="no answer within 40 s"):
        requests.ask(child, b"", (60.0, 40.0), reported.append)
    answering.join()
    for end in (ours, theirs):
        end.close()


def test_an_error_whose_text_cannot_be_encoded_is_answered() -> None:
    ours, theirs = socket.socketpair()

    def fail(_request: bytes, _report: requests.Report) -> bytes:
        raise UsageError(f"no file {os.fsdecode(bytes([255]))}")

    answering = Thread(target=requests.answer_requests, args=(Channel(theirs), fail))
    answering.start()
    child: Any = SimpleNamespace(socket=ours, how_it_ended=lambda: "ended")
    with pytest.raises(UsageError, match=r"^no file \?$"):
        requests.ask(child, b"", (10.0,))
    ours.close()
    answering.join()
    theirs.close()
