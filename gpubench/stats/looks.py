"""Plans when and how strictly a comparison is judged before all its pairs are measured.

A comparison that is judged several times has several chances of a false verdict. So the false
discovery rate `q` is shared among the looks, and the parts sum to `q` (Bonferroni; this holds
however the looks depend on each other). The last look has most of the rate. The intervals of a look
have its confidence, so they hold whenever the comparison ends (Jennison and Turnbull, Group
Sequential Methods, 2000, chapter 9).
"""

FIRST = 10
"""Number of pairs at the first look. The rounds of both sides together then suffice to judge two
speeds (`modes.DECIDING_ROUNDS`)."""

GROWTH = 1.4
"""Factor between the numbers of pairs of two consecutive looks."""

EARLY = 0.5
"""Part of `q` that all looks before the last one have together, in equal parts."""


def early_looks(pairs: int) -> list[int]:
    """Return the numbers of pairs at the looks before the last one, if `pairs` is the maximum."""
    looks, look = list[int](), float(FIRST)
    while round(look) < pairs:
        looks.append(round(look))
        look *= GROWTH
    return looks


def share(measured: int, pairs: int, *, is_last: bool) -> float:
    """Return the part of `q` that the look after `measured` pairs has; 0: there is no look.

    `pairs` is the maximum number of pairs. A budget may end the comparison earlier; the last look
    is then earlier, too.
    """
    looks = early_looks(pairs)
    if is_last:
        return 1.0 if not looks or measured <= looks[0] else 1 - EARLY
    return EARLY / len(looks) if measured in looks else 0.0
