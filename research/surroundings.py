"""Run commands where the system refuses something, and check their messages.

    python research/surroundings.py [-o surroundings.json]

Needs root on Linux: `unshare` and `mount` take away /dev/shm and the home directory, `setpriv`
makes another user, and control groups of version 1 or 2 limit memory and CPUs. The script checks in
each case the exit code, the last line of stderr, that there is no traceback, and that no process is
left. Exits 1 if a check fails.
"""

import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common import GPUBENCH, ROOT, parser, save

from gpubench.hardware.host import CGROUPS, read_text
from gpubench.process import descendants
from gpubench.results.provenance import package_version
from gpubench.results.row import read

OWN = "sweep --device cpu --kernels leak --variants leak --rounds 1 --precision 50% -o out.csv"
SWEEP = "sweep --device cpu --variants cpu_blas --rounds 1 --precision 50% --cache hot -o out.csv"
LEAK = """
import numpy as np
from gpubench.model import CallVariant
kept = []
def build(tile, dtype):
    def call(a, b, c):
        kept.append(np.ones(2**21))
        np.matmul(a, b, out=c)
    return call
VARIANT = CallVariant(idea="leaks 16 MiB a call", runs_on="cpu", build=build, baseline="")
"""
NO_SHM = "unshare -m sh -c 'mount -t tmpfs -o ro none /dev/shm; exec \"$@\"' -"
NO_HOME = "unshare -m sh -c 'mkdir -p home; mount -t tmpfs -o ro none home; HOME=$PWD/home; "
NO_HOME += 'XDG_CACHE_HOME=$HOME/.cache; export HOME XDG_CACHE_HOME; exec "$@"\' -'
NOBODY = (
    "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps +dac_read_search "
    "--ambient-caps +dac_read_search"
)
"""Command that runs another command as another user. This user may read root's Python
interpreter."""


@dataclass(frozen=True)
class Case:
    """A command of gpubench, a command that starts it, and the expected outcome.

    The outcome is the exit code and the last line on stderr.
    """

    name: str
    behind: str
    command: str
    code: int
    says: str = ""
    group: str = ""
    """A limit of the control group, such as `memory 500M` or `cpu 1.5`."""


CASES = (
    Case(
        "a product beyond the memory of the group",
        "",
        f"{SWEEP} --sizes 32,4096",
        0,
        "",
        "memory 400M",
    ),
    Case(
        "a leak in a group",
        "",
        f"{OWN} --sizes 16",
        1,
        "no point was timed, so the command failed",
        "memory 500M",
    ),
    Case(
        "a stack of 128 kB, half of which is too little for Python itself",
        f"prlimit --stack={2**17}",
        f"{SWEEP} --sizes 32",
        0,
    ),
    Case("half a CPU", "", "deviceinfo --device cpu --json", 0, "", "cpu 0.5"),
    Case(
        "build without /dev/shm",
        NO_SHM,
        "build naive,shared_tile --arch sm_80 --sizes 64 -o out.csv",
        0,
    ),
    Case(
        "users' kernels without /dev/shm",
        NO_SHM,
        f"{OWN} --sizes 8",
        0,
    ),
    Case(
        "workers without /dev/shm",
        NO_SHM,
        f"{SWEEP} --sizes 32 --on local",
        2,
        "--on local needs a /dev/shm that can be written: Read-only file system",
    ),
    Case("a home that is read-only", NO_HOME, f"{SWEEP} --sizes 32", 0),
    Case(
        "a saved result in a home that is read-only",
        NO_HOME,
        f"{SWEEP} --sizes 32 --save x",
        2,
        "Read-only file system",
    ),
    Case(
        "four processes",
        f"{NOBODY} env -C open prlimit --nproc=4",
        f"{SWEEP} --sizes 32",
        2,
        "no further process or thread can start",
    ),
    Case(
        "another user's folder",
        f"{NOBODY} env -C closed",
        f"{SWEEP} --sizes 32",
        2,
        "Permission denied",
    ),
    Case(
        "another user's cache",
        f"{NOBODY} env -C open XDG_CACHE_HOME=../closed",
        f"{SWEEP} --sizes 32",
        0,
    ),
    Case(
        "another user's store",
        f"{NOBODY} env -C open GPUBENCH_STORE=../closed",
        f"{SWEEP} --sizes 32 --save x --force",
        2,
        "Permission denied",
    ),
)
"""The cases to run. A case must leave no process. `prepared` writes the files of the cases."""


