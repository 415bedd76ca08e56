"""`gpubench check`: compiles a kernel for a GPU, and runs it on the CPU.

The command needs no GPU.
"""

import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import filterfalse, islice
from operator import itemgetter
from pathlib import Path
from time import perf_counter

from gpubench.backends import backends
from gpubench.backends.cuda import compile as compiler
from gpubench.backends.cuda import nvcc
from gpubench.commands.check.cases import (
    TooFewSizesError,
    all_cases,
    evenly,
    race_cases,
    tiles_to_run,
)
from gpubench.commands.check.sizes import race_of_square, right_sizes
from gpubench.commands.check.source_file import SUFFIXES, Described, described
from gpubench.commands.check.wrong import stores_of_result, why_wrong
from gpubench.engine.small_sweep import rows_at
from gpubench.errors import CompileError, NotOnCpuError, UsageError
from gpubench.grouping import grouped
from gpubench.hardware.architectures import DEFAULT
from gpubench.kernel_options import find_variant, require_architecture
from gpubench.model import (
    OPERATIONS,
    BrokenVariant,
    CallVariant,
    Config,
    CudaVariant,
    HostVariant,
    Problem,
    Status,
    Variant,
)
from gpubench.model.signature import NULL, parameters
from gpubench.model.sources import read_source
from gpubench.on_cpu.case import Case, expected, is_of_row_major_b, right_result, row_major_only
from gpubench.on_cpu.fault import HUNG, KILLED, KernelFaultError
from gpubench.on_cpu.only_nvcc import INCLUDE_IT, why_only_nvcc
from gpubench.on_cpu.run import Sanitizer, run_on_cpu
from gpubench.on_cpu.unwritten import uninitialized_variables, unwritten_shared_memory
from gpubench.plan.operations import operation_named
from gpubench.plan.python_file import described_by
from gpubench.plan.ranges import parse_tiles
from gpubench.plan.registry import is_ours, of_op
from gpubench.plan.sweep import Sweep
from gpubench.temporary import temporary_folder
from gpubench.text import counted
from gpubench.view.tables import say

FAULTY = 1  # exit code: a fault was found
NOT_RUN = 3  # exit code: the kernel cannot be run here

SIZES = ((1, 1, 1), (32, 32, 32), (13, 7, 5), (33, 1, 20))
"""M, N and K at which a function that takes arrays is checked."""

NO_SHARED = "extern __shared__ memory in a launch without any"
"""Message of shim/runtime.cpp if a kernel uses dynamic shared memory, but its launch has none."""

NO_RULE = "no condition on the sizes, such as N % 4 == 0 or M == N == K, makes it right and clean"
"""Message on a kernel that is faulty under each condition that sizes.py tries."""

ADVICE = {
    r"cublas\w*\.h: No such file": "install it: pip install nvidia-cublas",
    r"No such file or directory|cannot open source file": INCLUDE_IT,
    r"Unresolved extern function": 'add its source and "-rdc=true" to compile_options',
}
"""Advice by the pattern of an error of nvcc and NVRTC that is no fault of the kernel."""

MAX_SHOWN = 5
"""Maximum number of different faults that are printed."""

MAX_TILES = 4
"""Maximum number of tiles that are checked if the user names no tiles."""

USUAL = 1024
"""M, N and K of a problem. Default tiles that are not legal for this problem are checked only if no
default tile is legal for it."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of a source on the CPU."""

    wrong: Sequence[tuple[Case, str]]  # cases with a wrong result, and the reasons
    faults: Sequence[KernelFaultError]
    failed: Collection[Sanitizer]  # sanitizers under which a result or an access was wrong
    not_run: str = ""  # why the source was not run or compared
    is_of_row_major_b: bool = False  # whether all wrong results are right for a row-major B

    @property
    def is_hung(self) -> bool:
        """Whether a launch made no progress. Further runs would take as long."""
        return any(HUNG in fault.finding for fault in self.faults)


def run_check(
    name: str | None, kernels: Path | None, op: str | None, tiles: str | None, arch: str | None
) -> int:
    """Check a variant, a CUDA source, or all variants of a directory, and print the results.

    Return the exit code. For several variants, this is the worst code. Raises UsageError for an
    unknown variant or tile, and if the variant's description raises an exception.
    """
    if name and Path(name).suffix in SUFFIXES and not Path(name).with_suffix(".py").is_file():
        return _check_file(Path(name), op or Sweep().op, tiles, arch)
    if name:
        return _check(find_variant(name, op, kernels), kernels, tiles, arch)
    if kernels is None:
        raise UsageError(
            "name a kernel, such as shared_tile, or the directory of your kernels as --kernels"
        )
    codes = []
    for variant in filterfalse(is_ours, of_op(operation_named(op, kernels), kernels).values()):
        say(f"\n{variant.name}", "bold")
        try:
            codes.append(_check(variant, kernels, tiles, arch))
        except UsageError as error:
            say(str(error), "red")
            codes.append(FAULTY)
    return FAULTY if FAULTY in codes else max(codes)


