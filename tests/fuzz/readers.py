"""Everything that reads user input, with valid examples and mutations."""

import functools
import io
import os
import tomllib
import zlib
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import command_lines
import msgspec
import mutations
import numpy as np
from contract import (
    BrokenContractError,
    call_within_contract,
    checked_message,
    contents,
    empty_folder,
)
from fakes import CPU, measured, point
from stub import nothing_measured

from gpubench.commands.diff.options import Format
from gpubench.commands.diff.sides import read_side
from gpubench.commands.fleet import times as fleet_times
from gpubench.commands.fleet.units import Report
from gpubench.commands.fleet.verdicts import assess
from gpubench.commands.operand_files.files import read_operands, write_operands
from gpubench.commands.reproduce.experiment import read_experiment
from gpubench.commands.tune.where import condition
from gpubench.engine.cluster import Member
from gpubench.model import Config
from gpubench.options import read_sweep
from gpubench.plan.toml_file import decode
from gpubench.plan.tuned import Winner, keep_winners, read_winners
from gpubench.results import row as table
from gpubench.results import store
from gpubench.results.output import Output
from gpubench.results.result_file import read_context
from gpubench.view.pictures import Kind

REPOSITORY = Path(__file__).parents[2]


class Reader(NamedTuple):
    """One kind of input."""

    read: Callable[[bytes, Path], None]
    """Pass an input to the package, in an empty folder. An exception is a finding."""

    seeds: Callable[[], Sequence[bytes]]
    """Valid examples."""

    own: Sequence[mutations.Mutation]
    """Mutations specific to the format."""


def as_argument(data: bytes) -> str:
    """Decode bytes as Python decodes a command line."""
    return data.decode("utf-8", errors="surrogateescape")


def require_unchanged(folder: Path, before: dict[str, bytes]) -> None:
    if contents(folder) != before:
        raise BrokenContractError("reading changed a file")


# ---- TOML


def _in_file(name: str, data: bytes, folder: Path) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _toml(read: Callable[[Path], object]) -> Callable[[bytes, Path], None]:
    """Return a reader of a TOML file."""

    def read_file(data: bytes, folder: Path) -> None:
        path = _in_file("a.toml", data, folder)
        call_within_contract(lambda: read(path), folder)
        require_unchanged(folder, {"a.toml": data})

    return read_file


def winners(data: bytes, folder: Path) -> None:
    """Read the TOML file of `--tiles tuned`, sweep its tiles, and add a winner to it."""
    path = _in_file("a.toml", data, folder)
    before = call_within_contract(lambda: read_winners(path), folder)
    if zlib.crc32(data) % 4 == 0:
        with nothing_measured():
            sweep = ("sweep", "--device", "cpu", "--sizes", "8", "--variants", "cpu_tile")
            command_lines.run([*sweep, "--rounds", "1", "--tiles", "a.toml", "-o", "a.csv"], folder)
    assert path.read_bytes() == data
    (new,) = decode(tomllib.loads(WINNER.decode().replace("512", "640")), _Winners, "").winner
    call_within_contract(lambda: keep_winners(path, [new]), folder)
    if path.read_bytes() == data:
        return
    after = read_winners(path)
    if before is None or not {winner.key for winner in (*before, new)} <= {w.key for w in after}:
        raise BrokenContractError("winners were lost")
    if b"# a comment" in data and b"# a comment" not in path.read_bytes():
        raise BrokenContractError("a comment was lost")


def where(data: bytes, folder: Path) -> None:
    """Read and use the argument of `tune --where`."""
    tile = {"BM": 128, "stages": 3, "cluster": "2x1"}
    call_within_contract(lambda: condition(as_argument(data), tile, "fake")(tile), folder)


class _Winners(msgspec.Struct):
    winner: list[Winner]


WINNER = b"""[[winner]]  # a comment
device = "Fake CPU"
op = "gemm"
variant = "cpu_tile"
dtype = "float32"
m = 512
n = 512
k = 512
tile = "16"
layout = "row-major"
simplest = "8"
group = 3
configurations = 256
within = 0.01
median_us = 12.5
source_hash = "0123456789ab"
gpubench = "0.1.0"
tuned_utc = "2026-01-01T00:00:00+00:00"
"""
WINNER_OF_OLD = WINNER.replace(b'layout = "row-major"\n', b"")
CONDITIONS = (
    b"stages >= 3 and BM*2 > 16",
    b'cluster in ("2x1", "1x1") or not -BM % 7 == 1',
    b"4 * stages <= BM - 9 < BM // 1",
)


