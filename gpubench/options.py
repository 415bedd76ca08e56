"""The options of a sweep. Each option is declared once, for its flag, TOML key and Python argument.

`sweep_options` adds `OPTIONS` to a command. `read_sweep` makes a `Sweep` from flags, a TOML file or
a Python call. The options that several commands share are at the end.
"""

import inspect
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from gpubench import completion
from gpubench.backends import AUTO, backends
from gpubench.errors import UsageError
from gpubench.foreign.sweep import is_problem, of_problem
from gpubench.model import (
    DTYPE_ALIASES,
    DTYPES,
    LAYOUTS,
    OPERATIONS,
    Cache,
    Fill,
    Launches,
    Scope,
    State,
    Timer,
    Timing,
)
from gpubench.plan.operations import operation_named
from gpubench.plan.problems import read_sizes
from gpubench.plan.ranges import (
    csv_path,
    file_path,
    list_of,
    named,
    one_of,
    one_or_both,
    parse_fraction,
    parse_tiles,
    seconds,
    within,
)
from gpubench.plan.sweep import AUTO_TILES, Sweep, require_inputs_kept, tuned_file
from gpubench.plan.toml_file import confined, lies_below, named_in_errors, read_toml
from gpubench.text import shown, unknown

DEFAULT = Sweep()

_TIMING_FIELDS = {field.name for field in fields(Timing)}


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of a sweep."""

    name: str = ""
    """The TOML key and Python argument. The flag has - instead of _."""

    kind: Any = str
    """The type that Typer shows, and to which values are converted. The value of a list is text
    with commas."""

    help: str
    field: str = ""
    """The field of `Sweep` or `Timing` that the option sets. If the text is empty, the field has
    the name of the option."""

    read: Callable[[str, Any], Any] = lambda _flag, value: value
    """Takes the flag and a value of `kind`. Returns the value of the field, or raises
    UsageError."""

    metavar: str = ""
    """Name of the value in the help. An empty name means `LIST` for text, and `FILE` for a
    path."""

    complete: Callable[..., list[str]] | None = None
    short: str = ""

    @property
    def flag(self) -> str:
        """The flag on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def typer(self) -> Any:
        """The declaration of the option for Typer."""
        names = [self.flag, *([self.short] if self.short else [])]
        metavar, complete = _SHOWN[self.kind]
        choices = self.metavar.strip("[]").split("|") if self.metavar.startswith("[") else ()
        one_of = completion.one_of(choices) if choices else None
        return typer.Option(
            *names,
            help=self.help,
            metavar=self.metavar or metavar,
            autocompletion=self.complete or one_of or complete,
        )

    def text(self, value: object) -> str:
        """Return a value or a list as text.

        In `sizes` and `tiles`, a tuple stands for one size or tile.

        Raises UsageError for a value of an unexpected type.
        """
        if isinstance(value, list | tuple):
            is_shape = isinstance(value, tuple) and self.name in {"sizes", "tiles"}
            return ("x" if is_shape else ",").join(map(self.text, value))
        if isinstance(value, bool) or not isinstance(value, str | int | float | Path):
            raise UsageError(
                f"{self.flag}: takes text, a number or a list, not {shown(str(value))}"
            )
        return str(value)

    @property
    def default(self) -> Any:
        """Default of the Python argument.

        None if the default depends on the device or the kernel.
        """
        value = getattr(DEFAULT.timing if self.field in _TIMING_FIELDS else DEFAULT, self.field)
        if isinstance(value, tuple):
            return ",".join(map(str, value)) or None
        if self.name == "precision":
            return f"{100 * value:g}%"
        return str(value) if isinstance(value, StrEnum) else value

    def convert(self, text: str) -> Any:
        """Convert a text to the value of the field. Raises UsageError if the text is invalid."""
        flag = self.flag
        if "\0" in text:
            raise UsageError(f"{flag}: '{shown(text)}' holds a NUL character")
        try:
            if self.kind is Path:
                if not text:
                    raise UsageError(f"{flag}: the path is empty")
                text.encode()  # the text is written into files, which are UTF-8
                return self.read(flag, Path(text))
            value = msgspec.convert(text, self.kind, strict=False)
        except (msgspec.ValidationError, UnicodeEncodeError):  # bytes that are not UTF-8
            raise UsageError(f"{flag}: '{shown(text)}' is not {_KINDS[self.kind]}") from None
        return self.read(flag, value)


