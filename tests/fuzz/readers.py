"""All readers of user input, with valid examples and mutations of them."""

import functools
import gzip
import json
import os
import tomllib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import command_lines
import msgspec
import mutations
import numpy as np
import stated_problems
from contract import (
    STORE,
    BrokenContractError,
    call_within_contract,
    contents,
    empty_folder,
)
from fakes import CPU, measured, point
from stub import nothing_measured

from gpubench.commands.check import source_file
from gpubench.commands.operand_files.files import write_operands
from gpubench.commands.tune.where import condition
from gpubench.files import Output
from gpubench.foreign import forms
from gpubench.model import OPERATIONS, Config
from gpubench.plan.toml_file import decode
from gpubench.plan.tuned import Winner, keep_winners, read_winners
from gpubench.results import row as table
from gpubench.results import store
from gpubench.results.counter_row import CounterRow, encode
from gpubench.view.pictures import Kind

RESULTS = Path(__file__).parents[2] / "results"
CONFIGS = Path(__file__).parents[2] / "configs"


class Reader(NamedTuple):
    """A function that reads one kind of input, with examples."""

    read: Callable[[bytes, Path], None]
    """Pass an input to the package, in an empty folder. An exception is a finding."""

    seeds: Callable[[], Sequence[bytes]]
    """Valid examples."""

    own: Sequence[mutations.Mutation]
    """Mutations specific to the format."""


Contents = Callable[[], Sequence[bytes]]


def of_commands(
    own: Sequence[mutations.Mutation],
    seeds: Contents,
    *lines: str,
    name: str = "a.csv",
    base: Contents | None = None,
) -> Reader:
    """Return a reader that runs these command lines on the file `name` and a valid `base.csv`."""

    def read(data: bytes, folder: Path) -> None:
        (folder / name).write_bytes(data)
        if base:
            (folder / "base.csv").write_bytes(base()[0])
        for line in lines:
            command_lines.checked(line.split(), folder)

    return Reader(read, seeds, own)


def _in_file(name: str, data: bytes, folder: Path) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# ---- TOML and expressions

CONFIG = b"""sizes = "64..512:64,320x640x320"
tiles = [8, 16]
dtypes = "float32,float64"
variants = ["cpu_tile", "cpu_naive"]
device = "cpu"
output = "new.csv"
operands = "index"
precision = "0.5%"
point_limit = 60.5
budget = 100
"""

