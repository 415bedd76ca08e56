"""Points of result files, measured again with the kernels that are here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpubench.errors import UsageError
from gpubench.measure.session import Watcher, run, source_hash
from gpubench.measure.worker import Worker
from gpubench.model import Point, Timer
from gpubench.options import read_sweep
from gpubench.plan.registry import variants
from gpubench.row import Row


def covering(rows: Sequence[Row]) -> dict[str, str]:
    """Options of the smallest sweep that has all these points; it may have more."""
    options = {
        "op": _listed(one.op for one in rows),
        "sizes": _listed(one.size for one in rows),
        "tiles": _listed(one.tile for one in rows if one.tile),
        "variants": _listed(one.variant for one in rows),
        "dtypes": _listed(one.dtype for one in rows),
        "cache": _one_or_both(one.cache for one in rows),
        "scope": _one_or_both(one.scope for one in rows),
        "timer": "cupti" if any(one.timer == Timer.CUPTI for one in rows) else "",
        "device": _listed(one.backend for one in rows),
    }
    usual = {"op": "gemm", "cache": "cold", "scope": "kernel", "dtypes": "float32"}
    return {name: text for name, text in options.items() if text and text != usual.get(name)}


def _listed(items: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(items))


def _one_or_both(items: Iterable[str]) -> str:
    listed = _listed(items)
    return "both" if "," in listed else listed


def source_hashes() -> dict[tuple[str, str], str]:
    """The source hash of every variant that is here, by operation and name."""
    return {(variant.op, variant.name): source_hash(variant) for variant in variants()}


def measure_again(rows: Sequence[Row], rounds: int, watcher: Watcher) -> list[Row]:
    """Measure just these points, with the kernels that are here, in so many rounds.

    Raises UsageError if this machine is not the one that the rows name.
    """
    groups: dict[tuple[str, bool], list[Row]] = {}
    for one in rows:  # a sweep has one operation and one timer
        groups.setdefault((one.op, one.timer == Timer.CUPTI), []).append(one)
    return [fresh for group in groups.values() for fresh in _one_sweep(group, rounds, watcher)]


def _one_sweep(rows: Sequence[Row], rounds: int, watcher: Watcher) -> list[Row]:
    sweep = read_sweep(covering(rows) | {"rounds": str(rounds)}, None)
    keys = {one.key for one in rows}
    with Worker(sweep.device, sweep.timer) as worker:
        for one in rows:
            if one.device not in {None, worker.device.name}:
                raise UsageError(
                    f"--rerun: {one.label} was measured on {one.device}, and this machine has "
                    f"{worker.device.name}"
                )

        def wanted(point: Point) -> bool:
            return point.key in keys

        outcome = run(sweep, worker, watcher, wanted=wanted)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.rows
