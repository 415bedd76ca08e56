"""How each file of results/ is made: tasks for doit (https://pydoit.org).

    doit list --all --status          # R: the task must run, U: its files are up to date
    doit commit=0123456789ab gpu:main # measure; the commit is needed only where there is no git
    doit pages                        # fill the tables of all pages, and draw the pictures

`pyproject.toml` has the path of this file for doit. A task runs its command in
build/measured/TASK, where files have the same paths as in results/. In paths, CARD stands for the
folder of this machine's GPU. `gpubench diff` then compares each new CSV with the CSV that it
replaces, and the outcome is appended to build/measured/changes.txt, for the commit message. If the
other GPU's folder has the same file, that file is removed, because only the last measurement of a
task is kept. A task is out of date if its command, its script or any file of the package changed.

`doit -n 8 gpu:right_float32 gpu:stress_int8` runs up to eight tasks at the same time. Use it only
for tasks that measure no time.
"""

import csv
import fcntl
import gzip
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # doit loads this file without its directory

from common import ALONE_DTYPES, ALONE_SEEDS, CARDS, FOREIGN, GPUBENCH, ROOT, child
from doit import get_var
from doit.tools import config_changed

from gpubench import model
from gpubench.model import DTYPES
from gpubench.results.provenance import package_version

DOIT_CONFIG = {
    "backend": "json",
    "dep_file": "results/doit.json",
    "default_tasks": [],
    "verbosity": 2,
}
RESULTS, SCRATCH = ROOT / "results", ROOT / "build" / "measured"
MEASURED = RESULTS / "measured.csv"
QUERY = ("nvidia-smi", "--query-gpu=uuid,name,driver_version", "--format=csv,noheader")
GPUS = [
    line.split(", ", 1)
    for line in (child(QUERY).out.splitlines() if shutil.which(QUERY[0]) else ())
]
"""UUID, and name with driver version, of each GPU of this machine."""

CARD = next((card for card in CARDS if GPUS and card.upper() in GPUS[0][1]), CARDS[0])
"""The folder of results/ for this machine's GPU."""

LIMIT_S = 36_000
"""Time limit of one command in seconds. `cpu:ab` takes longest, eight hours."""

WRITES_FILES = {0, 1, 3}
"""Exit codes of commands that wrote all files. 1 and 3 mean that a bound is missed."""

CRASHED = re.compile(r"^Traceback \(most recent call last\)", re.MULTILINE)
"""Line in the output of a Python program that failed. Its exit code 1 does not mean a missed bound.
In the output of a described kernel, the kernel's name is before this text."""


def step(name: str, command: str, *more: str) -> dict[str, Any]:
    """Return a task of doit. `more` names files that follow neither `-o` nor `--output` nor `>`.

    `gpubench` and `python` in the command are the programs of this environment, `SCRIPTS` is the directory
    of this file, and `CARD` in a path is the folder of this machine's GPU. If `more` has `x.gz`,
    the command writes `x`, which is then compressed.
    """
    command = command.replace("CARD/", f"{CARD}/")
    words = command.split()
    written = [words[at + 1] for at, word in enumerate(words) if word in {"-o", "--output", ">"}]
    of_card = [name.replace("CARD/", f"{CARD}/") for name in more]
    files = [*(name for name in written if f"{name}.gz" not in of_card), *of_card]
    scripts = [word.replace("SCRIPTS", "research") for word in words if "SCRIPTS" in word]
    return {
        "name": name.partition(":")[2],
        "doc": command,
        "actions": [(measure, [name, command, files])],
        "targets": [f"results/{file}" for file in files],
        "file_dep": scripts,
        "uptodate": [config_changed({"command": command, "package": package_version()[0]})],
    }


def measure(name: str, command: str, files: Sequence[str]) -> bool:
    """Run a command, compare the new files with files of results/, and replace the old files.

    Return whether the command succeeded and wrote all files.
    """
    commit = get_var("commit") or package_version()[1]
    if commit is None:
        print(
            "git is missing here: state the commit of this tree: doit commit=0123456789ab gpu:main"
        )
        return False
    folder = SCRATCH / name.replace(":", "_")
    shutil.rmtree(folder, ignore_errors=True)
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
    programs = (
        f'gpubench() {{ python -m gpubench "$@"; }}\nPATH={Path(sys.executable).parent}:$PATH\n'
    )
    script = programs + command.replace("SCRIPTS", str(ROOT / "research"))
    with (folder / "log.txt").open("w") as log:
        ended = child(("bash", "-c", script), cwd=folder, timeout_s=LIMIT_S, out=log, err=log)
    for file in files:
        if (plain := folder / file.removesuffix(".gz")).exists():
            # Saved files must not contain paths of this machine.
            content = plain.read_bytes().replace(f"{ROOT}/".encode(), b"")
            packed = gzip.compress(content, mtime=0) if file.endswith(".gz") else content
            (folder / file).write_bytes(packed)
    said = (folder / "log.txt").read_text()
    complete = not CRASHED.search(said) and all((folder / file).exists() for file in files)
    print(f"{name}: exit {ended.code} after {ended.wall_s:.0f} s")
    if ended.code not in WRITES_FILES or not complete:
        print(said[-2000:])
        return False
    for file in files:
        replace(RESULTS / file, folder / file)
        for card in CARDS:
            if file.startswith(f"{CARD}/") and card != CARD:
                (RESULTS / card / file.removeprefix(f"{CARD}/")).unlink(missing_ok=True)
    record(name, commit, round(ended.wall_s, 1), files)
    return True


