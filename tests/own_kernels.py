"""Sweeps of a user's right and wrong functions of an operation."""

from collections.abc import Mapping
from pathlib import Path

from commandline import call

from gpubench.results.row import read


def statuses(
    folder: Path, op: str, size: str, kernel: str, bodies: Mapping[str, str]
) -> dict[str, str]:
    """Sweep a kernel once with each body in place of `BODY`, and gpubench's kernels for the CPU.

    Return the status of each function by its name. The exit code must be that of wrong results.
    """
    (folder / "own").mkdir()
    for name, body in bodies.items():
        (folder / "own" / f"{name}.py").write_text(kernel.replace("BODY", body))
    swept = call(
        folder,
        "sweep",
        "--op",
        op,
        "--kernels",
        "own",
        "--device",
        "cpu",
        "--sizes",
        size,
        "--rounds",
        "1",
        "--variants",
        f"{','.join(bodies)},cpu_*",
        "-o",
        "x.csv",
    )
    assert swept.code == 1
    return {row.variant: row.status for row in read(folder / "x.csv")}
