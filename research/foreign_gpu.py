"""Time kernels of other repositories beside cuBLAS, and some by Nsight Compute. Needs a GPU.

    python research/foreign_gpu.py CHECKOUTS --own DIR -o results/h200/foreign.csv

`new-kernel --from` writes descriptions into DIR, one for each kernel of `foreign_kernels.csv` whose
source is in CHECKOUTS. No description is edited. Each kernel is swept at SIZES in its first dtype,
beside cuBLAS in the same dtype, in one round. Nsight Compute profiles the first PROFILED kernels in
a process that times them with hot operands (`compare_with_profiler.py`). `ratio` is the time by
gpubench over the time by Nsight Compute, for kernels with one launch. With `--gpus 2`, two GPUs
share the sweeps.
"""

import csv
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Queue

from common import GPUBENCH, child, parser
from compare_with_profiler import Line, profiled
from foreign import TABLE, described

from gpubench.grouping import grouped

SIZES = "1000,2048,4096"
PROFILED, PROFILED_SIZE = 8, "2048"
TOGETHER = 12  # maximum number of kernels per sweep; each sweep also runs cuBLAS
COLUMNS = (
    "repository", "file", "function", "kernel", "op", "n", "dtype", "compute_mode", "status",
    "gpubench_us", "percent_of_cublas", "host_us", "ncu_us", "ratio", "reason_or_note",
)  # fmt: skip


def swept(
    op: str, dtype: str, names: Sequence[str], own: Path, gpus: Queue[int]
) -> list[dict[str, str]]:
    """Return the rows of a sweep of described kernels beside cuBLAS, on the next free GPU."""
    output = own / f"{op}_{dtype}_{names[0]}.csv"
    output.unlink(missing_ok=True)  # rows of an earlier call are not results of this sweep
    command = [*GPUBENCH, "sweep", "--device", "cuda", "--op", op, "--kernels", str(own)]
    command += ["--variants", ",".join((*names, "cublas")), "--sizes", SIZES]
    command += ["--dtypes", dtype, "--rounds", "1", "--force", "-o", str(output)]
    gpu = gpus.get()
    try:
        ended = child(command, out=sys.stdout, CUDA_VISIBLE_DEVICES=str(gpu))
    finally:
        gpus.put(gpu)
    if ended.code and not output.exists():
        return []  # cuBLAS has no product in this dtype
    with output.open(newline="", encoding="utf-8") as lines:
        return [*csv.DictReader(lines)]


def main() -> int:
    options = parser(__doc__, "foreign.csv")
    options.add_argument("checkouts", type=Path)
    options.add_argument("--own", type=Path, default=Path("own"))
    options.add_argument("--processes", type=int, default=8)
    options.add_argument("--gpus", type=int, default=1, help="number of GPUs that share the sweeps")
    chosen = options.parse_args()
    with TABLE.open(newline="", encoding="utf-8") as lines:
        table = [*csv.DictReader(lines)]
    by_name = {
        f"f{number:03d}": row
        for number, row in enumerate(table, 1)
        if (chosen.checkouts / row["repository"].partition("/")[2] / row["file"]).is_file()
        and row["dtypes"]
    }
    with ThreadPoolExecutor(chosen.processes) as pool:
        said = pool.map(
            lambda name: described(by_name[name], chosen.checkouts, chosen.own, name), by_name
        )
        for name, answer in zip(by_name, said, strict=True):
            print(name, by_name[name]["file"], answer["says"], sep=" | ", flush=True)
    rows: list[dict[str, str]] = []
    kinds = grouped(by_name, lambda x: (by_name[x]["operation"], by_name[x]["dtypes"].split()[0]))
    sweeps = list[tuple[str, str, list[str]]]()
    for (op, dtype), names in kinds.items():
        written = [name for name in names if (chosen.own / op / f"{name}.py").exists()]
        firsts = range(0, len(written), TOGETHER)
        sweeps += ((op, dtype, written[first : first + TOGETHER]) for first in firsts)
    gpus: Queue[int] = Queue()
    for gpu in range(chosen.gpus):
        gpus.put(gpu)
    with ThreadPoolExecutor(chosen.gpus) as pool:
        of_sweeps = partial(swept, own=chosen.own, gpus=gpus)
        for done in pool.map(of_sweeps, *zip(*sweeps, strict=True)):
            rows += done
            write(rows, by_name, {}, chosen.output)
    os.environ["KERNELS"] = str(chosen.own)
    right = [
        Line(by_name[row["variant"]]["dtypes"].split()[0], row["variant"], row["tile"], row["m"])
        for row in rows
        if row["variant"] in by_name and row["op"] == "gemm" and row["status"] == "ok"
        and row["m"] == PROFILED_SIZE and row["launches"] == "alone"
    ]  # fmt: skip
    profiles = profiled(right[:PROFILED]).values() if right else ()
    by_case = {(each.variant, each.n): each for each in profiles if each.ncu_us}
    write(rows, by_name, by_case, chosen.output)
    return 0


def write(
    rows: Sequence[Mapping[str, str]],
    by_name: Mapping[str, Mapping[str, str]],
    profiles: Mapping[tuple[str, str], Line],
    output: Path,
) -> None:
    """Write the rows of sweeps, with the profiler's durations."""
    with output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator=os.linesep)
        writer.writeheader()
        for row in rows:
            source = by_name.get(row["variant"], {})
            times: dict[str, str] = {}
            profile = profiles.get((row["variant"], row["m"]))
            if profile and profile.gpubench_us and profile.ncu_us:
                times["ncu_us"] = f"{profile.ncu_us:.2f}"
                times["ratio"] = f"{profile.gpubench_us / profile.ncu_us:.4f}"
            writer.writerow(
                {name: source.get(name, "") for name in COLUMNS[:3]}
                | {name: row[name] for name in ("op", "dtype", "compute_mode", "status", "host_us")}
                | {"kernel": row["variant"], "n": row["m"], "gpubench_us": row["median_us"]}
                | {"percent_of_cublas": row["percent_of_blas"]}
                | times
                | {"reason_or_note": row["reason"] or row["notes"]}
            )


if __name__ == "__main__":
    sys.exit(main())
