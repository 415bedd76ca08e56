"""Everything that reads user input, with valid examples and mutations."""

from __future__ import annotations

import functools
import io
import zlib
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import command_lines
import mutations
import numpy as np
from contract import BrokenContractError, call_within_contract, contents
from fakes import measured, point
from stub import nothing_measured

from gpubench.commands.diff.expect import read_expected
from gpubench.commands.diff.options import Format
from gpubench.commands.diff.sides import read_side
from gpubench.commands.operand_files.files import read_operands, write_operands
from gpubench.commands.reproduce.experiment import read_experiment
from gpubench.commands.tune.where import Condition
from gpubench.model import LARGEST, OPERATIONS, Config
from gpubench.options import read_sweep
from gpubench.plan.ranges import MAX_ITEMS, parse_sizes, parse_tiles
from gpubench.plan.tuned import read_winners
from gpubench.results import row as table
from gpubench.results.output import Output
from gpubench.results.result_file import read_context
from gpubench.view.pictures import Kind

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One kind of input."""

    read: Callable[[bytes, Path], None]
    """Pass an input to the package, in an empty folder. An exception is a finding."""

    seeds: Callable[[], Sequence[bytes]]
    """Valid examples."""

    own: Sequence[mutations.Mutation] = ()
    """Mutations specific to the format."""


def as_argument(data: bytes) -> str:
    """Decode bytes as Python decodes a command line."""
    return data.decode("utf-8", errors="surrogateescape")


def require_unchanged(folder: Path, before: dict[str, bytes]) -> None:
    if contents(folder) != before:
        raise BrokenContractError("reading changed a file")


# ---- lists


def sizes(data: bytes, folder: Path) -> None:
    op = tuple(OPERATIONS)[len(data) % len(OPERATIONS)]
    found = call_within_contract(lambda: parse_sizes(as_argument(data), op), folder) or ()
    assert all(len(size) == 3 for size in found)
    assert all(1 <= number <= LARGEST for size in found for number in size)
    assert len(found) <= MAX_ITEMS


def tiles(data: bytes, folder: Path) -> None:
    text = as_argument(data)
    for tile in call_within_contract(lambda: parse_tiles(text), folder) or ():
        assert str(Config.parse(tile)) == tile
    try:
        tile = call_within_contract(lambda: Config.parse(text), folder)
    except ValueError:
        return
    assert Config.parse(str(tile)) == tile


# ---- TOML


def _in_file(name: str, data: bytes, folder: Path) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def config(data: bytes, folder: Path) -> None:
    path = _in_file("a.toml", data, folder)
    call_within_contract(lambda: read_sweep({}, path), folder)
    require_unchanged(folder, {"a.toml": data})


def experiment(data: bytes, folder: Path) -> None:
    path = _in_file("a.toml", data, folder)
    call_within_contract(lambda: read_experiment(path), folder)
    require_unchanged(folder, {"a.toml": data})


def expect(data: bytes, folder: Path) -> None:
    path = _in_file("a.toml", data, folder)
    call_within_contract(lambda: read_expected(path), folder)
    require_unchanged(folder, {"a.toml": data})


def winners(data: bytes, folder: Path) -> None:
    """Read the TOML file of `--tiles tuned`."""
    path = _in_file("a.toml", data, folder)
    call_within_contract(lambda: read_winners(path), folder)


def where(data: bytes, folder: Path) -> None:
    """Read and use the argument of `tune --where`."""
    tile = {"BM": 128, "stages": 3, "cluster": "2x1"}
    call_within_contract(lambda: Condition(as_argument(data), tile, "fake")(tile), folder)


WINNER = b"""[[winner]]
device = "NVIDIA H200"
op = "gemm"
variant = "cpu_tile"
dtype = "float32"
m = 512
n = 512
k = 512
tile = "16"
simplest = "8"
group = 3
configurations = 256
within = 0.01
median_us = 12.5
source_hash = "0123456789ab"
gpubench = "0.1.0"
tuned_utc = "2026-01-01T00:00:00+00:00"
"""
CONDITIONS = (b"stages >= 3 and BM*2 > 16", b'cluster in ("2x1", "1x1") or not -BM % 7 == 1')


def _configs(*, experiments: bool) -> list[bytes]:
    files = [path.read_bytes() for path in sorted((REPOSITORY / "configs").glob("*.toml"))]
    return [text for text in files if (b"[[sweep]]" in text) == experiments]


CONFIG = b"""op = "gemm"
variants = ["naive", "shared_tile"]
sizes = "64..512:64,320x640x320"
tiles = [8, 16]
dtypes = "float32,float64"
device = "auto"
kernels = "mine"
output = "a.csv"
seed = 7
operands = "index"
rounds = 5
precision = "0.5%"
cache = "both"
scope = "kernel"
timer = "events"
point_limit = 60.5
budget = 100
launch_limit = 1
"""

EXPECT = b"""[expect]
device = "NVIDIA H200"
lower = "3%"
upper = 0.5

