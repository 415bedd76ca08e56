"""Defines a case, which is a variant at one tile and problem, and encodes cases as bytes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, zip_longest

import numpy as np

from gpubench.engine.judge.verify import poison
from gpubench.engine.operands.make import make_reference
from gpubench.errors import NotOnCpuError, UsageError
from gpubench.model import Config, CudaVariant, Gpu, HostVariant, Launch, Problem, Variant
from gpubench.model.signature import (
    LAUNCH,
    NULL,
    STREAM,
    TENSOR_MAP,
    WORKSPACE,
    Parameter,
    array_index,
    number,
    packed,
    parameters,
)

ONE_MULTIPROCESSOR = Gpu(multiprocessors=1, threads_per_multiprocessor=2048)
"""The smallest GPU that a launch can be fitted to. Each persistent block then takes several tiles,
so that the whole loop is tested."""


def titled(variant: Variant, tile: Config | None) -> str:
    """Return the variant's name and tile, such as `shared_tile 16`.

    Return only the name if the variant has no tile to choose.
    """
    return (
        f"{variant.name} {tile}" if tile and variant.tiles and variant.tiles.axes else variant.name
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """A variant at one tile and problem."""

    variant: CudaVariant | HostVariant
    tile: Config | None
    problem: Problem
    gpu: Gpu | None = ONE_MULTIPROCESSOR
    """The GPU that the launch is fitted to. None if the launch is fitted to no GPU."""

    inputs: tuple[np.ndarray, ...] = field(default=(), compare=False)
    """The operands. Empty means the operands that the function `operands` returns."""

    @property
    def label(self) -> str:
        """The case in words, such as `shared_tile 16 at 17x3x35 float32 column-major B`."""
        layout = f" {self.problem.layout}" if self.problem.column_major else ""
        problem = f"{self.problem.size} {self.problem.dtype}{layout}"
        return f"{titled(self.variant, self.tile)} at {problem}"

    @property
    def array_names(self) -> list[str]:
        """The names of the operands, the result and the workspace.

        If the variant has a signature, the names are taken from the signature.
        """
        names = [*self.problem.operation.arrays, WORKSPACE]
        if self.variant.signature:
            for parameter in parameters(self.variant.signature):
                index = array_index(parameter, self.problem.op)
                if parameter.is_pointer and index is not None:
                    names[index] = parameter.name
        return names

    @property
    def launch(self) -> Launch:
        """The variant's launch. A grid of 0 means that a host function makes the launches."""
        if isinstance(self.variant, HostVariant):
            return Launch(grid=(0, 0, 0), block=(0, 0, 0))
        if self.gpu is None:
            return self.variant.launch(self.tile or Config(), self.problem)
        return self.variant.launch_on(self.gpu, self.tile or Config(), self.problem)

    @property
    def instances(self) -> list[str]:
        """The template instances of the launches, in order, or the host function."""
        if isinstance(self.variant, HostVariant):
            return [self.variant.function(self.tile, self.problem.dtype)]
        return [
            self.variant.instance(self.tile or Config(), self.problem.dtype, launch.kernel)
            for launch in self.launch.sequence
        ]


def operands(problem: Problem) -> tuple[np.ndarray, ...]:
    """Return inputs of small integers other than 0.

    Sums of their products are exact in any order, so results are compared for equality.
    """
    rng = np.random.default_rng(problem.m * 1_000_003 + problem.n * 1009 + problem.k)
    types = problem.types[:-1]
    if make := problem.operation.make:
        made = make(rng, problem.input_shapes)
        return tuple(np.asarray(array, kind) for array, kind in zip(made, types, strict=True))
    choice = np.array([-3, -2, -1, 1, 2, 3])
    return tuple(
        rng.choice(choice.astype(kind), size=shape)
        for shape, kind in zip(problem.input_shapes, types, strict=True)
    )


def expected(problem: Problem) -> np.ndarray:
    """Return the result that a kernel must compute for a product of `operands`.

    The operands are small integers, so the result is exact in every dtype.
    """
    inputs = [array.astype(np.int64) for array in operands(problem)]
    result: np.ndarray = problem.operation.reference(np, *inputs)
    return result.astype(problem.precision.result)


def right_result(problem: Problem) -> tuple[np.ndarray, np.ndarray | float]:
    """Return the right result, and the largest error that each element may have.

    No error is allowed in the result of a product.
    """
    if problem.operation.is_product:
        return expected(problem), 0.0
    reference = make_reference(np, problem.op, *operands(problem))
    right = reference.parts[0]
    if np.shape(right) != problem.output_shape:
        shape = np.shape(right)
        raise UsageError(
            f"{problem.op}: its reference has the shape {shape}, not {problem.output_shape}"
        )
    size = np.abs(right)
    scale = reference.row_norms + size
    return right, problem.tolerance * scale + problem.precision.result_roundoff * size


