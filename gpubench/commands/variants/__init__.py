"""`gpubench variants`."""

from functools import partial
from typing import Annotated, Any

import typer

from gpubench import completion
from gpubench import options as option
from gpubench.errors import UsageError
from gpubench.text import shown

app = typer.Typer()


@app.command(epilog="Example: gpubench variants --device cpu")
@partial(
    option.chosen_options,
    options={
        "op": ("OP", "Only this operation, such as gemm. Default: all; with --kernels, gemm."),
        "device": ("BACKEND", "Only this backend: cuda or cpu."),
        "kernels": None,
    },
)
def variants(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VARIANT",
            help="Only these kernels, or patterns such as 'cpu_*'.",
            autocompletion=completion.variants,
        ),
    ] = None,
    **options: Any,
) -> None:
    """List the kernels with their ideas; and dtypes and legal tiles of named kernels."""
    from rich.text import Text

    from gpubench.backends import backends
    from gpubench.grouping import grouped
    from gpubench.model import OPERATIONS
    from gpubench.plan.operations import operation_named
    from gpubench.plan.registry import of_op
    from gpubench.plan.registry import variants as all_variants
    from gpubench.plan.selection import matching
    from gpubench.plan.sweep import Sweep
    from gpubench.view.tables import console, table

    op, device, kernels = (options[name] for name in ("op", "device", "kernels"))
    op = operation_named(op, kernels) if op is not None or kernels else None
    if device not in {None, *backends()}:
        either = " or ".join(backends())
        raise UsageError(f"--device: '{shown(device)}' is not a backend; write {either}")
    listed = list(of_op(op or Sweep().op, kernels).values() if op or kernels else all_variants())
    all_names = [variant.name for variant in listed]
    if names:
        chosen = {
            each for name in names for each in matching("VARIANT", "variant", name, all_names)
        }
        listed = [variant for variant in listed if variant.name in chosen]
    listed = [variant for variant in listed if device in {None, variant.backend}]
    screen = console()
    for place, (operation, of_operation) in enumerate(
        grouped(listed, lambda variant: variant.op).items()
    ):
        if place:
            screen.print()
        screen.print(Text(f"{operation}: {OPERATIONS[operation].idea}\n", style="bold"))
        ideas = table("variant", "on", "idea", left=None)
        for variant in of_operation:
            mark = "" if variant.default else " (not default)"
            ideas.add_row(variant.name, variant.backend, variant.idea + mark)
        screen.print(ideas)
        if names:
            values = table("variant", "dtypes", "tiles", left=None)
            for variant in of_operation:
                tiles = variant.tiles.summary if variant.tiles else ""
                values.add_row(variant.name, ", ".join(variant.dtypes), tiles)
            screen.print()
            screen.print(values)
