"""What makes each file of results/: the one list, for publish.py."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import rivals

from gpubench.model import DTYPES


@dataclass(frozen=True)
class Step:
    """Some files of results/, and the command that makes them."""

    name: str
    bound_s: int
    """It is killed then; at most 480. About twice what it takes."""

    command: str
    """Paths are relative to results/, but for `ROOT`, the repository, and `COLD`, which is not there
    yet. `> FILE` takes what is printed, `&> FILE` what goes to stderr too."""

    more: tuple[str, ...] = ()
    """Files that it makes beside those after `-o` and `>`. `x.gz`: x is compressed afterwards."""

    gpus: int = 1
    """None: on a machine without other work."""

    alone: bool = False
    """The host's CPUs count too: not beside steps that share them."""

    compared: str = ""
    """Steps of one name are compared with each other: one run makes them all, on one GPU."""

    reads: tuple[str, ...] = ()
    """Files of other steps."""

    @property
    def files(self) -> tuple[str, ...]:
        """What it makes, in results/."""
        words = shlex.split(self.command)
        named = [words[at + 1] for at, word in enumerate(words) if word in {"-o", ">", "&>"}]
        plain = (name for name in named if f"{name}.gz" not in self.more)
        return (*plain, *self.more)


SWEEP = "gpubench sweep --device cuda"
SCRIPT = "python ROOT/benchmarks"
COLD = "env XDG_CACHE_HOME=COLD"
"""An empty cache of compiled kernels."""

SPACES = (
    *(("wgmma_cluster", size, "bfloat16") for size in (4096, 1000)),
    *((name, 4096, "float32") for name in ("packed_panels", "vectorized", "pipelined")),
)
EXPERIMENTS = ("blog-2009", "double-tile", "lecture-sdk", "p100-tiles", "titan-atax", "reproduce")
ROUNDS = tuple(f"h200/diff_rounds/0{seed}.csv" for seed in (1, 2, 3, 4))
PASSES = tuple(f"h200/agreement/{number}.jsonl.gz" for number in (1, 2, 3))
KEPT_ROUNDS = tuple(f"{path}.gz" for path in ROUNDS)
TENSOR = {
    "tensor": {
        "small": ("bfloat16", "1024,2048"),
        "middle": ("bfloat16", "4000x4104x3992,4096"),
        "large": ("bfloat16", "8192,16384"),
        "float16": ("float16", "4096,8192"),
    },
    "precisions": {
        "tf32": ("tf32", "1024,2048,4096,8192,3001x4100x2804"),
        "float64": ("float64", "1024,2048,4096,8192,3001x4100x2804"),
        "float32": ("float32,bfloat16,float16", "4096"),
        "bytes": ("int8,float8_e4m3,float8_e4m3_split", "4096,8192"),
    },
}
"""Parts of the suites of tensor.py: of these dtypes, those of the suite's sizes."""

PARTS = {
    suite: tuple(f"h200/{suite}/{part}.csv.gz" for part in parts)
    for suite, parts in {**TENSOR, "rivals": rivals.DTYPES}.items()
}

SANITIZED = (
    *(("memcheck", dtype) for dtype in DTYPES if dtype not in {"int32", "float16", "float8_e4m3"}),
    *((tool, "float32") for tool in ("racecheck", "synccheck")),
)
"""Tools of compute-sanitizer, and the first dtype of kernels."""

MAIN = "--sizes 1024,2048 --tiles 1..32"
"""The README's sweep on a GPU."""

