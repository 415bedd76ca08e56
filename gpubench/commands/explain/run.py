"""`gpubench explain`: compile, disassemble, put together, print. Needs NVRTC, and no GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from gpubench.backends.cpu import cpu_threads
from gpubench.backends.cuda.compile import compile_instance, instance
from gpubench.commands.explain.disassemble import INSTALL, disassemble, nvdisasm
from gpubench.commands.explain.explanation import Explanation, explain, launches
from gpubench.commands.explain.sass import inner_loop
from gpubench.commands.explain.target import Target, find_target
from gpubench.commands.explain.view import as_json, page, tile_table
from gpubench.errors import CompileError, UsageError
from gpubench.hardware.architectures import capability
from gpubench.measure.session import run
from gpubench.measure.worker import Worker
from gpubench.model import OPERATIONS, CudaVariant, Device, Problem, Scope, Status, Tile
from gpubench.options import read_sweep
from gpubench.plan.descriptor import described_by
from gpubench.plan.registry import of_op, unknown, variants
from gpubench.plan.sweep import Sweep, plan
from gpubench.row import Row, read
from gpubench.view.progress import progress
from gpubench.view.tables import console

SIZE = "1024"


@dataclass(frozen=True, kw_only=True)
class Question:
    """What the user asked, as on the command line."""

    variant: str
    op: str | None = None
    kernels: Path | None = None
    tile: str | None = None
    size: str | None = None
    dtype: str | None = None
    arch: str | None = None
    device: str | None = None
    every: bool = False
    csv: Path | None = None
    measure: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The explanations, and of other tiles why there is none."""

    target: Target
    explanations: list[Explanation]
    skipped: dict[str, str]
    failed: dict[str, str]
    notes: list[str]


def run_explain(question: Question, *, as_json: bool = False) -> int:
    """Print the answer: 0, or 1 if a kernel does not compile.

    Raises UsageError for what cannot be explained, DeviceUnavailableError for a GPU that was asked
    for and is not there.
    """
    answer = answer_to(question)
    if as_json:
        print_json(answer)
    else:
        print_text(question, answer)
    return 1 if answer.failed else 0


def print_json(answer: Answer) -> None:
    """One form, whether one tile was asked for or all."""
    missing = [
        {"tile": tile, "status": str(status), "reason": reason}
        for status, some in ((Status.SKIPPED, answer.skipped), (Status.ERROR, answer.failed))
        for tile, reason in some.items()
    ]
    found = [as_json(one, is_here=answer.target.is_here) for one in answer.explanations]
    print(json.dumps({"explanations": found, "not_explained": missing}, indent=2))


def print_text(question: Question, answer: Answer) -> None:
    """One tile in words, several as a table."""
    screen, err = console(), console(stderr=True)
    for note in answer.notes:
        err.print(note, markup=False, soft_wrap=True)
    one_tile = len({one.tile for one in answer.explanations}) == 1
    if one_tile and not question.every:
        for index, one in enumerate(answer.explanations):
            screen.print(*[""] * bool(index), page(one), sep="\n")
    elif answer.explanations:
        screen.print(tile_table(answer.explanations))
        err.print("--tile explains one of them in words", markup=False)
    for status, some in ((Status.SKIPPED, answer.skipped), (Status.ERROR, answer.failed)):
        for tile, reason in some.items():
            screen.print(f"{status}: {tile}: {reason}", markup=False, soft_wrap=True)


def answer_to(question: Question) -> Answer:
    """Everything that there is to print."""
    variant = _variant(question)
    asked = _read(question, variant)
    problem = _problem(asked, variant)
    asked = replace(asked, tiles=_tiles(question, asked.tiles, variant))
    target = find_target(question.arch, asked.device, measure=question.measure)
    legal, skipped = _runnable(asked)
    notes = [target.note] if target.note else []
    if nvdisasm() is None:
        notes.append(f"no nvdisasm here, so nothing about the inner loop: {INSTALL}")
    times_us, more_notes = _times_us(question, target, replace(asked, tiles=tuple(legal)))

    if len(legal) > 1:
        line = f"compiling {len(legal)} kernels for {target.architecture}"
        console(stderr=True).print(line, markup=False)
    failed: dict[str, str] = {}
    explanations: list[Explanation] = []
    for tile, built in zip(legal, _all(variant, legal, problem, target), strict=True):
        if isinstance(built, str):
            failed[str(tile)] = built
        else:
            first, *rest = built
            explanations += [replace(first, measured_us=times_us.get(str(tile))), *rest]
    return Answer(
        target=target,
        explanations=explanations,
        skipped=skipped,
        failed=failed,
        notes=notes + more_notes,
    )


def _variant(question: Question) -> CudaVariant:
    """The variant of that name: of any operation, unless --op or --kernels narrow it."""
    name, op = question.variant, question.op or Sweep().op
    if op not in OPERATIONS:
        raise UsageError(f"--op: {unknown('operation', op, OPERATIONS)}")
    if question.op or question.kernels:
        known = of_op(op, question.kernels)
    else:
        known = {one.name: one for one in variants()}
    if name not in known:
        raise UsageError(unknown("variant", name, known))
    one = known[name]
    if not isinstance(one, CudaVariant):
        kind = "runs on the CPU" if one.backend == "cpu" else "is a library routine"
        sources = [other.name for other in known.values() if isinstance(other, CudaVariant)]
        raise UsageError(
            f"'{name}' {kind}, and explain reads what NVRTC makes of a CUDA source; "
            f"it explains {', '.join(sources)}"
        )
    return one