def _check_file(source: Path, op: str, tiles: str | None, arch: str | None) -> int:
    """Check the functions of a source.

    Return FAULTY if a function has a fault. Otherwise, return 0 if a function could be run, and
    NOT_RUN if no function could be run.
    """
    codes = []
    with temporary_folder() as folder:
        home = Path(os.path.realpath(folder))
        functions = list(described(source, op, home))
        for each in functions:
            advice = f"--from {shlex.quote(str(source))} --kernel {each.function}"
            advice = f"describe the function: gpubench new-kernel NAME {advice}"
            if len(functions) > 1:
                say(f"\n{each.function}", "bold")
            if each.variant is None:
                say(f"not checked: {each.note}; {each.remedy or advice}", "yellow")
                codes.append(NOT_RUN)
                continue
            if each.note:
                say(each.note, "yellow")
            try:
                codes.append(_check(each.variant, None, tiles, arch, advice, each))
            except TooFewSizesError as error:
                say(f"not checked: {error}; {advice}", "yellow")
                codes.append(NOT_RUN)
    return FAULTY if FAULTY in codes else min(codes)


def _check(
    variant: Variant,
    kernels: Path | None,
    tiles: str | None,
    arch: str | None,
    advice: str = "",
    guess: Described | None = None,
) -> int:
    """Check a variant, and return the exit code.

    `advice` is a text on how to correct a launch. `guess` describes a function of a source.
    """
    advice = advice or f"correct {variant.path.name}"
    with described_by(variant.path):
        chosen = _tiles(variant, tiles)
        on_host = backends()[variant.backend].host_arrays
        if isinstance(variant, HostVariant | CudaVariant) and not on_host:
            if not _compile(variant, chosen, arch or DEFAULT):
                return FAULTY
            return _check_source(variant, chosen, advice, named=bool(tiles), guess=guess)
        if isinstance(variant, CallVariant):  # a HostVariant on a GPU was checked above
            return _check_call(variant, kernels, chosen)
    if isinstance(variant, BrokenVariant):
        raise UsageError(variant.idea)
    raise UsageError(f"'{variant.name}' is neither a function nor a CUDA source")


def _tiles(variant: Variant, tiles: str | None) -> list[Config | None]:
    """Return the tiles to check. Raises UsageError for a tile that the variant refuses."""
    space = variant.tiles
    if space is None or not space.axes:
        if tiles:
            raise UsageError(f"--tiles: {variant.name} has no tile to choose")
        return list(space or [None])
    if tiles is None:
        default = tiles_to_run(variant) if isinstance(variant, CudaVariant) else space.defaults
        operation = OPERATIONS[variant.op]
        size = operation.size_of([USUAL] * len(operation.extents))
        problem = Problem.of(variant.op, size, variant.dtypes[0])
        legal = [x for x in default if not variant.refuse(x, problem)]
        return list(evenly(legal or default, MAX_TILES))
    chosen = [space.read(text) for text in parse_tiles(tiles)]
    for tile in chosen:
        if reason := space.why_not(tile):
            raise UsageError(f"--tiles: {variant.name} {reason}")
    return list(chosen)


def _compile(
    variant: HostVariant | CudaVariant, tiles: Sequence[Config | None], architecture: str
) -> bool:
    """Compile the tiles for an architecture, and print the result.

    Return False only if the kernel is at fault. If the architecture, nvcc or a header is not
    available, print the reason and return True.
    """
    dtype, started = variant.dtypes[0], perf_counter()
    target = architecture
    try:
        if isinstance(variant, CudaVariant):
            require_architecture(architecture)
            target = variant.architecture(architecture)
    except CompileError as error:
        say(f"not compiled for a GPU: {error}")
        return True
    try:
        for tile in tiles:
            if isinstance(variant, HostVariant):
                nvcc.compile_library(variant, tile, dtype, architecture)
            elif tile is not None:
                compiler.compile_instance(*variant.compilation(tile, dtype, architecture))
    except CompileError as error:
        # The kernel is not at fault if a file is missing, or if nvcc is missing, which host code
        # requires.
        has_host_code = compiler.HOST_CODE.search(read_source(variant.source))
        advice = next((each for form, each in ADVICE.items() if re.search(form, str(error))), "")
        if advice or (nvcc.find() is None and has_host_code):
            advice = f"; {advice}" if advice and nvcc.find() else ""
            say(f"not compiled for a GPU: {error}{advice}", "yellow")
            return True
        say(f"does not compile: {error}", "red")
        return False
    names = ", ".join(str(tile) for tile in tiles if tile and str(tile) != "-") or variant.name
    seconds = perf_counter() - started
    say(f"compiled for {target}, {dtype}: {names} ({seconds:.1f} s)")
    return True