WINNER = b"""[[winner]]
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


class _Winners(msgspec.Struct):
    winner: list[Winner]


def winners(data: bytes, folder: Path) -> None:
    """Read the TOML file of `--tiles tuned`, sweep its tiles, and add a winner to it."""
    path = _in_file("a.toml", data, folder)
    before = call_within_contract(lambda: read_winners(path), folder)
    line = "sweep --device cpu --sizes 8 --variants cpu_tile --rounds 1 --tiles a.toml -o a.csv"
    command_lines.checked(line.split(), folder)
    (new,) = decode(tomllib.loads(WINNER.decode().replace("512", "640")), _Winners, "").winner
    call_within_contract(lambda: keep_winners(path, [new]), folder)
    if path.read_bytes() == data:
        return
    after = read_winners(path)
    if before is None or not {winner.key for winner in (*before, new)} <= {w.key for w in after}:
        raise BrokenContractError("winners were lost")


CONDITIONS = (
    b"stages >= 3 and BM*2 > 16",
    b'cluster in ("2x1", "1x1") or not -BM % 7 == 1',
    b"4 * stages <= BM - 9 < BM // 1",
)


def where(data: bytes, folder: Path) -> None:
    """Read and use the argument of `tune --where`, decoded as Python decodes a command line."""
    tile = {"BM": 128, "stages": 3, "cluster": "2x1"}
    text = data.decode("utf-8", errors="surrogateescape")
    call_within_contract(lambda: condition(text, tile, "fake")(tile), folder)


# ---- tables


@functools.cache
def _rows(least_us: float = 10.0) -> tuple[table.Row, ...]:
    ok = [measured(least_us + edge, point(tile=Config.parse(str(edge)))) for edge in (8, 16)]
    rounds = replace(ok[0], tile="4", rounds=3, round_medians_us=(9.5, 10.0, 10.5))
    return (*ok, rounds, replace(ok[1], tile="32", status="wrong", reason="off", median_us=None))


def _csv() -> list[bytes]:
    return [table.encode(_rows())]


def _counters() -> list[bytes]:
    counted = functools.partial(
        CounterRow, kernel=1, function="fake<16>", metric="dram__bytes.sum", unit="byte"
    )
    rows = [
        counted(**row.key._asdict(), started_utc=row.started_utc, value=value)
        for row, value in zip(_rows(), (98_304.0, None, 0.5), strict=False)
    ]
    return [encode(rows)]


def _csv_of_another_sweep(least_us: float = 12.0) -> list[bytes]:
    return [table.encode(_rows(least_us))]


def _csv_of_gpu() -> bytes:
    """Return rows that fill pictures: rates, percentages, local memory, several sizes."""
    lines = (RESULTS / "h200/sweep.csv").read_bytes().splitlines(True)
    return b"".join(lines[:1] + lines[1:3] + lines[100:240:70])


@functools.cache
def _builds() -> list[bytes]:
    lines = (RESULTS / "build.csv").read_bytes().splitlines(True)
    return [b"".join(lines[:5])]


def rows(data: bytes, folder: Path) -> None:
    """Read a file of rows, write what was read, and read it again."""
    path = _in_file("a.csv", data, folder)
    if read := call_within_contract(lambda: table.read(path), folder):
        copy = folder / "b.csv"
        table.write(read, copy)
        assert [str(row) for row in table.read(copy)] == [str(row) for row in read]  # also for NaN


PROBLEMS = (
    b"# a model\nname,m,n,k,weight,dtype\nqkv,16,24,8,12,float32\nout,16,8,8,,fp64\n",
    b"name;m;n;k\nfirst;8;8;8\nsecond;16;8;24\n",
)


WEIGHTS = b"name,m,n,k,weight,dtype\nqkv,64,48,32,12,float32\nout,64,48,32,,\n"


def weights(data: bytes, folder: Path) -> None:
    """Compare the weighted totals of a list of problems."""
    _in_file("base.csv", _csv()[0], folder)
    _in_file("new.csv", _csv_of_another_sweep()[0], folder)
    _in_file("a.csv", data, folder)
    command_lines.checked(["diff", "base.csv", "new.csv", "--weights", "a.csv"], folder)


def shown(data: bytes, folder: Path) -> None:
    """Make the report's page, or a picture of any kind, from a file of rows."""
    _in_file("a.csv", data, folder)
    kind = ("report", *Kind)[len(data) % (1 + len(Kind))]
    name = "a.html" if kind == "report" else f"a{('.svg', '.png')[len(data) % 2]}"
    drawing = ["report"] if kind == "report" else ["plot", "--kind", kind]
    command_lines.checked([*drawing, "a.csv", "-o", name], folder)


# ---- the store


def saved(data: bytes, folder: Path) -> None:
    """Compare with a saved result, and show its history beside a valid one."""
    for number, content in enumerate((data, _csv_of_another_sweep()[0]), 1):
        name = f"{STORE}/{store.slug(CPU.name)}/v1/2026010{number}T000000.000000Z.csv"
        _in_file(name, content, folder)
    _in_file("a.csv", _csv_of_another_sweep(11.0)[0], folder)
    if command_lines.checked(["diff", "--against", "v1", "a.csv"], folder) == 2:
        raise BrokenContractError("an older saved result hides the newest one")
    command_lines.checked(["history", "v1"], folder)


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

SOURCE = b"""template <typename T, const int BM, int BN = 64>
__global__ void __launch_bounds__((BM * BN) / 4, 1)
    mine(int M, int N, int K, T alpha, const T *__restrict__ A, const T* B, float beta, T C[]) {}
#ifndef STAGES
#define STAGES 3
#endif
extern "C" __global__ void plain(const float* a, size_t pitch, float* c) {}
"""

