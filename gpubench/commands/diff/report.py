"""Makes the report on a comparison of times, with its headline, notes, advice and figures."""

import math
import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain

from gpubench.commands.diff.compare import NO_INTERVAL
from gpubench.commands.diff.findings import (
    ABSENT,
    TOO_FEW,
    Cause,
    Comparison,
    DiffVerdict,
    Disturbance,
    Finding,
    Key,
    Limits,
)
from gpubench.commands.diff.formats import STRICT, Line, Report, exit_code, shortened
from gpubench.commands.diff.options import AB_CPU_PAIRS, AB_PAIRS, Options
from gpubench.commands.diff.sides import Side, gpus_of, is_blas
from gpubench.commands.diff.weighted import Total, weighted_totals
from gpubench.model import DEFAULT_OP, OPERATIONS, Timer, layouts_of
from gpubench.results.row import KEY, Row
from gpubench.stats.modes import DECIDING_ROUNDS
from gpubench.text import counted
from gpubench.view.numbers import milliseconds, tile_order
from gpubench.view.sentences import conditions, ratio_text

LABELLED = {"variant", "tile", "backend", "m", "n", "k", "extents"}
"""Columns of the key that are not added to labels. The labels have these columns already, or never
need them."""

MIN_SHARED = 3
"""Minimum number of points for a statement about most of the points."""

OPTIONS = {
    "op": ("op", DEFAULT_OP),
    "sizes": ("size", ""),
    "tiles": ("tile", ""),
    "variants": ("variant", ""),
    "dtypes": ("compute_mode", "float32"),
    "operands": ("operands", "uniform"),
    "cache": ("cache", "cold"),
    "launches": ("launches", "alone"),
    "state": ("state", "burst"),
    "scope": ("scope", "kernel"),
    "device": ("backend", ""),
}
"""Options of a sweep. Each option has the column whose values the option selects, and a default."""

SWEEPS = 5
"""Recommended number of sweeps per side on a CPU."""


def make_report(
    comparison: Comparison,
    base: Side,
    new: Side,
    options: Options,
    builds: tuple[str, str] | None = None,
) -> Report:
    """Return the report on a comparison of two sides.

    `builds` has the names of the two sides of `ab`. The advice and the last sentence of the report
    use these names.
    """
    rows = {row.key: row for row in (*base.rows, *new.rows)}
    dtypes = dict.fromkeys(row.dtype for row in rows.values())
    sentence = _sentence(comparison, rows, builds) if builds else ""
    labels = _labels(rows)
    open_verdicts = {DiffVerdict.AMBIGUOUS, DiffVerdict.MISSING}
    own = {key: item for key, item in comparison.findings.items() if not is_blas(rows[key])}
    totals = weighted_totals(options.weights, own, comparison.limits) if options.weights else []
    verdicts = {*comparison.counts, *(total.verdict for total in totals)}
    unsettled = bool(verdicts & open_verdicts) or comparison.drifted
    unsettled = (options.strict and unsettled) or not comparison.two_sided
    code = exit_code(verdicts, DiffVerdict, unsettled=unsettled)
    is_judged = any(finding.p is not None for finding in comparison.two_sided.values())
    not_judged = "" if is_judged else _why_untested(comparison)
    untimed = comparison.untimed
    closing = [
        f"points without a time on either side: {len(untimed)}" if untimed else "",
        _blind(comparison),
    ]
    closing += [f"weighted total of {counted(x.problems, 'problem')}: {x}" for x in totals]
    return Report(
        base=base.name,
        new=new.name,
        machine=", ".join(filter(None, (new.rows[0].device, *dtypes))),
        unit="point",
        verdicts=tuple(DiffVerdict),
        open_verdicts=open_verdicts,
        headings=("base, ms", "new, ms", "change", "interval, %", ""),
        lines=tuple(
            Line(key, labels[key], finding, _cells(finding), _brief(finding))
            for key, finding in comparison.findings.items()
        ),
        headline=_headline(comparison, code, not_judged, labels, totals),
        colour="red" if code else "yellow" if not_judged else "green",
        exit_code=code,
        equal=f"within ±{100 * comparison.limits.threshold:g} %",
        notes=tuple(_notes(comparison, rows, base, new)),
        advice=tuple(_advice(comparison, rows, builds, strict=options.strict)),
        closing=tuple(filter(None, (*closing, sentence))),
        fields={
            "limits": asdict(comparison.limits),
            "drift": comparison.drift,
            "drifted": comparison.drifted,
            "untested": len(comparison.untested),
            "detectable": asdict(comparison.detectable),
            "totals": [asdict(total) for total in totals],
            "disturbances": [asdict(item) for item in comparison.disturbances],
            "untimed": [key._asdict() | {"reason": reason} for key, reason in untimed.items()],
        },
        strict=options.strict,
        full=options.full,
    )