_KINDS = {int: "a whole number", Path: "a path in UTF-8"}
_SHOWN = {str: ("LIST", None), int: (None, None), Path: ("FILE", completion.files)}
"""Metavar and completion function of an option, by the kind of the option."""


def _device(flag: str, text: str) -> str:
    entries = sorted(backends().values(), key=lambda entry: entry.name)
    numbered = [entry.name for entry in entries if entry.is_numbered]
    words = [AUTO, *(entry.name for entry in entries)]
    number = rf"({'|'.join(numbered)}):\d{{1,3}}"
    if text not in words and not re.fullmatch(number, text, re.ASCII):
        right = f"{', '.join(words)} or {' or '.join(f'{name}:1' for name in numbered)}"
        raise UsageError(f"{flag}: '{shown(text)}' is not a device; write {right}")
    return text


def _choice(*choices: str) -> str:
    return f"[{'|'.join(choices)}]"


def _named(**options: Option) -> dict[str, Option]:
    """Return the options by name. An option without a `field` sets the field of the same name."""
    return {
        name: replace(option, name=name, field=option.field or name)
        for name, option in options.items()
    }


def _either(field: str, kind: type[Cache | Scope | State], text: str) -> Option:
    """Return an option that takes one of the two members of an enumeration, or `both`."""
    choices = _choice(*kind, "both")
    return Option(field=field, help=text, read=one_or_both(kind), metavar=choices)


def _duration(field: str, low: float, high: float, text: str) -> Option:
    """Return an option whose value is a time in seconds."""
    return Option(field=field, help=text, read=seconds(low, high), metavar="SECONDS")