def differs(output: np.ndarray, right: np.ndarray, allowed: np.ndarray | float) -> np.ndarray:
    """Return for each element whether its error is larger than allowed, or the element is NaN."""
    error = np.abs(output.astype(np.float64) - right.astype(np.float64))
    wrong: np.ndarray = ~(error <= allowed)
    return wrong


NULL_POINTER = -1
"""The index that stands for a null pointer in run_cases.h."""


def is_of_row_major_b(case: Case, output: np.ndarray) -> bool:
    """Whether an output is the product that a row-major B in place of a column-major B has."""
    problem = case.problem
    if problem.column_major != ("B",) or case.variant.column_major:
        return False
    left, right, *others = (each.astype(np.int64) for each in operands(problem))
    by_rows = right.ravel(order="F").reshape(right.shape)
    product = problem.operation.reference(np, left, by_rows, *others)
    return not differs(output, product, 0.0).any()


def row_major_only(dtype: str) -> str:
    """Return a message on a function that reads a row-major B, in a dtype that has no such B."""
    return (
        f"the result is right for a row-major B, but B of {dtype} is column-major: index "
        "B[col * K + k]"
    )


def words(*values: int) -> bytes:
    """Return numbers in the format that `number` of run_cases.h reads."""
    return np.array(values, dtype=np.int64).tobytes()


def encoded(case: Case, names: Sequence[str]) -> bytes:
    """Encode a case for `run_case` of run_cases.h.

    The buffers come first. The launches on the buffers follow.
    """
    problem, launch = case.problem, case.launch
    inputs = case.inputs or operands(problem)
    output = np.empty(problem.output_shape, dtype=problem.types[-1])
    poison(output, reads_output=case.variant.reads_output)
    workspace = [np.full(launch.workspace_bytes, 0xFF, np.uint8)] if launch.workspace_bytes else []
    buffers = [*inputs, output, *workspace, *_numbers_in_memory(case)]
    parts = [words(len(inputs), len(buffers))]
    for buffer, by_columns in zip_longest(buffers, problem.by_columns):  # later buffers are flat
        parts += [words(buffer.nbytes), buffer.tobytes("F" if by_columns else "C")]
    return b"".join(parts) + encoded_launches(case, names, lambda _step: ())


def encoded_launches(
    case: Case, names: Sequence[str], blocks: Callable[[Launch], Sequence[tuple[int, int, int]]]
) -> bytes:
    """Encode the launches of a case as bytes.

    `blocks` takes a launch, and returns the indices of the blocks to run. () means all blocks.
    """
    launch = case.launch
    parts = [words(len(launch.sequence))]
    for step, name in zip(launch.sequence, case.instances, strict=True):
        arrays, numbers = _arguments(case, step, workspace=bool(launch.workspace_bytes))
        parts.append(words(names.index(name), *step.dimensions, step.shared_bytes))
        parts.append(words(len(arrays), *arrays, len(numbers), *numbers))
        parts.append(words(len(step.tensor_maps)))
        for box in step.tensor_maps:
            place = (box.array, box.offset_bytes, *box.shape, *box.box)
            parts.append(words(*place, box.precision(case.problem).item_bytes))
        chosen = blocks(step)
        parts.append(words(len(chosen), *(index for block in chosen for index in block)))
    return b"".join(parts)


def _numbers_in_memory(case: Case) -> list[np.ndarray]:
    """Return the numbers that a host function takes by address, as in `const float* alpha=1`."""
    if isinstance(case.variant, CudaVariant):
        return []
    scalar = case.problem.precision.cpp
    return [
        np.frombuffer(packed(each, number(each, case.problem), scalar), np.uint8)
        for each in case.variant.parameters()
        if _is_number_in_memory(each, case.problem.op)
    ]


def _is_number_in_memory(parameter: Parameter, op: str) -> bool:
    return parameter.is_pointer and parameter.value != NULL and array_index(parameter, op) is None


def _arguments(case: Case, launch: Launch, *, workspace: bool) -> tuple[list[int], list[int]]:
    """Return the indices of the buffers and the numbers that a launch's kernel takes, in order."""
    arrays, numbers, int_arguments = [], [], iter(launch.int_arguments)
    in_memory, variant = count(len(case.problem.shapes) + workspace), case.variant
    for parameter in (
        variant.parameters()
        if isinstance(variant, HostVariant)
        else variant.parameters(launch, workspace=workspace)
    ):
        if parameter.value == NULL or parameter.type_name == STREAM:
            arrays.append(NULL_POINTER)
        elif _is_number_in_memory(parameter, case.problem.op):
            arrays.append(next(in_memory))
        elif parameter.is_pointer:
            arrays.append(array_index(parameter, case.problem.op) or 0)
        elif parameter.type_name != TENSOR_MAP:
            from_launch = parameter.value == LAUNCH
            value = next(int_arguments) if from_launch else number(parameter, case.problem)
            if value != int(value):
                raise NotOnCpuError(
                    f"{case.variant.path}: kernels on the CPU can only take whole numbers"
                )
            numbers.append(int(value))
    return arrays, numbers
