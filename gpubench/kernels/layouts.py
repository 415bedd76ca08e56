"""Kernels that take A and B in every layout: `name<Scalar, tile…, A_BY_COLUMNS, B_BY_COLUMNS>`."""

from collections.abc import Callable

from gpubench.model import Config, Launch, Problem


def instance_in_layout(name: str, tile: Config, problem: Problem) -> str:
    """Return the instance of a template for `Launch.kernel`; empty for row-major operands.

    The template's last two parameters are false by default.
    """
    if not problem.column_major:
        return ""
    a, b, _ = (str(by_columns).lower() for by_columns in problem.by_columns)
    return f"{name}<{', '.join(['{scalar}', *(f'{{{axis}}}' for axis in tile), a, b])}>"


def square_blocks(name: str) -> Callable[[Config, Problem], Launch]:
    """Return the launch of a template with EDGE×EDGE threads for EDGE×EDGE elements of C."""

    def launch(tile: Config, problem: Problem) -> Launch:
        edge = tile["edge"]
        return Launch(
            grid=(-(-problem.n // edge), -(-problem.m // edge)),
            block=(edge, edge),
            kernel=instance_in_layout(name, tile, problem),
        )

    return launch