[[expect.point]]
variant = "shared_tile"
size = "1024"
tile = "16"
dtype = "float32"
column = "gflops"
value = 7000

[[expect.point]]
variant = "cublas"
size = "320x640x320"
value = 41.5
upper = "100%"
"""


# ---- CSV


@functools.cache
def _rows() -> tuple[table.Row, ...]:
    ok = [measured(10.0 + edge, point(tile=Config.parse(str(edge)))) for edge in (8, 16)]
    rounds = replace(ok[0], tile="4", rounds=3, round_medians_us="9.5;10.0;10.5")
    return (*ok, rounds, replace(ok[1], tile="32", status="wrong", reason="off", median_us=None))


def _csv() -> list[bytes]:
    text = io.StringIO()
    lines = [table.NAMES, *([getattr(row, name) for name in table.NAMES] for row in _rows())]
    text.write("\n".join(",".join(map(str, line)) for line in lines) + "\n")
    return [text.getvalue().encode()]


def csv(data: bytes, folder: Path) -> None:
    path = _in_file("a.csv", data, folder)
    rows = call_within_contract(lambda: table.read(path), folder)
    if rows:
        call_within_contract(lambda: read_side([path]), folder)
        require_unchanged(folder, {"a.csv": data})
        copy = folder / "b.csv"
        table.write(rows, copy)
        assert [str(row) for row in table.read(copy)] == [str(row) for row in rows]  # NaN, too


def diff(data: bytes, folder: Path) -> None:
    """Compare, and print one of the formats."""
    base = _in_file("base.csv", _csv()[0], folder)
    _in_file("a.csv", data, folder)
    name = tuple(Format)[len(data) % len(Format)]
    command_lines.run(["diff", "base.csv", "a.csv", "--ignore-device", "--format", name], folder)
    require_unchanged(folder, {"base.csv": base.read_bytes(), "a.csv": data})


def _published() -> bytes:
    """Return the heading and first figures of a file of `reproduce`."""
    lines = (REPOSITORY / "results/h200/reproduce/reproduce.csv").read_bytes().splitlines(True)
    return b"".join(lines[:1] + lines[40:50])


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


STARTED = ("sweep", "--device", "cpu", "--sizes", "8..24:8", "--variants", "cpu_blas")


@functools.cache
def _partial() -> tuple[bytes, ...]:
    """Return the file that a killed sweep leaves, measured by the stand-in for the worker."""
    from contract import empty_folder

    with empty_folder() as folder, nothing_measured(), redirect_stdout(io.StringIO()):
        options = [*STARTED, "--rounds", "30", "-o", "a.csv"]  # more than it measures
        with redirect_stderr(io.StringIO()):
            command_lines.run(options, folder)
        text = (folder / "a.csv.partial").read_bytes()
    lines = text.split(b"\n")
    return b"\n".join([*lines[:12], b""]), b"\n".join([*lines[:7], lines[7][:40]])


def partial(data: bytes, folder: Path) -> None:
    path = folder / "a.csv"
    _in_file("a.csv.partial", data, folder)
    call_within_contract(lambda: read_context(path), folder)
    require_unchanged(folder, {"a.csv.partial": data})
    with nothing_measured():
        command_lines.run(["sweep", "--resume", "a.csv"], folder)
    left = contents(folder)
    if not left.keys() <= {"a.csv", "a.csv.partial"}:
        raise BrokenContractError(f"files: {sorted(left)}")
    whole_lines = data[: data.rfind(b"\n") + 1]
    if "a.csv" not in left and not left["a.csv.partial"].startswith(whole_lines):
        raise BrokenContractError("measured rows were lost")


# ---- operand files


def _operands(name: str) -> Callable[[], list[bytes]]:
    @functools.cache
    def made() -> list[bytes]:
        from contract import empty_folder

        found = []
        for m, n in ((2, 3), (1, 1), (7, 5)):
            with empty_folder() as folder:
                a, v = np.ones((m, n), np.float32), np.ones(n, np.float32)
                write_operands(Output(folder / name), a, v)
                found.append((folder / name).read_bytes())
        return found

    return made


def _read_operands(name: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        path = _in_file(name, data, folder)
        found = call_within_contract(lambda: read_operands(path), folder)
        if found:
            a, v = found
            assert a.ndim == 2
            assert v.ndim == 1
            assert np.isfinite(a).all()
            assert np.isfinite(v).all()
        require_unchanged(folder, {name: data})

    return read


READERS = {
    "sizes": Reader(
        read=sizes,
        seeds=lambda: (b"1024,2048", b"1..32", b"64..512:64", b"1..64:x2", b"320x640x320,7x9"),
        own=(mutations.number,),
    ),
    "tiles": Reader(
        read=tiles,
        seeds=lambda: (b"8,16,32", b"1..32", b"128x128x8/8x8/s3", b"64x64/k4,1..64:x2"),
        own=(mutations.number,),
    ),
    "config": Reader(
        read=config,
        seeds=lambda: (CONFIG, *_configs(experiments=False)),
        own=(mutations.toml,),
    ),
    "experiment": Reader(
        read=experiment, seeds=lambda: _configs(experiments=True), own=(mutations.toml,)
    ),
    "expect": Reader(
        read=expect,
        seeds=lambda: (EXPECT, (REPOSITORY / "results/h200/expect.toml").read_bytes()),
        own=(mutations.toml,),
    ),
    "winners": Reader(read=winners, seeds=lambda: (WINNER,), own=(mutations.toml,)),
    "where": Reader(read=where, seeds=lambda: CONDITIONS),
    "csv": Reader(read=csv, seeds=_csv, own=(mutations.table,)),
    "shown": Reader(
        read=shown,
        seeds=lambda: (*_csv(), _csv_of_gpu(), _published()),
        own=(mutations.table,),
    ),
    "descriptor": Reader(
        read=descriptor, seeds=lambda: (DESCRIPTOR,), own=(mutations.description,)
    ),
    "source": Reader(read=source, seeds=lambda: (SOURCE,), own=(mutations.description,)),
    "diff": Reader(read=diff, seeds=_csv, own=(mutations.table,)),
    "partial": Reader(read=partial, seeds=_partial, own=(mutations.table,)),
    "operands": Reader(
        read=_read_operands("a.bin"), seeds=_operands("a.bin"), own=(mutations.header,)
    ),
    "archive": Reader(
        read=_read_operands("a.npz"), seeds=_operands("a.npz"), own=(mutations.archive,)
    ),
    "command": Reader(
        read=command_lines.read, seeds=command_lines.seeds, own=(command_lines.words,)
    ),
}
"""Readers by name."""