def replace(old: Path, new: Path) -> None:
    """Compare a file of results/ with its new version by `gpubench diff`, and replace it."""
    if old.exists() and ".csv" in old.suffixes:
        said = child((*GPUBENCH, "diff", old, new), err=subprocess.STDOUT)
        text = f"{old.relative_to(RESULTS)}: gpubench diff: exit {said.code}\n{said.out}\n"
        print(text)
        with (SCRATCH / "changes.txt").open("a") as changes:
            changes.write(text.replace(str(SCRATCH), "new").replace(f"{ROOT}/", ""))
    old.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(new, old)


def record(name: str, commit: str, wall_s: float, files: Sequence[str]) -> None:
    """Write a task's machine, date, commit, duration and files into results/measured.csv."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = visible.split(",") if visible else [uuid for uuid, _ in GPUS]
    gpus = [gpu for index, gpu in enumerate(GPUS) if {str(index), gpu[0]} & {*chosen}]
    row: dict[str, object] = {
        "task": name,
        "machine": f"{len(gpus)} × {gpus[0][1]}" if gpus else f"{os.cpu_count()} CPUs",
        "gpu_uuids": " ".join(uuid for uuid, _ in gpus),
        "utc": f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        "commit": commit,
        "wall_s": wall_s,
        "files": " ".join(files),
    }
    with MEASURED.open("r+", newline="", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # tasks may run at the same time
        rows = {each["task"]: each for each in csv.DictReader(file)} | {name: row}
        file.seek(0)
        file.truncate()
        writer = csv.DictWriter(file, row, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[task] for task in sorted(rows))


SWEEP = "gpubench sweep --device cuda"
COLD = "XDG_CACHE_HOME=$PWD/cold"
"""A variable that makes gpubench use an empty cache of compiled kernels."""

MAIN = "--sizes 1024,2048 --tiles 1..32"
CLAIMS = {"sgemm-cuda": "SGEMM_CUDA", "fast-cu": "fast.cu", "cuda-l2": "CUDA-L2"}
"""Maps an experiment with claims of other people to the folder with these people's checkout."""

EXPERIMENTS = ("blog-2009", "double-tile", "lecture-sdk", "p100-tiles", "titan-atax", "reproduce")
RIVALS = ("bfloat16", "float16", "tf32", "float32")
TENSOR_CORE_DTYPES = ("bfloat16", "float16", "float8_e4m3", "int8")
FEW_ROWS = {dtype: seed for seed, dtype in enumerate(ALONE_DTYPES, 731) if dtype != "tf32"}
"""Maps a precision to the seed of the shapes of products with 1 to 64 rows. TF32 is left out,
because its library multiplies a single row in float32."""

SOME_ROWS = {dtype: seed for seed, dtype in enumerate(TENSOR_CORE_DTYPES, 1031)}
LARGE = {dtype: seed for seed, dtype in enumerate(TENSOR_CORE_DTYPES, 1041)}
"""Seeds of products with 65 to 383 rows, and of products with extents of 4096 to 16384."""

CLUSTERS = {
    "float64": "dmma_split_cluster",
    "float32": "splitk_cluster",
    "int8": "wgmma_bytes_cluster",
    "tf32": "wgmma_tf32_cluster",
    "bfloat16": "wgmma_fitted,wgmma_pingpong,wgmma_split_cluster",
}
"""Kernels that divide K among the blocks of a cluster, by dtype."""

ODD_SIZES = "129x261x77,67x3x129,201x271x1041"

SIXTEEN_BITS = "--sizes 2048,4096,8192 --variants wgmma_mixed,wgmma_deferred"
SQUARES = {
    "bfloat16": SIXTEEN_BITS,
    "float16": SIXTEEN_BITS,
    "tf32": "--sizes 2048,4096,8192 --variants wgmma_tf32_cluster,wgmma_tf32_wide",
    "float8_e4m3": "--sizes 4096,8192 --variants wgmma_mixed_bytes",
    "int8": "--sizes 4096,8192 --variants wgmma_mixed_bytes",
    "float32": "--sizes 4096,8192 --variants packed_panels",
    "float64": "--sizes 4096,8192 --variants dmma,dmma_split_cluster",
}
"""Options for squares that are compared in pairs: the sizes, and the kernels that were fastest at
squares before."""

