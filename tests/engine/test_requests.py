"""Requests pass the wall as plain data."""

import msgspec
import pytest
from fakes import measurement

from gpubench.engine.child import requests
from gpubench.engine.child.requests import (
    Begin,
    Compile,
    Measure,
    Request,
    decode_request,
    encode_request,
    token_of,
)
from gpubench.model import Cache, Point, Problem, Scope, Timer, Timing
from gpubench.plan.registry import of_op

PROBLEM = Problem(op="gemm", m=8, n=9, k=7, dtype="bfloat16", column_major=("B",))
POINTS = tuple(
    Point(
        variant=variant,
        tile=tile,
        problem=PROBLEM,
        cache=Cache.HOT,
        scope=Scope.KERNEL,
        timer=Timer.EVENTS,
    )
    for variant in (of_op("gemm")[name] for name in ("cublas", "shared_tile", "wgmma_split"))
    for tile in (variant.tiles.defaults if variant.tiles else (None,))
)


@pytest.mark.parametrize(
    "request_",
    [
        Begin(timing=Timing(rounds=3), seed=2**61),
        Compile(points=POINTS),
        *(Measure(point=x, wall_limit_s=0.5, earlier=measurement(of=x), seed=None) for x in POINTS),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_request_arrives_as_it_was_sent(request_: Request[object]) -> None:
    content = encode_request(7, request_)
    received = decode_request(content)
    assert token_of(content) == 7
    assert received == request_
    assert repr(received) == repr(request_)  # tiles are equal whatever their parts are called


def test_a_request_with_a_field_of_another_type_is_refused() -> None:
    content = encode_request(7, Begin(timing=Timing(), seed=1))
    changed = msgspec.msgpack.decode(content[requests.TOKEN_BYTES :]) | {"seed": "1"}
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int`, got `str` - at `\$\.seed`"):
        decode_request(content[: requests.TOKEN_BYTES] + msgspec.msgpack.encode(changed))
