"""Runs the files of problems, and makes the values of inputs.

The functions of this module import torch only if they need it.
"""

import math
import random as python_random
import re
import sys
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np

FLOAT4 = "float4_e2m1fn_x2"  # name of torch's type with two elements in a byte
NARROW = {"float8_e4m3fn", "float8_e5m2"}
LARGEST_INTEGERS = {"int8": 127, "uint8": 255, "bool": 1}
LARGEST_INTEGER = 1023  # largest value of other integer types

POSITIVE = re.compile(r"var|std|scale|rms|delta|dt\b|decay|temperature", re.IGNORECASE)
"""Matches the names of inputs whose values must be positive."""

GAIN = re.compile(r"norm.*weight|gamma|ln_.*weight", re.IGNORECASE)
"""Matches the names of a normalization's weights, whose values vary around 1."""

SHARES = re.compile(r"probs|softmax|attn_weights", re.IGNORECASE)
"""Matches the names of inputs whose rows must have the sum 1."""

_device = "cpu"


def use_device(name: str) -> None:
    """Set the device on which references and models of this process compute, `cpu` or `cuda`."""
    global _device  # noqa: PLW0603 # a process has one device
    _device = name


def device() -> Any:
    """Return the device on which references and models compute."""
    import torch

    return torch.device(_device)


@cache
def drawing_device() -> Any:
    """Return the device that draws the values of inputs, which must be equal in all processes.

    A GPU draws 10⁸ values in some milliseconds, and a CPU needs a second. But GPUs of different
    models draw different values. So the CPU draws the values if this machine has GPUs of different
    models.
    """
    import torch

    if device().type == "cuda":
        listed = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        if len({(each.name, each.multi_processor_count) for each in listed}) > 1:
            return torch.device("cpu")
    return device()


def seed(number: int) -> None:
    """Seed all generators of random numbers that a problem may use."""
    import torch

    torch.manual_seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002 # what problems use
    python_random.seed(number)


def module_of(path: Path, name: str, text: str = "") -> ModuleType:
    """Run a file, or `text` in its place, as a module that other files may import by `name`."""
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(text or path.read_bytes(), str(path), "exec"), vars(module))  # noqa: S102 # a child
    return module


def random(name: str, shape: tuple[int, ...] | None, dtype: str) -> Any:
    """Return random values for an input, which are integers or floats that suit its name."""
    import torch

    if shape is None:
        return random(name, (1,), dtype).item()
    there = {"device": drawing_device()}
    if dtype.startswith("float4"):
        drawn = torch.randint(0, 256, shape, dtype=torch.uint8, **there)
        return drawn.view(getattr(torch, FLOAT4))
    kind = getattr(torch, dtype)
    if not kind.is_floating_point:
        largest = LARGEST_INTEGERS.get(dtype, LARGEST_INTEGER)
        lowest = 0 if dtype.startswith(("uint", "bool")) else -largest
        return torch.randint(lowest, largest + 1, shape, **there).to(kind)
    precise = torch.float64 if dtype == "float64" else torch.float32
    wide = torch.randn(shape, dtype=precise, **there)
    if dtype in NARROW:
        wide = wide.clamp(-2, 2)
    elif GAIN.search(name):
        wide = 1 + wide / 8
    elif SHARES.search(name):
        wide = wide.softmax(-1)
    elif POSITIVE.search(name):
        wide = wide.abs() + 0.1
    elif "weight" in name and len(shape) > 1:
        wide = wide / math.sqrt(shape[-1])
    return wide.to(kind)


def stored(path: Path, key: str) -> Any:
    """Return the tensor that a file in the format safetensors has under the name `key`."""
    import torch

    types = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    types |= {"I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8"}
    types |= {"BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    entry = msgspec.json.decode(content[8:end])[key]
    first, last = (end + offset for offset in entry["data_offsets"])
    flat = torch.frombuffer(bytearray(content[first:last]), dtype=torch.uint8)
    return flat.view(getattr(torch, types[entry["dtype"]])).reshape(entry["shape"])


def modes() -> tuple[Any, Any]:
    """Return a torch mode that replaces GPUs by the CPU, and a torch mode that widens floats.

    The second mode replaces the types of narrower floats by float64.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    floats = {torch.float16, torch.bfloat16, torch.float32}
    narrowing = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}

    class OnCpu(TorchFunctionMode):  # type: ignore[misc] # torch has no types here
        def __torch_function__(self, function: Any, _: Any, args: Any = (), named: Any = None):  # type: ignore[no-untyped-def]
            if function is torch.Tensor.cuda:
                return args[0]
            return function(
                *map(_on_cpu, args), **{k: _on_cpu(x) for k, x in (named or {}).items()}
            )

    class Wide(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, _: Any, args: Any = (), named: Any = None):  # type: ignore[no-untyped-def]
            if function in narrowing:
                return args[0].double()
            widen = partial(_widened, floats=floats, wide=torch.float64)
            return function(*map(widen, args), **{k: widen(x) for k, x in (named or {}).items()})

    return OnCpu(), Wide()


def filled_with(noise: int) -> Any:
    """Return a torch mode that fills uninitialized memory with `noise` in each byte."""
    import torch
    from torch.overrides import TorchFunctionMode

    empty = {torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty}

    class Filled(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, _: Any, args: Any = (), named: Any = None):  # type: ignore[no-untyped-def]
            made = function(*args, **(named or {}))
            if function in empty:
                made.untyped_storage().fill_(noise)
            return made

    return Filled()


def _on_cpu(value: Any) -> Any:
    import torch

    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    is_name = isinstance(value, str) and re.fullmatch(r"cuda(:\d+)?", value)
    return "cpu" if is_name else value


def _widened(value: Any, floats: Any, wide: Any) -> Any:
    import torch

    return wide if isinstance(value, torch.dtype) and value in floats else value


def free_memory() -> None:
    """Release the GPU memory that torch keeps, because this process may then be idle for long."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def without_compiler() -> None:
    """Keep `use_deterministic_algorithms` from importing torch's compiler, which takes 5 s."""
    import torch

    use = torch.use_deterministic_algorithms

    def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
        if "torch._inductor" in sys.modules:
            use(mode, warn_only=warn_only)
        else:
            # The public function imports the compiler.
            torch._C._set_deterministic_algorithms(mode, warn_only=warn_only)  # noqa: SLF001 # see above

    torch.use_deterministic_algorithms = use_deterministic_algorithms


def without_gpu() -> None:
    """Change torch, so that calls that request a GPU use the CPU instead."""
    import torch

    class Generator(torch.Generator):  # type: ignore[misc]
        def __new__(cls, device: Any = "cpu") -> Any:
            del device
            return super().__new__(cls, device="cpu")

    torch.Generator = Generator
    torch.cuda.synchronize = lambda *_: None
    modes()[0].__enter__()
