"""Writes sentences that a person can quote.

A sentence states how many times as fast a kernel is as another kernel.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rich.text import Text

from gpubench.model import PRECISIONS, Status
from gpubench.plan import registry
from gpubench.results.row import Row
from gpubench.stats.chosen import together
from gpubench.stats.intervals import MIN_ROUNDS
from gpubench.view.row_tables import DISAGREE, best_of, by_problem

MAX_SENTENCES = 8
"""If there are at most this number of problems, each problem has a sentence. More problems share
one sentence."""

BASELINE_ROUNDING = 1e-9
"""Rounding error of a baseline's time that is computed from `percent_of_blas`."""


def ratio_text(value: float, half: float | None) -> str:
    """Return a ratio with half of its 95 % interval, such as `1.12 ± 0.01`.

    The size of the half interval determines the number of decimals. The half interval is rounded
    up.

    `half` is None if no interval is known.
    """
    if half is None:
        return f"{value:.2f}"
    digits = min(3, max(0, -math.floor(math.log10(half)))) if half else 3
    half = math.ceil(half * 10**digits - 1e-9) / 10**digits
    return f"{value:.{digits}f} ± {half:.{digits}f}"


def sentences(rows: Sequence[Row], *, tiles: bool = True) -> list[Text]:
    """Return sentences about the problems of the rows. Tiles are named only if `tiles` is true.

    The fastest kernel of a problem is compared with the BLAS for this problem. If there is no BLAS,
    the fastest kernel is compared with the second fastest kernel, or with its own second fastest
    tile. The interval is widened, because both kernels were chosen as the fastest of several
    kernels.
    """
    measured = [row for row in rows if row.status == Status.OK and row.median_us]
    names = registry.libraries()
    pairs = [pair for of_problem in by_problem(measured) if (pair := _compared(of_problem, names))]
    if len(pairs) > MAX_SENTENCES:
        lines = [_together(pairs, names)]
    else:
        lines = [_sentence(*pair, tiles=tiles) for pair in pairs]
    lines = list(filter(None, lines))
    return [Text(f"\n{line}" if line is lines[0] else line) for line in lines]


def _compared(rows: Sequence[Row], names: frozenset[str]) -> tuple[Row, Row] | None:
    """Return the row of a problem's fastest kernel, and the row to compare with this kernel."""
    kernels = [row for row in rows if row.variant not in names]
    if not kernels:
        return None
    best = best_of(kernels)
    # The baseline has the kernel's dtype and threads, and is the faster of two BLAS calls.
    blas_us = (best.median_us or 0.0) * (best.percent_of_blas or 0.0) / 100
    is_blas = partial(math.isclose, blas_us, rel_tol=BASELINE_ROUNDING)
    blas = [row for row in rows if row.variant in names and is_blas(row.median_us or 0.0)]
    others = [row for row in kernels if row.variant != best.variant]
    compared = blas or others or [row for row in kernels if row is not best]
    return _as_chosen(best, best_of(compared), kernels) if compared else None


def _as_chosen(best: Row, other: Row, rows: Sequence[Row]) -> tuple[Row, Row]:
    """Return two rows with intervals that hold although the rows were chosen from `rows`."""
    with_interval = [row for row in rows if row.half_interval is not None]
    halves = together(
        [row.half_interval or 0.0 for row in with_interval],
        [row.round_medians_us for row in with_interval],
    )
    half_of = dict(zip(map(id, with_interval), halves.tolist(), strict=True))

    def widened(row: Row) -> Row:
        if id(row) not in half_of:
            return row
        centre_us = row.median_us or 0.0
        half_us = half_of[id(row)] * centre_us
        return replace(row, ci_low_us=centre_us - half_us, ci_high_us=centre_us + half_us)

    return widened(best), widened(other)


def _sentence(best: Row, other: Row, *, tiles: bool) -> str:
    name, other_name = (
        f"`{f'{row.variant} {row.tile}'.strip() if tiles else row.variant}`"
        for row in (best, other)
    )
    where = f"at {best.size} ({conditions(best)})"
    if best.unstable or other.unstable:
        return f"do not quote a ratio of {name} to {other_name} {where}: {DISAGREE}"
    value, half = _ratio(best, other)
    if half is None:
        advice = f"use --rounds {MIN_ROUNDS} or more"
        return f"for a ratio of {name} to {other_name} {where} with its interval, {advice}"
    as_fast = f"{name} is {ratio_text(value, half)} times as fast as {other_name} {where}"
    as_fast += _in_another_precision([(best, other)], other_name)
    is_open = abs(value - 1) <= half  # the interval includes 1
    return f"{as_fast}: no difference is shown" if is_open else as_fast


def _together(pairs: Sequence[tuple[Row, Row]], names: frozenset[str]) -> str:
    """Summarize many problems in a sentence. Empty if a BLAS is missing or rounds disagree."""
    if any(o.variant not in names or b.unstable or o.unstable for b, o in pairs):
        return ""
    ratios = [_ratio(best, other)[0] for best, other in pairs]
    mean = statistics.geometric_mean(ratios)
    libraries = " or ".join(dict.fromkeys(f"`{other.variant}`" for _, other in pairs))
    return (
        f"the fastest kernel of {len(pairs)} problems is {mean:.2f} times as fast as {libraries} "
        f"in the geometric mean, from {min(ratios):.2f} to {max(ratios):.2f}"
        f"{_in_another_precision(pairs, libraries)}"
    )


def _in_another_precision(pairs: Sequence[tuple[Row, Row]], name: str) -> str:
    """Return a text about the precision in which libraries compute, and about their larger errors.

    The text is empty if all libraries compute in the precision that their rows state.
    """
    modes = (PRECISIONS.get(other.compute_mode) for _, other in pairs)  # newer files have others
    precisions = {mode.in_blas for mode in modes if mode} - {""}
    if not precisions or any(other.variant not in registry.libraries() for _, other in pairs):
        return ""
    ratios = [
        f"{2 ** (other.error_rms_bits - best.error_rms_bits):.2g}"
        for best, other in pairs
        if best.error_rms_bits and other.error_rms_bits
    ]
    ratios.sort(key=float)
    ends = " to ".join(dict.fromkeys(ratios[:1] + ratios[-1:]))
    computes = f"computes in {' and '.join(sorted(precisions))}"
    if ratios:
        return f", with {ends} times the error (rms) of {name}, which {computes}"
    return f"; {name} {computes}"


def _ratio(best: Row, other: Row) -> tuple[float, float | None]:
    """Return the speed of a row relative to the other row, and half of the ratio's interval.

    If the rows were not measured in pairs, the squares of both half intervals are added.
    """
    if best.pair_ratio and best.pair_library == other.kernel:
        low, high = best.pair_ratio_low, best.pair_ratio_high
        if low is None or high is None:
            return best.pair_ratio, None
        return best.pair_ratio, max(high - best.pair_ratio, best.pair_ratio - low)
    value = (other.median_us or 0.0) / (best.median_us or 1.0)
    if best.half_interval is None or other.half_interval is None:
        return value, None
    return value, value * math.hypot(best.half_interval, other.half_interval)


def conditions(row: Row) -> str:
    """Return the precision, the cache state, and the conditions that are not the default."""
    return f"{row.compute_mode}, {row.conditions}{row.special}"