OPTIONS = _named(
    sizes=Option(
        help="Matrix sizes: 1024,2048 or 320x640x320 (MxNxK) or 64..512:64 or 1..64:x2; for "
        "gemv, gemv_t and atax 8192x32768 (MxN); or lists of problems, such as a.csv or "
        "a.csv,b.csv.",
        metavar="LIST|FILE.csv",
    ),
    tiles=Option(
        help="Tile sizes: 16 or 1..32 or 1..64:x2 or 128x128x8/8x8/s3, further parameters as "
        "/name=value; auto, what a kernel's cost model picks for each size; or tuned, "
        "FILE.toml or FILE.csv, for tiles that 'gpubench tune' found. Default: each variant's own "
        "(compare-cublas: auto).",
        read=lambda flag, text: (
            (text,) if text == AUTO_TILES or tuned_file((text,)) else parse_tiles(text, flag)
        ),
    ),
    variants=Option(
        help="Kernels, such as shared_tile,cublas or cpu_*; 'gpubench variants' lists them. "
        "Default: all kernels that this list does not mark as 'not default'.",
        read=named,
        complete=completion.variants,
    ),
    exclude=Option(
        field="excluded",
        help="Leave out these variants, such as cpu_naive or cpu_*.",
        read=named,
        complete=completion.variants,
    ),
    dtypes=Option(
        help=f"Element types: {', '.join(DTYPES)}. Default: {','.join(DEFAULT.dtypes)}.",
        read=list_of(DTYPES, DTYPE_ALIASES),
        complete=completion.dtypes,
    ),
    op=Option(
        help=f"Operation: {', '.join(OPERATIONS)}; or an operation in --kernels. "
        f"Default: {DEFAULT.op}.",
        read=lambda _flag, text: text,  # `read_sweep` checks the text, with --kernels
        metavar="OP",
        complete=completion.one_of(tuple(OPERATIONS)),
    ),
    device=Option(
        help="Device: auto, cuda, cuda:1 or cpu. Default: auto, the GPU if there is one.",
        read=_device,
        metavar="DEVICE",
    ),
    kernels=Option(
        kind=Path,
        help="Directory of your own kernels: mine.cu and mine.py in DIR, or in DIR/gemm. "
        "This runs the code of every .py there, as you.",
        metavar="DIR",
    ),
    output=Option(
        kind=Path,
        help="CSV to write, such as a.csv or, compressed, a.csv.gz; of judge with problems, a "
        "folder, or the CSV of one problem. Default: results/<time>-<device>-<op>.csv; of tune "
        "results/<time>-<device>-<op>-tune.csv.",
        read=csv_path,
        short="-o",
    ),
    samples=Option(
        kind=Path,
        help="File for the time of every sample: one JSON line for each point and round.",
        read=file_path,
    ),
    seed=Option(
        kind=int,
        help=f"Seed of the operands, and of the order of the points. Default: {DEFAULT.seed}.",
        read=within(0, 2**63 - 1),
    ),
    operands=Option(
        help=f"Values of the operands, which decide the power: {', '.join(Fill)}. "
        "Default: uniform.",
        read=lambda flag, text: tuple(map(Fill, list_of(Fill)(flag, text))),
    ),
    layouts=Option(
        help="How A and B of gemm lie in memory, a letter each, n (row-major) or t "
        "(transposed): nn,nt,tn,tt. Default: each kernel's own, nn for most.",
        read=list_of(LAYOUTS),
    ),
    rounds=Option(
        kind=int,
        help="Number of rounds (of tune: of its confirmation). Each round measures all points in a "
        f"new order. Default: {DEFAULT.timing.rounds}; for judge 15.",
        read=within(1, 1000),
    ),
    precision=Option(
        help="Sample until the 95 % interval of the median is within this percentage of the "
        "median. Default: 0.5%.",
        read=lambda flag, text: parse_fraction(text, flag, low=0.0001),
        metavar="PERCENT",
    ),
    cache=_either("caches", Cache, "State of the cache at a launch. Default: cold."),
    launches=Option(
        help="When a launch begins: alone (when the previous launch has ended), overlapped (as "
        "early as the kernel allows), graph, graph_overlapped (in a graph), waited (the host "
        "waits for each launch). Default: alone.",
        read=lambda flag, text: tuple(map(Launches, list_of(Launches)(flag, text))),
    ),
    state=_either(
        "states",
        State,
        "burst: short visits at the highest clock; sustained: after a second of launches "
        "without a pause, with watts and joules. Default: burst.",
    ),
    scope=_either(
        "scopes",
        Scope,
        "What is timed: the kernel alone, or copies and allocations too. Default: kernel.",
    ),
    timer=Option(
        help="events (time in a stream) or cupti (execution). Default: events.",
        read=lambda flag, text: Timer(one_of(Timer.EVENTS, Timer.CUPTI)(flag, text)),
        metavar=_choice(Timer.EVENTS, Timer.CUPTI),
    ),
    budget=_duration("budget_s", 1, 1e7, "Time for all points together, such as 60, 90s or 2m."),
    launch_limit=_duration(
        "launch_limit_s",
        0.001,
        3600,
        "Skip points whose launch is estimated to take longer. Default: 10; for compare-cublas 1.",
    ),
    point_limit=_duration(
        "point_limit_s",
        1,
        1e6,
        "Per-point timeout: a point is an error if it takes longer to measure in a round, or to "
        "compile and call once. Default: 60 plus 6 times the launch limit; 300 to compile.",
    ),
)


def read_sweep(
    values: Mapping[str, Any],
    config: Path | None = None,
    defaults: Sweep = DEFAULT,
    solutions: Sequence[Path] | None = None,
) -> Sweep:
    """Return the sweep that the options describe.

    If `op` is the path of another project's problem, the sweep runs the problem's reference and the
    `solutions`. By default, `solutions` are the solutions that are found next to the problem.

    An option without a value is taken from the configuration, then from `defaults`. Numbers and
    lists are converted to text first. Raises UsageError, which names the option's flag.
    """
    texts = option_texts(values, config)
    sweep_fields, timing = dict[str, Any](), dict[str, Any]()
    for name, text in texts.items():
        option = OPTIONS[name]
        fields_of = timing if option.field in _TIMING_FIELDS else sweep_fields
        fields_of[option.field] = option.convert(text)
    require_inputs_kept(texts, config)
    if is_problem(sweep_fields.get("op", "")):
        sweep_fields |= of_problem(sweep_fields, solutions)
    op = operation_named(sweep_fields.get("op"), sweep_fields.get("kernels"), defaults.op)
    sweep_fields["op"] = op
    if isinstance(sweep_fields.get("sizes"), str):  # sizes stay text until the operation is known
        dtypes = sweep_fields.get("dtypes", defaults.dtypes)
        flag = f"--config: {config}: --sizes" if config and not values.get("sizes") else "--sizes"
        sweep_fields |= read_sizes(sweep_fields["sizes"], op, dtypes, flag)
    return replace(
        defaults, **sweep_fields, timing=replace(defaults.timing, **timing), options=texts
    )