def _configs(*, experiments: bool) -> list[bytes]:
    files = [path.read_bytes() for path in sorted((REPOSITORY / "configs").glob("*.toml"))]
    return [text for text in files if (b"[[sweep]]" in text) == experiments]


CONFIG = b"""sizes = "64..512:64,320x640x320"
tiles = [8, 16]
dtypes = "float32,float64"
kernels = "mine"
output = "a.csv"
precision = "0.5%"
point_limit = 60.5
budget = 100
"""


# ---- CSV


@functools.cache
def _rows() -> tuple[table.Row, ...]:
    ok = [measured(10.0 + edge, point(tile=Config.parse(str(edge)))) for edge in (8, 16)]
    rounds = replace(ok[0], tile="4", rounds=3, round_medians_us="9.5;10.0;10.5")
    return (*ok, rounds, replace(ok[1], tile="32", status="wrong", reason="off", median_us=None))


def _csv() -> list[bytes]:
    return [table.encode(_rows())]


def rows(name: str) -> Callable[[bytes, Path], None]:
    """Return a reader of a file of rows, which writes what it read and reads it again."""

    def read_file(data: bytes, folder: Path) -> None:
        path = _in_file(name, data, folder)
        read = call_within_contract(lambda: table.read(path), folder)
        if read:
            call_within_contract(lambda: read_side([path]), folder)
            require_unchanged(folder, {name: data})
            copy = folder / "b.csv"
            table.write(read, copy)
            assert [str(row) for row in table.read(copy)] == [str(row) for row in read]  # NaN, too

    return read_file


def problems(data: bytes, folder: Path) -> None:
    """Plan the list of `--sizes FILE.csv`."""
    _in_file("a.csv", data, folder)
    with nothing_measured():
        command_lines.run(["sweep", "--sizes", "a.csv", "--device", "cpu", "--dry-run"], folder)
    require_unchanged(folder, {"a.csv": data})


def compared(base: bytes, data: bytes, folder: Path) -> None:
    """Compare with a valid file, and print one of the formats."""
    _in_file("base.csv", base, folder)
    _in_file("a.csv", data, folder)
    name = tuple(Format)[len(data) % len(Format)]
    sides = ["base.csv", "a.csv"] if len(data) % 3 else ["a.csv", "base.csv"]
    command_lines.run(["diff", *sides, "--ignore-device", "--format", name], folder)
    require_unchanged(folder, {"base.csv": base, "a.csv": data})


PROBLEMS = (
    b"# a model\nname,m,n,k,weight,dtype\nqkv,16,24,8,12,float32\nout,16,8,8,,fp64\n",
    b"name;m;n;k\nfirst;8;8;8\nsecond;16;8;24\n",
)


@functools.cache
def _builds() -> list[bytes]:
    lines = (REPOSITORY / "results/build.csv").read_bytes().splitlines(True)
    return [b"".join(lines[:5])]


# ---- the store


def _in_store(name: str, data: bytes, folder: Path) -> None:
    path = folder / "store" / store.slug(CPU.name) / name
    path.parent.mkdir(parents=True)
    path.write_bytes(data)


def saved(data: bytes, folder: Path) -> None:
    """Compare with a saved result, and show its history beside a valid one."""
    _in_store("v1/20260101T000000.000000Z.csv", data, folder)
    new = _in_file("store/fake-cpu/v1/20260102T000000.000000Z.csv", _csv()[0], folder).read_bytes()
    _in_file("a.csv", new, folder)
    before = contents(folder)
    with patch.dict(os.environ, {store.VARIABLE: str(folder / "store")}):
        for line in (["diff", "--against", "v1", "a.csv"], ["history", "v1"], ["history"]):
            code = command_lines.run(line, folder)
            if code == 2 and line[0] == "diff":
                raise BrokenContractError("an older saved result hides the newest one")
    require_unchanged(folder, before)


def fleet(data: bytes, folder: Path) -> None:
    """Judge a fleet beside what the store has of an earlier run."""
    _in_store("fleet/20260101T000000.000000Z.jsonl", data, folder)
    reports = [Report(Member(slot, "h", CPU, ""), _unit_times(slot), {}, {}) for slot in "abc"]

    def judged() -> None:
        earlier, unreadable = fleet_times.earlier(CPU.name, 10)
        for message in unreadable:
            checked_message(message)
        assess(reports, earlier)

    with patch.dict(os.environ, {store.VARIABLE: str(folder / "store")}):
        call_within_contract(judged, folder)


