"""Returns texts for `Launch.kernel`, which select the instance for a layout or an alignment."""

from collections.abc import Callable

from gpubench.model import Config, Launch, Problem


def instance(name: str, tile: Config, *flags: bool) -> str:
    """Return an instance of a template. The last arguments of the template are `flags`."""
    numbers = (f"{{{axis}}}" for axis in tile)
    arguments = ("{scalar}", *numbers, *(str(flag).lower() for flag in flags))
    return f"{name}<{', '.join(arguments)}>"


def unaligned(name: str, tile: Config, problem: Problem) -> str:
    """Return the instance for an N that is not a multiple of 4, or an empty text for other N.

    The template's last parameter is true by default.
    """
    return instance(name, tile, False) if problem.n % 4 else ""


def instance_in_layout(name: str, tile: Config, problem: Problem) -> str:
    """Return the instance for the layout of A and B, or an empty text if both are row-major.

    The template's last two parameters are false by default.
    """
    if not problem.column_major:
        return ""
    a, b, _ = problem.by_columns
    return instance(name, tile, a, b)


def square_blocks(name: str) -> Callable[[Config, Problem], Launch]:
    """Return a launch function. Each block has EDGE×EDGE threads, one for each element of C."""

    def launch(tile: Config, problem: Problem) -> Launch:
        edge = tile["edge"]
        return Launch(
            grid=(-(-problem.n // edge), -(-problem.m // edge)),
            block=(edge, edge),
            kernel=instance_in_layout(name, tile, problem),
        )

    return launch
