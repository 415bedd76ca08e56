"""`gpubench sweep`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpubench import options as option

app = typer.Typer()


@app.command(epilog="Example: gpubench sweep --sizes 1024,2048 --tiles 1..32")
@option.sweep_options
def sweep(
    *,
    config: option.Config = None,
    resume: option.Resume = None,
    force: option.Force = False,
    on: option.On = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the points and how long they may take; do nothing."),
    ] = False,
    save: option.Save = None,
    **options: Any,
) -> None:
    """Time kernels over tile and matrix sizes; save a CSV."""
    if dry_run:
        from gpubench.commands.sweep.dry_run import print_plan

        print_plan(options, config, resume)
        return
    from gpubench.commands.sweep.curve import curves
    from gpubench.results.store import checked
    from gpubench.view.running import conclude, measure, started_with
    from gpubench.view.tables import console, results

    if save:
        checked(save, "--save")
    if resume:
        options, config = started_with(resume, option.option_texts(options, config)), None
    outcome = measure(
        option.read_sweep(options, config), resume=resume is not None, force=force, on=on
    )
    screen = console()
    screen.print(results(outcome.rows))
    if screen.is_terminal and screen.encoding.startswith("utf") and (drawn := curves(outcome.rows)):
        screen.print(drawn)
    code = conclude(outcome, save)
    if config is None and not options.get("sizes"):
        sizes = "512,1024" if outcome.rows[0].backend == "cpu" else "1024,2048"
        console(stderr=True).print(f"for more: gpubench sweep --sizes {sizes} --tiles 1..32")
    raise typer.Exit(code)