SOURCE_ON_STRUCTURES = b"""typedef struct { int width, height, stride; float* elements; } Matrix;
__global__ void kernel(Matrix A, Matrix B, Matrix C) {}
void MatMul(const Matrix A, const Matrix B, Matrix C) {
  dim3 block(16, 16), grid(B.width / block.x, A.height / block.y);
  kernel<<<grid, block>>>(A, B, C);
}
"""

OPERATION = b"""from gpubench.model import Array, Operation

def reference(xp, x, w):
    return x / xp.sqrt((x * x).mean(axis=1, keepdims=True)) * w

OPERATION = Operation(
    idea="each row of Y is the row of X over its root mean square",
    extents=("ROWS", "COLS"),
    inputs=(Array("X", "ROWS COLS"), Array("W", "COLS", dtype="float32")),
    output=Array("Y", "ROWS COLS"),
    reference=reference,
    flops="3*ROWS*COLS + 2",
    linear_in=("W",),
    added=(),
    terms="COLS",
    tolerance=1e-5,
    scale=lambda xp, x, w: abs(x),
    make=lambda generator, shapes: [generator.random(shape) for shape in shapes],
)
"""
OPERATIONS_BY_NAME = b"""from gpubench.model import Array, Operation

def reference(xp, a, x, y):
    return a @ x + y

OPERATION = {
    name: Operation(
        idea="z = A * x + y",
        extents=("M", "K", "batch"),
        inputs=(Array("A", "M K"), Array("x", "K"), Array("y", "M")),
        output=Array("z", "M"),
        reference=reference,
        flops="2*M*K",
        linear_in=("A", "x"),
        added=("y",),
        terms="K",
    )
    for name in ("one", "other")
}
"""

PYTHON = b"""import numpy as np
import torch

@torch.compile
def mine(a, b, c):
    np.matmul(a, b, out=c)

def returned(a, b, *, scale=1.0):
    return a @ b * scale
"""

DECLARATIONS = (
    b"run(int M, int N, int K, const float* A, const float* B, float* C)",
    b"void run(const double *A, const double B[], double* __restrict__ C, size_t ldc = N, int M)",
)


def checked_source(data: bytes, folder: Path) -> None:
    """Describe a source for `check FILE.cu`, which also accepts functions on structures."""
    path = _in_file("a.cu", data, folder)
    with nothing_measured():
        call_within_contract(lambda: list(source_file.described(path, "gemm", folder)), folder)


def operation(data: bytes, folder: Path) -> None:
    """List and sweep kernels of a stated operation. Each has its own name, as descriptions have."""
    name = f"o{zlib.crc32(data):x}"
    _in_file(f"own/{name}/operation.py", data, folder)
    _in_file(f"own/{name}/k{name}.py", DESCRIPTOR.replace(b"cpu_blas", b""), folder)
    op = "one" if b'"one"' in data else name
    with patch.dict(OPERATIONS._by_name), patch.dict(OPERATIONS.files):
        for line in ("variants", "sweep --device cpu --sizes 8 --rounds 1 -o a.csv"):
            command_lines.checked([*line.split(), "--kernels", "own", "--op", op], folder)


def python(data: bytes, folder: Path) -> None:
    """Describe a function of a Python file, and read its description."""
    _in_file("a.py", data, folder)
    line = f"new-kernel p{zlib.crc32(data):x} --from a.py --dir own"
    if command_lines.checked(line.split(), folder, kept=True) == 0:
        command_lines.checked(["variants", "--kernels", "own"], folder)


def declared(data: bytes, folder: Path) -> None:
    """Judge a function of a library by its declaration, which is part of an argument."""
    _in_file("liba.so", b"\x7fELF", folder)
    text = data.replace(b"\0", b"").decode("utf-8", errors="surrogateescape")
    line = "--device cpu --sizes 8 --rounds 3"
    with patch.dict(os.environ, XDG_CACHE_HOME=str(folder / "cache")), nothing_measured():
        command_lines.run(["judge", f"liba.so:{text}", *line.split()], folder)


