"""Flags and TOML become one `Sweep`: every option is read here, whoever gave it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpubench.errors import UsageError
from gpubench.model import DTYPES, OPERATIONS, Cache, Fill, Scope, Tile, Timer, Timing
from gpubench.plan.ranges import parse_names, parse_sizes, parse_tiles, shown
from gpubench.plan.registry import unknown
from gpubench.plan.toml_file import read_toml


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What the user asked for."""

    op: str = "gemm"
    variants: tuple[str, ...] = ()
    """Empty: every default variant of the op on the device."""

    sizes: tuple[tuple[int, int, int], ...] = ((1024, 1024, 1024),)
    """(M, N, K); K is 1 for operations without it."""

    tiles: tuple[Tile, ...] = ()
    """Empty: each variant's own default tiles."""

    dtypes: tuple[str, ...] = ("float32",)
    device: str = "auto"
    kernels: Path | None = None
    """A folder of the user's own variants, swept beside ours."""

    output: Path | None = None
    seed: int = 2006
    operands: Fill = Fill.UNIFORM
    caches: tuple[Cache, ...] = (Cache.COLD,)
    scopes: tuple[Scope, ...] = (Scope.KERNEL,)
    timer: Timer = Timer.EVENTS
    timing: Timing = field(default_factory=Timing)
    options: Mapping[str, str] = field(default_factory=dict)
    """The options that gave this sweep, as text: what a resumed sweep must have too."""


def read_sweep(
    options: Mapping[str, Any], config: Path | None = None, defaults: Sweep | None = None
) -> Sweep:
    """The sweep that the options describe; one that is None is taken from the config.

    What neither gives is as in `defaults`. A path in a config is confined: `kernels` lies beside
    the config or below, `output` below the current folder. Options name any path.

    Values are text as on the command line; numbers and lists, as TOML and Python callers give
    them, are read as the text they print as. Raises UsageError naming the option.
    """
    texts = option_texts(options, config)
    fields: dict[str, Any] = {}
    timing: dict[str, Any] = {}
    for name, text in texts.items():
        target, read = _OPTIONS[name]
        group = timing if target in Timing.__dataclass_fields__ else fields
        group[target] = read(_flag(name), text)
    defaults = defaults or Sweep()
    op = fields.get("op", defaults.op)
    if "sizes" in fields:  # text until the operation was known
        fields["sizes"] = parse_sizes(fields["sizes"], op)
    elif not OPERATIONS[op].has_k:
        fields["sizes"] = tuple((m, n, 1) for m, n, _ in defaults.sizes)
    return replace(defaults, **fields, timing=replace(defaults.timing, **timing), options=texts)


def option_texts(options: Mapping[str, Any], config: Path | None = None) -> dict[str, str]:
    """Every option given, as text. Raises UsageError for one that is unknown, or no text."""
    values = _read_toml(config) if config else {}
    values |= {name: value for name, value in options.items() if value is not None}
    for name in values:
        if name not in _OPTIONS:
            raise UsageError(unknown("option", name, _OPTIONS))
    return {name: _as_text(_flag(name), value) for name, value in values.items()}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _read_toml(path: Path) -> dict[str, Any]:
    values = read_toml(path, "--config")
    for name in values:
        if name not in _OPTIONS:
            raise UsageError(f"--config: {path}: {unknown('key', name, _OPTIONS)}")
    return confined(path, values)