def option_texts(options: Mapping[str, Any], config: Path | None = None) -> dict[str, str]:
    """Return the text of each option that a call or a TOML file has.

    Raises UsageError for an unknown option, and for an invalid value in the file.
    """
    values = read_toml(config, "--config") if config else {}
    for name in [*values, *options]:
        if name not in OPTIONS:
            where, kind = (f"--config: {config}: ", "key") if name in values else ("", "option")
            raise UsageError(f"{where}{unknown(kind, name, OPTIONS)}")
    values = confined(config, values) if config else {}
    flags = {name: OPTIONS[name].text(each) for name, each in options.items() if each is not None}
    with named_in_errors(config) if config else nullcontext():
        texts = {name: OPTIONS[name].text(values[name]) for name in values if name not in flags}
        for name, text in texts.items():
            OPTIONS[name].convert(text)
    return texts | flags


def resumed(path: Path, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the text of each option with which the sweep into `path` was started.

    Raises UsageError if there is nothing to continue, or if an option in `texts` differs from the
    option of the started sweep.
    """
    from gpubench.results.result_file import read_context

    started: dict[str, str] = read_context(path)["options"] | {"output": str(path)}
    if "samples" in texts:  # the file of samples changes no measurement
        started["samples"] = texts["samples"]
    for name, text in texts.items():
        if started.get(name) != text:
            was = f"'{started[name]}'" if name in started else "not given"
            raise UsageError(
                f"--resume: {path} was started with --{name.replace('_', '-')} {was}; "
                "leave it out, or start another file"
            )
    if "kernels" in started and "kernels" not in texts:  # a file alone must not cause code to run
        raise UsageError(
            f"--resume: {path} sweeps kernels of a directory, which runs their code: "
            f"add --kernels {shown(started['kernels'])}"
        )
    if is_problem(started.get("op", "")) and "op" not in texts:
        raise UsageError(
            f"--resume: {path} sweeps a problem of another project, which runs its code: "
            f"add --op {shown(started['op'])}"
        )
    if "samples" in started and "samples" not in texts and not lies_below(started["samples"]):
        raise UsageError(
            f"--resume: {path} writes samples outside the current directory: "
            f"add --samples {shown(started['samples'])}"
        )
    return started


Command = TypeVar("Command", bound=Callable[..., object])


def sweep_options(
    command: Command, *, without: Collection[str] = (), for_python: bool = False
) -> Command:
    """Replace the parameter `options` of a command by one parameter for each option of a sweep.

    If `for_python` is true, the signature has the defaults that Python's `help` prints, and no
    annotations of Typer.
    """
    options = [option for option in OPTIONS.values() if option.name not in without]
    parameters = list(map(_parameter, options))
    if for_python:
        parameters = [
            parameter.replace(default=option.default, annotation=inspect.Parameter.empty)
            for parameter, option in zip(parameters, options, strict=True)
        ]
    return with_parameters(command, parameters)


def chosen_options(command: Command, *, options: Mapping[str, tuple[str, str] | None]) -> Command:
    """Replace the parameter `options` of a command by the named options of a sweep.

    `options` maps each name to None, or to the metavar and the help of an option that takes fewer
    values in this command.
    """
    declared = {
        name: replace(OPTIONS[name], metavar=own[0], help=own[1]) if own else OPTIONS[name]
        for name, own in options.items()
    }
    return with_parameters(command, map(_parameter, declared.values()))


def _parameter(option: Option) -> inspect.Parameter:
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[option.kind | None, option.typer],
    )


def with_parameters(command: Command, parameters: Iterable[inspect.Parameter]) -> Command:
    """Replace a function's parameter `**options` by the given parameters."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    named = (parameter for parameter in own if parameter.kind != inspect.Parameter.VAR_KEYWORD)
    ordered = sorted([*named, *parameters], key=lambda parameter: parameter.kind)
    command.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined] # PEP 362
    annotated = [parameter for parameter in ordered if parameter.annotation is not parameter.empty]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in annotated}
    return command


