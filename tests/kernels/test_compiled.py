"""Every CUDA kernel compiles without a GPU, fits a GPU, spills nothing, and has the right loops."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from machine_code import between_labels, listing_of, opcodes

from gpubench.backends.cuda import compile as module
from gpubench.backends.cuda.compile import Compiled, compile_instance
from gpubench.commands.explain.sass import inner_loop
from gpubench.grouping import grouped
from gpubench.kernels.block_tiles import MAX_SHARED_BYTES
from gpubench.model import OPERATIONS, PRECISIONS, Config, CudaVariant, Launch, Problem
from gpubench.plan.registry import variants

HOPPER, TURING = (9, 0), (7, 5)
SIZES = ((336, 448, 160), (333, 443, 155))
"""M, N and K with aligned and with unaligned rows, for which a variant may have different
kernels."""

STEPS = (
    "blocktile_2d", "bulk_copies", "interleaved", "large_tile", "packed_a", "register_banks",
    "wgmma", "wgmma_ring", "wgmma_persistent", "wgmma_cluster", "wgmma_fitted",
    "wgmma_mixed_bytes",
)  # fmt: skip
"""Kernels whose code is also part of a later kernel. Only the exhaustive test compiles them."""

QUICK = ("blocktile_1d", "mma_sync", "vectorized")
"""Kernels of gemm with block tiles that compile in a second. `instances` has two of each."""

MAY_SPILL = {"atax_fused": 180, "gemv_vectorized": 152}
A_FEW = 16
"""Maximum number of bytes that a tile which is measured only by name spills with NVRTC 13.5, of
these kernels and of all others. Blocks of 1024 threads leave each thread 64 registers."""

FITS, SPILLS = 13, 16
"""Edges of register_tile: up to the first, accumulators fit into a thread's 255 registers; from the
second on (16 × 16 is 256), they cannot. Between both, the compiler may or may not spill."""

MOST_TILES = 300
"""Number of tiles that are compiled of a kernel with more tiles."""

LARGEST = 40
"""Largest edge of register_tile that is compiled. It takes 7 s; an edge of 64 takes 90 s."""

ON_GPU = [each for each in variants() if isinstance(each, CudaVariant) and each.tiles]


def on_tensor_cores(variant: CudaVariant) -> bool:
    return variant.name.startswith(("wgmma", "dmma", "mma"))


@dataclass(frozen=True)
class Instance:
    variant: CudaVariant
    tile: Config
    dtype: str
    capability: tuple[int, int]
    launch: Launch

    @property
    def label(self) -> str:
        return f"{self.variant.name} {self.tile} {self.dtype} {self.launch.kernel}"


def of_tile(
    variant: CudaVariant,
    tile: Config,
    dtype: str,
    capability: tuple[int, int] = HOPPER,
    sizes: Sequence[tuple[int, int, int]] = SIZES,
) -> list[Instance]:
    """Return an instance for each kernel in the launches of a tile."""
    has_k = OPERATIONS[variant.op].has_k
    problems = [
        Problem(op=variant.op, m=m, n=n, k=k if has_k else 1, dtype=dtype) for m, n, k in sizes
    ]
    by_kernel = {
        launch.kernel: launch
        for problem in problems
        if variant.why_not(tile, problem) is None
        for launch in variant.launch(tile, problem).sequence
    }
    return [Instance(variant, tile, dtype, capability, launch) for launch in by_kernel.values()]


def instances(variant: CudaVariant) -> list[Instance]:
    """Return the instances of a variant that every run of the tests compiles.

    They are the first default tile in the first dtype on Hopper, for aligned rows if possible. For
    kernels that compile quickly, the last default in the last dtype on the oldest GPU follows.
    """
    tiles, dtypes = variant.tiles.defaults, variant.dtypes
    aligned, odd = (of_tile(variant, tiles[0], dtypes[0], sizes=[size]) for size in SIZES)
    chosen = aligned or odd
    if variant.name in QUICK or len(variant.tiles.block) == 1:
        chosen += of_tile(variant, tiles[-1], dtypes[-1], max(variant.capability, TURING))
    if variant.name == "register_tile":
        for edge in (FITS, SPILLS):
            chosen += of_tile(variant, variant.tiles.read(str(edge)), dtypes[0])
    return chosen


def every_instance(variant: CudaVariant) -> list[Instance]:
    """Return all tiles (for tensor cores the defaults and one more), and defaults in all dtypes.

    Of a kernel with very many tiles, return the defaults and some tiles.
    """
    tiles = tuple(variant.tiles)
    if on_tensor_cores(variant) or len(tiles) > MOST_TILES:
        more = 1 if on_tensor_cores(variant) else MOST_TILES
        tiles = (*variant.tiles.defaults, *variant.tiles.sample(more, seed=1))
    elif variant.name == "register_tile":
        tiles = tuple(tile for tile in tiles if tile["edge"] <= LARGEST)
    chosen = [each for tile in tiles for each in of_tile(variant, tile, variant.dtypes[0])]
    for dtype in variant.dtypes[1:]:
        chosen += [
            each for tile in variant.tiles.defaults for each in of_tile(variant, tile, dtype)
        ]
    return chosen


def with_codes_of_their_own() -> list[CudaVariant]:
    """Return variants whose code no other variant has.

    Operations may share the instances of a kernel. If instances differ in the steps after the
    product, the first operation has the fewest and the last operation the most steps.
    """
    by_instance: dict[object, CudaVariant] = {}
    for each in ON_GPU:
        instance = each.instance(each.tiles.defaults[0], each.dtypes[0])
        by_instance.setdefault((each.source, each.name, instance), each)
    by_kernel = grouped(by_instance.values(), lambda each: (each.source, each.name))
    return [each for first, *others in by_kernel.values() for each in (first, *others[-1:])]


def built(asked: list[Instance]) -> dict[Instance, Compiled]:
    """Compile all instances in parallel, a thread for each CPU, the slowest instances first."""

    def build(each: Instance) -> Compiled:
        expression = each.variant.instance(each.tile, each.dtype, each.launch.kernel)
        architecture = each.variant.architecture("sm_{}{}".format(*each.capability))
        return compile_instance(each.variant.source, expression, architecture)

    asked = sorted(asked, key=lambda each: -len(str(each.tile)))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(asked, pool.map(build, asked), strict=True))


@pytest.fixture(scope="module")
def compiled() -> dict[Instance, Compiled]:
    chosen = [each for each in with_codes_of_their_own() if each.name not in STEPS]
    return built([instance for each in chosen for instance in instances(each)])


@pytest.mark.slow
def test_every_instance_fits_a_gpu_without_spilling(compiled: dict[Instance, Compiled]) -> None:
    check_that_they_fit(compiled)
    codes = {each.cubin for each in compiled.values()}
    assert len(codes) == len(compiled)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("variant", ON_GPU, ids=lambda each: f"{each.op}-{each.name}")
def test_every_tile_fits_a_gpu_without_spilling(variant: CudaVariant) -> None:
    every = built(every_instance(variant))
    check_that_they_fit(every, MAY_SPILL.get(variant.name, A_FEW))
    if on_tensor_cores(variant):
        for each, result in every.items():
            if not each.launch.kernel:
                check_loops(each, listing_of(result))


def check_that_they_fit(compiled: dict[Instance, Compiled], may_spill: int = 0) -> None:
    for each, result in compiled.items():
        variant, launch, resources = each.variant, each.launch, result.resources
        edge = each.tile["edge"] if variant.name == "register_tile" else 0
        if edge >= SPILLS:
            assert min(resources.spill_bytes, resources.local_bytes) > 0, each.label
        elif edge <= FITS:
            assert resources.spill_bytes <= may_spill, each.label
            assert resources.local_bytes <= may_spill, each.label
        assert (launch.kernel or variant.name).partition("<")[0] in result.symbol, each.label
        assert result.symbol.encode() in result.cubin, each.label
        # The registers must suffice for the threads of all blocks that the launch requires.
        assert launch.threads_per_block <= 1024, each.label
        assert resources.registers * launch.threads_per_block <= 65_536, each.label
        assert resources.shared_bytes <= 48 * 1024, each.label
        assert resources.shared_bytes + launch.shared_bytes <= MAX_SHARED_BYTES, each.label
        if variant.name == "shared_tile":
            two_tiles = 2 * each.tile["edge"] ** 2 * PRECISIONS[each.dtype].item_bytes
            assert resources.shared_bytes == two_tiles, each.label


# ---- machine code

CODE = {
    "dmma": "32 DMMA.16x8x16, 48 LDS.128, 2 UCGABAR_WAIT, 2 USETMAXREG",
    "dmma_split_cluster": "16 DMMA.16x8x16, 32 LDS.128, 4 UCGABAR_WAIT, 2 USETMAXREG",
    "mma_sync": "128 HMMA, 32 LDSM",
    "wgmma_any_rows": "4 HGMMA.64x64x16, 3 UCGABAR_WAIT, 2 WARPGROUP.DEPBAR",
    "wgmma_batched": "4 HGMMA.64x64x16, 3 UCGABAR_WAIT, 2 WARPGROUP.DEPBAR",
    "wgmma_batched_pingpong": "8 HGMMA.64x128x16, 2 UCGABAR_WAIT, 2 USETMAXREG, 2 WARPGROUP.DEPBAR",
    "wgmma_bytes": (
        "28 IGMMA.64x128x32, 28 IGMMA.64x192x32, 2 UCGABAR_WAIT, 2 USETMAXREG, 16 WARPGROUP.DEPBAR"
    ),
    "wgmma_bytes_cluster": "4 IGMMA.64x64x32, 3 UCGABAR_WAIT, 2 WARPGROUP.DEPBAR",
    "wgmma_bytes_pingpong": ("8 IGMMA.64x128x32, 2 UCGABAR_WAIT, 2 USETMAXREG, 2 WARPGROUP.DEPBAR"),
    "wgmma_deferred": "20 HGMMA.64x256x16, 2 UCGABAR_WAIT, 2 USETMAXREG, 6 WARPGROUP.DEPBAR",
    "wgmma_epilogue": "4 HGMMA.64x64x16, 4 LDSM, 3 UCGABAR_WAIT, 2 WARPGROUP.DEPBAR",
    "wgmma_epilogue_pingpong": (
        "8 HGMMA.64x128x16, 16 LDSM, 2 UCGABAR_WAIT, 2 USETMAXREG, 2 WARPGROUP.DEPBAR"
    ),
    "wgmma_grouped": "8 HGMMA.64x128x16, 2 UCGABAR_WAIT, 2 USETMAXREG, 2 WARPGROUP.DEPBAR",
    "wgmma_mixed": (
        "64 HGMMA.64x128x16, 64 HGMMA.64x192x16, 2 UCGABAR_WAIT, 2 USETMAXREG, 16 WARPGROUP.DEPBAR"
    ),
    "wgmma_parts": (
        "640 FADD, 24 HGMMA.64x64x16, 2 UCGABAR_WAIT, 2 USETMAXREG, 6 WARPGROUP.DEPBAR"
    ),
    "wgmma_pingpong": "12 HGMMA.64x104x16, 2 UCGABAR_WAIT, 2 USETMAXREG, 2 WARPGROUP.DEPBAR",
    "wgmma_scaled": "8 QGMMA.64x128x32, 2 UCGABAR_WAIT, 2 USETMAXREG, 2 WARPGROUP.DEPBAR",
    "wgmma_split": (
        "128 FADD, 8 QGMMA.64x128x32, 2 UCGABAR_WAIT, 2 USETMAXREG, 2 WARPGROUP.DEPBAR"
    ),
    "wgmma_split_cluster": "4 HGMMA.64x64x16, 5 UCGABAR_WAIT, 2 WARPGROUP.DEPBAR",
    "wgmma_tf32": "8 HGMMA.64x256x8, 16 LDS.64, 2 UCGABAR_WAIT, 2 USETMAXREG, 3 WARPGROUP.DEPBAR",
    "wgmma_tf32_cluster": (
        "8 HGMMA.64x64x8, 16 LDS.64, 2 UCGABAR_WAIT, 2 USETMAXREG, 3 WARPGROUP.DEPBAR"
    ),
    "wgmma_tf32_wide": "4 HGMMA.64x256x8, 8 LDS.64, 1 UCGABAR_WAIT, 2 WARPGROUP.DEPBAR",
}
"""Numbers of instructions in the machine code of the first default: products by their shape, waits
for products, and barriers of a cluster. The compiler adds waits if it cannot tell which sums are
being computed (C7510 to C7519). If USETMAXREG is missing, it ignored that warps move registers."""

COUNTED = re.compile(
    r"\b([HIQ]GMMA\.64x\d+x\d+|DMMA\.16x8x16|HMMA|LDSM|WARPGROUP\.DEPBAR|USETMAXREG|UCGABAR_WAIT)\b"
)
SHARES_SUMS = (
    "wgmma_fitted", "wgmma_pingpong", "wgmma_split_cluster", "wgmma_any_rows",
    "wgmma_batched", "wgmma_batched_pingpong", "dmma_split_cluster",
    "wgmma_epilogue", "wgmma_epilogue_pingpong",
)  # fmt: skip
"""Kernels that wait for memory after their loops, also if a tile has all of K."""

PRODUCTS = {"HMMA", "HGMMA", "IGMMA", "QGMMA", "DMMA"}


@pytest.mark.slow
def test_loops_on_tensor_cores_multiply_as_written(compiled: dict[Instance, Compiled]) -> None:
    texts_by_name = {}
    for each, result in compiled.items():
        variant = each.variant
        is_own = each.launch.kernel.partition("<")[0] in {"", variant.name}
        if on_tensor_cores(variant) and each.capability == HOPPER and is_own:
            listing = listing_of(result)
            check_loops(each, listing)
            counts = Counter(COUNTED.findall(listing))
            if loop := inner_loop(listing, each.dtype):
                counts |= {f"LDS.{bits}": loop.shared_loads.get(bits, 0) for bits in ("64", "128")}
                counts["FADD"] = loop.opcodes.get("FADD", 0)
            texts = (f"{count} {code}" for code, count in sorted(counts.items()) if count)
            texts_by_name[variant.name] = ", ".join(texts)
    assert texts_by_name == CODE


def check_loops(each: Instance, listing: str) -> None:
    loops = [text for text in between_labels(listing) if PRODUCTS & {*opcodes(text)}]
    assert loops, each.label
    # With a release at the scope of the cluster, arrivals and waits would compile to these fences.
    fences = ("MEMBAR.ALL.GPU", "CCTL.IVALL")
    assert not any(fence in text for text in loops for fence in fences), each.label
    shares_sums = each.variant.name in SHARES_SUMS or each.tile.get("splits", 1) > 1
    assert shares_sums or fences[0] not in listing, each.label
    assert not {"LDL", "STL"} & {*opcodes(listing)}, each.label
    if "cluster" in each.tile and each.variant.dtypes != ("float32",):
        blocks = each.tile["cluster"] != "1x1"
        assert ("MULTICAST" in listing) == blocks, each.label


def test_the_measured_peak_multiplies_without_a_pause() -> None:
    source = Path(module.__file__).with_name("tensor_peak.cu")
    for architecture, dtype, products, waits in (
        ("sm_80", "bfloat16", 8, 0),
        ("sm_90a", "float64", 8, 0),
        *(("sm_90a", dtype, 4, 1) for dtype in ("bfloat16", "int8")),
    ):
        result = compile_instance(source, f"tensor_peak<{PRECISIONS[dtype].cpp}>", architecture)
        loop = inner_loop(listing_of(result), dtype)
        assert loop
        assert (loop.tensor, result.resources.spill_bytes) == (products, 0), (architecture, dtype)
        # One instruction starts the step, and one waits for the previous step. There are no others.
        assert loop.opcodes.get("WARPGROUP", 0) == 2 * waits, (architecture, dtype)


def test_the_timers_own_kernels_compile() -> None:
    source = Path(module.__file__).with_name("stream.cu")
    pattern = r"(template.*\n)?__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\("
    templates = re.findall(pattern, source.read_text(encoding="utf-8"))
    kernels = [f"{name}{'<short>' if template else ''}" for template, name in templates]
    assert len(kernels) >= 3
    for kernel in kernels:
        assert compile_instance(source, kernel, "sm_75").resources.spill_bytes == 0, kernel
