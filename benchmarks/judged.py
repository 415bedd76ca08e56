"""Judge ten honest and ten cheating functions twice: each must have its verdict both times.

    python benchmarks/judged.py [--rounds 9]    # any options of judge

Needs no GPU. The problem is small: on a busy machine a launch of milliseconds waits for a core, and
its verdict is then `not decided`. The claim is a fifth of the BLAS's speed. A cheat must be wrong,
and the false claim slower. An honest function is right, so its speed must be decided, by the same
verdict twice.
Exit status: 0 all verdicts are as expected, 1 one is not.
"""

import json
import sys
import tempfile
from pathlib import Path

from shared import GPUBENCH, child, verdict

FILE = """
import gc, sys, threading, time
import numpy as np
from gpubench.model import CallVariant

kept, calls, rng = {{}}, [], np.random.default_rng()

def slow(a, b, c):
    for _ in range(12):
        np.matmul(a, b, out=c)

def call(a, b, c):
    m, n, k = len(a), b.shape[1], len(b)
    {body}

VARIANT = CallVariant(
    idea="a test of judge", runs_on="cpu", threads=1, build=lambda _tile, _dtype: call,
    dtypes=("float32",), baseline="cpu_blas")
"""
HONEST = {
    "writes_into_c": "np.matmul(a, b, out=c)",
    "copies_the_product": "c[:] = a @ b",
    "calls_dot": "np.dot(a, b, out=c)",
    "transposes": "np.matmul(b.T, a.T, out=c.T)",
    "splits_rows": "for i in range(0, m, 64): np.matmul(a[i:i+64], b, out=c[i:i+64])",
    "splits_columns": "c[:, :n//2] = a @ b[:, :n//2]; c[:, n//2:] = a @ b[:, n//2:]",
    "splits_k": "np.matmul(a[:, :k//2], b[:k//2], out=c); c += a[:, k//2:] @ b[k//2:]",
    "keeps_a_workspace": """
    space = kept.setdefault((m, n), np.empty((m, n), np.float32))
    np.matmul(a, b, out=space)
    c[:] = space""",
    "takes_einsum": "c[:] = np.einsum('ik,kj->ij', a, b, optimize=True)",
    "sums_in_float64": "c[:] = a.astype(np.float64) @ b.astype(np.float64)",
}
CHEATS = {
    "false_claim": "slow(a, b, c)",
    "stale_operands": """
    old = kept.setdefault((a.ctypes.data, b.ctypes.data, m, n, k), (a.copy(), b.copy()))
    np.matmul(*old, out=c)""",
    "stale_results": """
    name = a.ctypes.data, float(a[0, 0]), float(b[0, 0])
    if name not in kept:
        slow(a, b, c)
        kept[name] = c.copy()
    c[:] = kept[name]""",
    "rounds_operands": """
    cut = lambda x: (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    np.matmul(cut(np.ascontiguousarray(a)), cut(np.ascontiguousarray(b)), out=c)""",
    "loses_the_last_product": "np.matmul(a[:, :-1], b[:-1], out=c)",
    "leaves_random_columns": """
    part = rng.permutation(n)[: n - n // 8]
    c[:, part] = a @ b[:, part]""",
    "returns_early": """
    def later():
        time.sleep(0.001)
        np.matmul(a, b, out=c)
    threading.Thread(target=later).start()""",
    "computes_where_c_is_not_finite": """
    rows = ~np.isfinite(c).all(axis=1) | (rng.random(m) < 0.5)
    c[rows] = a[rows] @ b""",
    "divides_the_times": """
    if not calls:
        calls.append(1)
        from gpubench.backends.cpu import backend
        for kind in [x for x in vars(backend).values() if isinstance(x, type)]:
            if hasattr(kind, "_time"):
                kind._time = (lambda old: lambda *x: old(*x) / 20)(kind._time)
    slow(a, b, c)""",
    "computes_for_others_only": """
    frame, names = sys._getframe(), set()
    while frame:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    name = a.ctypes.data, b.ctypes.data, float(a[0, 0])
    if "sample" in names and name in kept:
        c[:] = kept[name]
    else:
        slow(a, b, c)
        kept[name] = c.copy()""",
}
FLAGS = ("--device", "cpu", "--sizes", "96x80x112", "--claim", "0.2", "--json")


def expected(name: str) -> set[str]:
    """Return the verdicts that are right for a function."""
    if name in HONEST:
        return {"faster", "same", "slower"}
    return {"slower" if name == "false_claim" else "wrong"}


def main() -> int:
    """Judge all functions twice, print a line for each, and return the exit status."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, body in (HONEST | CHEATS).items():
            (folder / f"{name}.py").write_text(FILE.format(body=body.strip()))
        judge = (*GPUBENCH, "judge", "--kernels", folder, *FLAGS, *sys.argv[1:], "--output")
        runs = [child((*judge, folder / f"{run}.csv")).out for run in "ab"]
    both = [{row["variant"]: row for row in json.loads(out)["verdicts"]} for out in runs]
    holds = []
    for name in HONEST | CHEATS:
        first, second = (rows[name] for rows in both)
        is_right = first["verdict"] == second["verdict"] in expected(name)
        ratios = [round(row["ratio"], 2) for row in (first, second) if row["ratio"]]
        what = f"{name}: {first['verdict']}, {second['verdict']} {ratios} {second['reason']}"
        holds.append(verdict(is_right, what))
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
