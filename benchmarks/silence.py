"""Let the peers of a shared sweep fall silent, and complete each sweep on this machine alone.

    python benchmarks/silence.py [-o silence.json]

A scheduler's connection delivers no byte after a number of bytes, or a process of the cluster is
stopped or killed. The sweep must end within 60 s with one line and without a traceback. All rows
that were on disk are kept, and `--resume` without `--on` completes them. Needs the extra `fleet`.
"""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from shared import GPUBENCH, child, save, verdict

from gpubench.results.row import read

LIMIT_S = 60.0
POINTS, ROUNDS = 40, 3
SWEEP = (
    *(
        "sweep",
        "--device",
        "cpu",
        "--sizes",
        "32..256:32",
        "--tiles",
        "1,2,4,8",
        "--rounds",
        str(ROUNDS),
    ),
    *("--variants", "cpu_tile,cpu_blas", "-o", "a.csv"),
)
MIDDLE = 5
"""Number of measurements after which a process is stopped in the middle."""

BYTES = (500, 1500, 4000, 20_000)
STEPS = ("worker stopped before", "worker stopped", "only worker killed", "scheduler stopped")


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Start a scheduler and a worker."""
    file = ("--scheduler-file", "scheduler.json")
    words = {
        "scheduler": (*file, "--host", "127.0.0.1", "--port", "0", "--dashboard-address", ":0"),
        "worker": (*file, "--nthreads", "1", "--no-nanny"),
    }
    running = {}
    try:
        with (folder / "log.txt").open("ab") as log:
            for name, more in words.items():
                command = [sys.executable, "-m", f"distributed.cli.dask_{name}", *more]
                running[name] = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        while b"Registered to" not in (folder / "log.txt").read_bytes():
            time.sleep(0.1)
        yield running
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def falling_silent(address: tuple[str, int], count: int) -> int:
    """Listen for connections to an address, and forward `count` bytes of its answers.

    Return the port.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    left = count

    def forward(source: socket.socket, target: socket.socket, *, counted: bool) -> None:
        nonlocal left
        with suppress(OSError):
            while block := source.recv(4096):
                if counted:
                    block, left = block[: max(0, left)], left - len(block)
                target.sendall(block)

    def accept() -> None:
        while True:
            ours, _ = listener.accept()
            theirs = socket.create_connection(address)
            for pair in ((ours, theirs, False), (theirs, ours, True)):
                source, target, counted = pair
                threading.Thread(
                    target=forward, args=(source, target), kwargs={"counted": counted}, daemon=True
                ).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(listener.getsockname()[1])


def lines_of(folder: Path) -> int:
    """Return the number of measurements on disk."""
    partial = folder / "a.csv.partial"
    return max(0, partial.read_bytes().count(b"\n") - 1) if partial.exists() else 0


def case(what: str | int) -> dict[str, Any]:
    """Run one case; return how it ended."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with cluster(folder) as running:
            on = "scheduler.json"
            if isinstance(what, int):
                text = (
                    (folder / on).read_text().partition('"address": "tcp://')[2].partition('"')[0]
                )
                host, _, port = text.partition(":")
                on = f"tcp://127.0.0.1:{falling_silent((host, int(port)), what)}"
            if what == STEPS[0]:
                running["worker"].send_signal(signal.SIGSTOP)
            began_s = time.monotonic()
            process = subprocess.Popen(
                [*GPUBENCH, *SWEEP, "--on", on],
                cwd=folder,
                stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
            )
            if what in STEPS[1:]:
                while lines_of(folder) < MIDDLE and process.poll() is None:
                    time.sleep(0.05)
                began_s = time.monotonic()
                victim = running["scheduler" if "scheduler" in str(what) else "worker"]
                victim.send_signal(signal.SIGKILL if "killed" in str(what) else signal.SIGSTOP)
            try:
                _, err = process.communicate(timeout=3 * LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                _, err = process.communicate()
        took_s = time.monotonic() - began_s
        kept = lines_of(folder)
        begun = (folder / "a.csv.partial").exists()
        words = ("sweep", "--resume", "a.csv") if begun else SWEEP
        resumed = child((*GPUBENCH, *words), cwd=folder, err=subprocess.PIPE)
        rows = read(folder / "a.csv") if (folder / "a.csv").exists() else []
        rounds = sum(row.rounds or 0 for row in rows)
        return {
            "case": f"silent after {what} bytes" if isinstance(what, int) else what,
            "exit": process.returncode,
            "seconds": round(took_s, 1),
            "line": err.strip().splitlines()[-1] if err.strip() else "",
            "traceback": "Traceback" in err,
            "measurements_kept": kept,
            "resumed_exit": resumed.code,
            "rows": len(rows),
            "rounds": rounds,
            "short": [row.reason for row in rows if row.rounds != ROUNDS],
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("-o", "--output", type=Path, default=Path("silence.json"))
    asked = parser.parse_args()
    found = []
    for what in (what for what in (*BYTES, *STEPS) if asked.only in str(what)):
        found.append(case(what))
        print(found[-1], flush=True)
    save(asked.output, found)
    outcomes = [verdict(is_right(one), str(one["case"])) for one in found]
    return int(not all(outcomes))


def is_right(one: dict[str, Any]) -> bool:
    """Return whether a sweep ended as it must, and its file was completed."""
    in_time = one["seconds"] <= LIMIT_S and one["exit"] in {1, 2} and not one["traceback"]
    complete = one["rows"] == POINTS and one["rounds"] == POINTS * ROUNDS
    return bool(in_time and complete and one["resumed_exit"] == 0)


if __name__ == "__main__":
    sys.exit(main())
