"""Does `explain` agree with the GPU? Prints every difference; none is expected.

    python benchmarks/explain_agreement.py

Compiles every launch of every CUDA variant × legal tile × dtype for this machine's GPU, in as many
threads as there are CPUs (what is in the cache is not compiled again). Compares what `explain` says
of each with what the driver says of the loaded kernel: registers, local and static shared bytes
with the attributes of the function, occupancy with `cuOccupancyMaxActiveBlocksPerMultiprocessor`,
given the launch's threads and dynamic shared memory. Exits 1 if anything differs or fails.

`--largest-edge 32` leaves out larger single-edge tiles: those of register_tile take minutes to
compile.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import cupy
from cupy_backends.cuda.api import driver

from gpubench.backends.cuda.compile import Compiled, compile_instance
from gpubench.backends.cuda.devices import cuda_device
from gpubench.backends.cuda.launching import allow_shared_memory, load_function
from gpubench.commands.explain.explanation import launches
from gpubench.errors import CompileError
from gpubench.hardware.occupancy import occupancy
from gpubench.model import OPERATIONS, Config, CudaVariant, Device, Launch, Problem
from gpubench.plan.registry import variants

PROBLEM = {"m": 1024, "n": 1024, "k": 1024}


@dataclass(frozen=True)
class Case:
    """One launch."""

    variant: CudaVariant
    tile: Config
    dtype: str
    launch: Launch

    @property
    def label(self) -> str:
        """`shared_tile 16 float32`, with the template if it has another name."""
        kernel = f" ({self.launch.kernel})" if self.launch.kernel else ""
        return f"{self.variant.name} {self.tile} {self.dtype}{kernel}"


def cases(device: Device, largest_edge: int) -> list[Case]:
    """Every launch of every variant, tile and dtype."""
    found = []
    for variant in variants():
        if not isinstance(variant, CudaVariant) or variant.tiles is None:
            continue
        extents = PROBLEM if OPERATIONS[variant.op].has_k else PROBLEM | {"k": 1}
        for dtype in variant.dtypes:
            problem = Problem(op=variant.op, dtype=dtype, **extents)
            found += [
                Case(variant, tile, dtype, launch)
                for tile in variant.tiles
                if tile.get("edge", 0) <= largest_edge
                if variant.refuse(tile, problem) is None
                for launch in launches(variant, tile, problem, device)
            ]
    return found


def build(case: Case, architecture: str) -> Compiled | str:
    try:
        expression = case.variant.instance(case.tile, case.dtype, case.launch.kernel)
        return compile_instance(case.variant.source, expression, architecture)
    except CompileError as error:
        return str(error)


def differences(
    case: Case, compiled: Compiled, capability: tuple[int, int]
) -> Iterator[tuple[str, int, int]]:
    """Name, explain's figure and the driver's, of each figure that differs."""
    launch = case.launch
    function = load_function(compiled)
    allow_shared_memory(function, launch)
    resources = compiled.resources
    resident = occupancy(capability, resources, launch)

    def attribute(name: str) -> int:
        number = getattr(driver, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(driver.funcGetAttribute(number, function.ptr))

    pairs = {
        "registers": (resources.registers, attribute("NUM_REGS")),
        "local bytes": (resources.local_bytes, attribute("LOCAL_SIZE_BYTES")),
        "shared bytes": (resources.shared_bytes, attribute("SHARED_SIZE_BYTES")),
        "blocks a multiprocessor": (
            resident.blocks if resident else -1,
            int(
                driver.occupancyMaxActiveBlocksPerMultiprocessor(
                    function.ptr, launch.threads_per_block, launch.shared_bytes
                )
            ),
        ),
    }
    for name, (explained, reported) in pairs.items():
        if explained != reported:
            yield name, explained, reported


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest-edge", type=int, default=64)
    largest_edge = parser.parse_args().largest_edge
    device = cuda_device(0)
    cupy.cuda.Device(0).use()
    cupy.cuda.Device(0).synchronize()  # makes the context that kernels are loaded into
    capability = device.compute_capability or (0, 0)
    architecture = "sm_{}{}".format(*capability)
    selected = cases(device, largest_edge)
    print(f"{device.name}, {architecture}: {len(selected)} kernels", flush=True)
    started = time.perf_counter()
    # The slowest to compile, the largest tiles, come first.
    order = sorted(selected, key=lambda case: case.tile, reverse=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = list(pool.map(lambda case: build(case, architecture), order))
    print(f"compiled in {time.perf_counter() - started:.0f} s", flush=True)

    different = failed = 0
    for case, compiled in zip(order, built, strict=True):
        if isinstance(compiled, str):
            failed += 1
            print(f"{case.label}: {compiled}")
            continue
        for name, explained, reported in differences(case, compiled, capability):
            different += 1
            print(f"{case.label}: {name}: explain {explained}, driver {reported}")
    print(f"kernels compared: {len(selected) - failed}; not compiled: {failed}")
    print(f"differences: {different or 'none'}")
    return 1 if different or failed else 0


if __name__ == "__main__":
    sys.exit(main())