def _headline(
    comparison: Comparison,
    code: int,
    not_judged: str,
    labels: Mapping[Key, str],
    totals: Iterable[Total],
) -> str:
    """Return a line with the overall verdict.

    The line begins with the machine's shift if this shift exceeds the threshold.
    """
    shift = f"machine-wide shift of {_change(comparison.drift)}: " if comparison.drifted else ""
    counts = comparison.counts
    points = f"of {counted(sum(counts.values()), 'point')}"
    if broken := counts[DiffVerdict.BROKEN]:
        slower = f"; {counts[DiffVerdict.SLOWER]} slower" if counts[DiffVerdict.SLOWER] else ""
        return f"{shift}broken: {broken} {points} wrong or lost{slower}"
    if slowdowns := comparison.of(DiffVerdict.SLOWER):
        worst, finding = next(iter(slowdowns.items()))
        # The point's line shows `ratio`. If `judged_ratio` differs by more than half the threshold,
        # a remark shows `judged_ratio`.
        distance = abs(math.log((finding.judged_ratio or 1.0) / (finding.ratio or 1.0)))
        is_remarked = distance > math.log1p(comparison.limits.threshold) / 2
        change = _change(finding.judged_ratio if is_remarked else finding.ratio)
        by = f"{change.lstrip('+')} ({labels[worst]})"
        return f"{shift}slower: {len(slowdowns)} {points}, by up to {by}"
    too_long = [total for total in totals if total.verdict == DiffVerdict.SLOWER]
    order = ("same", "faster", "ambiguous", "clock", "missing", "new")
    named = (name for name in map(DiffVerdict, order) if counts[name])
    listed = ", ".join(f"{counts[name]:,} {name}" for name in named)
    kind = "not settled" if code == STRICT else "no confirmed regression"
    if too_long:
        longest = max(too_long, key=lambda total: total.ratio)
        return f"{shift}slower: the weighted total of {longest}; {listed} {points}"
    if not comparison.two_sided:
        kind = "nothing compared"
    elif 2 * counts[DiffVerdict.AMBIGUOUS] > len(comparison.two_sided):
        kind = "not decided"
    if not_judged:
        return f"{shift}not judged: {not_judged}; {listed} {points}"
    return f"{shift}{kind}: {listed} {points}"


def _blind(comparison: Comparison) -> str:
    """Return a line on the smallest slow-downs that the comparison would have found."""
    largest_shown = math.expm1(NO_INTERVAL)
    sizes = [
        size if size and size < largest_shown else None
        for size in asdict(comparison.detectable).values()
    ]
    if not any(sizes):
        return ""
    names = zip(("everything", "one kernel", "one point"), sizes, strict=True)
    texts = (f"{name} {'never' if size is None else f'{100 * size:.1f} %'}" for name, size in names)
    at_modes = sum(finding.modes > 1 for finding in comparison.two_sided.values())
    less = f"; found less often at {counted(at_modes, 'point')} with two speeds" if at_modes else ""
    return f"smallest slow-downs found in nine of ten cases: {', '.join(texts)}{less}"


def _why_untested(comparison: Comparison) -> str:
    """Return why points could not be judged, and what to measure."""
    causes = {finding.cause for finding in comparison.untested.values()}
    if Cause.TOO_FEW_SWEEPS in causes:
        return f"a CPU needs {SWEEPS} sweeps per side"
    return "each side has one round, so measure more --rounds" if causes else ""


def _labels(rows: Mapping[Key, Row]) -> dict[Key, str]:
    """Return the label of each point.

    A label has the columns of the key whose values vary between the points.
    """
    values = {name: {getattr(row, name) for row in rows.values()} for name in KEY}
    varying = [name for name in KEY if name not in LABELLED and len(values[name]) > 1]
    labels = {}
    for key, row in rows.items():
        mode = "" if row.compute_mode == row.dtype else row.compute_mode
        columns = (mode if name == "compute_mode" else getattr(row, name) for name in varying)
        labels[key] = " ".join(filter(None, (row.variant, row.tile, "at", row.size, *columns)))
    return labels