def prepared(folder: Path) -> None:
    """Make the files and folders of the cases. Only root may write to `closed`."""
    (folder / "leak").mkdir()
    (folder / "leak" / "leak.py").write_text(LEAK)
    for name, mode in (("closed", 0o755), ("open", 0o777), (".", 0o755)):
        (folder / name).mkdir(exist_ok=True)
        (folder / name).chmod(mode)


@contextmanager
def group_with(limit: str) -> Iterator[list[Path]]:
    """Make a control group with a limit. Yield the file by which processes are added to the group.

    Without a limit, yield no file.
    """
    if not limit:
        yield []
        return
    controller, amount = limit.split()
    lines = [line.split(":", 2) for line in read_text("/proc/self/cgroup").splitlines()]
    old = [path for _, names, path in lines if controller in names.split(",")]
    root = CGROUPS / controller / old[0].strip("/") if old else CGROUPS / lines[-1][2].strip("/")
    group = root / "gpubench-surroundings"
    group.mkdir(exist_ok=True)
    try:
        if controller == "memory":
            (group / ("memory.limit_in_bytes" if old else "memory.max")).write_text(amount)
        elif old:
            (group / "cpu.cfs_quota_us").write_text(str(int(float(amount) * 100_000)))
        else:
            (group / "cpu.max").write_text(f"{int(float(amount) * 100_000)} 100000")
        yield [group / "cgroup.procs"]
    finally:
        group.rmdir()


def run(case: Case, folder: Path) -> dict[str, object]:
    """Run a case, and return the outcome of the case with all faults."""
    prepared(folder)
    with group_with(case.group) as groups:
        joined = [f"echo $$ > {shlex.quote(str(path))};" for path in groups]
        line = " ".join((*joined, "exec", case.behind, shlex.join(GPUBENCH), case.command))
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=folder,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
            | {"XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": "/tmp"},  # noqa: S108 # a child's
            capture_output=True,
            text=True,
            check=False,
        )
        left = ended_within(2.0)
    last = next(reversed(done.stderr.splitlines()), "")
    possible = {
        f"{len(left)} processes are left": bool(left),
        "a traceback": "Traceback" in done.stderr,
        f"exit code {done.returncode}": done.returncode != case.code,
        "another last line": case.says not in last,
    }
    faults = [fault for fault, is_there in possible.items() if is_there]
    if case.name in EXTRA:
        faults += EXTRA[case.name](folder, done.stdout)
    return {"case": case.name, "code": done.returncode, "last": last[:300], "faults": faults}


def ended_within(limit_s: float) -> list[int]:
    """Wait for all processes to end. Kill and return the processes that did not end."""
    deadline_s = time.monotonic() + limit_s
    while (left := descendants.living(descendants.descendants())) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    descendants.end()
    return left


def skipped_large(folder: Path, _out: str) -> list[str]:
    statuses = [(row.size, str(row.status)) for row in read(folder / "out.csv")]
    return [] if statuses == [("32", "ok"), ("4096", "skipped")] else [f"rows {statuses}"]


def killed_point(folder: Path, _out: str) -> list[str]:
    reasons = [row.reason or "" for row in read(folder / "out.csv")]
    is_named = "filled the memory of the machine; killed" in str(reasons)
    return [] if is_named else [f"reasons {reasons}"]


def one_cpu(_folder: Path, out: str) -> list[str]:
    return [] if re.search(r'"cores": 1\b', out) else [f"not one core: {out[:200]}"]


EXTRA: dict[str, Callable[[Path, str], list[str]]] = {
    CASES[0].name: skipped_large,
    CASES[1].name: killed_point,
    CASES[3].name: one_cpu,
}


def main() -> int:
    """Run all cases. Return 1 if a case has a fault."""
    options = parser(__doc__, "surroundings.json")
    asked = options.parse_args()
    descendants.become_subreaper()
    outcomes = []
    for case in CASES:
        with tempfile.TemporaryDirectory(prefix="surroundings-", dir="/tmp") as folder:
            outcomes.append({"package": package_version()[0]} | run(case, Path(folder)))
        print(*outcomes[-1].values(), flush=True)
    save(asked.output, outcomes)
    return int(any(outcome["faults"] for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
