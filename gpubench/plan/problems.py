"""Reads `--sizes FILE.csv`, which lists a model's products, each with a name and a frequency."""

import csv
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gpubench.errors import UsageError
from gpubench.model import DTYPE_ALIASES, DTYPES, LARGEST, OPERATIONS, Size
from gpubench.plan.ranges import parse_sizes
from gpubench.plan.toml_file import decode
from gpubench.results.columns import opened
from gpubench.text import clean, counted, shown, unknown

MAX_PROBLEMS = 10_000
MAX_NAME = 60  # number of characters that tables and pictures can show

Extent = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]


@dataclass(frozen=True, kw_only=True)
class ListedProblem:
    """A problem in a file that `--sizes` names."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]

    m: Extent = 1
    n: Extent = 1
    k: Extent = 1
    further: tuple[Extent, ...] = ()
    weight: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 1.0
    """Number of times that the problem occurs in the model."""

    dtype: str = ""  # empty: every dtype of the sweep

    @property
    def size(self) -> Size:
        """The problem's size, which has M, N, K and the further extents."""
        return self.m, self.n, self.k, *self.further


_ENDINGS = (".csv", ".csv.gz")  # endings of the names of lists


def list_paths(text: str) -> list[Path]:
    """Return the files in a value of `--sizes`, such as `a.csv,b.csv`, or [] for plain sizes."""
    if not text.lower().endswith(_ENDINGS):
        return []
    is_file = os.path.isfile(text)  # noqa: PTH113 # Path.is_file raises for a name that is too long
    return [Path(part.strip()) for part in ([text] if is_file else text.split(","))]


def read_sizes(text: str, op: str, dtypes: tuple[str, ...], flag: str) -> dict[str, Any]:
    """Return the fields of `Sweep` that `--sizes` sets, which are sizes or the problems of files.

    If there are several files, the problems get names such as `bert-large: output`.
    """
    paths = list_paths(text)
    are_lists = {part.strip().lower().endswith(_ENDINGS) for part in text.split(",")}
    if len(are_lists) > 1 and len(paths) != 1:  # the name of one file may have a comma
        raise UsageError(
            f"{flag}: '{shown(text)}' has both sizes and files; write the sizes into a file, too"
        )
    if not paths:
        return {"sizes": parse_sizes(text, op, flag)}
    listed = [(path, problem) for path in paths for problem in read_problems(path, op, flag)]
    if len(paths) > 1:
        listed = [
            (path, replace(problem, name=f"{path.stem}: {problem.name}"[:MAX_NAME]))
            for path, problem in listed
        ]
    problems = with_dtypes((problem for _, problem in listed), dtypes)
    return {
        "problems": problems,
        "sizes": tuple(dict.fromkeys(problem.size for problem in problems)),
        "dtypes": tuple(dict.fromkeys(problem.dtype for problem in problems)),
    }


def read_problems(path: Path, op: str, flag: str = "--sizes") -> tuple[ListedProblem, ...]:
    """Read a file that lists problems of an operation.

    The columns are `name`, the operation's extents (such as `m`, `n`, `k`), and optionally `weight`
    and `dtype`. Lines that begin with # are skipped. Raises UsageError, which names the line and
    the fault.
    """
    extents = tuple(name.casefold() for name in OPERATIONS[op].extents)
    further_names = [name.casefold() for name in OPERATIONS[op].further]
    required = ("name", *extents)
    columns = (*required, "weight", "dtype")
    try:
        with opened(path) as file:
            lines = [line for line in file if line.strip() and not line.startswith("#")]
            delimiter = max(",;\t", key=lines[0].count) if lines else ","
            table = [
                [cell.strip() for cell in line] for line in csv.reader(lines, delimiter=delimiter)
            ]
    except UsageError as error:
        raise UsageError(f"{flag}: {error}") from error
    names = [name.lower() for name in table[0]] if table else []
    for name in table[0] if table else []:
        if name.lower() not in columns:
            raise UsageError(f"{flag}: {path}: {unknown('column', name, columns)}")
    for name in required:
        if name not in names:
            raise UsageError(
                f"{flag}: {path}: the column '{name}' is missing; the columns are "
                f"{', '.join(required)}, and if needed weight and dtype"
            )
    if len(table) == 1:
        raise UsageError(f"{flag}: {path}: the list has no problem")
    if len(table) > MAX_PROBLEMS + 1:
        raise UsageError(f"{flag}: {path}: more than {MAX_PROBLEMS:,} problems")
    problems = []
    for cells in table[1:]:
        place = f"{flag}: {path}: '{shown(delimiter.join(cells))}'"
        if len(cells) != len(names):
            fields = counted(len(cells), "field")
            raise UsageError(f"{place} has {fields}, but there are {len(names)} columns")
        pairs = zip(names, map(clean, cells), strict=True)
        texts = {name: text for name, text in pairs if text or name in required}
        further = [
            decode(texts.pop(name), Extent, f"{place}: {name}", strict=False)
            for name in further_names
        ]
        problem = decode(texts | {"further": further}, ListedProblem, place, strict=False)
        dtype = DTYPE_ALIASES.get(problem.dtype.lower(), problem.dtype)
        if dtype and dtype not in DTYPES:
            raise UsageError(f"{place}: {unknown('dtype', dtype, DTYPES)}")
        problems.append(replace(problem, dtype=dtype))
    sizes = {(problem.name, problem.dtype): problem.size for problem in problems}
    for problem in problems:
        if sizes[problem.name, problem.dtype] != problem.size:
            raise UsageError(f"{flag}: {path}: the name '{shown(problem.name)}' has two sizes")
    return tuple(problems)


def with_dtypes(
    problems: Iterable[ListedProblem], dtypes: Iterable[str]
) -> tuple[ListedProblem, ...]:
    """Give each problem a dtype. A problem without a dtype is repeated for each of the `dtypes`.

    Problems of equal size and dtype become one problem, with all names and the sum of the weights.
    """
    dtypes = tuple(dtypes)
    merged: dict[tuple[object, ...], ListedProblem] = {}
    for problem in problems:
        for dtype in (problem.dtype,) if problem.dtype else dtypes:
            key = *problem.size, dtype
            if (same := merged.get(key)) is None:
                merged[key] = replace(problem, dtype=dtype)
            else:
                names = dict.fromkeys((*same.name.split(" + "), problem.name))
                weight = same.weight + problem.weight
                merged[key] = replace(same, name=" + ".join(names), weight=weight)
    return tuple(merged.values())
