"""Launches of kernels with EDGE×EDGE threads for EDGE×EDGE elements of C, in every layout."""

from __future__ import annotations

from collections.abc import Callable

from gpubench.model import Config, Launch, Problem


def square_blocks_of(name: str) -> Callable[[Config, Problem], Launch]:
    """Return the launch of the template `name<Scalar, EDGE, A_BY_COLUMNS, B_BY_COLUMNS>`.

    The last two parameters are false by default.
    """

    def launch(tile: Config, problem: Problem) -> Launch:
        edge = tile["edge"]
        a, b, _ = (str(by_columns).lower() for by_columns in problem.by_columns)
        return Launch(
            grid=(-(-problem.n // edge), -(-problem.m // edge)),
            block=(edge, edge),
            kernel=f"{name}<{{scalar}}, {{edge}}, {a}, {b}>" if problem.column_major else "",
        )

    return launch
