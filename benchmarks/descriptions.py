"""Sweep kernels whose descriptions are hostile: each command ends with a line, and never silently.

    python benchmarks/descriptions.py [--only WORD] [--processes 2] [-o descriptions.json]

Each description is swept on the CPU and listed by `variants`; kernels for a GPU are explained. A
command must end in time, without a traceback and without control characters. Exit code 2 has a line
that starts with `gpubench: `. After 0 and 1 the file can be shown, and has a row of the kernel with
the status that the code means. Exits 1 if a command does otherwise.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shared import GPUBENCH, child, save

from gpubench.results.row import read

LIMIT_S = 240.0
"""Time limit of a command: twice the limits of an answer, and of a point in two rounds."""

HEAD = """
import atexit, builtins, ctypes, os, signal, subprocess, sys, threading, time, warnings
import numpy as np
from gpubench.model import *
from gpubench.model.measurement import Resources as Facts
Resources = lambda *x: Facts(registers=x[0], local_bytes=x[1], spill_bytes=x[2], shared_bytes=x[3])
"""
PYTHON = """
def build(tile, dtype):
    {building}
    def call(a, b, c):
        np.matmul(a, b, out=c)
        {call}
    {built}
    return call

FACTS = dict(idea="hostile", runs_on="cpu", build=build, baseline="", threads=1)
VARIANT = CallVariant(**FACTS | dict({fields}))
"""
CUDA = "VARIANT = CudaVariant(**dict(idea='hostile', grid=1, block=32) | dict({fields}))"
SWEEP = (
    *("sweep", "--kernels", "own", "--variants", "mine,cpu_blas", "--device", "cpu"),
    *("--sizes", "32", "--rounds", "2", "--budget", "3", "--point-limit", "20", "-o", "a.csv"),
)
EXPLAIN = ("explain", "mine", "--kernels", "own", "--arch", "sm_90", "--sizes", "64")
LONGEST_LINE = 11_000
SOURCE = "template <class S> __global__ void mine(const S*, const S*, S*, int, int, int) {}\n"

BEFORE = {
    "ends with code 0": "os._exit(0)",
    "kills itself": "os.kill(os.getpid(), 9)",
    "stops itself": "os.kill(os.getpid(), signal.SIGSTOP)",
    "reads address 0": "ctypes.string_at(0)",
    "becomes another program": "os.execv('/bin/true', ['true'])",
    "never returns": "while True: pass",
    "never returns from C": "sum(iter(int, 1))",
    "sleeps": "time.sleep(1e6)",
    "catches everything for ever": (
        "while True:\n    try: time.sleep(1)\n    except BaseException: pass"
    ),
    "leaves no recursion": "sys.setrecursionlimit(40)",
    "leaves a thread": "threading.Thread(target=time.sleep, args=(1e6,)).start()",
    "leaves a process": "subprocess.Popen(['sleep', '1000'])",
    "takes all memory": "x = [bytearray(2**28) for _ in range(10**6)]",
    "interrupts": "raise KeyboardInterrupt",
    "exits": "sys.exit(0)",
    "exits with text": "sys.exit('\\x1b[2J\\udc80')",
    "raises what cannot be shown": (
        "class E(Exception):\n    def __str__(self): raise self\nraise E"
    ),
    "raises lines": "raise ValueError('a\\r\\nb\\x1b[2J' * 10**6)",
    "prints escapes": "print('\\x1b[2J\\x1b]0;x\\x07', file=sys.stderr)",
    "closes all files": "os.closerange(0, 256)",
    "closes its streams": "sys.stdout = sys.stderr = None",
    "forks": "os.fork()",
    "sets an alarm": "signal.alarm(1)",
    "leaves its directory": "os.chdir('/')",
    "forgets its paths": "sys.path.clear()",
    "forgets its modules": "[sys.modules.pop(x) for x in [*sys.modules] if x[:8] == 'gpubench']",
    "breaks open": "builtins.open = builtins.len = None",
    "empties the environment": "os.environ.clear()",
    "ends at exit": "atexit.register(os._exit, 0)",
    "makes warnings errors": "warnings.simplefilter('error')",
    "empties its file": "open(__file__, 'w')",
    "removes its file": "os.remove(__file__)",
    "writes into all files": (
        "for file in range(3, 9):\n    try: os.write(file, b'x' * 99)\n    except OSError: pass"
    ),
    "is empty": "VARIANT = 0; raise SystemExit",
}
"""What a description does while it is imported."""

FIELDS = {
    "idea of 200,000 characters": "idea='x' * 200_000",
    "idea with a surrogate": "idea='\\ud800\\x1b[2J'",
    "idea that is bytes": "idea=b'x'",
    "10⁵ dtypes": "dtypes=('float32',) * 10**5",
    "dtype with a line end": "dtypes=('float32\\n',)",
    "negative threads": "threads=-1",
    "10³⁰ threads": "threads=10**30",
    "threads as text": "threads='2'",
    "baseline with escapes": "baseline='\\x1b[2J'",
    "library with NUL": "libraries=('a\\0b',)",
    "library with dots": "libraries=('..', 'a.b.c')",
    "future capability": "capability=(10**20, 0)",
    "tensors of os": "tensors='os'",
    "runs on nothing": "runs_on='cpu\\n'",
    "column-major D": "column_major=('D',)",
    "layout with a surrogate": "layouts=('nn\\ud800',)",
    "10¹⁸ edges": "tiles=edges(1, 10**18, because='b')",
    "no edges": "tiles=edges(1, 0, because='b')",
    "10⁵ default tiles": (
        "tiles=Space(axes={'edge': (1,)}, block=('edge',), default=('1',) * 10**5)"
    ),
    "axis without end": "tiles=Space(axes={'edge': iter(int, 1)}, block=('edge',), default=('1',))",
    "constraint that ends": "tiles=Space(axes={'edge': (1,)}, block=('edge',), default=('1',), "
    "constraint=lambda tile: os._exit(0))",
    "constraint that is a number": "tiles=Space(axes={'edge': (1,)}, block=('edge',), "
    "default=('1',), constraint=lambda tile: 7)",
    "refuse never returns": "refuse=lambda tile, problem: sum(iter(int, 1))",
    "refuse ends with code 0": "refuse=lambda tile, problem: os._exit(0)",
    "refuse of 10⁷ characters": "refuse=lambda tile, problem: 'x' * 10**7",
    "refuse of 9,000 characters": "refuse=lambda tile, problem: '=\\x1b\\r\\n\\udc80' * 1800",
    "refuse as bytes": "refuse=lambda tile, problem: b'no'",
    "refuse as a function": "refuse=lambda tile, problem: print",
    "refuse without arguments": "refuse=lambda: None",
    "refuse recurses": "refuse=lambda tile, problem: VARIANT.refuse(tile, problem)",
    "refuse interrupts": "refuse=lambda tile, problem: signal.raise_signal(signal.SIGINT)",
    "refuse leaves a thread": "refuse=lambda tile, problem: threading.Thread(target=time.sleep, "
    "args=(1e6,)).start()",
}
"""Fields of a description."""

CALLS = {
    "is nothing": {"built": "call = None"},
    "builds without end": {"building": "time.sleep(1e6)"},
    "ends in build": {"building": "os._exit(0)"},
    "exits in its call": {"call": "sys.exit(0)"},
    "ends in its call": {"call": "os._exit(0)"},
    "recurses in its call": {"call": "call(a, b, c)"},
    "takes memory in its call": {"call": "[bytearray(2**28) for _ in range(10**6)]"},
    "prints in its call": {"call": "print('\\x1b[2J' * 99)"},
    "leaves threads in its call": {
        "call": "threading.Thread(target=time.sleep, args=(9e9,)).start()"
    },
    "stops in its call": {"call": "os.kill(os.getpid(), signal.SIGSTOP)"},
    "algorithm with a surrogate": {"built": "call.algorithm = '\\ud800=1'"},
    "algorithm of 200,000 characters": {"built": "call.algorithm = 'x' * 200_000"},
    "algorithm as a number": {"built": "call.algorithm = 10**400"},
    "resources as a number": {"built": "call.resources = 5"},
    "resources as a function": {"built": "call.resources = lambda: 1"},
    "negative registers": {"built": "call.resources = Resources(-1, 0, 0, 0)"},
    "registers as text": {"built": "call.resources = Resources('x', 10**30, 0, 0)"},
}
"""Functions that a description builds."""

KERNELS = {
    "source without end": "file='/dev/zero'",
    "source that is a folder": "file='.'",
    "kernel with braces": "kernel='{nope}{0}{'",
    "signature of 10⁵ parameters": "kernel='mine', signature='int M, ' * 10**5",
    "grid of 10³⁰ blocks": "grid=10**30",
    "grid that is a power": "grid='N' + '*N' * 99",
    "negative block": "block=(-1, 'M*0-5')",
    "compiler that removes": "compiler='rm'",
    "options of a shell": "compile_options=('; rm -rf x', '-o/x', '\\ud800')",
    "launch without end": "grid=(), block=(), launch=lambda t, p: sum(iter(int, 1))",
    "launch as text": "grid=(), block=(), launch=lambda t, p: 'x'",
    "negative launch": "grid=(), block=(), launch=lambda t, p: Launch(grid=(-1,), block=(10**30,))",
    "launch of launches": (
        "grid=(), block=(), launch=lambda t, p: Launch(grid=(1,), block=(1,), next_launches=(7,))"
    ),
    "reuse of zero": "reuse=lambda tile: (0, -1)",
    "specialize ends": "specialize=lambda *a: os._exit(0)",
    "tiles without end": "auto_tiles=lambda *a: ['x'] * 10**6",
}
"""Fields of a CUDA kernel."""


def cases() -> dict[str, tuple[str, bool]]:
    """Return each description by name, and whether it is a CUDA kernel."""
    parts = dict.fromkeys(("building", "call", "built"), "pass")
    python = HEAD + PYTHON
    found = {
        name: (f"{HEAD}{before}\n{PYTHON.format(**parts, fields='')}", False)
        for name, before in BEFORE.items()
    }
    found |= {name: (python.format(**parts, fields=text), False) for name, text in FIELDS.items()}
    found |= {
        name: (python.format(**parts | changed, fields=""), False)
        for name, changed in CALLS.items()
    }
    return found | {name: (HEAD + CUDA.format(fields=text), True) for name, text in KERNELS.items()}


def problems(text: str, *, is_cuda: bool) -> list[str]:
    """Run the commands on a description; return what they did that they must not do."""
    found: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "own").mkdir()
        listing = ("variants", "mine", "--kernels", "own", "--device", "cuda" if is_cuda else "cpu")
        for command in (listing, EXPLAIN if is_cuda else SWEEP):
            (folder / "own/mine.py").write_text(text, encoding="utf-8")
            (folder / "own/mine.cu").write_text(SOURCE, encoding="utf-8")
            ended = child((*GPUBENCH, *command), cwd=folder, timeout_s=LIMIT_S, err=subprocess.PIPE)
            found += [f"{command[0]}: {why}" for why in wrong(ended.code, ended.out, ended.err)]
            if ended.code in {0, 1} and command[0] == "sweep":
                statuses = {row.status for row in read(folder / "a.csv") if row.variant == "mine"}
                if not statuses or (ended.code == 0) != (statuses <= {"ok", "skipped"}):
                    found.append(f"sweep: exit code {ended.code} with {statuses or 'no row'}")
                shown = child((*GPUBENCH, "show", "a.csv"), cwd=folder, err=subprocess.PIPE)
                found += [f"show: {why}" for why in wrong(shown.code, shown.out, shown.err)]
    return found


def wrong(code: int | None, out: str, err: str) -> list[str]:
    """Return what is wrong with the end of a command."""
    lines = err.strip().splitlines()
    last = lines[-1] if lines else ""
    return [
        what
        for what, holds in {
            f"no end within {LIMIT_S:g} s": code is not None,
            f"exit code {code}: {last[:200]}": code in {None, 0, 1, 2},
            f"a traceback: {last[:200]}": "Traceback" not in err,
            "control characters": not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", out + err),
            f"no line of gpubench: {last[:200]!r}": code in {None, 0, 1}
            or "gpubench: " in last[:10],
            f"a line of {len(last)} characters": len(last) < LONGEST_LINE,
        }.items()
        if not holds
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="descriptions whose name has this text")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=Path("descriptions.json"))
    asked = parser.parse_args()
    chosen = {name: case for name, case in cases().items() if asked.only in name}
    with ThreadPoolExecutor(asked.processes) as pool:
        outcomes = pool.map(lambda case: problems(case[0], is_cuda=case[1]), chosen.values())
        found = []
        for name, problem in zip(chosen, outcomes, strict=True):
            found.append({"description": name, "problems": problem})
            print(f"{name}: {'; '.join(problem) or 'a line'}", flush=True)
    save(asked.output, found)
    failed = sum(bool(one["problems"]) for one in found)
    print(f"{len(found)} descriptions, {failed} findings")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
