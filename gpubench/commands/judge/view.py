"""Shows the verdicts as a table, and as JSON with all that is needed to repeat the verdicts."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

import gpubench
from gpubench.commands.judge.verdicts import LEVEL, Judged, JudgeVerdict, exit_code
from gpubench.results.row import KEY, Row, objects
from gpubench.text import counted
from gpubench.view.numbers import time_text
from gpubench.view.sentences import conditions
from gpubench.view.tables import table

JSON_FORMAT = 2
"""Version of the JSON. The version increases when a member is removed or changes its meaning."""


def as_tables(judged: Sequence[Judged], claim: float) -> list[RenderableType]:
    """Return the table of the verdicts, the reasons, and the overall verdict."""
    on_cpu = any(each.row.cpu_threads for each in judged)
    texts, figures = ("verdict", "kernel", "size", "conditions"), ["time", "ratio", "baseline"]
    figures += ["threads"] if on_cpu else []
    grid = table(*texts, *figures, left={*texts, "baseline"})
    reasons = []
    for each in judged:
        row, where = each.row, conditions(each.row)
        time = time_text(row.median_us) if row.median_us else ""
        baseline = each.baseline.kernel if each.baseline else ""
        cells = str(each.verdict), row.kernel, row.size, where, time, ratio(each), baseline
        grid.add_row(*cells, *((threads(each),) if on_cpu else ()))
        if each.reason:
            point = f"{row.kernel} at {row.size} ({where})"
            reasons.append(Text(f"{each.verdict}: {point}: {each.reason}"))
    return [grid, *reasons, Text(f"\n{headline(judged, claim)}")]


def threads(judged: Judged) -> str:
    """Return the numbers of CPU threads of the kernel and of the baseline, such as `2 and 1`."""
    rows = filter(None, (judged.row, judged.baseline))
    return " and ".join(str(row.cpu_threads) for row in rows if row.cpu_threads)


def ratio(each: Judged) -> str:
    """Return the ratio and its interval as a text, such as `1.12 (1.10 to 1.13)`."""
    return "{:.2f} ({:.2f} to {:.2f})".format(*each.ratio) if each.ratio else ""


def headline(judged: Sequence[Judged], claim: float) -> str:
    """Return the overall verdict, and the number of times that each verdict occurs.

    An example is `not as claimed (claim: the baseline): 4 verdicts, 2 faster, 1 same, 1 wrong`.
    """
    counts = Counter(each.verdict for each in judged)
    listed = ", ".join(f"{counts[name]} {name}" for name in JudgeVerdict if counts[name])
    code = exit_code(judged)
    text = {0: "as claimed or faster", 1: "not as claimed", 3: "not decided"}[code]
    if not judged:
        return f"{text}: nothing was measured"
    against = "the baseline" if claim == 1 else f"{claim:g} times the baseline's speed"
    return f"{text} (claim: {against}): {counted(len(judged), 'verdict')}, {listed}"


def as_json(judged: Sequence[Judged], rows: Sequence[Row], facts: Mapping[str, object]) -> str:
    """Return the facts of the call, the verdicts, and the rows with seeds, hashes and versions."""
    verdicts = [
        {
            **{name: getattr(each.row, name) for name in KEY},
            "verdict": str(each.verdict),
            "reason": each.reason,
            "time_us": each.row.median_us,
            "baseline": each.baseline.kernel if each.baseline else None,
            "baseline_time_us": each.baseline.median_us if each.baseline else None,
            "ratio": each.ratio.ratio if each.ratio else None,
            "ratio_low": each.ratio.low if each.ratio else None,
            "ratio_high": each.ratio.high if each.ratio else None,
            "faster_low": each.low,
            "threads": each.row.cpu_threads,
            "baseline_threads": each.baseline.cpu_threads if each.baseline else None,
            "pairs": each.pairs,
        }
        for each in judged
    ]
    document = {
        "format": JSON_FORMAT,
        "gpubench": gpubench.__version__,
        "exit_code": exit_code(judged),
        **facts,
        "level": LEVEL,
        "verdicts": verdicts,
        "rows": objects(rows),
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
