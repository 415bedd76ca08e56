"""Finds NVIDIA's disassembler, and runs it on a cubin."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

NVDISASM = "nvdisasm"
INSTALL = "pip install 'gpubench[sass]'"
TIMEOUT_S = 120


@cache
def nvdisasm() -> Path | None:
    """The disassembler: on PATH, in a CUDA toolkit, or from NVIDIA's wheel; None if it is nowhere.

    The wheel puts it into `site-packages/nvidia/…/bin`, which is on no PATH.
    """
    toolkits = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    folders = [Path(toolkit) / "bin" for toolkit in toolkits if toolkit]
    wheels = Path(sysconfig.get_path("purelib")) / "nvidia"
    folders += sorted(wheels.glob("*/bin"), reverse=True)  # cu13 before cuda_nvdisasm
    if found := shutil.which(NVDISASM):
        return Path(found)
    for folder in folders:
        if found := shutil.which(NVDISASM, path=folder):
            return Path(found)
    return None


def disassemble(cubin: bytes) -> str | None:
    """The cubin's machine code as text; None without a disassembler, or if it is too old for it."""
    program = nvdisasm()
    if program is None:
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            done = subprocess.run(  # noqa: S603 # NVIDIA's program, on a file of ours
                [program, "-c", file.name],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    return done.stdout if done.returncode == 0 else None