def confined(path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """A config's options with their paths made whole; UsageError for one that leads elsewhere.

    A config may come from elsewhere, and what it names is run or written. So it reaches no further
    than the folder it lies in, and the one its user is in.
    """
    found = dict(values)
    for name, base in (("kernels", path.parent), ("output", Path())):
        if isinstance(found.get(name), str):
            found[name] = _confined(path, name, found[name], base)
    return found


def _confined(config: Path, name: str, text: str, base: Path) -> str:
    """A path from a config, below `base`; symbolic links are followed before that is judged."""
    try:
        inside = (base / text).resolve().is_relative_to(base.resolve())
    except (OSError, ValueError, RuntimeError):  # no path at all, or links in a circle
        inside = "\0" in text  # refused as every option is
    if not inside:
        raise UsageError(
            f"--config: {config}: {name} = '{shown(text)}' leads out of {base.resolve()}; "
            f"a path that does is given on the command line: --{name}"
        )
    return str(base / text) if text else text


def _as_text(flag: str, value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(_as_text(flag, item) for item in value)
    if isinstance(value, bool) or not isinstance(value, str | int | float | Path):
        raise UsageError(f"{flag}: takes text, a number or a list, not {shown(str(value))}")
    return str(value)


def _one_of(known: tuple[str, ...]) -> Callable[[str, str], str]:
    def read(flag: str, text: str) -> str:
        if text not in known:
            raise UsageError(f"{flag}: {unknown('value', text, known)}")
        return text

    return read


def _names(known: tuple[str, ...]) -> Callable[[str, str], tuple[str, ...]]:
    def read(flag: str, text: str) -> tuple[str, ...]:
        names = parse_names(text)
        if not names:
            raise UsageError(f"{flag}: names nothing; known: {', '.join(known)}")
        return tuple(_one_of(known)(flag, name) for name in names)

    return read


def _any_names(flag: str, text: str) -> tuple[str, ...]:
    """Names that the registry judges later, when op and device are known."""
    names = parse_names(text)
    if not names:
        raise UsageError(f"{flag}: names nothing; 'gpubench variants' lists what there is")
    return names


def _file(flag: str, text: str) -> Path:
    path = Path(text)
    if not path.name or "\0" in text:
        raise UsageError(f"{flag}: '{shown(text)}' names no file")
    return path


def _folder(flag: str, text: str) -> Path:
    if not text or "\0" in text:
        raise UsageError(f"{flag}: '{shown(text)}' names no folder")
    return Path(text)


def _number(low: float, high: float, *, whole: bool) -> Callable[[str, str], float | int]:
    def read(flag: str, text: str) -> float | int:
        kind = "a whole number" if whole else "a number"
        try:
            number = int(text) if whole else float(text)
        except ValueError:
            raise UsageError(f"{flag}: '{shown(text)}' is not {kind}") from None
        if not low <= number <= high:
            raise UsageError(f"{flag}: {shown(text)} is out of range: {kind} from {low} to {high}")
        return number

    return read


def _fraction(flag: str, text: str) -> float:
    """`0.5%` or `0.005`."""
    if text.endswith("%"):
        return float(_number(0.01, 100, whole=False)(flag, text[:-1])) / 100
    return float(_number(0.0001, 1, whole=False)(flag, text))


def _device(flag: str, text: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", text, re.ASCII):
        raise UsageError(f"{flag}: '{shown(text)}' is no device; write auto, cpu, cuda or cuda:1")
    return text


def _both(kind: type[Cache | Scope]) -> Callable[[str, str], tuple[Any, ...]]:
    """One of two, or `both`."""

    def read(flag: str, text: str) -> tuple[Any, ...]:
        if text == "both":
            return tuple(kind)
        return (kind(_one_of((*kind, "both"))(flag, text)),)

    return read


_OPTIONS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "op": ("op", _one_of(tuple(OPERATIONS))),
    "variants": ("variants", _any_names),
    "sizes": ("sizes", lambda _flag, text: text),
    "tiles": ("tiles", lambda _flag, text: parse_tiles(text)),
    "dtypes": ("dtypes", _names(DTYPES)),
    "device": ("device", _device),
    "kernels": ("kernels", _folder),
    "output": ("output", _file),
    "seed": ("seed", _number(0, 2**63 - 1, whole=True)),
    "operands": ("operands", lambda flag, text: Fill(_one_of(tuple(Fill))(flag, text))),
    "rounds": ("rounds", _number(1, 1000, whole=True)),
    "precision": ("precision", _fraction),
    "cache": ("caches", _both(Cache)),
    "scope": ("scopes", _both(Scope)),
    "timer": ("timer", lambda flag, text: Timer(_one_of(("events", "cupti"))(flag, text))),
    "point_limit": ("point_limit_s", _number(1, 10**6, whole=False)),
    "budget": ("budget_s", _number(1, 10**7, whole=False)),
    "launch_limit": ("launch_limit_s", _number(0.001, 3600, whole=False)),
}
"""Option, as on the command line and in TOML (with `_` for `-`): the field it sets, its reader."""
