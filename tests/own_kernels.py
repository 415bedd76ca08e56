"""Sweeps of functions of a user, right and wrong ones, for an operation."""

from collections.abc import Mapping
from pathlib import Path

from commandline import call

from gpubench.results.row import read


def statuses(
    folder: Path, op: str, size: str, kernel: str, bodies: Mapping[str, str]
) -> dict[str, str]:
    """Sweep a kernel with each body in place of `BODY`, beside those of the CPU.

    Return the status of each function by its name. The sweep must end as one with wrong results.
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