def descriptor(data: bytes, folder: Path) -> None:
    """List and sweep a described kernel. Each has its own name, because Python caches modules."""
    name = f"k{zlib.crc32(data):x}"
    _in_file(f"own/{name}.py", data, folder)
    _in_file(f"own/{name}.cu", b"", folder)
    for line in ("variants", "sweep --device cpu --sizes 8,24 --rounds 1 -o a.csv"):
        command_lines.checked([*line.split(), "--kernels", "own"], folder)


def source(data: bytes, folder: Path) -> None:
    """Describe a CUDA source, and read its description."""
    _in_file("a.cu", data, folder)
    line = f"new-kernel s{zlib.crc32(data):x} --from a.cu --dir own"
    if command_lines.checked(line.split(), folder, kept=True) == 0:
        command_lines.checked(["variants", "--kernels", "own"], folder)


# ---- a cluster


SCHEDULER = b'{"type": "Scheduler", "id": "S-1", "address": "tls://127.0.0.1:8786", "workers": {}}'


def scheduler(data: bytes, folder: Path) -> None:
    """Start a sweep with a scheduler's file. No scheduler answers."""
    _in_file("a.json", data, folder)
    with patch("distributed.Client", side_effect=OSError("no connection")):
        line = "sweep --device cpu --sizes 8 --on a.json -o a.csv"
        command_lines.checked(line.split(), folder)


# ---- an interrupted sweep

SWEEP = "sweep --device cpu --sizes 8..24:8 --variants cpu_blas --rounds 30 --samples a.samples"
RACE = "tune cpu_tile --device cpu --sizes 64 --where edge<=9"


def _killed(line: str) -> list[bytes]:
    """Return the lines of a file that a killed command leaves. A stand-in measured them."""
    with empty_folder() as folder, nothing_measured():
        command_lines.run([*line.split(), "-o", "a.csv"], folder)
        return (folder / "a.csv.partial").read_bytes().split(b"\n")


@functools.cache
def _partial() -> tuple[bytes, ...]:
    lines = _killed(SWEEP)  # the stand-in stops before 30 rounds
    return b"\n".join([*lines[:12], b""]), b"\n".join([*lines[:7], lines[7][:40]])


@functools.cache
def _race() -> tuple[bytes, ...]:
    lines = _killed(RACE)
    return b"\n".join([*lines[:20], b""]), b"\n".join([*lines[:-2], lines[-2][:40]])


def resumed(line: str, names: Sequence[str]) -> Callable[[bytes, Path], None]:
    """Return a reader that continues a sweep or race, which may leave files of these names."""

    def read(data: bytes, folder: Path) -> None:
        _in_file("a.csv.partial", data, folder)
        with nothing_measured():
            command_lines.run(line.split(), folder)
        left = contents(folder)
        whole_lines = data[: data.rfind(b"\n") + 1]
        if not left.keys() <= {"a.csv", "a.csv.partial", *names}:
            raise BrokenContractError(f"files: {sorted(left)}")
        if "a.csv" not in left and not left["a.csv.partial"].startswith(whole_lines):
            raise BrokenContractError("measured rows were lost")
        if "a.samples" in left and not left["a.samples"].startswith(whole_lines):
            raise BrokenContractError("samples were lost")

    return read


# ---- operand files


def of_operands(name: str, suffix: str) -> Reader:
    """Return a reader of an operand file, whose result has the same suffix."""

    @functools.cache
    def seeds() -> list[bytes]:
        a, v = np.ones((2, 3), np.float32), np.ones(3, np.float32)
        with empty_folder() as folder:
            write_operands(Output(folder / name), a, v)
            return [(folder / name).read_bytes()]

    line = f"run {name} --op gemv --device cpu -o new{suffix}"
    return of_commands(mutations.BINARY, seeds, line, name=name)


