"""What `gpubench compare-cublas` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpubench.commands.compare_cublas.ladder import ladder, steps
from gpubench.errors import DeviceUnavailableError, UsageError
from gpubench.model import Timing
from gpubench.options import option_texts, read_sweep
from gpubench.plan.registry import choose, variants
from gpubench.plan.sweep import Sweep
from gpubench.view.running import conclude, measure, started_with
from gpubench.view.tables import comparison, console

WITHOUT_GPU = "'gpubench sweep --device cpu' compares against the CPU's BLAS"

COMPARE_DEFAULTS = Sweep(timing=Timing(launch_limit_s=1.0))
"""compare-cublas looks for each variant's best tile: a launch over a second is never that."""


def run_compare_cublas(
    options: Mapping[str, str | None],
    config: Path | None,
    *,
    by_step: bool = False,
    resume: Path | None = None,
    force: bool = False,
) -> int:
    """`gpubench compare-cublas`: the exit code. `by_step` is `--ladder`."""
    if resume:
        options, config = started_with(resume, option_texts(options, config)), None
    sweep = read_sweep(options, config, COMPARE_DEFAULTS)
    if sweep.device == "cpu":
        raise UsageError(f"compare-cublas needs an NVIDIA GPU; {WITHOUT_GPU}")
    order = steps(choose(sweep.op, "cuda", (), sweep.kernels)) if by_step else {}
    sweep = replace(
        sweep,
        variants=with_libraries(sweep, sweep.variants or tuple(order)),
        device=sweep.device.replace("auto", "cuda"),
    )
    try:
        outcome = measure(sweep, resume=resume is not None, force=force)
    except DeviceUnavailableError as error:
        raise DeviceUnavailableError(
            f"compare-cublas needs an NVIDIA GPU: {error}; {WITHOUT_GPU}"
        ) from error
    console().print(ladder(outcome.rows, order) if by_step else comparison(outcome.rows))
    return conclude(outcome)


def with_libraries(sweep: Sweep, asked: Sequence[str]) -> tuple[str, ...]:
    """The variants asked for, or else the usual ones, and cuBLAS: the call, and the tuned one."""
    named = choose(sweep.op, "cuda", asked, sweep.kernels)
    libraries = [
        variant
        for variant in variants()
        if (variant.op, variant.backend) == (sweep.op, "cuda")
        and "cublas" in {variant.name, variant.tunes}
    ]
    # Nobody asked for these by name, so what they lack needs no message.
    unnamed = libraries if asked else [*named, *libraries]
    fitting = [variant for variant in unnamed if set(variant.dtypes) & set(sweep.dtypes)]
    return tuple(dict.fromkeys((*asked, *(variant.name for variant in fitting))))