def _unit_times(slot: str) -> list[fleet_times.UnitTime]:
    usual = {"host": "h", "slot": slot, "device_uuid": None, "device": CPU.name, "status": "ok"}
    return [
        fleet_times.UnitTime(unit=unit, phase=phase, time_us=100.0 + number, **usual)  # type: ignore[arg-type]
        for unit in ("copy", "float32 product")
        for phase in ("alone", "together")
        for number in range(3)
    ]


def _fleets() -> tuple[bytes, ...]:
    return (msgspec.json.Encoder().encode_lines([*_unit_times("a"), *_unit_times("b")]),)


def _csv_of_gpu() -> bytes:
    """Return rows with what pictures show: rates, percentages, local memory, several sizes."""
    lines = (REPOSITORY / "results/h200/sweep.csv").read_bytes().splitlines(True)
    return b"".join(lines[:1] + lines[1:3] + lines[100:240:70])


def shown(data: bytes, folder: Path) -> None:
    """Make the page, or a picture of any kind."""
    _in_file("a.csv", data, folder)
    kind = ("report", *Kind)[len(data) % (1 + len(Kind))]
    name = "a.html" if kind == "report" else f"a{('.svg', '.png')[len(data) % 2]}"
    drawing = ["report"] if kind == "report" else ["plot", "--kind", kind]
    code = command_lines.run([*drawing, "a.csv", "-o", name], folder)
    if code == 0:
        assert (folder / name).stat().st_size > 0
        (folder / name).unlink()
    require_unchanged(folder, {"a.csv": data})


# ---- a kernel of the user's


DESCRIPTOR = b"""from gpubench.model import CallVariant, edges

def build(tile, dtype):
    return lambda a, b, c: None

VARIANT = CallVariant(
    idea="nothing",
    dtypes=("float32", "float64"),
    tiles=edges(1, 64, because="it is"),
    baseline="cpu_blas",
    default=True,
    after="",
    tunes="",
    capability=(0, 0),
    refuse=lambda tile, problem: None,
    libraries=(),
    runs_on="cpu",
    build=build,
    threads=1,
)
"""


def descriptor(data: bytes, folder: Path) -> None:
    """List and sweep a described kernel. Each has its own name, because Python caches modules."""
    name = f"k{zlib.crc32(data):x}"
    (folder / "own").mkdir(exist_ok=True)
    _in_file(f"own/{name}.py", data, folder)
    _in_file(f"own/{name}.cu", b"", folder)
    with nothing_measured():
        for line in (["variants", "--kernels", "own"], ["sweep", "--kernels", "own", *OWN]):
            command_lines.run(line, folder)
    if not contents(folder).keys() <= {f"own/{name}.py", f"own/{name}.cu", "a.csv"}:
        raise BrokenContractError(f"files: {sorted(contents(folder))}")


SOURCE = b"""template <typename T, const int BM, int BN = 64>
__global__ void __launch_bounds__((BM * BN) / 4, 1)
    mine(int M, int N, int K, T alpha, const T *__restrict__ A, const T* B, float beta, T C[]) {}
#ifndef STAGES
#define STAGES 3
#endif
extern "C" __global__ void plain(const float* a, size_t pitch, float* c) {}
"""


def source(data: bytes, folder: Path) -> None:
    """Describe a CUDA source, and read its description."""
    name = f"s{zlib.crc32(data):x}"
    _in_file("a.cu", data, folder)
    with nothing_measured():
        code = command_lines.run(["new-kernel", name, "--from", "a.cu", "--dir", "own"], folder)
        if code == 0:
            command_lines.run(["variants", "--kernels", "own"], folder)
    if not contents(folder).keys() <= {"a.cu", f"own/gemm/{name}.py"}:
        raise BrokenContractError(f"files: {sorted(contents(folder))}")


OWN = ("--device", "cpu", "--sizes", "8,24", "--rounds", "1", "-o", "a.csv")


# ---- an interrupted sweep


SWEEP = ("sweep", "--device", "cpu", "--sizes", "8..24:8", "--variants", "cpu_blas")
RACE = ("tune", "cpu_tile", "--device", "cpu", "--sizes", "64", "--where", "edge <= 9")


def _killed(*argv: str) -> bytes:
    """Return the file that a killed command leaves, measured by the stand-in for the worker."""
    with empty_folder() as folder, nothing_measured(), redirect_stdout(io.StringIO()):
        with redirect_stderr(io.StringIO()):
            command_lines.run([*argv, "-o", "a.csv"], folder)
        return (folder / "a.csv.partial").read_bytes()


