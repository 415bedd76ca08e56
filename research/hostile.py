"""Run the workflows of docs/ci.md on pull requests that attack them, and check the verdicts.

    python research/hostile.py [--only base,daemon] [--workflows timed,static,jobs]
        [-o hostile.json]

The kernel of each pull request is slower than before (for the static gate: it uses more local
memory), so an honest verdict rejects it. The kernel and its description also attack the gate
(`ATTACKS`; the attack "" does nothing). The steps of the action run as GitHub runs them
(`tests/runner.py`), in a new environment with this gpubench, and nothing is downloaded. This script
checks that in each run

- the exit code is that of the honest verdict;
- no hook of git, no setting of git, no variable or path of later steps and no file of Numba's cache
  has changed, and no module of the checkout was imported;
- the log has no token, no escape sequence, and no command to GitHub except those of the action;
- no process is alive 2 s later.

In the workflow "jobs", foreign code may write anywhere in the job that runs it, as on a system
without Landlock. Only the job that compares the results is checked. Exits 1 if a check fails.
"""

import contextlib
import ctypes
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from common import ROOT, parser, save

sys.path.insert(0, str(ROOT / "tests"))

from newcomer import blocks
from runner import Job

from gpubench.process import descendants
from gpubench.results.provenance import package_version

TOKEN = "ghs_0123456789"  # noqa: S105 # nobody's token
PAIRS = 3
"""Number of pairs. The page has more pairs, but this number suffices for a kernel that takes four
times as long."""

PYTHON = f"""#!/bin/sh
[ "$2" = venv ] || exit 1
{Path(sys.base_prefix, "bin", "python3")} -m venv --without-pip "$3"
printf '#!/bin/sh\\n' > "$3/bin/pip"
printf '#!/bin/sh\\nexec {sys.executable} -P -m gpubench "$@"\\n' > "$3/bin/gpubench"
chmod +x "$3/bin/pip" "$3/bin/gpubench"
"""
"""A script in place of `python3`, which makes an environment with this interpreter's gpubench."""

FUNCTION = """
import numpy as np
from gpubench.model import CallVariant
ATTACK
attack("load")

def build(tile, dtype):
    attack("build")
    def call(a, b, c):
        for _ in range(TIMES):
            np.matmul(a, b, out=c)
    return call

VARIANT = CallVariant(
    idea="NumPy", runs_on="cpu", build=build, baseline="", threads=1, dtypes=("float32",)
)
"""

DESCRIBED = """
from gpubench.model import CudaVariant, edges
ATTACK
attack("load")

VARIANT = CudaVariant(
    idea="a loop", grid=("N/edge", "M/edge"), block=("edge", "edge"), dtypes=("float32",),
    tiles=edges(8, 8, because="one is enough"), reuse=lambda tile: (1, 1),
)
"""

LOOP = """
template <typename Scalar, int EDGE>
__global__ void my_kernel(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * EDGE + threadIdx.y, column = blockIdx.x * EDGE + threadIdx.x;
  if (row >= M || column >= N) return;
  Scalar sums[TIMES] = {};
  for (int k = 0; k < K; ++k) sums[M * k % TIMES] += A[row * K + k] * B[k * N + column];
  Scalar sum = 0;
  for (Scalar part : sums) sum += part;
  C[row * N + column] = sum;
}
"""

SLOWER = 25
"""Number of products that the new side computes, or number of its sums in local memory (static
gate)."""

COMMON = """
import glob, os, pathlib, signal, sys, time

def attack(moment):
    try:
        steps(moment)
    except OSError:
        pass

def everywhere(change):
    for place in ("TEMPORARY/**", "SCRATCH/**", "CHECKOUT/**"):
        for path in map(pathlib.Path, glob.glob(place, recursive=True, include_hidden=True)):
            try:
                change(path)
            except OSError:
                pass

def change_base(path):
    if path.is_file() and "base" in str(path) and ".csv" in path.name:
        path.write_text(path.read_text().replace("my_kernel", "my_other"))

def processes():
    pid = os.getppid()
    while pid > 1:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"gpubench" not in words or b"python" not in words.partition(b"\\0")[0]:
            return
        yield pid
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
"""
"""Code that all attacks share. The code changes files of the run, and finds the processes of
gpubench."""