OPERATIONS = (
    *((op, "bfloat16") for op in ("gemm_bias", "gemm_relu", "gemm_gelu", "gemm_silu")),
    *((op, "bfloat16") for op in ("gemm_bias_residual", "gemm_gelu_residual", "gemm_batched")),
    *((op, "float16") for op in ("gemm_gelu", "gemm_batched")),
    ("gemm_scaled", "float8_e4m3"),
    *((op, "bfloat16") for op in ("gemm_grouped", "gemm_grouped_skewed")),
)
"""Pairs of an operation and a precision that are measured at random shapes, in addition to plain
products."""

OTHERS = tuple(op for op in model.OPERATIONS if op.startswith("gemm_"))
DTYPES_OF_OTHERS = ("float32", "float64", "tf32", "float16", "bfloat16", "float8_e4m3")
"""Operations beside plain products and products with vectors, and the precisions of their kernels."""

EXAMINED = {
    "epilogue": (
        "bfloat16 --op gemm_gelu_residual --variants fused_tile,wgmma_epilogue,wgmma_epilogue_pingpong",
        "136x264x144",
        "1000x1032x520",
    ),
    "batched": (
        "bfloat16 --op gemm_batched --variants batched_tile,wgmma_batched,wgmma_batched_pingpong",
        "3x136x264x144",
        "40x424x440x240",
    ),
    "grouped": (
        "bfloat16 --op gemm_grouped_skewed --variants grouped_tile,wgmma_grouped",
        "3x40x264x144",
        "8x200x1032x520",
    ),
    "scaled": (
        "float8_e4m3 --op gemm_scaled --variants scaled_tile,wgmma_scaled",
        "136x272x272",
        "1000x1040x1296",
    ),
}
"""Arguments of scripts for operations beside plain products: kernels, a size for compute-sanitizer,
and a larger size."""

SUSTAINED = {
    "gemm_gelu_residual": ("bf16", "cublas", "4096x4096x4096,8192x8192x2048,4096x14336x4096"),
    "gemm_batched": (
        "bf16",
        "cublas,torch_bmm",
        "64x1024x1024x1024,128x2048x2048x128,32x2048x1024x1024",
    ),
    "gemm_grouped": (
        "bf16",
        "cublas,torch_grouped_mm",
        "8x1024x4096x2048,32x256x2048x768,8x2048x4096x4096",
    ),
    "gemm_scaled": (
        "fp8",
        "cublaslt,torch_scaled_mm",
        "4096x7168x2048,8192x4096x7168,4096x2112x7168",
    ),
}
"""Maps an operation whose long runs are measured to a precision, libraries, and three large
sizes."""

ANY_ROWS = (
    f"wgmma_any_rows,{','.join(CLUSTERS[dtype] for dtype in CLUSTERS if dtype != 'bfloat16')}"
)
"""Kernels that accept rows of any length, and the float64 kernel, which requires rows with an even
number of elements."""

ODD_SHAPES = (
    "957x261x1185,3403x147x607,435x347x2673,3649x2075x547,2627x183x699,653x165x871,473x457x181,"
    "1293x205x145,2593x375x1067,1585x1791x3035,221x605x201,1547x281x319"
)
"""Random odd shapes (`shapes.py --seed 58 --odd 1`)."""

PARTS_SHAPES = (
    "1004x2588x1148,5524x1276x3856,2152x6204x7100,3040x3200x1508,1092x1344x3060,6844x3304x4188,"
    "1864x692x1892,6020x1160x7868,3708x4288x1304,6848x536x5124,2784x2612x1200,568x1152x1516,"
    "7680x448x3600,4224x716x820,1172x1648x832,1036x1772x4648"
)
"""Random shapes in float32 (`random_shapes(621, 16, 4)` of `shapes.py`)."""

FIRST_DTYPES = ("float32", "float64", "tf32", "bf16x6", "bfloat16", "int8", "float8_e4m3_split")
"""The precisions that kernels of block tiles name first."""

# fmt: off
SANITIZED = {
    **{f"memcheck_{dtype}": f"memcheck {dtype}" for dtype in DTYPES if dtype in FIRST_DTYPES},
    **{f"{tool}_float32": f"{tool} float32" for tool in ("racecheck", "synccheck")},
    **{f"memcheck_clusters_{dtype}": f"memcheck {dtype} --variants {kernels} --sizes 136x272x144,200x272x1040" for dtype, kernels in CLUSTERS.items()},
    **{f"racecheck_clusters_{dtype}": f"racecheck {dtype} --variants {kernels} --sizes 200x272x1040" for dtype, kernels in CLUSTERS.items()},
    **{f"{tool}_pingpong": f"{tool} bfloat16 --variants wgmma_pingpong --sizes 200x272x1040" for tool in ("memcheck", "racecheck")},
    **{f"{tool}_{name}": f"{tool} {kernels} --sizes {small}" for tool in ("memcheck", "racecheck") for name, (kernels, small, _) in EXAMINED.items()},
    **{f"{tool}_bytes_pingpong": f"{tool} int8 --variants wgmma_bytes_pingpong --sizes 136x264x144" for tool in ("memcheck", "racecheck")},
    **{f"memcheck_odd_{dtype}": f"memcheck {dtype} --variants {kernels} --sizes {ODD_SIZES}" for dtype, kernels in (CLUSTERS | {"bfloat16": "wgmma_any_rows"}).items() if dtype != "float64"},
}
"""Arguments of `sanitize.py` by task. A task without kernels runs all kernels whose first dtype is the
named dtype. Kernels in clusters also run at sizes where each block has several steps of K."""