def _experiments() -> list[bytes]:
    return [path.read_bytes() for path in sorted(CONFIGS.glob("*-*.toml"))]


TEXT, TABLE = mutations.TEXT, mutations.TABLE
TOML = functools.partial(of_commands, TEXT, name="a.toml")
CSV = functools.partial(of_commands, TABLE)


def foreign(name: str) -> Callable[[bytes, Path], None]:
    """Return the reader of a file of another project's problem."""

    def read(data: bytes, folder: Path) -> None:
        if name != "task.yml":
            stated_problems.definition(folder)
        (folder / name).write_bytes(data)
        call_within_contract(lambda: [forms.read(*each) for each in forms.find(folder)], folder)

    return read


READERS: Mapping[str, Reader] = {
    "config": TOML(lambda: [CONFIG], "sweep --config a.toml --dry-run"),
    "experiment": TOML(_experiments, "reproduce a.toml --device cpu --dry-run"),
    "winners": Reader(winners, lambda: (WINNER, WINNER_OF_OLD), TEXT),
    "where": Reader(where, lambda: CONDITIONS, TEXT),
    "csv": Reader(rows, _csv, TABLE),
    "shown": Reader(shown, lambda: (*_csv(), _csv_of_gpu()), TABLE),
    "descriptor": Reader(descriptor, lambda: (DESCRIPTOR,), TEXT),
    "source": Reader(source, lambda: (SOURCE,), TEXT),
    "checked": Reader(checked_source, lambda: (SOURCE_ON_STRUCTURES,), TEXT),
    "operation": Reader(operation, lambda: (OPERATION, OPERATIONS_BY_NAME), TEXT),
    "python": Reader(python, lambda: (PYTHON,), TEXT),
    "declared": Reader(declared, lambda: DECLARATIONS, TEXT),
    "definition": Reader(
        foreign("definition.json"), lambda: (json.dumps(stated_problems.DEFINITION).encode(),), TEXT
    ),
    "workloads": Reader(
        foreign("workload.jsonl"),
        lambda: ("\n".join(map(json.dumps, stated_problems.WORKLOADS)).encode(),),
        TEXT,
    ),
    "task": Reader(foreign("task.yml"), lambda: (stated_problems.TASK.encode(),), TEXT),
    "model": Reader(foreign("model.py"), lambda: (stated_problems.MODEL.encode(),), TEXT),
    "problems": CSV(lambda: PROBLEMS, "sweep --sizes a.csv --device cpu --dry-run"),
    "weights": Reader(weights, lambda: (WEIGHTS,), TABLE),
    "compressed": of_commands(
        mutations.BINARY,
        lambda: [gzip.compress(_csv()[0], mtime=0)],
        "show a.csv.gz",
        name="a.csv.gz",
    ),
    "counters": of_commands(TABLE, _counters, "show base.csv", name="base.counters.csv", base=_csv),
    "scheduler": Reader(scheduler, lambda: (SCHEDULER,), TEXT),
    "diff": CSV(
        _csv,
        "diff base.csv a.csv --ignore-device --format json",
        "diff a.csv base.csv",
        base=_csv_of_another_sweep,
    ),
    "build": CSV(
        _builds, "diff base.csv a.csv --format junit", "diff a.csv base.csv", base=_builds
    ),
    "saved": Reader(saved, _csv, TABLE),
    "partial": Reader(resumed("sweep --resume a.csv", ["a.samples"]), _partial, (*TABLE, *TEXT)),
    "race": Reader(
        resumed(
            "tune --resume a.csv --winners w.toml",
            ["w.toml", "a.confirmed.csv", "a.confirmed.csv.partial"],
        ),
        _race,
        (*TABLE, *TEXT),
    ),
    "operands": of_operands("a.bin", ".bin"),
    "archive": of_operands("a.npz", ".npz"),
    "command": Reader(command_lines.read, command_lines.seeds, (command_lines.words,)),
}
"""All readers by name."""