DAEMON = """
def steps(moment):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            until = time.monotonic() + 300
            while time.monotonic() < until:
                everywhere(change_base)
                time.sleep(0.2)
        os._exit(0)
"""

ATTACKS = {
    "": "def steps(moment): pass",
    "base": "def steps(moment): everywhere(change_base)",
    "daemon": DAEMON,
    "unpacked": """
def steps(moment):
    everywhere(lambda path: path.write_text(path.read_text().replace("range(1)", "range(9)"))
               if path.name == "my_kernel.py" else None)
""",
    "job": """
def steps(moment):
    print(dict(os.environ))
    names = ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")
    for path in (*map(os.environ.get, names), *glob.glob("TEMPORARY/*")):
        if path and not os.path.isdir(path):
            with open(path, "a") as file:
                file.write("exit-code=0\\n")
""",
    "log": """
def steps(moment):
    for stream in (1, 2):
        os.write(stream, b"\\x1b[2J\\n::add-mask::slower\\n##[endgroup]\\n\\r::stop-commands::x\\n")
        os.write(stream, b"\\n::set-output name=exit-code::0\\n\\x9b31m::error::\\n" + b"x" * 10**7)
""",
    "modules": """
def steps(moment):
    everywhere(lambda path: (path / "sitecustomize.py").write_text("open('RAN', 'w')")
               if path.is_dir() else None)
""",
    "cache": """
def steps(moment):
    everywhere(lambda path: path.write_bytes(b"x") if path.suffix in (".nbi", ".nbc") else None)
""",
    "git": """
def steps(moment):
    for hook in ("post-checkout", "pre-commit", "post-index-change"):
        path = pathlib.Path("CHECKOUT/.git/hooks", hook)
        path.write_text("#!/bin/sh\\ntouch RAN\\n")
        path.chmod(0o755)
    with open("CHECKOUT/.git/config", "a") as file:
        file.write("[core]\\n\\tfsmonitor = touch RAN\\n")
""",
    "kill": """
def steps(moment):
    for pid in processes():
        try:
            os.kill(pid, signal.SIGKILL)
        except PermissionError:
            print("refused")
""",
    "scheduling": """
def steps(moment):
    for pid in processes():
        try:
            os.sched_setaffinity(pid, {min(os.sched_getaffinity(pid))})
            os.setpriority(os.PRIO_PROCESS, pid, 15)
        except OSError:
            pass
""",
    "words": """
def steps(moment):
    if moment == "build":
        raise ValueError("::error::\\n</table>\\x1b[2J| 0 slower |\\n**passed** " + "x" * 10**6)
""",
}
"""Maps the name of an attack to Python code. `steps` runs when the description is loaded and when
the kernel is built."""

CHECKOUT_MODULES = ("platformdirs", "venv", "sitecustomize", "usercustomize", "numpy", "pip")
"""Names of modules in each checkout that must not be imported. Each checkout also has a plugin of
pytest."""

HONEST = {"scheduling": {1, 2}, "words": {4}}
"""Honest exit codes for attacks that also make the new side fail in other ways. For all other
attacks, only 1 (slower) is honest."""

WITHOUT_LANDLOCK = HONEST | {"kill": {2}}
"""Honest exit codes without Landlock. There, an attack may kill gpubench, so that the new side has
no file."""


def without_landlock() -> None:
    """Make the system refuse Landlock in this process, by a filter of system calls."""
    number, refused = 444, 0x00050000 | 38  # landlock_create_ruleset; an error, ENOSYS
    lines = ((0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, refused), (0x06, 0, 0, 0x7FFF0000))
    program = b"".join(struct.pack("HBBI", *line) for line in lines)
    kept = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(kept))
    libc = ctypes.CDLL(None)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    libc.prctl(22, 2, ctypes.create_string_buffer(header))  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