def _read(question: Question, variant: CudaVariant) -> Sweep:
    """The options as a sweep of this variant would read them, under their names here."""
    try:
        return read_sweep(
            {
                "op": variant.op,
                "variants": variant.name,
                "kernels": question.kernels,
                "sizes": question.size or SIZE,
                "tiles": question.tile,
                "dtypes": question.dtype or variant.dtypes[0],
                "device": question.device,
            }
        )
    except UsageError as error:
        raise UsageError(re.sub("^--(size|tile|dtype)s:", r"--\1:", str(error))) from error


def _problem(asked: Sweep, variant: CudaVariant) -> Problem:
    for flag, given in (("--size", asked.sizes), ("--dtype", asked.dtypes)):
        if len(given) > 1:
            raise UsageError(f"{flag}: one at a time, not {len(given)}")
    ((m, n, k),), (dtype,) = asked.sizes, asked.dtypes
    if dtype not in variant.dtypes:
        raise UsageError(
            f"--dtype: {variant.name} has no {dtype}, only {', '.join(variant.dtypes)}"
        )
    return Problem(op=variant.op, m=m, n=n, k=k, dtype=dtype)


def _tiles(question: Question, asked: tuple[Tile, ...], variant: CudaVariant) -> tuple[Tile, ...]:
    """The tiles asked for, by default the variant's own; at least one of them is legal."""
    if variant.tiles is None:
        raise UsageError(f"{variant.name} has no tile to choose")
    if question.every:
        if asked:
            raise UsageError("--all and --tile: name tiles, or ask for all of them")
        return variant.tiles.legal
    if not asked:
        return variant.tiles.default
    refusals = [variant.tiles.refuse(tile) for tile in asked]
    if all(refusals):
        raise UsageError(f"--tile: {variant.name} {refusals[0]}")
    return asked


def _runnable(asked: Sweep) -> tuple[list[Tile], dict[str, str]]:
    """The tiles that can run this problem, and why others cannot: as a sweep would have it."""
    reasons = {point.tile: reason for point, reason in plan(asked, "cuda").items() if point.tile}
    return (
        [tile for tile, reason in reasons.items() if not reason],
        {str(tile): reason for tile, reason in reasons.items() if reason},
    )


def _all(
    variant: CudaVariant, tiles: Sequence[Tile], problem: Problem, target: Target
) -> list[list[Explanation] | str]:
    """Each tile's launches, or why one does not compile, in as many threads as there are CPUs."""

    def one(tile: Tile) -> list[Explanation] | str:
        with described_by(variant.path):
            sequence = launches(variant, tile, problem, target.device)
        explanations = []
        for step, launch in enumerate(sequence):
            expression = instance(variant, tile, problem.dtype, launch.kernel)
            try:
                compiled = compile_instance(variant.source, expression, target.architecture)
            except CompileError as error:
                return str(error)
            code = disassemble(compiled.cubin)
            with described_by(variant.path):
                explanations.append(
                    explain(
                        variant,
                        tile,
                        problem,
                        architecture=target.architecture,
                        device=target.device,
                        resources=compiled.resources,
                        step=step,
                        inner_loop=inner_loop(code, problem.dtype) if code else None,
                    )
                )
        return explanations

    with ThreadPoolExecutor(cpu_threads()) as pool:
        # The slowest to compile, the largest tiles, tend to stand last: start there.
        return list(pool.map(one, reversed(tiles)))[::-1]


def _times_us(
    question: Question, target: Target, asked: Sweep
) -> tuple[dict[str, float], list[str]]:
    """Median times by tile, from a file or measured here; and what must be said of them."""
    if question.csv and question.measure:
        raise UsageError("--csv and --measure: take the times from a file, or measure them")
    if question.measure:
        rows = _measure(target.device, asked)
        where = "measured here"
    elif question.csv:
        rows = read(question.csv)
        where = str(question.csv)
    else:
        return {}, []
    wanted = {str(tile) for tile in asked.tiles}
    key = (asked.op, *asked.variants, *asked.dtypes, *asked.sizes[0], Scope.KERNEL, Status.OK)
    rows = [
        one
        for one in rows
        if (one.op, one.variant, one.dtype, one.m, one.n, one.k, one.scope, one.status) == key
        and one.tile in wanted
    ]
    if not rows:
        raise UsageError(
            f"{where}: no time of {asked.variants[0]} {', '.join(sorted(wanted)[:3])} at "
            f"{'x'.join(map(str, asked.sizes[0]))} {asked.dtypes[0]}"
        )
    _require_same_architecture(rows, target, where)
    # Of several times of a tile the first kind in the alphabet: cold before hot.
    rows.sort(key=lambda one: (one.cache, one.timer), reverse=True)
    notes = []
    if (name := rows[-1].device) != target.device.name:
        notes.append(f"times of {where} are of {name}, the bound is that of {target.device.name}")
    return {one.tile: one.median_us for one in rows if one.median_us is not None}, notes


def _require_same_architecture(rows: Sequence[Row], target: Target, where: str) -> None:
    for measured in {one.compute_capability for one in rows if one.compute_capability}:
        if measured != ".".join(map(str, capability(target.architecture))):
            raise UsageError(
                f"{where}: measured on capability {measured}, and this explains "
                f"{target.architecture}; add --arch sm_{measured.replace('.', '')}"
            )


def _measure(device: Device, asked: Sweep) -> list[Row]:
    with progress() as watcher, Worker(f"cuda:{device.index}", asked.timer) as worker:
        outcome = run(asked, worker, watcher)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.rows
