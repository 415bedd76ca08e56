"""`gpubench tune`."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gpubench import completion
from gpubench import options as option
from gpubench.errors import UsageError

app = typer.Typer()

WITHOUT = ("variants", "tiles", "samples", "state")
"""Options of a sweep that tune lacks. tune measures briefly, so the state is always `burst`."""

UNDECIDED = 3  # exit code of a race that ended before its configurations could be judged


@app.command(
    epilog='Example: gpubench tune shared_tile --sizes 1024,2048 --where "edge % 4 == 0". '
    "Exit codes: 0 done; 1 a configuration failed; 2 wrong usage; "
    "3 undecided, so no winner is kept."
)
@partial(option.sweep_options, without=WITHOUT)
def tune(
    variants: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VARIANT",
            help="Kernels, such as shared_tile; 'gpubench variants' lists them.",
            autocompletion=completion.variants,
        ),
    ] = None,
    *,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help='Condition that configurations must fulfil: "stages >= 3 and BM*BN >= 16384"; '
            "'gpubench variants' names the parameters.",
        ),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Configurations that are at most this much slower count as equal. Default: 1%.",
        ),
    ] = None,
    winners: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="TOML of winners that 'sweep --tiles FILE' reads. Default: results/tuned.toml.",
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Write a table instead of racing: for each problem of --sizes, the fastest tile "
            "of all kernels with '--tiles auto', or a library. 'sweep --tiles FILE.csv' reads the "
            "table.",
        ),
    ] = None,
    resume: option.Resume = None,
    force: option.Force = False,
    on: option.On = None,
    dry_run: option.DryRun = False,
    save: option.Save = None,
    **options: Any,
) -> None:
    """Find a kernel's fastest configurations by racing them."""
    from gpubench.backends import first_device
    from gpubench.commands.tune.run import (
        ENDING,
        check_files,
        race_job,
        read_settings,
        result_files,
        tune,
    )
    from gpubench.commands.tune.view import summary
    from gpubench.engine.run import open_pool, save_rows
    from gpubench.plan.sweep import TUNED
    from gpubench.plan.tuned import tiles_of
    from gpubench.results.result_file import default_path
    from gpubench.view.job import conclude, print_plan
    from gpubench.view.progress import SweepProgress
    from gpubench.view.tables import console, say

    texts = {**options, "variants": ",".join(variants or ()) or None}
    if table:
        for name, value in (("where", where), ("winners", winners), ("resume", resume), ("on", on)):
            if value:
                raise UsageError(f"--table: leave out --{name}")
        _table({**texts, "within": within}, table, force=force, dry_run=dry_run, save=save)
        return
    own = {name: text for name, text in (("where", where), ("within", within)) if text is not None}
    if resume and not dry_run:
        texts, own = option.resumed(resume, option.option_texts(texts) | own), {}
        if "within" not in texts:
            raise UsageError(f"--resume: {resume} is a sweep, which 'gpubench sweep' continues")
    settings = read_settings(texts | own)
    sweep = settings.sweep
    winners = winners or TUNED
    if dry_run:
        device = first_device(sweep.device, sweep.timer)
        output = sweep.output or default_path(device.name, f"{sweep.op}-{ENDING}")
        check_files(winners, output)
        result_files(output, resume=False, force=force)
        print_plan(race_job(settings, device), f"{sweep.op}-{ENDING}", resume=resume, force=force)
        return
    with SweepProgress() as watcher, open_pool(sweep, on) as pool:
        output = sweep.output or default_path(pool.name, f"{sweep.op}-{ENDING}")
        check_files(winners, output)  # before anything is measured
        goes_on = resume is not None
        files = {"output": output, "winners": winners}
        tuned = tune(settings, pool, watcher, **files, resume=goes_on, force=force)
    console().print(summary(tuned, settings.racing.within))
    code = conclude(tuned.race)
    if tuned.confirmed:
        code = max(code, conclude(save_rows(tuned.confirmed, save), tuned.race.path))
    if tuned.winners:
        say(f"{winners}: --tiles {tiles_of(winners)} takes these tiles from this file")
    raise typer.Exit(code or UNDECIDED * tuned.undecided)


def _table(
    texts: Mapping[str, Any], path: Path, *, force: bool, dry_run: bool, save: str | None
) -> None:
    """Write the table of `gpubench tune --table`, and print it."""
    from gpubench.backends import first_device
    from gpubench.commands.tune.run import ENDING, read_settings
    from gpubench.commands.tune.table import make_table, open_table, table_job
    from gpubench.commands.tune.table_view import conclude_table, table_summary
    from gpubench.engine.run import open_pool, save_rows
    from gpubench.results.result_file import default_path
    from gpubench.results.tile_table import encode
    from gpubench.view.job import print_plan
    from gpubench.view.progress import SweepProgress
    from gpubench.view.tables import console

    settings = read_settings(texts, needs_variant=False)
    sweep = settings.sweep
    file = open_table(path, sweep, force=force)
    if dry_run:
        job, _ = table_job(settings, first_device(sweep.device, sweep.timer))
        print_plan(job, f"{sweep.op}-{ENDING}", force=force)
        return
    with SweepProgress() as watcher, open_pool(sweep) as pool:
        output = sweep.output or default_path(pool.name, f"{sweep.op}-{ENDING}")
        tabled = make_table(settings, pool, watcher, output=output, force=force)
    if tabled.rows:
        file.write(encode(tabled.rows))
        console().print(*table_summary(tabled.rows), sep="\n")
    if tabled.again:
        save_rows(tabled.again, save)
    raise typer.Exit(conclude_table(tabled, path, sweep))
