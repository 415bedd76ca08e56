"""The form of SOL-ExecBench and FlashInfer-Trace: a definition, and workloads line by line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpubench.foreign import values
from gpubench.foreign.statement import MAX_WORKLOADS, Statement, Tolerance, Workload, read_text
from gpubench.model.expression import evaluate

MAX_EXTENT = 2**40

Axes = dict[str, int]


class Axis(msgspec.Struct):
    """An extent: `const` with a value, `expr` of other extents, or `var`."""

    type: Literal["var", "const", "expr"]
    value: int = 0
    expression: str = ""


class Tensor(msgspec.Struct):
    """An input or output. Without a shape it is a number."""

    dtype: str
    shape: list[str | int] | None = None


class Definition(msgspec.Struct):
    """`definition.json`."""

    name: str
    axes: dict[str, Axis]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    reference: str
    custom_inputs_entrypoint: str | None = None


class Input(msgspec.Struct):
    """How an input is made."""

    type: Literal["random", "scalar", "safetensors", "custom"]
    value: float | int | bool | str | None = None
    path: str = ""
    tensor_key: str = ""


class StatedTolerance(msgspec.Struct):
    """The tolerance of a workload, with the names of the form."""

    max_atol: float = 1e-2
    max_rtol: float = 1e-2
    required_matched_ratio: float = 0.99
    max_error_cap: float | None = None


class Line(msgspec.Struct):
    """A line of `workload.jsonl`."""

    axes: Axes
    inputs: dict[str, Input]
    uuid: str = ""
    tolerance: StatedTolerance | None = None


class Trace(msgspec.Struct):
    """A line of FlashInfer-Trace, which accepts a result if all elements are right."""

    workload: Line


def find(path: Path) -> list[Path]:
    """Return the definitions that a path names: a file, or those of a folder."""
    if path.is_dir():
        listed = [path / "definition.json", *sorted(path.glob("definitions/**/*.json"))]
        return [each for each in listed if each.is_file()]
    return [path] if path.suffix == ".json" and '"axes"' in read_text(path) else []


def solutions(path: Path) -> list[Path]:
    """Return the solutions that lie beside a definition."""
    root = _root(path)
    if root is None:
        return sorted(path.parent.glob("solution*.json"))
    name = f'"{path.stem}"'
    return [each for each in sorted(root.glob("solutions/**/*.json")) if name in read_text(each)]


def _root(definition: Path) -> Path | None:
    """Return the folder of traces that has a definition; None for a folder of its own."""
    return next((each.parent for each in definition.parents if each.name == "definitions"), None)


def _read(path: Path) -> tuple[Definition, list[Line]]:
    definition = msgspec.json.decode(read_text(path), type=Definition)
    if root := _root(path):
        within = path.relative_to(root / "definitions").with_suffix(".jsonl")
        text = read_text(root / "workloads" / within)
    else:
        text = read_text(path.parent / "workload.jsonl")
    listed = []
    for line in [line for line in text.splitlines() if line.strip()][:MAX_WORKLOADS]:
        if root:
            each = msgspec.json.decode(line, type=Trace).workload
            each.tolerance = each.tolerance or StatedTolerance(required_matched_ratio=1.0)
        else:
            each = msgspec.json.decode(line, type=Line)
        listed.append(each)
    return definition, listed


def read(path: Path) -> Statement:
    """Return what a definition states. Raises ValueError for what cannot be used, or OSError."""
    definition, listed = _read(path)
    workloads = []
    for line in listed:
        shapes(definition, line)
        name = " ".join(f"{axis}={extent}" for axis, extent in line.axes.items())
        workloads.append(Workload(name or line.uuid[:8], _tolerance(line)))
    return Statement("SOL-ExecBench", str(path), definition.name, tuple(workloads))


def _tolerance(line: Line) -> Tolerance:
    stated = line.tolerance or StatedTolerance()
    return Tolerance(
        stated.max_atol, stated.max_rtol, stated.required_matched_ratio, stated.max_error_cap
    )


def _axes(definition: Definition, line: Line) -> Axes:
    """Return the extents by name. Raises ValueError."""
    axes = {name: axis.value for name, axis in definition.axes.items() if axis.type == "const"}
    axes |= line.axes
    for name, axis in definition.axes.items():
        if axis.type == "expr":
            axes[name] = evaluate(axis.expression, axes)
    return axes


def shapes(definition: Definition, line: Line) -> dict[str, tuple[int, ...] | None]:
    """Return the shape of each input and output; None for a number. Raises ValueError."""
    axes, made = _axes(definition, line), dict[str, tuple[int, ...] | None]()
    for name, tensor in {**definition.inputs, **definition.outputs}.items():
        shape = tensor.shape and tuple(evaluate(extent, axes) for extent in tensor.shape)
        made[name] = None if tensor.shape is None else shape or ()
        if any(not 0 < extent < MAX_EXTENT for extent in made[name] or ()):
            raise ValueError(f"{name}: the shape {shape} has no element, or too many")
    return made


class Program:
    """The code of a definition."""

    def __init__(self, path: Path) -> None:
        self._path, (self._definition, self._lines) = path, _read(path)
        text = self._definition.reference
        self._module = vars(values.module_of(path, "reference", text))

    def inputs(self, number: int, seed: int) -> Sequence[Any]:
        """Return the arguments of a workload, whose random values a seed determines."""
        values.seed(seed)
        definition, line = self._definition, self._lines[number - 1]
        sizes, made = shapes(definition, line), dict[str, Any]()
        if entry := definition.custom_inputs_entrypoint:
            scalars = {k: given.value for k, given in line.inputs.items() if given.type == "scalar"}
            made |= self._module[entry]({**_axes(definition, line), **scalars}, values.cpu())
        for name, tensor in definition.inputs.items():
            given = line.inputs.get(name) or Input("random")
            if given.type == "scalar":
                made[name] = given.value
            elif given.type == "safetensors":
                root = _root(self._path) or self._path.parent
                made[name] = values.stored(root / given.path, given.tensor_key)
            elif given.type == "random":
                made[name] = values.random(name, sizes[name], tensor.dtype)
        return [made[name] for name in definition.inputs]

    def reference(self, arguments: Sequence[Any], *, is_wide: bool) -> Any:
        """Return the results in the order of the definition."""
        del is_wide
        result, names = self._module["run"](*arguments), self._definition.outputs
        return [result[name] for name in names] if isinstance(result, Mapping) else result

    def tolerances(self, number: int, _arguments: object, result: Sequence[Any]) -> list[Tolerance]:
        """Return the stated tolerance of each result."""
        return [_tolerance(self._lines[number - 1])] * len(result)

    def solution(self, module: Any) -> Any:
        """Return the function `run` of a module; None if it has none."""
        return getattr(module, "run", None)
