"""Whatever a user gives is used or refused; `benchmarks/fuzz.py` tries a million more of it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from contract import BrokenContractError, checked_message, empty_folder, held
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import mutated
from readers import READERS

from gpubench.errors import UsageError

SLOW = ("diff", "partial", "command")

EXAMPLES = {
    **dict.fromkeys(("sizes", "tiles", "config", "expect", "operands", "archive"), 400),
    "csv": 200,
    "experiment": 100,
    "diff": 30,
    "partial": 30,
    "command": 60,
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_valid_is_read(name: str) -> None:
    for seed in READERS[name].seeds():
        with empty_folder() as folder:
            READERS[name].read(seed, folder)


@pytest.mark.parametrize("name", READERS)
def test_what_was_spoilt_is_used_or_refused(name: str) -> None:
    reader = READERS[name]

    @settings(max_examples=EXAMPLES[name])
    @given(index=st.integers(0, 99), seed=st.integers(0, 2**32 - 1))
    def one(index: int, seed: int) -> None:
        seeds = reader.seeds()
        data = mutated(seeds[index % len(seeds)], Random(seed), reader.own)  # noqa: S311 # no secret
        with empty_folder() as folder:
            reader.read(data, folder)

    one()


@pytest.mark.parametrize("name", [name for name in READERS if name not in SLOW])
def test_anything_at_all_is_used_or_refused(name: str) -> None:
    text = st.text(max_size=40).map(lambda some: some.encode("utf-8", errors="surrogatepass"))

    @settings(max_examples=60)
    @given(data=text | st.binary(max_size=200))
    def one(data: bytes) -> None:
        with empty_folder() as folder:
            READERS[name].read(data, folder)

    one()


# ---- and the contract notices what breaks it


def _writes_elsewhere() -> None:
    Path(__file__).with_name("nobody-asked.txt").open("a").close()


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (_writes_elsewhere, "touched"),
        (lambda: bytearray(2**29), "bytes of memory"),
    ],
)
def test_a_broken_contract_is_noticed(call: object, what: str, tmp_path: Path) -> None:
    try:
        with pytest.raises(BrokenContractError, match=what):
            held(call, tmp_path)
    finally:
        Path(__file__).with_name("nobody-asked.txt").unlink(missing_ok=True)


def test_other_exceptions_than_refusals_are_findings(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        held(lambda: 1 // 0, tmp_path)


def test_a_refusal_is_short_and_says_something(tmp_path: Path) -> None:
    def refuse(message: str) -> None:
        raise UsageError(message)

    assert held(lambda: refuse("a.csv: no"), tmp_path) is None
    for message in ("", "x" * 5000):
        with pytest.raises(BrokenContractError):
            held(lambda message=message: refuse(message), tmp_path)
    assert checked_message("a.csv: no") == "a.csv: no"
