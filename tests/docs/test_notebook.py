"""docs/notebook.ipynb runs from its first cell to its last, without a GPU."""

import ast
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from newcomer import PAGES
from stub import nothing_measured

from gpubench.view.pictures.style import Picture

NOTEBOOK = PAGES / "notebook.ipynb"


def cells() -> list[dict[str, Any]]:
    return list(json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"])


def run_cell(text: str, names: dict[str, Any]) -> object:
    """Return what a notebook shows below the cell: the value of its last expression, if any."""
    tree = ast.parse(text)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NOTEBOOK.name, "exec"), names)  # noqa: S102 - our own page
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)  # noqa: S307 - our own page


@pytest.mark.slow
def test_the_notebook_runs_and_every_cell_shows_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PAGES)
    before = set(Path().iterdir())
    names: dict[str, Any] = {}
    code = ["".join(cell["source"]) for cell in cells() if cell["cell_type"] == "code"]
    with nothing_measured():
        shown = [run_cell(text, names) for text in code]
    assert all(value is not None for value in shown)
    assert set(names["frame"]["status"]) == {"ok"}
    pictures = [value for value in shown if isinstance(value, Picture)]
    assert len(pictures) == 4
    for picture in pictures:
        assert picture._repr_png_().startswith(b"\x89PNG")
    assert isinstance(shown[0], pd.DataFrame)
    assert set(Path().iterdir()) == before
