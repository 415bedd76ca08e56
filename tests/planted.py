"""Copy gpubench's kernels into a directory, and plant changes in the copies."""

import shutil
from pathlib import Path

from gpubench.plan.registry import KERNELS

PREFIX = "my_"
"""Prefix of copied kernels, because a user's kernel must not have the name of a kernel of ours."""


def copy_kernels(folder: Path, *names: str) -> Path:
    """Copy kernels of products, with prefixed names, and the headers that they include."""
    (folder / "gemm").mkdir(parents=True)
    shutil.copytree(KERNELS / "lib", folder / "lib")
    for name in names:
        for suffix in (".cu", ".py"):
            text = (KERNELS / "gemm" / f"{name}{suffix}").read_text(encoding="utf-8")
            text = text.replace(f"\n{name}(", f"\n{PREFIX}{name}(")
            (folder / "gemm" / f"{PREFIX}{name}{suffix}").write_text(text, encoding="utf-8")
    return folder


def plant(folder: Path, file: str, *edits: tuple[str, str]) -> Path:
    """Replace texts in a file of a copy. The file must contain each text."""
    path = folder / file
    text = path.read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return folder
