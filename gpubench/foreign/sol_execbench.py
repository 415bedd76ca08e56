"""Reads the form of SOL-ExecBench and FlashInfer-Trace: a definition, and a file of workloads."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpubench.files import files_in
from gpubench.foreign import values
from gpubench.foreign.statement import Statement, Tolerance, Workload, read_lines, read_text
from gpubench.model.expression import evaluate

SHARE = "required_matched_ratio"
LIMITS = {"max_atol": "absolute", "max_rtol": "relative", "max_error_cap": "cap", SHARE: "share"}
"""Maps the fields of a tolerance in this form to the fields of `Tolerance`."""


class _Axis(msgspec.Struct):
    type: Literal["var", "const", "expr"]
    value: int = 0
    expression: str = ""  # an expression of other axes


class _Tensor(msgspec.Struct):
    dtype: str
    shape: list[str | int] | None = None  # None means a single number


class _Definition(msgspec.Struct):
    name: str
    axes: dict[str, _Axis]
    inputs: dict[str, _Tensor]
    outputs: dict[str, _Tensor]
    reference: str
    custom_inputs_entrypoint: str | None = None


class _Input(msgspec.Struct):
    type: Literal["random", "scalar", "safetensors", "custom"]
    value: float | int | bool | str | None = None
    path: str = ""
    tensor_key: str = ""


class _Line(msgspec.Struct):
    axes: dict[str, int]
    inputs: dict[str, _Input]
    uuid: str = ""
    tolerance: dict[str, float | bool | None] | None = None


def find(path: Path) -> list[Path]:
    """Return the definitions at a path, which is a file or a folder of files."""
    if path.is_dir():
        return files_in(path, "definition.json", "definitions/**/*.json")
    return [path] if path.suffix == ".json" and '"axes"' in read_text(path) else []


def solutions(path: Path) -> list[Path]:
    """Return the solutions that lie beside a definition."""
    root, named = _root(path), f'"{path.stem}"'
    if root is None:
        return files_in(path.parent, "solution*.json")
    return [x for x in files_in(root, "solutions/**/*.json") if named in read_text(x)]


def _root(definition: Path) -> Path | None:
    """Return the folder of FlashInfer-Trace that contains a definition, or None."""
    return next((each.parent for each in definition.parents if each.name == "definitions"), None)


def _read(path: Path) -> tuple[_Definition, list[_Line], Path]:
    definition, root = msgspec.json.decode(read_text(path), type=_Definition), _root(path)
    file = path.parent / "workload.jsonl"
    if root:
        file = root / "workloads" / path.relative_to(root / "definitions").with_suffix(".jsonl")
    return definition, read_lines(file, _Line, "workload" if root else ""), file


def read(path: Path) -> Statement:
    """Return a definition's statement. Raises ValueError for an invalid file, or OSError."""
    definition, listed, file = _read(path)
    workloads, share = list[Workload](), 1.0 if _root(path) else 0.99  # share of right elements
    for line in listed:
        _shapes(definition, line)
        stated = {key: x for key, x in (line.tolerance or {}).items() if x is not None}
        limits = {LIMITS[key]: x for key, x in {SHARE: share, **stated}.items() if key in LIMITS}
        axes = " ".join(f"{axis}={extent}" for axis, extent in line.axes.items())
        name = axes or line.uuid[:8] or "its inputs"
        workloads.append(Workload(name, msgspec.convert(limits, Tolerance)))
    return Statement("SOL-ExecBench", str(path), definition.name, tuple(workloads), (str(file),))


def _axes(definition: _Definition, line: _Line) -> dict[str, int]:
    """Return a workload's extents by name. Raises ValueError for an invalid expression."""
    axes = {name: x.value for name, x in definition.axes.items() if x.type == "const"} | line.axes
    for name, axis in definition.axes.items():
        if axis.type == "expr":
            axes[name] = evaluate(axis.expression, axes)
    return axes


def _shapes(definition: _Definition, line: _Line) -> dict[str, tuple[int, ...] | None]:
    """Return the shape of each input and output (None: a number). Raises ValueError."""
    axes, made = _axes(definition, line), dict[str, tuple[int, ...] | None]()
    for name, tensor in {**definition.inputs, **definition.outputs}.items():
        shape = tuple(evaluate(extent, axes) for extent in tensor.shape or ())
        made[name] = None if tensor.shape is None else shape
        if min(shape, default=1) < 1:
            raise ValueError(f"{name}: the shape {shape} has no element")
    return made


class Program:
    """Runs the code of a definition."""

    ENTRY = "function run"

    def __init__(self, path: Path) -> None:
        self._root, (self._definition, self._lines, _) = _root(path) or path.parent, _read(path)
        self._module = vars(values.module_of(path, "reference", self._definition.reference))
        self.other_types = {each.dtype for each in self._definition.outputs.values()}

    def inputs(self, number: int, seed: int) -> Sequence[Any]:
        """Return the arguments of a workload, with random values that depend on the seed."""
        values.seed(seed)
        definition, line = self._definition, self._lines[number - 1]
        shapes, made = _shapes(definition, line), dict[str, Any]()
        if entry := definition.custom_inputs_entrypoint:
            scalars = {k: x.value for k, x in line.inputs.items() if x.type == "scalar"}
            made |= self._module[entry]({**_axes(definition, line), **scalars}, values.device())
        for name, tensor in definition.inputs.items():
            source = line.inputs.get(name) or _Input("random")
            if source.type == "random":
                made[name] = values.random(name, shapes[name], tensor.dtype)
            elif source.type == "safetensors":
                made[name] = values.stored(self._root / source.path, source.tensor_key)
            elif source.type == "scalar":
                made[name] = source.value
        return [made[name] for name in definition.inputs]

    def reference(self, arguments: Sequence[Any]) -> Any:
        """Call the reference, and return its results in the order of the definition."""
        result, names = self._module["run"](*arguments), self._definition.outputs
        return [result[name] for name in names] if isinstance(result, Mapping) else result

    def solution(self, module: Any) -> Any:
        """Return the function `run` of a module, or None if the module lacks it."""
        return getattr(module, "run", None)