def _notes(comparison: Comparison, rows: Mapping[Key, Row], base: Side, new: Side) -> Iterator[str]:
    limits = comparison.limits
    two_sided = comparison.two_sided
    if disturbed := [_disturbance(item, base, new) for item in comparison.disturbances]:
        yield f"disturbed (the effect is removed before points are judged): {shortened(disturbed)}"
    if untested := comparison.untested:
        yield f"{counted(len(untested), 'point')} cannot be judged: {_why_untested(comparison)}"
    bimodal = [key for key, finding in two_sided.items() if finding.modes > 1]
    if open_modes := [key for key in bimodal if two_sided[key].verdict == DiffVerdict.AMBIGUOUS]:
        yield (
            f"{shortened([rows[key].label for key in open_modes])} ran at two speeds, and each "
            f"process at one of them. Measure at least {DECIDING_ROUNDS} rounds of both sides"
        )
    if comparison.drifted:
        yield (
            f"most points and the BLAS moved together by {_change(comparison.drift)}: the machine "
            "changed. Points are judged by their change beyond that shift"
        )
    alone = [item.ratio for item in two_sided.values() if item.cause == Cause.LIBRARY_MOVED]
    if alone:
        change = _change(statistics.median(filter(None, alone)))
        yield (
            f"only the library moved, by {change}. Kernels with the same code on both sides did "
            "not move with it, so they show what the machine did"
        )
    elif len(two_sided) >= MIN_SHARED and not any(is_blas(rows[key]) for key in two_sided):
        shared = statistics.median(finding.ratio or 1.0 for finding in two_sided.values())
        if abs(math.log(shared)) > math.log1p(limits.threshold):
            yield (
                f"most points moved together by {_change(shared)}. Without a row of a BLAS, the "
                "cause may be the machine or the build: also sweep cublas (or cpu_blas)"
            )
    gpus = [gpus_of(row for row in side.rows if row.median_us) for side in (base, new)]
    if limits.between_gpus and all(gpus) and gpus[0] != gpus[1]:
        yield (
            "the sides ran on different GPUs of one kind: only changes beyond "
            f"{100 * limits.between_gpus:g} % count, unless you use --ignore-device"
        )
    for column in ("gpubench", "library", "cupy"):
        values = [{getattr(row, column) for row in side.rows} - {None} for side in (base, new)]
        if all(values) and values[0] != values[1]:
            before, after = (", ".join(sorted(names)) for names in values)
            yield f"{column}: {before} on the base side, {after} on the new side"


def _disturbance(disturbance: Disturbance, base: Side, new: Side) -> str:
    """Return a text on a disturbed round, such as `round 3 of new.csv (new side), +30.1 %`."""
    path = list((base if disturbance.side == "base" else new).files)[disturbance.file]
    where = f"round {disturbance.round} of {path.name}" if disturbance.round else path.name
    left_out = (
        ", but not equally at all points, so the round is left out" if disturbance.left_out else ""
    )
    return f"{where} ({disturbance.side} side), {_change(disturbance.ratio)}{left_out}"


def _sentence(comparison: Comparison, rows: Mapping[Key, Row], builds: tuple[str, str]) -> str:
    """Return a sentence on the point that changed most.

    Return an empty text if no point has an interval.

    The point is the first in this order of verdicts: slower, faster, ambiguous, clock, same.
    """
    order = map(DiffVerdict, ("slower", "faster", "ambiguous", "clock", "same"))
    findings = chain.from_iterable(comparison.of(verdict).items() for verdict in order)
    changed = ((key, each) for key, each in findings if each.ratio_low and not is_blas(rows[key]))
    if not (first := next(changed, None)):
        return ""
    row, finding = rows[first[0]], first[1]
    speed = 1 / (finding.judged_ratio or 1.0)
    half = max((finding.ratio or 1.0) / (finding.ratio_low or 1.0) - 1, 0.0)
    ratio = ratio_text(speed, speed * half)
    base, new = builds
    text = (
        f"`{row.kernel}` in {new} is {ratio} times as fast as in {base} "
        f"at {row.size} ({conditions(row)})"
    )
    if finding.verdict == DiffVerdict.SAME:
        return f"{text}: the same within ±{100 * comparison.limits.threshold:g} %"
    confirmed = finding.verdict in {DiffVerdict.SLOWER, DiffVerdict.FASTER}
    return text if confirmed else f"{text}: no change is confirmed"


