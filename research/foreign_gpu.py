"""Time kernels of other repositories beside cuBLAS, and some by Nsight Compute. Needs a GPU.

    python research/foreign_gpu.py CHECKOUTS --own DIR -o results/h200/foreign.csv

`new-kernel --from` writes descriptions into DIR, one for each kernel of `foreign_kernels.csv` whose
source is in CHECKOUTS. Descriptions that are already in DIR are kept. No description is edited.
Each kernel is compiled, and then swept at `--sizes` in its first dtype, beside cuBLAS in the same
dtype, in one round. The first kernels of all repositories are swept first, then the second kernels,
and so on. With `--gpus 2`, two GPUs share the sweeps. Before `--limit-s` is over, the sweeps are
interrupted. Points that were not measured until then have no row, and neither have kernels that
were not compiled. `--without FILE…` leaves out the kernels of earlier files.

Nsight Compute profiles the first PROFILED kernels in a process that times them with hot operands
(`compare_with_profiler.py`). `ratio` is the time by gpubench over the time by Nsight Compute, for
kernels with one launch. `hot_mhz` and `ncu_mhz` are the clock frequencies. Exits with 2 if no sweep
has rows.
"""

import csv
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from queue import Queue
from time import perf_counter

from common import GPUBENCH, child, csv_rows, parser
from compare_with_profiler import Line, profiled
from foreign import TABLE, compiled, described

from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.model import Variant
from gpubench.plan.registry import of_op

PROFILED, PROFILED_SIZE = 15, "2048"
TOGETHER = 12  # maximum number of kernels per sweep; each sweep also runs cuBLAS
PROFILED_TOGETHER = 5  # maximum number of kernels per run of Nsight Compute; an error costs a run
COMPILE_S = 75  # the sweeps start after this time; kernels that compile for longer are swept last
PROFILE_S = 75  # part of the time limit that is reserved for Nsight Compute
START_S = 15  # minimum time for a sweep, whose processes need a few seconds to start
END_S = 15  # time that an interrupted sweep has to write its rows
COLUMNS = (
    "repository", "file", "function", "kernel", "op", "n", "dtype", "compute_mode", "status",
    "gpubench_us", "percent_of_cublas", "host_us", "ncu_us", "ratio", "hot_mhz", "ncu_mhz",
    "reason_or_note",
)  # fmt: skip
Rows = Sequence[Mapping[str, str]]
Table = Mapping[str, Mapping[str, str]]
"""Maps the name of a kernel to the kernel's row of `foreign_kernels.csv`."""


def swept(
    op: str,
    dtype: str,
    names: Sequence[str],
    *,
    sizes: str,
    own: Path,
    gpus: Queue[int],
    end: float,
) -> list[dict[str, str]]:
    """Return the rows of a sweep of described kernels beside cuBLAS, on the next free GPU.

    When the clock reaches `end`, the sweep is interrupted, and writes the rows that it has.
    """
    output = own / f"{op}_{dtype}_{names[0]}.csv"
    output.unlink(missing_ok=True)  # rows of an earlier call are not results of this sweep
    command = [*GPUBENCH, "sweep", "--device", "cuda", "--op", op, "--kernels", str(own)]
    command += ["--variants", ",".join((*names, "cublas")), "--sizes", sizes, "--dtypes", dtype]
    command += ["--rounds", "1", "--launch-limit", "1", "--point-limit", "40"]
    command += ["--force", "-o", str(output)]
    gpu = gpus.get()
    try:
        left_s = end - perf_counter()
        if left_s < START_S:
            print("not swept, because the time is over:", *names, flush=True)
            return []
        limit = ("timeout", "--foreground", f"--kill-after={END_S}", f"{left_s:.0f}")
        child((*limit, *command), out=sys.stdout, CUDA_VISIBLE_DEVICES=str(gpu))
    finally:
        gpus.put(gpu)
    if not output.exists():
        return []  # the sweep was refused, or killed
    return csv_rows(output)


def in_turns(table: Table) -> list[str]:
    """Return the names of kernels: the first kernels of all repositories, then the second ones."""
    counts, places = Counter[str](), dict[str, int]()
    for name, row in table.items():
        places[name] = counts[row["repository"]]
        counts[row["repository"]] += 1
    return sorted(table, key=lambda name: places[name])


def described_variants(table: Table, own: Path) -> dict[str, Variant]:
    """Return the described kernels by name. Print why a description cannot be read."""
    variants = dict[str, Variant]()
    for name in in_turns(table):
        op = table[name]["operation"]
        try:
            if (own / op / f"{name}.py").exists():
                variants[name] = of_op(op, own, [name])[name]
        except UsageError as error:
            print(name, error, sep=": ", flush=True)
    return variants


def sweeps_of(names: Sequence[str], table: Table) -> list[tuple[str, str, list[str]]]:
    """Return the operation, the dtype and the kernels of each sweep.

    The first sweeps of all operations and dtypes come first.
    """
    kinds = grouped(names, lambda x: (table[x]["operation"], table[x]["dtypes"].split()[0]))
    return [
        (op, dtype, part)
        for first in range(0, len(names), TOGETHER)
        for (op, dtype), chosen in kinds.items()
        if (part := chosen[first : first + TOGETHER])
    ]