SQUARES_IN_BURSTS = (1024, 1536, 2048, 3072, 4096, 4864, 6144, 6912, 7296, 8192)

LOST = {
    "bfloat16": (
        "4608x424x440,4168x1168x480,2576x1736x1408,6728x8576x11400,632x4728x776,5384x424x880,4512x448x6528",
        "273x9472x5616,379x10624x1488,206x1280x8352,265x1168x7024",
    ),
    "float16": (
        "7576x880x2120,1328x5376x2344,1520x1736x2416,6928x6312x9480,2760x672x3392,4016x1008x1216",
        "297x4416x11616,206x2496x2416,284x1024x13440,379x2368x2464,310x2032x16064",
    ),
    "float8_e4m3": (
        "576x544x2720,2064x1808x7264,15584x5440x6128,1728x1424x3104,2000x432x1056",
        "325x12384x8048,361x4720x6128,184x1408x15504",
    ),
    "tf32": ("616x5856x4752", ""),
    "float32": ("3404x560x428,1744x540x4296,844x400x4272,500x2092x524", ""),
}
"""Maps a precision to shapes at which the library is fastest: large or random shapes, and products
of 65 to 383 rows. Every candidate configuration is measured."""

SQUARES_BEHIND = "1024,4864"  # squares at which the library is fastest in bursts

COUNTERS = "gpu__time_duration.sum,sm__cycles_elapsed.max,lts__t_bytes.sum,dram__bytes.sum"

COUNTED = {
    **{
        dtype: f"--dtypes {dtype} --variants cublas,cublaslt,{own} --sizes {','.join(LOST[dtype])}"
        for dtype, own in (
            ("bfloat16", "wgmma_fitted,wgmma_pingpong"),
            ("float16", "wgmma_fitted,wgmma_pingpong"),
            ("float8_e4m3", "wgmma_bytes_cluster,wgmma_bytes_pingpong"),
        )
    },
    "squares": f"--dtypes bfloat16 --variants cublas,cublaslt,wgmma_* --sizes {SQUARES_BEHIND}",
    "batched": "--op gemm_batched --dtypes bfloat16 --variants cublas,torch_bmm,wgmma_batched,wgmma_batched_pingpong --sizes 18x424x440x240,86x216x184x120",
    "scaled": "--op gemm_scaled --dtypes fp8 --variants cublaslt,torch_scaled_mm,wgmma_scaled --sizes 1280x1296x7120,6992x2320x8080",
}
"""Options of sweeps with counters, at shapes where the library is fastest."""

SHAPES = {
    **{f"alone_{seed}_{dtype}": f"--seed {seed} --count 80 --dtype {dtype}" for dtype, seed in ALONE_SEEDS.items()},
    **{f"alone_small_{dtype}": f"--seed {seed} --count 30 --small --dtype {dtype}" for seed, dtype in enumerate(ALONE_DTYPES, 1011)},
    **{
        f"alone_odd_{multiple}_{dtype}": f"--seed {seed} --count 30 --odd {multiple} --dtype {dtype}"
        for first, multiple, dtypes in (
            (241, 1, ("bfloat16", "float16", "tf32", "float32")),
            (251, 2, ("bfloat16", "float16", "float64")),
            (261, 4, ("bfloat16", "float16", "int8")),
        )
        for seed, dtype in enumerate(dtypes, first)
    },
    **{f"alone_large_{dtype}": f"--seed {seed} --count 16 --large --dtype {dtype}" for dtype, seed in LARGE.items()},
    "alone_named_bfloat16": "--dtype bfloat16 --shapes 824x6320x672,5496x920x712,992x1816x1864,3048x1928x400,872x5608x6608,904x4592x672,416x1984x3920,416x3752x2184",
    "alone_named_float8_e4m3": "--dtype float8_e4m3 --shapes 832x1328x6816",
    **{f"alone_squares_{dtype}": f"--dtype {dtype} --shapes {','.join(f'{n}x{n}x{n}' for n in SQUARES_IN_BURSTS)}" for dtype in ("bfloat16", "float16", "float8_e4m3")},
    **{f"lost_{dtype}": f"--every --dtype {dtype} --shapes {shapes}" for dtype, (shapes, _) in LOST.items()},
    **{f"lost_rows_{dtype}": f"--every --some-rows --dtype {dtype} --shapes {rows}" for dtype, (_, rows) in LOST.items() if rows},
    **{f"alone_{seed}_{dtype}": f"--seed {seed} --count {count} --dtype {dtype}" for seed, count, dtype in ((401, 80, "bfloat16"), (404, 80, "tf32"), (17, 60, "bfloat16"), (18, 30, "float16"))},
    **{f"alone_{seed}_{dtype}": f"--seed {seed} --count 60 --dtype {dtype}" for seed, dtype in ((618, "bf16x6"), (619, "bf16x3"))},
    **{f"alone_{op}_{dtype}": f"--op {op} --seed {seed} --count 30 --graph --dtype {dtype}" for seed, (op, dtype) in enumerate(OPERATIONS, 961)},
    "gemm_batched_4242": "--op gemm_batched --seed 4242 --count 30",
    **{f"alone_every_{seed}_{dtype}": f"--seed {seed} --count 18 --every --dtype {dtype}" for seed, dtype in enumerate(("bfloat16", "float8_e4m3", "int8"), 531)},
    **{f"fit_11_{dtype}": f"--seed 11 --count 30 --dtype {dtype} --every" for dtype in ("float64", "float32")},
}
"""Arguments of `shapes.py` for each file. The first files have the shapes of the README's figures,
to which no constant was fitted. The next files have the shapes that the ladder names, squares, and
shapes that are lost. The last files have the shapes to which constants were fitted."""