def _advice(
    comparison: Comparison, rows: Mapping[Key, Row], builds: tuple[str, str] | None, *, strict: bool
) -> list[str]:
    """Return the commands that would settle the ambiguous points."""
    open_points = comparison.of(DiffVerdict.AMBIGUOUS)
    if not open_points:
        return []
    # On a CPU, the rounds of a finding are sweeps.
    rounds = min(min(finding.base_rounds, finding.new_rounds) for finding in open_points.values())
    default = AB_CPU_PAIRS if {key.backend for key in open_points} == {"cpu"} else AB_PAIRS
    pairs = {"pairs": str(max(2 * rounds, default))} if builds or 2 * rounds > default else {}
    how = "more pairs" if builds else "both builds in turns"
    lines = []
    for op in dict.fromkeys(key.op for key in open_points):  # a sweep has one operation
        chosen = [rows[key] for key in open_points if key.op == op]
        blas = [row for row in rows.values() if row.op == op and is_blas(row)]
        variants = _listed(row.variant for row in (*chosen, *blas))
        options = covering_options(chosen) | {"variants": variants} | pairs
        if comparison.limits.threshold != Limits.threshold:
            options["threshold"] = f"{100 * comparison.limits.threshold:g}%"
        words = [word for name, text in options.items() for word in (f"--{name}", text)]
        words += ["--strict"] if strict else []
        command = shlex.join(["gpubench", "ab", *(builds or ("BASE", "NEW")), *words])
        lines.append(f"to settle these points, measure {how}: {command}")
    return lines


def covering_options(rows: Sequence[Row]) -> dict[str, str]:
    """Return the options of the smallest sweep that includes the points of all rows."""
    options = {
        name: _listed(getattr(row, column) for row in rows) for name, (column, _) in OPTIONS.items()
    }
    options |= {
        name: _listed(sorted(options[name].split(","), key=tile_order))
        for name in ("sizes", "tiles")
    }
    options |= {name: "both" for name in ("cache", "state", "scope") if "," in options[name]}
    options = {name: text for name, text in options.items() if text not in {"", OPTIONS[name][1]}}
    with_layouts = {op for op, operation in OPERATIONS.items() if operation.has_layouts}
    if layouts := layouts_of(row.layout for row in rows if row.op in with_layouts):
        options["layouts"] = _listed(layouts)
    if any(row.timer == Timer.CUPTI for row in rows):
        options["timer"] = Timer.CUPTI
    return options


def _listed(items: Iterable[str]) -> str:
    return ",".join(filter(None, dict.fromkeys(items)))


def _change(ratio: float | None) -> str:
    """Return a ratio as a change in percent. For the ratio 1.051, this is `+5.1 %`."""
    return "" if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def _cells(finding: Finding) -> tuple[str, ...]:
    """Return the cells of a point in the table: times, change, interval, and remarks."""
    is_clock = finding.verdict == DiffVerdict.CLOCK
    low, high = (_change(end).removesuffix(" %") for end in (finding.ratio_low, finding.ratio_high))
    return (
        milliseconds(finding.base_us or finding.base_median_us),
        milliseconds(finding.new_us or finding.new_median_us),
        _change(finding.ratio),
        f"{low} .. {high}" if low else "",
        f"in cycles {_change(finding.cycles_ratio)}" if is_clock else finding.reason,
    )


def _brief(finding: Finding) -> str:
    """Return a point's change for a list, or the reason why the change is unknown."""
    *_, change, interval, remark = _cells(finding)
    if finding.cause in TOO_FEW:
        return f" {change}"  # a note states the cause
    if not change:
        return "" if remark in {"", ABSENT} else f" ({remark})"
    if finding.verdict == DiffVerdict.CLOCK:
        return f" {change}, {remark}"
    if finding.verdict == DiffVerdict.AMBIGUOUS:
        because = ", ".join(filter(None, (f"{interval} %" if interval else "", remark)))
        return f" {change} ({because or 'the rounds scatter too much for an interval'})"
    return f" {change}"