def _check_source(
    variant: CudaVariant | HostVariant,
    tiles: Sequence[Config | None],
    advice: str,
    *,
    named: bool,
    guess: Described | None = None,
) -> int:
    """Run a CUDA source on the CPU, under both sanitizers at once. Return the exit code.

    `named` is true if the user named the tiles. If the source is wrong as `guess` describes it, and
    right with other guesses, the other guesses are used.
    """
    cases = _cases(variant, tiles, named=named)
    outcome = _run(variant, tiles, cases)
    if guess and Sanitizer.ADDRESS in outcome.failed:
        if not outcome.is_hung and (other := _other_guess(guess, tiles)):
            variant, cases = other, _cases(other, tiles, named=named)
            outcome = _run(variant, tiles, {Sanitizer.THREAD: cases[Sanitizer.THREAD]})
        elif guess.note:
            say(f"\na guess above may be wrong, and not the source: {advice}", "yellow")
    if outcome.faults:
        _show_faults(variant, outcome.faults, advice)
        stopped = [fault.case for fault in outcome.faults if fault.case]
        _say_remedy(variant, stopped[:1], cases, outcome, advice)
        return FAULTY
    wrong, not_run = outcome.wrong, outcome.not_run
    if not_run and not wrong:
        is_compared = outcome.is_of_row_major_b
        say(f"\n{'not checked' if is_compared else 'not run on the CPU'}: {not_run}", "yellow")
        return NOT_RUN
    names = {Sanitizer.ADDRESS: "AddressSanitizer, UBSan", Sanitizer.THREAD: "ThreadSanitizer"}
    code = _conclude(
        variant,
        [(f"{Status.WRONG}: {case.label}", reason) for case, reason in wrong],
        ", ".join(
            f"{counted(len(watched), 'case')} ({names[by]})" for by, watched in cases.items()
        ),
    )
    for case, _ in wrong[:1]:
        say(_cause(case), "red")
        _say_remedy(variant, [case], cases, outcome, advice)
    return code


def _cases(
    variant: CudaVariant | HostVariant, tiles: Sequence[Config | None], *, named: bool
) -> dict[Sanitizer, list[Case]]:
    """Return the cases of each sanitizer. `named` is true if the user named the tiles."""
    is_host = isinstance(variant, HostVariant)
    return {
        Sanitizer.ADDRESS: all_cases(variant, tiles),
        Sanitizer.THREAD: race_cases(variant, tiles if named or is_host else ()),
    }


def _run(
    variant: CudaVariant | HostVariant,
    tiles: Sequence[Config | None],
    cases: Mapping[Sanitizer, Sequence[Case]],
) -> Outcome:
    """Run the cases of each sanitizer on the CPU, and compare the results."""
    wrong, by_rows, faults, not_run = [], list[bool](), [], ""
    failed = set[Sanitizer]()
    passed = parameters(variant.signature)
    nulls = ", ".join(each.name for each in passed if each.is_pointer and each.value == NULL)
    with temporary_folder() as folder, ThreadPoolExecutor(2) as pool:
        runs = {
            sanitizer: pool.submit(run_on_cpu, watched, sanitizer, folder / sanitizer.name)
            for sanitizer, watched in cases.items()
        }
        for sanitizer, run in runs.items():
            try:
                for case, output in zip(cases[sanitizer], run.result(), strict=True):
                    if reason := why_wrong(output, *right_result(case.problem), case.variant):
                        wrong.append((case, reason))
                        by_rows.append(is_of_row_major_b(case, output))
                        failed.add(sanitizer)
            except KernelFaultError as fault:
                if fault.finding.startswith(KILLED):
                    not_run = fault.finding.removeprefix("fault: ")
                    continue
                if nulls and fault.is_of_null:
                    not_run = (
                        f"null is passed for {nulls}, and the source uses it; select another --op"
                    )
                    continue
                faults.append(fault)
                failed.add(sanitizer)
            except CompileError as error:
                options = variant.options(tiles[0], variant.dtypes[0])
                not_run = why_only_nvcc(variant.source, options) or str(error)
            except NotOnCpuError as error:
                not_run = f"{error}; sweep {variant.name} on a GPU"
            except UsageError:  # ThreadSanitizer cannot be used with this system's addresses
                if not faults and not wrong:
                    raise
    is_of_rows = bool(by_rows) and all(by_rows) and not faults
    if is_of_rows:
        wrong, failed, not_run = [], set(), row_major_only(variant.dtypes[0])
    return Outcome(
        wrong=wrong, faults=faults, failed=failed, not_run=not_run, is_of_row_major_b=is_of_rows
    )


