"""Finds the CUDA toolkit's headers for NVRTC, and has stand-ins for headers of the host."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from gpubench.model.sources import included_names, read_source

HOST_HEADERS = ("algorithm", "assert.h", "cassert", "cmath", "cstdio", "cstdlib", "cublas_v2.h",
    "cuda_runtime.h", "device_launch_parameters.h", "iostream", "math.h", "stdio.h", "stdlib.h",
    "vector")  # fmt: skip
"""Headers that a source for nvcc includes for its host code. NVRTC lacks these headers, but the
parts of them that device code may use are built into NVRTC. Each header is therefore replaced by a
definition of the type `uint`."""

_FLOAT = """
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define DBL_MAX 1.7976931348623157e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
#define DBL_DIG 15
#define DBL_MANT_DIG 53
"""


def _of_cccl(name: str) -> str:
    return f"#include <cuda/std/{name}>\nnamespace std {{ using namespace ::cuda::std; }}\n"


STAND_INS = {
    **dict.fromkeys(("float.h", "cfloat"), _FLOAT),
    **dict.fromkeys(("stdint.h", "cstdint"), _of_cccl("cstdint")),
    **dict.fromkeys(("limits.h", "climits"), _of_cccl("climits")),
    **dict.fromkeys(("stddef.h", "cstddef"), _of_cccl("cstddef")),
    **{name: _of_cccl(name) for name in ("limits", "type_traits", "utility")},
}
"""Texts that NVRTC compiles in place of headers of the C++ library. Most of these texts forward to
CCCL, which is part of the toolkit."""

HEADERS = dict.fromkeys(HOST_HEADERS, "typedef unsigned int uint;\n") | STAND_INS

API = "cuda_runtime_api.h"  # the header that states the version of the toolkit


def stood_in(files: Iterable[Path]) -> tuple[str, ...]:
    """Return the names of the headers in `STAND_INS` that files include, in alphabetical order."""
    names = {name for file in files for name in included_names(read_source(file))}
    return tuple(sorted(names & STAND_INS.keys()))


@cache
def header_folders(*names: str) -> tuple[str, ...]:
    """Return the folders with the headers of the named parts of the toolkit, such as `cudart`.

    Installed wheels are searched first, then CUDA_HOME.
    """
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:  # an old cuda-bindings
        return ()
    return tuple(dict.fromkeys(filter(None, map(find_nvidia_header_directory, names))))


@cache
def toolkit_options() -> tuple[str, ...]:
    """Return the options with which NVRTC finds the headers of the toolkit and of CCCL.

    Without a toolkit, there are no options. One option defines a macro with the toolkit's version,
    so that cached cubins of another version are not used.
    """
    folders = header_folders("cudart", "cccl")
    api = next((path for folder in folders if (path := Path(folder, API)).is_file()), None)
    number = re.search(r"#define CUDART_VERSION\s+(\d+)", read_source(api)) if api else None
    named = (f"-DGPUBENCH_TOOLKIT={number[1]}",) if number else ()
    return (*(f"-I{folder}" for folder in folders), *named)
