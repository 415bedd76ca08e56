"""Sends requests to a child that runs users' code. Reads each answer before the next request.

Users' code can change anything in its process. So the parent reads no object that the child made: a
value is bytes, which the caller decodes and checks.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from secrets import randbits
from time import perf_counter

import msgspec

from gpubench.errors import (
    ChildHungError,
    ChildLostError,
    DeviceBusyError,
    DeviceUnavailableError,
    GpubenchError,
    LacksMemoryError,
    UsageError,
    lacks_memory,
    with_place,
)
from gpubench.process.channel import MAX_BYTES, Channel
from gpubench.process.child import Child
from gpubench.text import clean

TOKEN_BYTES = 8

NO_ANSWER = "sent data that is not an answer; killed"
"""Message about a child that wrote into the channel, but did not write a valid answer."""

_ERRORS: dict[str, type[GpubenchError]] = {
    kind.__name__: kind
    for kind in (
        UsageError,
        DeviceUnavailableError,
        DeviceBusyError,
        ChildLostError,
        ChildHungError,
        LacksMemoryError,
    )
}

Report = Callable[[int], None]  # gets the number of steps of a request that are done so far


class _Answer(msgspec.Struct, frozen=True):
    """An answer of a child, with the token of the request.

    Code that has only the descriptor of the channel cannot guess the token.
    """

    token: bytes
    steps: int | None = None
    """Number of steps that are done so far. None if the request is finished."""

    value: bytes = b""
    error: str = ""  # the type of the error that the child raised; empty for a value
    message: str = ""


def ask(
    child: Child,
    request: bytes,
    limits_s: Iterable[float],
    report: Report = lambda _steps: None,
    max_bytes: int = MAX_BYTES,
    descriptors: Sequence[int] = (),
) -> bytes:
    """Send a request to a child, and return the value of the child's answer.

    If the child raised an error, this function raises an error of the same kind.

    `limits_s` has the time limit of each step. The first step ends with the first report of the
    child, the second step with the second report, and so on. The last limit covers all further
    steps together. The steps before it build a kernel, or call a function for the first time.
    The child gets the open files of `descriptors` with the request.

    Raises ChildLostError if no answer arrives within a limit, or if the answer is invalid. The
    child must then be killed.
    """
    channel, token = Channel(child.socket), randbits(8 * TOKEN_BYTES).to_bytes(TOKEN_BYTES)
    limits = iter(limits_s)
    limit_s = next(limits)
    try:
        channel.send(token + request, limit_s, descriptors)
        deadline_s = perf_counter() + limit_s
        while True:
            content = channel.receive(max(0.0, deadline_s - perf_counter()), max_bytes)
            answer = msgspec.msgpack.decode(content, type=_Answer)
            if answer.token != token:
                continue
            if answer.steps is None:
                break
            report(answer.steps)
            if next_limit_s := next(limits, None):
                limit_s, deadline_s = next_limit_s, perf_counter() + next_limit_s
    except TimeoutError as error:
        is_last_step = next(limits, None) is None
        where = "" if is_last_step else ", during the build or the first call"
        raise ChildHungError(f"hung: no answer within {limit_s:g} s{where}; killed") from error
    except (EOFError, OSError) as error:
        raise ChildLostError(child.how_it_ended()) from error
    except (ValueError, RecursionError) as error:
        raise ChildLostError(NO_ANSWER) from error
    if answer.error:
        raise _ERRORS.get(answer.error, ChildLostError)(clean(answer.message))
    return answer.value


def answer_requests(channel: Channel, value_of: Callable[[bytes, Report], bytes]) -> None:
    """Answer requests in a child until the channel closes.

    `value_of` returns the value of a request. If `value_of` raises an error for users, this error
    is sent. Any other exception is sent as a LacksMemoryError or a ChildLostError.
    """
    pid = os.getpid()

    def report(token: bytes, steps: int) -> None:
        send(_Answer(token, steps))

    def send(answer: _Answer) -> None:
        if os.getpid() != pid:  # a kernel forked this process, and this is the copy
            os._exit(0)
        with suppress(ConnectionError):  # the parent was killed; the next request ends this process
            channel.send(msgspec.msgpack.encode(answer))

    while True:
        try:
            content = channel.receive()
        except (EOFError, ConnectionError):  # the parent ended, or closed the channel
            return
        token, request = content[:TOKEN_BYTES], content[TOKEN_BYTES:]
        try:
            answer = _Answer(token, value=value_of(request, partial(report, token)))
        except Exception as error:  # including errors of users' code
            user_error = error if isinstance(error, GpubenchError) else None
            kind = LacksMemoryError if lacks_memory(error) else ChildLostError
            user_error = user_error or kind(f"failed: {with_place(error)}")
            name, message = type(user_error).__name__, clean(str(user_error.args[0]))
            answer = _Answer(token, error=name, message=message)
        send(answer)