SCALED = {
    "": (2, "wgmma_scaled,cublaslt,torch_scaled_mm", "128x256x128/s4/cluster=1x1/group=8,128x256x128/s4/cluster=2x1/group=8,128x192x128/s4/cluster=1x1/group=8,128x192x128/s4/cluster=2x1/group=8,128x128x128/s5/cluster=1x1/group=8,128x128x128/s5/cluster=2x1/group=8,64x256x128/s4/cluster=2x1/group=8", "4096x4096x7168,4096x7168x2048,4096x2112x7168,1024x7168x2048,2048x4096x4096"),
    "_few": (1, "wgmma_scaled,cublaslt", "128x128x128/s5/cluster=1x1/group=8,128x64x128/s7/cluster=1x1/group=8,64x256x128/s4/cluster=1x1/group=8,64x128x128/s7/cluster=1x1/group=8,64x64x128/s8/cluster=1x1/group=8,32x64x128/s8/cluster=1x1/group=8,16x64x128/s8/cluster=1x1/group=8,32x128x128/s8/cluster=1x1/group=8,48x64x128/s8/cluster=1x1/group=8", "16x7168x2048,64x7168x2048,128x4096x7168,256x2112x7168"),
}
"""Sweeps of products with scales at shapes of language models: rounds, kernels, tiles and sizes."""

REPEATED = {
    "few_rows_bfloat16": f"--few-rows --seed {FEW_ROWS['bfloat16']} --count 30 --dtype bfloat16",
    **{name: SHAPES[name] for name in ("alone_711_bfloat16", "alone_714_tf32", "alone_716_float32", "alone_gemm_gelu_residual_bfloat16")},
}
"""Arguments of `shapes.py` for the claims that are measured again on another GPU of the same kind."""

CHECKOUTS = "${CHECKOUTS:?a folder of checkouts}"
"""A variable of the user with the absolute path of a folder of checkouts."""

WITH_PROBLEMS = ("SOL-ExecBench", "flashinfer-bench", "reference-kernels", "KernelBench")
"""Projects whose problems are judged, by the names of their checkouts."""

ROUNDS = tuple(f"CARD/diff_rounds/0{seed}.csv.gz" for seed in (1, 2, 3, 4))


def _checkouts(names: Sequence[str]) -> str:
    """Return the paths of checkouts, separated by spaces."""
    return " ".join(f"{CHECKOUTS}/{name}" for name in names)