def _other_guess(
    guess: Described, tiles: Sequence[Config | None]
) -> CudaVariant | HostVariant | None:
    """Return a function with other guesses that has right results and clean accesses, or None.

    Print the other guesses.
    """
    for other in guess.others:
        if isinstance(other.variant, CudaVariant | HostVariant):
            try:
                cases = {Sanitizer.ADDRESS: all_cases(other.variant, tiles)}
            except TooFewSizesError:
                continue
            outcome = _run(other.variant, tiles, cases)
            if not outcome.failed and not outcome.not_run:
                say(other.note, "yellow")
                return other.variant
    return None


def _cause(case: Case) -> str:
    """Return the likely cause of a wrong result.

    The cause is a variable or shared memory that is read before it is written. If neither is found,
    the text names the lines that store the result.
    """
    with temporary_folder() as folder:
        if case.problem.operation.is_product:
            variables = uninitialized_variables(case, expected(case.problem), folder / "zeros")
            if variables:
                return variables
        if place := unwritten_shared_memory(case, folder / "watched"):
            return f"{place} reads shared memory that no thread has written"
    stores = ", ".join(f"{file}:{line}" for file, line in stores_of_result(case))
    return f"the result is stored at {stores}" if stores else ""


def _show_faults(variant: Variant, faults: Sequence[KernelFaultError], advice: str) -> None:
    """Print what each sanitizer found."""
    shown: set[str] = set()
    for fault in faults:
        is_known = fault.finding in shown or fault.is_in_global_memory or fault.is_crash
        if shown and is_known:
            continue  # both sanitizers found this fault, or an earlier fault causes it
        shown.add(fault.finding)
        label = fault.case.label if fault.case else variant.name
        places = ", ".join(f"{file}:{line}" for file, line in dict.fromkeys(fault.lines))
        lines = (f"\nfault: {label}: {fault.finding}", fault.sentence, places)
        say("\n".join(filter(None, lines)), "red")
        if NO_SHARED in fault.finding:
            say(
                "state the bytes of shared memory: shared_bytes=…, or <<<grid, block, bytes>>>; "
                f"{advice}"
            )


def _check_call(variant: CallVariant, kernels: Path | None, tiles: Sequence[Config | None]) -> int:
    """Verify a function at odd sizes in the same way as `gpubench sweep`. Return the exit code."""
    if not backends()[variant.backend].host_arrays:
        say(f"not run on the CPU: {variant.name} needs a {variant.backend} device; sweep it there")
        return NOT_RUN
    listed = enumerate(OPERATIONS[variant.op].listed, 1)
    rows = rows_at(variant, kernels, [(at,) for at, each in listed if each.name] or SIZES, tiles)
    faults = [
        (f"{row.status}: {row.label}", row.reason or "")
        for row in rows
        if row.status not in {Status.OK, Status.SKIPPED}
    ]
    return _conclude(variant, faults, counted(len(rows), "point"))


def _say_remedy(
    variant: Variant,
    faulty: Sequence[Case],
    cases: Mapping[Sanitizer, Sequence[Case]],
    outcome: Outcome,
    advice: str,
) -> None:
    """Print how the faulty cases were launched, and the sizes at which the source is right.

    The description may be wrong, or lack a condition on the sizes. `cases` has all cases.
    """
    for launch in (case.launch.main for case in faulty):
        if launch.blocks:  # a host function makes its own launches
            grid, block = ("×".join(map(str, extents)) for extents in (launch.grid, launch.block))
            say(f"launched with a grid of {grid} and blocks of {block} threads")
            say(f"if the source expects another launch, {advice}")
    if Sanitizer.ADDRESS not in outcome.failed or outcome.is_hung:
        return
    if rule := right_sizes(cases):
        say(f"\nright and clean if {rule}, and faulty at some other sizes", "yellow")
        say(
            f"add bounds checks, or refuse other sizes in the description; {advice}\n  {rule.field}"
        )
        return
    say(NO_RULE)
    is_shown = any(fault.is_race_in_block for fault in outcome.faults)
    if not is_shown and (race := race_of_square(cases)):
        say("a race, which the fault above hides:")
        _show_faults(variant, [race], advice)


def _conclude(variant: Variant, faults: Sequence[tuple[str, str]], what: str) -> int:
    """Print the cases with a fault, grouped by their reason, and return the exit code."""
    labels = grouped(faults, itemgetter(1))
    for reason, ((label, _), *others) in islice(labels.items(), MAX_SHOWN):
        more = f" and {counted(len(others), 'more case')}" if others else ""
        say(f"{label}{more}: {reason}", "red")
    if left_out := sum(map(len, islice(labels.values(), MAX_SHOWN, None))):
        say(f"and {counted(left_out, 'more case')}")
    if faults:
        return FAULTY
    say(f"\n{variant.name} is right and clean on the CPU:\n{what}")
    return 0