STEPS = (
    Step("deviceinfo", 90, "gpubench deviceinfo --device cuda --measure --json > h200/deviceinfo.json"),
    Step("selfcheck", 90, "gpubench selfcheck > h200/selfcheck.txt"),
    Step("quick", 90, f"{SWEEP} -o h200/quick.csv > h200/quick.txt", alone=True),
    Step("dry_run", 60, f"{COLD} {SWEEP} {MAIN} --dry-run > h200/dry_run.txt"),
    Step("main", 300, f"{COLD} {SWEEP} {MAIN} -o h200/main.csv > h200/main.txt", alone=True),
    Step(
        "tune_tiles", 90, f"{COLD} gpubench tune shared_tile --device cuda --sizes 1024,2048 "
        "--winners winners.toml -o h200/tune_tiles.csv &> h200/tune_tiles.txt",
        ("h200/tune_tiles.confirmed.csv",), alone=True,
    ),
    *(
        Step(name, 360, f"{SWEEP} --sizes 256,1024,2048 --tiles 1..32 -o h200/{name}.csv > h200/{name}.txt", compared="sweeps")
        for name in ("sweep", "sweep_again")
    ),
    Step(
        "compare", 480, "gpubench compare-cublas --sizes 256,512,1024,2048,4096,8192 "
        "--dtypes float32,float64 -o h200/compare.csv > h200/compare.txt",
    ),
    Step("ladder", 420, f"{SCRIPT}/ladder.py h200", ("h200/ladder.csv", "h200/ladder_top.csv", "h200/ladder.md")),
    *(
        Step(op, 120, f"{SWEEP} --op {op} --sizes 16384,8192x32768,4096 --budget 5 -o h200/{op}.csv > h200/{op}.txt")
        for op in ("gemv", "gemv_t", "atax")
    ),
    *(
        Step(f"{suite}_{part}", 480, f"{SCRIPT}/tensor.py measure {suite} h200/{suite}/{part}.csv --dtypes {dtypes} --sizes {sizes}", (f"h200/{suite}/{part}.csv.gz",))
        for suite, parts in TENSOR.items()
        for part, (dtypes, sizes) in parts.items()
    ),
    *(
        Step(f"agreement_{number}", 480, f"{SCRIPT}/agreement.py pass h200/agreement/{number}.jsonl", (f"h200/agreement/{number}.jsonl.gz",), alone=True)
        for number in (1, 2, 3)
    ),
    Step("explain", 480, f"{SCRIPT}/checks.py explain > h200/explain_agreement.txt"),
    *(Step(f"right_{dtype}", 480, f"{SCRIPT}/right.py --dtypes {dtype} > h200/right/{dtype}.txt") for dtype in DTYPES),
    *(Step(f"stress_{dtype}", 300, f"{SCRIPT}/stress.py --dtypes {dtype} > h200/stress/{dtype}.txt") for dtype in DTYPES if dtype not in {"float32", "int32"}),
    *(Step(f"{tool}_{dtype}", 480, f"{SCRIPT}/sanitize.py {tool} {dtype} > h200/sanitizer/{tool}_{dtype}.txt") for tool, dtype in SANITIZED),
    Step("memory", 90, f"{SCRIPT}/checks.py memory > h200/memory.txt"),
    Step("short_blocking", 60, f"{SCRIPT}/checks.py short-blocking > h200/short_blocking.txt"),
    Step("faults", 300, f"{SCRIPT}/checks.py faults > h200/faults.txt"),
    *(Step(f"kills_{seed}", 480, f"{SCRIPT}/kill_resume.py 10 {seed} cuda > h200/kill_resume_{seed}.txt") for seed in (1, 2)),
    Step(
        "reproduce", 480, "gpubench reproduce --budget 12 --force --output h200/reproduce",
        (*(f"h200/reproduce/{name}.csv" for name in EXPERIMENTS), "h200/reproduce/reproduce.md"), alone=True,
    ),
    *(
        Step(
            f"diff_{seed}", 120, f"{SWEEP} --sizes 128,256,512,1024 --tiles 1..16,18..32:2 --rounds 5 "
            f"--budget 40 --launch-limit 0.004 --seed {seed} -o {path}", (f"{path}.gz",),
            compared="diffs",
        )
        for seed, path in enumerate(ROUNDS, 1)
    ),
    *(
        Step(f"rivals_{dtype}", 480, f"{SCRIPT}/rivals.py measure h200/rivals/{dtype}.csv --dtypes {dtype}", (f"h200/rivals/{dtype}.csv.gz",))
        for dtype in rivals.DTYPES
    ),
    Step("exports", 240, f"{SCRIPT}/rivals.py exports ROOT/build/programs > h200/exports.md"),
    Step("verify_cost", 300, f"{SCRIPT}/verify_cost.py > h200/verify_cost.txt", alone=True),
    Step("kernel_tuner", 120, f"{SCRIPT}/tune_race.py wall > h200/kernel_tuner_race.txt", alone=True),
    *(
        Step(f"tune_{name}_{size}", 480, f"{SCRIPT}/tune_race.py race {name}:{size}:{dtype} -o h200/tune/{name}_{size}.csv > h200/tune/{name}_{size}.md", (f"h200/tune/{name}_{size}.csv.gz",), alone=True)
        for name, size, dtype in SPACES
    ),
    *(
        Step(f"many_gpus_{gpus}", 480, f"{SCRIPT}/many_gpus.py > h200/many_gpus_{gpus}.txt", gpus=gpus, alone=True)
        for gpus in (2, 4)
    ),
    Step(
        "repeatability", 60, f"{SCRIPT}/checks.py repeatability h200/sweep.csv h200/sweep_again.csv > h200/repeatability.txt",
        gpus=0, reads=("h200/sweep.csv", "h200/sweep_again.csv"),
    ),
    Step("agreement", 60, f"{SCRIPT}/agreement.py report h200/agreement h200/agreement", ("h200/agreement.csv", "h200/agreement.md"), gpus=0, reads=PASSES),
    *(Step(suite, 60, f"{SCRIPT}/join.py h200/{suite}.csv {' '.join(paths)}", (f"h200/{suite}.csv",), gpus=0, reads=paths) for suite, paths in PARTS.items()),
    Step("rivals_table", 60, f"{SCRIPT}/rivals.py table h200/rivals.csv > h200/rivals.md", gpus=0, reads=("h200/rivals.csv",)),
    *(Step(f"{suite}_table", 60, f"{SCRIPT}/tensor.py table h200/{suite}.csv > h200/{suite}.md", gpus=0, reads=(f"h200/{suite}.csv",)) for suite in TENSOR),
    Step("diff_power", 480, f"{SCRIPT}/diff_power.py h200/diff_rounds > h200/diff_power.md", gpus=0, reads=KEPT_ROUNDS),
    Step("fleet_power", 480, f"{SCRIPT}/fleet_power.py h200/diff_rounds > h200/fleet_power.md", gpus=0, reads=KEPT_ROUNDS),
    Step("cpu_quick", 90, "gpubench sweep --device cpu -o cpu/quick.csv > cpu/quick.txt", gpus=0),
    Step("cpu_main", 480, "gpubench sweep --device cpu --sizes 512,1024 --tiles 1..32 -o cpu/main.csv > cpu/main.txt", gpus=0),
    *(Step(f"cpu_kills_{seed}", 480, f"{SCRIPT}/kill_resume.py 15 {seed} > cpu/kill_resume_{seed}.txt", gpus=0) for seed in range(1, 15)),
    Step("cpu_diff", 480, f"{SCRIPT}/diff_pairs.py > cpu/diff_pairs.txt", gpus=0),
    Step("cpu_tune", 480, f"{SCRIPT}/tune_simulated.py > cpu/tune_simulated.md", gpus=0),
    *(Step(f"cpu_fuzz_{part}", 480, f"{SCRIPT}/fuzz.py 12500 {12_500 * part} > cpu/fuzz_{part}.txt", gpus=0) for part in range(8)),
)  # fmt: skip
"""In the order in which they run."""