@functools.cache
def _partial() -> tuple[bytes, ...]:
    text = _killed(*SWEEP, "--rounds", "30", "--samples", "a.samples")  # more than it measures
    lines = text.split(b"\n")
    return b"\n".join([*lines[:12], b""]), b"\n".join([*lines[:7], lines[7][:40]])


@functools.cache
def _race() -> tuple[bytes, ...]:
    lines = _killed(*RACE).split(b"\n")
    return b"\n".join([*lines[:20], b""]), b"\n".join([*lines[:-2], lines[-2][:40]])


def partial(data: bytes, folder: Path) -> None:
    """Continue a sweep."""
    path = folder / "a.csv"
    _in_file("a.csv.partial", data, folder)
    call_within_contract(lambda: read_context(path), folder)
    require_unchanged(folder, {"a.csv.partial": data})
    left = _resumed(["sweep", "--resume", "a.csv"], data, folder)
    if not left.keys() <= {"a.csv", "a.csv.partial", "a.samples"}:
        raise BrokenContractError(f"files: {sorted(left)}")


def race(data: bytes, folder: Path) -> None:
    """Continue a race."""
    _in_file("a.csv.partial", data, folder)
    left = _resumed(["tune", "--resume", "a.csv", "--winners", "w.toml"], data, folder)
    confirmed = ("a.confirmed.csv", "a.confirmed.csv.partial")
    if not left.keys() <= {"a.csv", "a.csv.partial", "w.toml", *confirmed}:
        raise BrokenContractError(f"files: {sorted(left)}")


def _resumed(argv: Sequence[str], data: bytes, folder: Path) -> dict[str, bytes]:
    """Continue the sweep or race of a partial file, and return the files that it leaves."""
    with nothing_measured():
        command_lines.run(argv, folder)
    left = contents(folder)
    whole_lines = data[: data.rfind(b"\n") + 1]
    if "a.csv" not in left and not left["a.csv.partial"].startswith(whole_lines):
        raise BrokenContractError("measured rows were lost")
    if "a.samples" in left and not left["a.samples"].startswith(whole_lines):
        raise BrokenContractError("samples were lost")
    return left


# ---- operand files


def _operands(name: str) -> Callable[[], list[bytes]]:
    @functools.cache
    def made() -> list[bytes]:
        a, v = np.ones((2, 3), np.float32), np.ones(3, np.float32)
        with empty_folder() as folder:
            write_operands(Output(folder / name), a, v)
            return [(folder / name).read_bytes()]

    return made


def _read_operands(name: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        path = _in_file(name, data, folder)
        found = call_within_contract(lambda: read_operands(path, "atax")[1:], folder)
        if found:
            assert [array.ndim for array in found] == [2, 1]
            assert all(np.isfinite(array).all() for array in found)
        require_unchanged(folder, {name: data})

    return read


TEXT, TABLE = mutations.TEXT, mutations.TABLE

READERS = {
    "config": Reader(
        _toml(lambda path: read_sweep({}, path)),
        lambda: (CONFIG, *_configs(experiments=False)),
        TEXT,
    ),
    "experiment": Reader(_toml(read_experiment), lambda: _configs(experiments=True), TEXT),
    "winners": Reader(winners, lambda: (WINNER, WINNER_OF_OLD), TEXT),
    "where": Reader(where, lambda: CONDITIONS, TEXT),
    "csv": Reader(rows("a.csv"), _csv, TABLE),
    "shown": Reader(shown, lambda: (*_csv(), _csv_of_gpu()), TABLE),
    "descriptor": Reader(descriptor, lambda: (DESCRIPTOR,), TEXT),
    "source": Reader(source, lambda: (SOURCE,), TEXT),
    "problems": Reader(problems, lambda: PROBLEMS, TABLE),
    "diff": Reader(lambda *to: compared(_csv()[0], *to), _csv, TABLE),
    "build": Reader(lambda *to: compared(_builds()[0], *to), _builds, TABLE),
    "saved": Reader(saved, _csv, TABLE),
    "fleet": Reader(fleet, _fleets, TEXT),
    "partial": Reader(partial, _partial, (*TABLE, *TEXT)),
    "race": Reader(race, _race, (*TABLE, *TEXT)),
    "operands": Reader(_read_operands("a.bin"), _operands("a.bin"), (mutations.header,)),
    "archive": Reader(_read_operands("a.npz"), _operands("a.npz"), (mutations.archive,)),
    "command": Reader(command_lines.read, command_lines.seeds, (command_lines.words,)),
}
"""Readers by name."""
