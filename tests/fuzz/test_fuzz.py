"""Every input is read or refused; `benchmarks/fuzz.py` tries many more inputs."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import contract
import pytest
from contract import (
    REFUSALS,
    BrokenContractError,
    call_within_contract,
    checked_message,
    empty_folder,
)
from mutations import mutated
from readers import READERS

from gpubench.errors import UsageError

SLOW = {"diff", "partial", "race", "build", "saved", "problems", "command", "shown"}
"""Readers that run whole commands, on what others read."""

UNTRACED = SLOW | {"descriptor", "source", "winners", "experiment"}
"""Readers whose memory only `benchmarks/fuzz.py` limits: tracing takes most of a command's time."""

INPUTS = {name: 3 if name in UNTRACED else 10 for name in READERS} | {"command": 20}
"""Number of mutated inputs per reader in every run: 123 in all."""


@pytest.fixture(autouse=True)
def _traced() -> Iterator[None]:
    yield
    contract.TRACED = True


def read(name: str, data: bytes) -> None:
    contract.TRACED = name not in UNTRACED
    with empty_folder() as folder:
        READERS[name].read(data, folder)


def test_what_is_valid_is_read() -> None:
    for name in READERS:
        for seed in READERS[name].seeds():
            REFUSALS.clear()
            read(name, seed)
            if name not in {"command", "shown"}:  # mistakes, and pictures of what is not there
                assert not REFUSALS, name


@pytest.mark.slow
def test_what_was_mutated_is_read_or_refused() -> None:
    for name in READERS:
        reader = READERS[name]
        valid = reader.seeds()
        for seed in range(INPUTS[name]):
            data = mutated(valid[seed % len(valid)], Random(seed), reader.own)  # noqa: S311 # no secret
            read(name, data)


def anything(chance: Random) -> bytes:
    """Random bytes, or random text."""
    if chance.random() < 0.5:
        return chance.randbytes(chance.randrange(200))
    highest = chance.choice((2**7, 2**16, 0x110000))
    text = "".join(chr(chance.randrange(highest)) for _ in range(chance.randrange(40)))
    return text.encode("utf-8", errors="surrogatepass")


def test_random_bytes_and_text_are_read_or_refused() -> None:
    for name in READERS:
        if name in SLOW:
            continue
        chance = Random(name)  # noqa: S311 # no secret
        for _ in range(12):
            read(name, anything(chance))


# ---- the contract notices what breaks it


def test_a_file_written_elsewhere_is_noticed(tmp_path: Path) -> None:
    path = Path(__file__).with_name("not-asked-for.txt")
    try:
        with pytest.raises(BrokenContractError, match="touched"):
            call_within_contract(lambda: path.open("a").close(), tmp_path)
    finally:
        path.unlink(missing_ok=True)


def test_too_much_memory_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(BrokenContractError, match="bytes of memory"):
        call_within_contract(lambda: bytearray(2**29), tmp_path)


def test_exceptions_other_than_refusals_are_findings(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        call_within_contract(lambda: 1 // 0, tmp_path)


def test_a_refusal_is_short_and_gives_a_reason(tmp_path: Path) -> None:
    def refuse(message: str) -> None:
        raise UsageError(message)

    assert call_within_contract(lambda: refuse("a.csv: no"), tmp_path) is None
    with pytest.raises(BrokenContractError, match="without a reason"):
        call_within_contract(lambda: refuse(""), tmp_path)
    with pytest.raises(BrokenContractError, match="5000 characters"):
        checked_message("x" * 5000)  # our own errors cut theirs
    assert checked_message("a.csv: no") == "a.csv: no"