class PullRequest:
    """A repository whose new side is hostile, and the CI job that judges the new side."""

    def __init__(self, folder: Path, attack: str, *, static: bool = False) -> None:
        self.processes = frozenset(descendants.descendants())
        self.folder, self.ran = folder, folder / "ran"
        self.checkout, self.scratch = folder / "checkout", folder / "scratch"
        self.temporary, self.cache = folder / "temporary", folder / "cache"
        (self.checkout / "kernels").mkdir(parents=True)
        self.scratch.mkdir()
        for name in CHECKOUT_MODULES:
            (self.checkout / f"{name}.py").write_text(f"open({str(self.ran)!r}, 'w')")
        (self.checkout / "conftest.py").write_text(f"open({str(self.ran)!r}, 'w')")
        self.git("init", "-q")
        for times, name in ((1, ""), (SLOWER, attack)):
            code = COMMON + ATTACKS[name]
            for word in ("TEMPORARY", "SCRATCH", "CHECKOUT", "RAN"):
                code = code.replace(word, str(folder / word.lower()))
            text = (DESCRIBED if static else FUNCTION).replace("ATTACK", code)
            path = self.checkout / "kernels" / "my_kernel.py"
            path.write_text(text.replace("TIMES", str(times)))
            if static:
                path.with_suffix(".cu").write_text(LOOP.replace("TIMES", str(times)))
            self.git("add", "-A")
            self.git("-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-m", f"{times}")
        self.job = Job(
            self.checkout, self.temporary, PYTHON, TMPDIR=str(self.scratch),
            XDG_CACHE_HOME=str(self.cache), HOME=str(folder), GH_TOKEN=TOKEN,
            GITHUB_ENV=str(self.temporary / "env"), GITHUB_PATH=str(self.temporary / "path"),
        )  # fmt: skip
        for name in ("env", "path"):
            (self.temporary / name).touch()

    def git(self, *words: str) -> None:
        """Run git in the checkout."""
        subprocess.run(["git", *words], cwd=self.checkout, check=True)  # noqa: S607 # as in a shell

    def kept(self) -> dict[str, bytes]:
        """Return the content of each file that foreign code must not change.

        These are files of git, of Numba's cache and of the job.
        """
        paths = [*(self.checkout / ".git" / "hooks").iterdir(), self.checkout / ".git" / "config"]
        paths += [path for path in self.cache.rglob("*.nb?") if "foreign-2" not in path.parts]
        paths += [self.temporary / "env", self.temporary / "path"]
        return {str(path): path.read_bytes() for path in paths}


def faults_of(request: PullRequest, log: str, before: Mapping[str, bytes]) -> list[str]:
    """Return the forbidden effects of an attack. A wrong verdict is not among these effects."""
    after = request.kept()
    faults = [f"{path} changed" for path, text in before.items() if after.get(path) != text]
    faults += [f"{path} is new" for path in after.keys() - before.keys() if ".git" in path]
    effects = {
        "a module of the checkout was run": request.ran.exists(),
        "the token is in the log": TOKEN in log,
        "an escape sequence is in the log": "\x1b" in log or "\x9b" in log,
    }
    faults += [fault for fault, is_there in effects.items() if is_there]
    commands = re.findall(r"(?m)^\s*::.*|##\[.*", log)
    ours = re.compile(r"::(stop-commands::)?[0-9a-f]{32}(::)?$|::error title=gpubench::")
    faults += [f"a command to GitHub: {each[:80]}" for each in commands if not ours.match(each)]
    deadline_s = time.monotonic() + 2.0
    while left := descendants.living(descendants.descendants(without=request.processes)):
        if time.monotonic() > deadline_s:
            faults.append(f"{len(left)} processes are left")
            descendants.end(without=request.processes)
            break
        time.sleep(0.01)
    return faults


def workflow(name: str) -> Any:
    """Return a workflow of docs/ci.md."""
    texts = [block.text for block in blocks("ci.md") if block.language == "yaml"]
    return next(document for document in map(yaml.safe_load, texts) if document["name"] == name)


def inputs_of(name: str) -> dict[str, str]:
    """Return the inputs of the action in a workflow."""
    steps = [step for job in workflow(name)["jobs"].values() for step in job["steps"]]
    return next(step["with"] for step in steps if "gpubench@" in step.get("uses", ""))