def profiles_of(rows: Rows, table: Table, end: float) -> dict[tuple[str, str], Line]:
    """Profile right kernels by Nsight Compute until `end`. Return lines by kernel and size."""
    order = in_turns(table)
    right = [
        Line(table[row["variant"]]["dtypes"].split()[0], row["variant"], row["tile"], row["m"])
        for row in rows
        if row["variant"] in table and row["op"] == "gemm" and row["status"] == "ok"
        and row["m"] == PROFILED_SIZE and row["launches"] == "alone"
    ]  # fmt: skip
    right = sorted(right, key=lambda line: order.index(line.variant))[:PROFILED]
    profiles = dict[tuple[str, str], Line]()
    for first in range(0, len(right), PROFILED_TOGETHER):
        if (left_s := end - perf_counter()) < START_S:
            break
        try:
            lines = profiled(right[first : first + PROFILED_TOGETHER], left_s).values()
        except (OSError, ValueError) as error:  # no log, or a log without some of the kernels
            print(f"Nsight Compute: {error}", flush=True)
            continue
        profiles |= {(line.variant, line.n): line for line in lines if line.ncu_us}
    return profiles


def main() -> int:
    options = parser(__doc__, "foreign.csv")
    options.add_argument("checkouts", type=Path)
    options.add_argument("--own", type=Path, default=Path("own"))
    options.add_argument("--processes", type=int, default=os.cpu_count() or 8)
    options.add_argument("--gpus", type=int, default=1, help="number of GPUs that share the sweeps")
    options.add_argument("--sizes", default="1000,2048,4096")
    options.add_argument(
        "--without", type=Path, nargs="+", default=[], help="leave out kernels of earlier files"
    )
    options.add_argument("--limit-s", type=float, default=1800, help="time limit in seconds")
    chosen = options.parse_args()
    end = perf_counter() + chosen.limit_s
    numbered = {f"f{number:03d}": row for number, row in enumerate(csv_rows(TABLE), 1)}
    done = {row["kernel"] for earlier in chosen.without for row in csv_rows(earlier)}
    table = {
        name: row
        for name, row in numbered.items()
        if (chosen.checkouts / row["repository"].partition("/")[2] / row["file"]).is_file()
        and row["dtypes"]
        and name not in done
    }
    pool = ThreadPoolExecutor(chosen.processes)
    new = [name for name, row in table.items()
           if not (chosen.own / row["operation"] / f"{name}.py").exists()]  # fmt: skip
    said = pool.map(lambda name: described(table[name], chosen.checkouts, chosen.own, name), new)
    for name, answer in zip(new, said, strict=True):
        print(name, table[name]["file"], answer["says"], sep=" | ", flush=True)
    variants = described_variants(table, chosen.own)
    builds = {name: pool.submit(compiled, variant) for name, variant in variants.items()}
    built, _ = wait(builds.values(), COMPILE_S)
    failed = {name: error for name, build in builds.items() if build in built
              if (error := build.result()[1])}  # fmt: skip
    for name, error in failed.items():
        print(name, error, sep=": ", flush=True)
    names = [name for name in builds if name not in failed]
    names.sort(key=lambda name: builds[name] not in built)
    print(f"{len(built) - len(failed)} of {len(builds)} kernels compiled", flush=True)
    gpus: Queue[int] = Queue()
    for gpu in range(chosen.gpus):
        gpus.put(gpu)
    rows: list[dict[str, str]] = []
    sweep = partial(
        swept, sizes=chosen.sizes, own=chosen.own, gpus=gpus, end=end - PROFILE_S - END_S
    )
    with ThreadPoolExecutor(chosen.gpus) as sweeping:
        for ended in [sweeping.submit(sweep, *each) for each in sweeps_of(names, table)]:
            rows += ended.result()
            write(rows, table, {}, chosen.output)
    pool.shutdown(wait=False, cancel_futures=True)
    os.environ["KERNELS"] = str(chosen.own)
    write(rows, table, profiles_of(rows, table, end), chosen.output)
    return 0 if rows else 2  # 2: no file of results was made


def write(rows: Rows, table: Table, profiles: Mapping[tuple[str, str], Line], output: Path) -> None:
    """Write the rows of sweeps, with the profiler's durations."""
    with output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator=os.linesep)
        writer.writeheader()
        for row in rows:
            source = table.get(row["variant"], {})
            measured: dict[str, str] = {}
            profile = profiles.get((row["variant"], row["m"]))
            if profile and profile.gpubench_us and profile.ncu_us:
                measured["ncu_us"] = f"{profile.ncu_us:.2f}"
                measured["ratio"] = f"{profile.gpubench_us / profile.ncu_us:.4f}"
                measured["hot_mhz"] = f"{profile.gpubench_mhz or 0:.0f}"
                measured["ncu_mhz"] = f"{profile.ncu_mhz or 0:.0f}"
            writer.writerow(
                {name: source.get(name, "") for name in COLUMNS[:3]}
                | {name: row[name] for name in ("op", "dtype", "compute_mode", "status", "host_us")}
                | {"kernel": row["variant"], "n": row["m"], "gpubench_us": row["median_us"]}
                | {"percent_of_cublas": row["percent_of_blas"]}
                | measured
                | {"reason_or_note": row["reason"] or row["notes"]}
            )


if __name__ == "__main__":
    sys.exit(main())