def task_gpu() -> Iterator[dict[str, Any]]:
    """Yield the tasks for one GPU."""
    yield step("gpu:deviceinfo", "gpubench deviceinfo --device cuda --measure --json > CARD/deviceinfo.json")
    yield step("gpu:selfcheck", "gpubench selfcheck > CARD/selfcheck.txt")
    yield step("gpu:main", f"{COLD} {SWEEP} {MAIN} -o CARD/main.csv")
    yield step("gpu:tune_tiles", f"{COLD} gpubench tune shared_tile --device cuda --sizes 1024,2048 --winners winners.toml -o CARD/tune_tiles.csv", "CARD/tune_tiles.confirmed.csv")
    lists = ",".join(f"../../../configs/{name}.csv" for name in ("llama-3-8b", "qwen2.5-7b-decode"))
    yield step("gpu:tune_models", f"gpubench tune --table CARD/tune_models.csv --device cuda --sizes {lists} --dtypes bfloat16 --budget 100", "CARD/tune_models.csv")
    for name in ("sweep", "sweep_again"):
        yield step(f"gpu:{name}", f"{SWEEP} --sizes 256,1024,2048 --tiles 1..32 -o CARD/{name}.csv")
    yield step("gpu:compare", "gpubench compare-cublas --sizes 256,512,1024,2048,4096,8192 --dtypes float32,float64 -o CARD/compare.csv")
    yield step("gpu:ladder", "gpubench compare-cublas --ladder --sizes 4096 --budget 25 --launch-limit 0.2 -o CARD/ladder.csv")
    yield step("gpu:ladder_top", "gpubench compare-cublas --variants splitk,packed_panels --cache both --budget 45 --sizes 1024,2048,4096,8192,16384,4096x4096x1000,1000,128x8192x8192 -o CARD/ladder_top.csv")
    for op in ("gemv", "gemv_t", "atax"):
        yield step(f"gpu:{op}", f"{SWEEP} --op {op} --sizes 16384,8192x32768,4096 --budget 5 -o CARD/{op}.csv")
    for dtype in RIVALS:
        path = f"CARD/rivals/{dtype}.csv"
        yield step(f"gpu:rivals_{dtype}", f"gpubench compare-cublas --rivals --kernels ../../../examples/own_signature --variants sgemm,packed_panels,wgmma_persistent,wgmma_mixed,wgmma_tf32 --sizes 1024,2048,4096,8192 --dtypes {dtype} --rounds 3 -o {path}", f"{path}.gz")
    yield from _correctness()
    yield step("gpu:odd_float8_e4m3", f"{SWEEP} --variants wgmma_bytes_cluster --dtypes float8_e4m3 --tiles auto --sizes {ODD_SHAPES} --cache both --rounds 3 -o CARD/odd_float8_e4m3.csv")
    yield step("gpu:faults", "python SCRIPTS/faults.py -o CARD/faults.json")
    yield step("gpu:kills", "python SCRIPTS/kill_resume.py --device cuda --first 1 --seeds 2 --kills 10 -o CARD/kills.json")
    yield step("gpu:reproduce", "gpubench reproduce --all --budget 12 --force --dir CARD/reproduce", *(f"CARD/reproduce/{name}.csv" for name in EXPERIMENTS), "CARD/reproduce/reproduce.md")
    for seed, path in enumerate(ROUNDS, 1):
        plain = path.removesuffix(".gz")
        yield step(f"gpu:diff_{seed}", f"{SWEEP} --sizes 128,256,512,1024 --tiles 1..16,18..32:2 --rounds 5 --budget 40 --launch-limit 0.004 --seed {seed} -o {plain}", path)
    for name, selected in SHAPES.items():
        yield step(f"gpu:shapes_{name}", f"python SCRIPTS/shapes.py {selected} --output CARD/shapes/{name}.csv")
    yield from (step(f"gpu:repeated_{name}", f"python SCRIPTS/shapes.py {selected} --output CARD/repeated/{name}.csv") for name, selected in REPEATED.items())
    for dtype, chosen in SQUARES.items():
        yield step(f"gpu:squares_{dtype}", f"gpubench compare-cublas --state sustained --tiles auto --rounds 3 --dtypes {dtype} {chosen} -o CARD/squares_{dtype}.csv")
    for dtype, seed in FEW_ROWS.items():
        count = 30 if dtype in {"bfloat16", "float16"} else 24
        yield step(f"gpu:few_rows_{dtype}", f"python SCRIPTS/shapes.py --few-rows --seed {seed} --count {count} --dtype {dtype} --output CARD/few_rows_{dtype}.csv")
    for dtype, seed in SOME_ROWS.items():
        yield step(f"gpu:some_rows_{dtype}", f"python SCRIPTS/shapes.py --some-rows --seed {seed} --count 30 --dtype {dtype} --output CARD/some_rows_{dtype}.csv")
    bits = "gpubench compare-cublas --sizes 4096 --rounds 3"
    yield step("gpu:bits", f"{bits} --dtypes float64,float32,tf32,bf16x3,bf16x6,float16,float16_sum16,bfloat16,float8_e4m3,float8_e4m3_split --variants cublas,cublaslt,dmma,packed_panels,wgmma_tf32_cluster,wgmma_parts,triton_matmul,wgmma_mixed,wgmma_bytes_pingpong,mma_sync -o CARD/bits.csv")
    yield step("gpu:bits_positive", f"{bits} --operands positive --dtypes float32,tf32,bf16x3,bf16x6 --variants cublas,wgmma_parts,packed_panels,wgmma_tf32_cluster -o CARD/bits_positive.csv")
    yield step("gpu:bits_sustained", "gpubench compare-cublas --sizes 4096 --rounds 1 --state sustained --dtypes float32,tf32,bf16x3,bf16x6 --variants cublas,wgmma_parts,packed_panels -o CARD/bits_sustained.csv")
    yield step("gpu:parts_and_triton", f"{SWEEP} --dtypes bf16x6 --variants wgmma_parts,triton_matmul,cublas --tiles auto --rounds 1 --sizes {PARTS_SHAPES} -o CARD/parts_and_triton.csv")
    yield step("gpu:errors_of_parts", "python SCRIPTS/errors_of_parts.py -o CARD/errors_of_parts.csv")
    yield step("gpu:alone", "python SCRIPTS/compare_with_profiler.py measure CARD/alone.csv 208,496,848,1072,1808,2416", "CARD/alone.csv")
    yield from _products_of_models()
    yield from _counters()
    yield step("gpu:operands", f"{SWEEP} --variants cublas,packed_panels,wgmma_persistent --sizes 8192 --dtypes float32,bfloat16 --tiles 128x256x64/16x8/s2,128x256x64/s4/pdl=0 --operands uniform,normal,integers,low-entropy,ones,zeros --state sustained --rounds 2 -o CARD/operands.csv")
    yield step("gpu:layouts", f"{SWEEP} --variants cublas,cublaslt,torch_matmul,naive,shared_tile,mma_sync --sizes 1000x1032x520 --dtypes float32,float64,int32,tf32,float16,bfloat16 --layouts nn,nt,tn,tt --tiles 16,128x256x64/64x64/s2 --rounds 1 --budget 30 -o CARD/layouts.csv")
    for name, folder in CLAIMS.items():
        path = f"CARD/claims/{name}"
        yield step(f"gpu:claim_{name}", f"gpubench reproduce {name} --checkout {CHECKOUTS}/{folder} --force --dir {path}", *(f"{path}/{file}" for file in (f"{name}.csv", "reproduce.csv", "reproduce.md")))
    judged = "for run in first second; do gpubench judge problems --sizes 1 --budget 530 --json | tee $run.json; done"
    folders = [name for name in WITH_PROBLEMS if name != "flashinfer-bench"]
    yield step("gpu:field_folder", f"python SCRIPTS/field_folder.py make problems {_checkouts(folders)}; {judged}; python SCRIPTS/field_folder.py table CARD/field_folder.csv first.json second.json", "CARD/field_folder.csv")
    yield step("gpu:cheats", "python SCRIPTS/cheats.py > CARD/cheats.txt")
    yield step("gpu:verify_cost", "python SCRIPTS/verify_cost.py > CARD/verify_cost.txt")


