"""`gpubench compare-cublas` on a machine without a GPU."""

import typer

from gpubench.cli import app
from gpubench.errors import GpubenchError


def refusal(*flags: str) -> str:
    try:
        typer.main.get_command(app)(["compare-cublas", *flags], standalone_mode=False)
    except GpubenchError as error:
        return str(error)
    raise AssertionError("it did not refuse")


def test_it_says_one_thing_whatever_device_is_named() -> None:
    for message in (refusal(), refusal("--device", "cpu"), refusal("--device", "cuda")):
        assert message.startswith("compare-cublas needs an NVIDIA GPU")
        assert message.endswith("; 'gpubench sweep --device cpu' compares against the CPU's BLAS")
        assert message.count("--device cpu") == 1
