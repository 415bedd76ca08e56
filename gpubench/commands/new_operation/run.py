"""Writes the folder of an operation: its statement, a NumPy baseline, and two slow kernels."""

import shlex
from keyword import iskeyword
from pathlib import Path

from gpubench.errors import UsageError
from gpubench.files import write_all
from gpubench.model import OPERATIONS
from gpubench.plan.python_file import NAME_RULE, is_name
from gpubench.text import shown
from gpubench.view.tables import say

TEMPLATE = Path(__file__).parent / "template"


def write_operation(name: str, folder: Path, *, force: bool) -> None:
    """Write `folder/<name>/`, and print the paths and the next commands.

    Raises UsageError if the name cannot be used, or if the files cannot be written.
    """
    if not is_name(name):
        raise UsageError(f"'{shown(name)}' cannot name an operation: {NAME_RULE}")
    if iskeyword(name) or name == "np":  # the files define a function with this name
        raise UsageError(f"'{name}' has a meaning in the Python files; choose another name")
    if OPERATIONS.is_ours(name):
        raise UsageError(f"gpubench has an operation '{name}' already; choose another name")
    texts = {
        folder / name / path.name.removesuffix(".txt").replace("NAME", name): path.read_text(
            "utf-8"
        ).replace("NAME", name)
        for path in sorted(TEMPLATE.glob("*.txt"))
    }
    write_all(texts, overwrite=force)
    say("\n".join(map(str, texts)))
    options = f"--op {name} --kernels {shlex.quote(str(folder))}"
    say(
        "\nState your operation in operation.py, and change the kernels. Then:\n\n"
        f"  gpubench check {options}\n"
        f"  gpubench sweep {options} --device cpu --sizes 1000x777"
    )