def timed(folder: Path, attack: str) -> tuple[PullRequest, Any, Mapping[str, bytes]]:
    """Run the gate that measures both sides in turns."""
    request = PullRequest(folder, attack)
    before = request.kept()
    inputs = inputs_of("cpu benchmark")
    inputs["options"] += f" --pairs {PAIRS} --precision 50%"
    return request, request.job.run(**inputs), before


def static(folder: Path, attack: str) -> tuple[PullRequest, Any, Mapping[str, bytes]]:
    """Run the gate that compiles both sides."""
    request = PullRequest(folder, attack, static=True)
    before = request.kept()
    for side, revision in (("base", "HEAD^1"), ("new", "HEAD")):
        request.git("worktree", "add", "-q", "--detach", str(request.checkout / side), revision)
    return request, request.job.run(**inputs_of("static gate")), before


def jobs(folder: Path, attack: str) -> tuple[PullRequest, Any, Mapping[str, bytes]]:
    """Run the workflow in which two jobs measure a side each. A third job compares the sides."""
    request = PullRequest(folder, attack)
    steps = workflow("jobs of their own")["jobs"]["sweep"]["steps"]
    script = next(step["run"] for step in steps if "run" in step)
    script = script.replace("cublas", "cpu_blas").replace("--device cuda", "--device cpu")
    script = re.sub(r"--sizes \S+", "--sizes 128,192 --precision 50%", script)
    judge = Job(
        folder / "judge", folder / "judge temporary", PYTHON, XDG_CACHE_HOME=str(request.cache)
    )
    for side, revision in (("base", "HEAD^1"), ("new", "HEAD")):
        place = request if side == "new" else PullRequest(folder / "base job", "")
        place.git("checkout", "-q", revision)
        place.job.script(script, without_landlock, SIDE=side)
        target = judge.folder / side / f"{side}.csv"
        target.parent.mkdir(parents=True)
        with contextlib.suppress(OSError):
            shutil.copy(place.checkout / f"{side}.csv", target)
    before = request.kept()  # the attack may change every file of its own job
    ended = judge.run(**inputs_of("jobs of their own"))
    return request, ended, before


WORKFLOWS = {
    "timed": (timed, tuple(ATTACKS)),
    "static": (static, ("", "base", "daemon", "job", "log", "modules", "git")),
    "jobs": (jobs, tuple(ATTACKS)),
}
"""Maps a workflow to the function that runs the workflow, and to the attacks to try."""


def main() -> int:
    """Run each attack. Return 1 if a verdict is not honest, or if an attack had another effect."""
    options = parser(__doc__, "hostile.json")
    options.add_argument("--only", default=",".join(ATTACKS), help="attacks")
    options.add_argument("--workflows", default=",".join(WORKFLOWS))
    asked = options.parse_args()
    descendants.become_subreaper()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="hostile-") as temporary:
        for name in asked.workflows.split(","):
            run, attacks = WORKFLOWS[name]
            for attack in (attack for attack in asked.only.split(",") if attack in attacks):
                started_s = time.monotonic()
                request, ended, before = run(Path(temporary, f"{name}-{attack}"), attack)
                faults = faults_of(request, ended.said + ended.summary, before)
                honest = WITHOUT_LANDLOCK if run is jobs else HONEST
                if ended.code not in honest.get(attack, {1}):
                    faults.append(f"exit code {ended.code}: {ended.said[-500:]}")
                verdict = next(iter(ended.summary.splitlines()), "")
                outcomes.append(
                    {"package": package_version()[0], "workflow": name, "attack": attack}
                    | {"code": ended.code, "verdict": verdict[:200], "faults": faults}
                    | {"seconds": round(time.monotonic() - started_s)}
                )
                print(*outcomes[-1].values(), flush=True)
                save(asked.output, outcomes)
    failed = sum(bool(outcome["faults"]) for outcome in outcomes)
    print(f"{len(outcomes)} runs, {len(outcomes) - failed} of them honest and without a fault")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