def output_file(text: str, metavar: str | None = None) -> Any:
    """Return the option `--output` for Typer, with `text` as its help."""
    return typer.Option(
        "--output", "-o", metavar=metavar, help=text, autocompletion=completion.files
    )


def directory(text: str) -> Any:
    """Return the option `--dir` for Typer, with `text` as its help."""
    return typer.Option("--dir", metavar="DIR", help=text, autocompletion=completion.files)


def files(text: str, metavar: str | None = "FILE") -> Any:
    """Return an option for Typer that takes paths, with `text` as its help."""
    return typer.Option(metavar=metavar, help=text, autocompletion=completion.files)


Op = Annotated[str | None, OPTIONS["op"].typer]
DeviceName = Annotated[str | None, OPTIONS["device"].typer]
Config = Annotated[
    Path | None,
    files(
        'TOML file with any of these options, such as sizes = "1024,2048". Flags override the '
        "file. Kernels must lie in its folder, and output below the current directory."
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="CSV of a sweep that ended early and is continued, such as a.csv.",
        callback=lambda path: path and Path(str(path).removesuffix(".partial")),
    ),
]
LOCAL = "local"
"""The value of `--on` that starts a worker for each device of this machine."""


def require_cluster(on: str | None) -> str | None:
    """Return the value of `--on`. Raises UsageError if the value names no cluster."""
    if on is None or on == LOCAL or "://" in on or os.path.isfile(on):  # noqa: PTH113 # Path.is_file raises
        return on
    raise UsageError(
        f"--on: '{shown(on)}' is neither {LOCAL}, nor an address such as tcp://host:8786, nor a "
        "scheduler file"
    )


On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="WHERE",
        help="Devices that share the work: local (all of this machine), or the workers of a Dask "
        "cluster, tcp://host:8786 or its scheduler file. See docs/fleet.md.",
        callback=require_cluster,
    ),
]


def _store_name(name: str | None) -> str | None:
    if name is not None:
        from gpubench.results.store import checked

        checked(name, "--save")
    return name


Save = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Save the rows under a name such as v0.1, for 'gpubench diff --against NAME' and "
        "'gpubench history NAME'.",
        callback=_store_name,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="List the points and how long they may take; measure nothing."),
]
ToFind = Annotated[
    str | None,
    typer.Option(
        "--to-find",
        metavar="PERCENT",
        help="Slow-down to find, such as 3%. This device's results show how often to measure.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite --output if it exists.")]
ForceFiles = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CudaKernel = Annotated[
    str,
    typer.Argument(
        metavar="VARIANT",
        help="A CUDA kernel; see 'gpubench variants'.",
        autocompletion=completion.variants,
    ),
]
Arch = Annotated[
    str | None,
    typer.Option(
        metavar="ARCH",
        help="Architecture, such as sm_80; no GPU is needed. Default: this GPU's, or else sm_90.",
    ),
]
Results = Annotated[
    list[Path],
    typer.Argument(metavar="CSV", help="Results to show.", autocompletion=completion.files),
]
Only = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Use only these variants, dtypes, sizes and tiles: shared_tile,fp32,1024,16 or cpu_*. "
        "A row must match a term of each kind that the list has.",
        autocompletion=completion.variants,
    ),
]
Exclude = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Leave out every row that any of these terms matches: cublas,64.",
        autocompletion=completion.variants,
    ),
]
Bandwidth = Annotated[
    float | None,
    typer.Option(
        help="Copy bandwidth in GB/s for the roofline, where the CSV does not have it; "
        "'gpubench deviceinfo --measure' prints it.",
        min=0.001,
    ),
]
