"""Every input is read or refused; `research/fuzz.py` tries many more inputs."""

import resource
from pathlib import Path
from random import Random

import contract
import pytest
from command_lines import SEPARATOR
from contract import (
    REFUSALS,
    BrokenContractError,
    call_within_contract,
    checked_message,
    empty_folder,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import mutated
from readers import PYTHON, READERS, SOURCE_ON_STRUCTURES

from gpubench.errors import UsageError

SLOW = {
    "diff", "partial", "race", "build", "saved", "problems", "command", "shown",
    "weights", "operation", "scheduler", "declared", "checked", "compressed", "python",
}  # fmt: skip
"""Readers that run whole commands, on files that other readers read too."""

NEVER_READ = {"command", "shown", "scheduler"}
"""Readers whose examples may all be refused: command lines, pictures, and files of schedulers."""

INPUTS = {name: 3 if name in SLOW else 8 for name in READERS} | {"command": 20}
"""Number of mutated inputs per reader in every run."""

MAX_KILOBYTES = 400 * 2**10
"""Maximum growth of this process by all these inputs. They have at most 512 KiB each."""


SAVED = SEPARATOR.join(b"sweep --config a.toml --rounds 2 --save hot -o new.csv".split())

FINDINGS = [
    ("command", SAVED),
    ("python", PYTHON + b"x = " + b"-" * 3000 + b"1"),
    ("python", b"@" + b"-" * 400 + b"a" + PYTHON[PYTHON.index(b"\ndef") :]),
    ("checked", SOURCE_ON_STRUCTURES.replace(b"float*", b"x" * 100_000 + b"*")),
    ("checked", SOURCE_ON_STRUCTURES + b"const " * 10_000),
    ("checked", SOURCE_ON_STRUCTURES.replace(b"  kernel", b"<<<" * 10_000 + b"  kernel")),
    ("checked", SOURCE_ON_STRUCTURES.replace(b"  kernel", b"dim3 a(" * 5000 + b"  kernel")),
    ("checked", SOURCE_ON_STRUCTURES + b"template <typename> __global__ void f() {}"),
]
"""Inputs like the findings of `research/fuzz.py`. With each, a call once failed or took minutes."""


def read(name: str, data: bytes) -> None:
    with empty_folder() as folder:
        READERS[name].read(data, folder)


def test_valid_inputs_are_read() -> None:
    for name in READERS:
        for seed in READERS[name].seeds():
            REFUSALS.clear()
            read(name, seed)
            if name not in NEVER_READ:
                assert not REFUSALS, name


@pytest.mark.slow
def test_mutated_inputs_are_read_or_refused_in_bounded_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, reader in READERS.items():
        valid = reader.seeds()
        for seed in range(INPUTS[name]):
            data = mutated(valid[seed % len(valid)], Random(seed), reader.own)  # noqa: S311 # no secret
            read(name, data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_KILOBYTES


@pytest.mark.parametrize(("name", "data"), FINDINGS, ids=range(len(FINDINGS)))
def test_inputs_like_earlier_findings_are_read_or_refused_in_seconds(
    name: str, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "MAX_S", 10)
    read(name, data)


@settings(max_examples=50)
@given(
    st.sampled_from(sorted(READERS.keys() - SLOW)),
    st.binary() | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
)
def test_random_bytes_and_text_are_read_or_refused(name: str, data: bytes) -> None:
    read(name, data)


def test_the_contract_finds_calls_that_break_it(tmp_path: Path) -> None:
    def refuse(message: str) -> None:
        raise UsageError(message)

    path = Path(__file__).with_name("not-asked-for.txt")
    try:
        with pytest.raises(BrokenContractError, match="touched"):
            call_within_contract(lambda: path.open("a").close(), tmp_path)
    finally:
        path.unlink(missing_ok=True)
    with pytest.raises(ZeroDivisionError):
        call_within_contract(lambda: 1 // 0, tmp_path)
    assert call_within_contract(lambda: refuse("a.csv: no"), tmp_path) is None
    with pytest.raises(BrokenContractError, match="without a reason"):
        call_within_contract(lambda: refuse(""), tmp_path)
    with pytest.raises(BrokenContractError, match="5000 characters"):
        checked_message("x" * 5000)  # errors of gpubench are shorter
