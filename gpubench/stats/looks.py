"""Plans how often, and how strictly, a comparison is judged while its pairs are still measured.

A look is a judgement of the pairs that have been measured so far. Each look is a further chance of
a false verdict. So the false discovery rate `q` is divided among the looks, and the parts sum to
`q` (Bonferroni; this is valid however the looks depend on each other). The last look has the
largest part. The intervals of a look have the confidence of the look's part, so they are valid at
whichever look the comparison ends (Jennison and Turnbull, Group Sequential Methods, 2000, chapter
9).
"""

FIRST = 10
"""Number of pairs at the first look. The rounds of both sides together then suffice to judge a
point with two speeds (`modes.DECIDING_ROUNDS`)."""

GROWTH = 1.4
"""Factor between the numbers of pairs of two consecutive looks."""

EARLY = 0.5
"""Fraction of `q` that is divided equally among all looks before the last look."""


def early_looks(pairs: int) -> list[int]:
    """Return the number of pairs at each look before the last look.

    `pairs` is the maximum number of pairs.
    """
    looks, look = list[int](), float(FIRST)
    while round(look) < pairs:
        looks.append(round(look))
        look *= GROWTH
    return looks


def share(measured: int, pairs: int, *, is_last: bool) -> float:
    """Return the fraction of `q` that belongs to the look after `measured` pairs.

    Return 0 if there is no such look.

    `pairs` is the maximum number of pairs. A budget may end the comparison earlier; the last look
    is then earlier, too.
    """
    looks = early_looks(pairs)
    if is_last:
        return 1.0 if not looks or measured <= looks[0] else 1 - EARLY
    return EARLY / len(looks) if measured in looks else 0.0