def _correctness() -> Iterator[dict[str, Any]]:
    for dtype in DTYPES:
        yield step(f"gpu:right_{dtype}", f"python SCRIPTS/verify_kernels.py --ops gemm,gemv,gemv_t,atax --dtypes {dtype} -o CARD/right/{dtype}.json")
        if dtype in DTYPES_OF_OTHERS:
            yield step(f"gpu:right_others_{dtype}", f"python SCRIPTS/verify_kernels.py --ops {','.join(OTHERS)} --dtypes {dtype} -o CARD/right/others_{dtype}.json")
        if dtype not in {"int32", "float16_sum16"}:  # whose sums of 11 bits are not exact
            yield step(f"gpu:stress_{dtype}", f"python SCRIPTS/repeat_kernels.py --dtypes {dtype} -o CARD/stress/{dtype}.json")
    for name, selected in SANITIZED.items():
        yield step(f"gpu:{name}", f"python SCRIPTS/sanitize.py {selected} -o CARD/sanitizer/{name}.json")
    yield step("gpu:stress_clusters", f"python SCRIPTS/repeat_kernels.py --dtypes float64,float32,int8,float8_e4m3,tf32 --variants {','.join(CLUSTERS.values())} -o CARD/stress/clusters.json")
    yield step("gpu:stress_few_rows", "python SCRIPTS/repeat_kernels.py --dtypes float32,bfloat16,float16 --variants dot_few_rows --sizes 1x1032x520,3x509x1019,4x1160x1008 -o CARD/stress/few_rows.json")
    yield step("gpu:triples", f"python SCRIPTS/repeat_kernels.py --triples --dtypes {','.join(DTYPES)} --variants {ANY_ROWS} -o CARD/triples.json")
    for name, (kernels, small, large) in EXAMINED.items():
        yield step(f"gpu:stress_{name}", f"python SCRIPTS/repeat_kernels.py --dtypes {kernels} --sizes {small},{large} -o CARD/stress/{name}.json")


def _counters() -> Iterator[dict[str, Any]]:
    for name, chosen in COUNTED.items():
        path = f"CARD/counters/{name}"
        yield step(f"gpu:counters_{name}", f"{SWEEP} {chosen} --tiles auto --cache hot --rounds 1 --precision 5% --counters {COUNTERS} -o {path}.csv", f"{path}.counters.csv")


