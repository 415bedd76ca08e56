"""Says why g++ cannot compile a source that nvcc may compile."""

import re
from collections.abc import Sequence
from pathlib import Path

from gpubench.model.sources import (
    include_folders,
    included_names,
    linked_sources,
    read_source,
    whole_source,
)

ONLY_NVCC = {
    r"\b(?:wgmma|mma\.sync|ldmatrix)": "the kernel uses tensor cores through inline PTX",
    r"\basm\b": "the kernel has inline PTX",
    r"\bthis_(?:grid|cluster)\b|\bcudaLaunchCooperativeKernel\b": "its blocks wait for each "
    "other, and the CPU runs one block after another",
    r"\b(cute|cutlass|kittens|cooperative_groups|cub|cuda)(::|\s*;)": "g++ cannot compile its CUDA "
    "library",
    r"\bcublas\w+\s*\(": "the kernel calls cuBLAS",
}
"""Maps patterns of code to the reason why g++ cannot compile this code. g++ can compile `wmma`."""

INCLUDE_IT = 'name its folder in compile_options, such as "-I../include"'
"""Advice for a header that is not found."""

_OF_LIBRARY = re.compile(r"(?:cute|cutlass|kittens)\b")


def why_only_nvcc(source: Path, options: Sequence[str], text: str = "") -> str:
    """Return why g++ cannot compile a source and what to do, or "" if no reason is known.

    `options` has the include folders and the further sources. `text` is the source with its own
    headers, if it is known.
    """
    folders, linked = include_folders(options), linked_sources(options)
    files = [file for each in (source, *linked) for file in whole_source(each, folders)]
    for name in sorted({name for file in files for name in included_names(read_source(file))}):
        if _OF_LIBRARY.match(name) and not any((folder / name).is_file() for folder in folders):
            return f"{name} is not found: {INCLUDE_IT}"
    text = "\n".join((text, *map(read_source, linked if text else files)))
    reasons = (why for what, why in ONLY_NVCC.items() if re.search(what, text))
    return next((f"{why}. A sweep on a GPU verifies its results" for why in reasons), "")
