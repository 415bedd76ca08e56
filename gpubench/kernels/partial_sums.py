"""The launch that adds up parts of a vector: `partial_sums.cuh`."""

from gpubench.model import Launch

SUM_COLUMNS = 32
SUM_GROUPS = 16


def sum_launch(kernel: str, columns: int, *numbers: int) -> Launch:
    """Add up parts of `columns` elements each, by a template of the variant's source."""
    return Launch(
        grid=(-(-columns // SUM_COLUMNS),),
        block=(SUM_COLUMNS, SUM_GROUPS),
        kernel=kernel,
        numbers=numbers,
    )