def _products_of_models() -> Iterator[dict[str, Any]]:
    for op, (dtype, libraries, sizes) in SUSTAINED.items():
        swept = f"{SWEEP} --op {op} --dtypes {dtype} --variants wgmma_*,{libraries} --tiles auto --rounds 1 --sizes {sizes}"
        yield step(f"gpu:sustained_{op}", f"{swept} --state sustained -o CARD/sustained/{op}.csv")
    for name, (rounds, kernels, tiles, sizes) in SCALED.items():
        yield step(f"gpu:gemm_scaled{name}", f"gpubench sweep --op gemm_scaled --dtypes fp8 --variants {kernels} --operands normal --rounds {rounds} --tiles {tiles} --sizes {sizes} -o CARD/gemm_scaled{name}.csv")
    yield step("gpu:foreign", f"python SCRIPTS/foreign_gpu.py {CHECKOUTS} --own ${{OWN:-own}} --gpus 2 --limit-s 420 -o CARD/foreign.csv")
    for place, name in enumerate(FOREIGN[1:], start=1):
        without = " ".join(f"SCRIPTS/../results/CARD/{each}.csv" for each in FOREIGN[:place])
        yield step(f"gpu:{name}", f"python SCRIPTS/foreign_gpu.py {CHECKOUTS} --own ${{OWN:-own}} --without {without} --sizes 1000,2048 --limit-s 450 -o CARD/{name}.csv")
    swept = f"{SWEEP} --kernels ../../../examples/functions --sizes 1024,2048"
    yield step("gpu:functions", f"{swept} --rounds 3 --variants torch_gpu,triton_product,gluon_product,numba_cuda,cublas -o CARD/functions.csv")
    yield step("gpu:functions_waited", f"{swept} --rounds 1 --variants jax_matmul,pallas_product,cublas --launches waited -o CARD/functions_waited.csv")
    for op in ("gemm_grouped", "gemm_grouped_skewed"):
        yield step(f"gpu:{op}", f"gpubench sweep --op {op} --dtypes bf16 --variants wgmma_grouped,cublas,torch_grouped_mm --tiles auto --sizes 32x16x1536x2048,32x256x1536x2048,32x256x2048x768,8x1024x4096x2048 --rounds 1 -o CARD/{op}.csv")


def task_gpus() -> Iterator[dict[str, Any]]:
    """Yield the tasks for several GPUs."""
    for count, visible in ((2, "0,1"), (4, "0,1,2,3")):
        yield step(f"gpus:many_gpus_{count}", f"CUDA_VISIBLE_DEVICES={visible} python SCRIPTS/many_gpus.py -o CARD/many_gpus_{count}.json")


def task_cpu() -> Iterator[dict[str, Any]]:
    """Yield the tasks that need no GPU. The machine must have no other work."""
    yield step("cpu:verify_cost", "python SCRIPTS/verify_cost.py first --device cpu > cpu/verify_cost.txt")
    yield step("cpu:main", "gpubench sweep --device cpu --sizes 512,1024 --tiles 1..32 -o cpu/main.csv")
    yield step("cpu:kills", "python SCRIPTS/kill_resume.py --seeds 34 -o cpu/kills.json")
    yield step("cpu:fuzz", "python SCRIPTS/fuzz.py 100000 -o cpu/fuzz.json")
    yield step("cpu:hostile", "python SCRIPTS/hostile.py -o cpu/hostile.json")
    yield step("cpu:surroundings", "python SCRIPTS/surroundings.py -o cpu/surroundings.json")
    yield step("cpu:foreign", f"python SCRIPTS/foreign.py {CHECKOUTS} --compile -o cpu/foreign.csv")
    yield step("cpu:field_problems", f"python SCRIPTS/field_problems.py cpu/field_problems.csv {_checkouts(WITH_PROBLEMS)}", "cpu/field_problems.csv")
    yield step("cpu:field_cheats", "python SCRIPTS/field_cheats.py > cpu/field_cheats.json")
    yield step("cpu:ab", "python SCRIPTS/ab_runs.py -o cpu/ab.json")
    yield step("cpu:ab_quiet", "for run in $(seq 12); do python SCRIPTS/ab_runs.py --quiet --runs 1 --first 1 -o cpu/ab_quiet.json ; done")
    yield step("cpu:operating", "python SCRIPTS/operating.py --directory operating", *(f"operating/{name}.md" for name in ("diff", "blind", "tune", "fleet")))
# fmt: on


def task_pages() -> dict[str, Any]:
    """Fill the tables of all pages by cog (https://cog.readthedocs.io), and draw the pictures."""
    pages = "README.md results/*.md docs/*.md gpubench/kernels/gemm/README.md"
    cog = f"{sys.executable} -m cogapp -I research -p 'import tables' -r {pages}"
    makers = [f"{sys.executable} research/make_{name}.py" for name in ("pictures", "schemas")]
    return {"actions": [cog, *makers]}
