"""Lets foreign code write only into one folder, and gives it few environment variables (Linux).

From Linux 5.13 on, Landlock restricts writing by this process and its descendants, even as root.
From Linux 6.12 on, these processes also cannot signal any other process. Where the system has no
Landlock, foreign code can write every file that its user can write. The module imports only the
standard library.
"""

import ctypes
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

PR_SET_NO_NEW_PRIVS = 38
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system call numbers of all architectures
CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH = 1

WRITES = 0b1_1111_1111_0010  # rights to write, make and remove files and folders of any kind
REFER = 1 << 13  # move a file to another folder; from version 2 of Landlock on
TRUNCATE = 1 << 14  # shorten a file; from version 3 on
SCOPE_SIGNALS = 1 << 1  # forbid signals to other processes; from version 6 on

FILE_RIGHTS = 1 << 1 | TRUNCATE  # the rights that a rule for one file may have

OF_THE_SYSTEM = (
    "proc", "dev/null", "dev/zero", "dev/full", "dev/random", "dev/urandom", "dev/shm",
    "dev/nv*", "dev/dxg", "dev/dri", "dev/infiniband",
)  # fmt: skip
"""Paths to which foreign code may write in addition to its folder. CUDA names its threads in /proc,
where the memory and the descriptors of other processes stay closed. Terminals are left out, because
users would see the text that is written there."""

_NAMES = {
    "PATH", "LANG", "TZ", "USER", "LOGNAME", "VIRTUAL_ENV", "CC", "CXX", "CPATH",
    "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH",
}  # fmt: skip
_PREFIXES = (
    "LC_", "LD_", "PYTHON", "GPUBENCH_", "CONDA_", "GLIBC_TUNABLES", "MALLOC_",
    "OPENBLAS_", "GOTO_", "MKL_", "OMP_", "KMP_", "NPY_", "NUMBA_", "BLIS_",
    "CUDA_", "NVIDIA_", "NVCC_", "CUBLAS", "CUPY_", "CUTLASS_", "NCCL_",
    "TORCH", "PYTORCH_", "TRITON_", "XLA_", "JAX_", "TF_",
)  # fmt: skip
_CACHES = {
    "CUPY_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME", "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR", "JAX_COMPILATION_CACHE_DIR",
}  # fmt: skip


def few_variables(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment variables that foreign code may have for its libraries and compilers.

    Foreign code gets no tokens, and no files by which the steps of a CI job exchange data. Foreign
    code writes caches and temporary files into the folder. Python does not import modules from the
    folder when it starts. Otherwise a kernel could write a module that later processes, such as a
    library's process, run before they are confined.
    """
    kept = {
        name: text
        for name, text in environment.items()
        if (name in _NAMES or name.startswith(_PREFIXES)) and name not in _CACHES
    }
    return kept | places(folder) | {"PYTHONNOUSERSITE": "1"}


def places(folder: Path) -> dict[str, str]:
    """Return the environment variables that let libraries write into a folder."""
    return {
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "TMPDIR": str(folder / "tmp"),
        "CUDA_CACHE_PATH": str(folder / "cache" / "nv"),
    }


def settle(folder: str) -> None:
    """Let this process write only into a folder, and make subfolders there.

    The process makes the subfolders after it is restricted. The folder may have links of foreign
    code, by which an unrestricted process would write elsewhere.
    """
    confine(folder)
    for name in ("cache", "tmp"):
        with suppress(OSError):
            Path(folder, name).mkdir(mode=0o700, exist_ok=True)


def confine(folder: str) -> bool:
    """Let this process and its descendants write only into a folder and `OF_THE_SYSTEM`.

    The calling process must have only one thread, because the other threads are not restricted.
    Return False if the system has no Landlock.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(CREATE_RULESET, None, 0, CREATE_RULESET_VERSION)
    if version < 1:
        return False
    writes = WRITES | REFER * (version >= 2) | TRUNCATE * (version >= 3)  # noqa: PLR2004 # see above
    rules = (ctypes.c_uint64 * 3)(writes, 0, SCOPE_SIGNALS * (version >= 6))  # noqa: PLR2004 # ABI 6
    size = ctypes.sizeof(rules) if rules[2] else ctypes.sizeof(ctypes.c_uint64)
    ruleset = libc.syscall(CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return False
    of_the_system = (path for name in OF_THE_SYSTEM for path in Path("/").glob(name))
    for path in (Path(folder), *of_the_system):
        _allow(libc, ruleset, path, writes)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    done: int = libc.syscall(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    return done == 0


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, writes: int) -> None:
    """Allow writing to a file, or to all files below a folder."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # the path does not exist
        return
    rights = writes if path.is_dir() else writes & FILE_RIGHTS
    rule = rights.to_bytes(8, "little") + descriptor.to_bytes(4, "little")
    libc.syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0)
    os.close(descriptor)
