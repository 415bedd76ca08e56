"""Writes gpubench/kernels/gemm/README.md from the descriptions.

python docs/make_kernels_page.py
"""

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # the kernels beside this page, not installed

from gpubench.commands.compare_cublas.ladder import steps
from gpubench.model import Variant
from gpubench.plan.registry import KERNELS, variants

PAGE = KERNELS / "gemm" / "README.md"

HEAD = """\
<!-- Written by docs/make_kernels_page.py from the descriptions beside it; change `idea` there. -->

# The kernels of gemm

A kernel is two files: `NAME.cu`, which opens with its lesson, and `NAME.py`, its description. A
library's routine or a CPU loop is a `.py` alone. This page lists the steps of the ladder in order.
Each step changes one thing of the step in the second column. To read the ladder, open the `.cu`
files from top to bottom; where the second column names an earlier step, a branch begins.

`gpubench compare-cublas --ladder` measures the steps on your GPU.

## The ladder

"""

HEADERS = """
## Headers

Code that several kernels share stands in a header in `gpubench/kernels/`. Its first lines say which
step introduces it.

| header | holds |
| --- | --- |
"""


def page() -> str:
    """Return the whole page."""
    listed = {variant.name: variant for variant in variants() if variant.op == "gemm"}
    ladder = steps(tuple(listed.values()))
    rest = [variant for name, variant in listed.items() if name not in ladder]
    return "".join(
        (
            HEAD,
            _table("step | changes", (listed[name] for name in ladder)),
            "\n## Not on the ladder\n\n",
            _table("kernel or routine | runs on", rest),
            HEADERS,
            *(f"| {_link(path, path.stem)} | {_first_sentence(path)} |\n" for path in _headers()),
        )
    )


def _table(columns: str, listed: Iterable[Variant]) -> str:
    lines = [f"| {columns} | idea |", "| --- | --- | --- |"]
    for variant in listed:
        after = f"`{variant.after}`" if variant.after else ""
        second = after if columns.startswith("step") else variant.backend
        name = _link(variant.source, variant.name)
        lines.append(f"| {name} | {second} | {variant.idea.replace('|', '∣')} |")
    return "\n".join(lines) + "\n"


def _headers() -> list[Path]:
    return sorted(KERNELS.glob("lib/*/*.cuh"))


def _link(path: Path, name: str) -> str:
    return f"[`{name}`]({os.path.relpath(path, PAGE.parent)})"


def _first_sentence(path: Path) -> str:
    """Return the first sentence of a header's comment, without the header's name."""
    paragraph = path.read_text(encoding="utf-8").partition("\n//\n")[0].partition("\n\n")[0]
    text = " ".join(line.removeprefix("//").strip() for line in paragraph.splitlines())
    sentence = re.split(r"(?<=[^.][.])\s", text.partition(": ")[2], maxsplit=1)[0]
    return sentence.rstrip(".:")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
