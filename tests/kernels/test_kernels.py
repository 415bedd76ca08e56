"""Every CUDA kernel computes right results at odd tiles and sizes, under sanitizers.

The source for the GPU is compiled for the CPU: see README.md in this folder.
"""

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from emulation import flattened
from test_compiled import STEPS

from gpubench.commands.check.cases import (
    all_cases,
    cases,
    covered,
    evenly,
    nearest,
    problems,
    race_cases,
    threads,
    tiles_to_run,
)
from gpubench.errors import UsageError
from gpubench.hardware.occupancy import WARP
from gpubench.model import OPERATIONS, PRECISIONS, Config, CudaVariant, Launch, Problem
from gpubench.on_cpu.case import ONE_MULTIPROCESSOR, Case, differs, right_result
from gpubench.on_cpu.run import Sanitizer, run_on_cpu
from gpubench.plan.registry import KERNELS, variants

CANNOT_RUN = re.compile(r"wgmma|dmma|mma_sync|__cluster_dims__|\bthis_cluster\b|\bcluster_sums\b")
"""Code that g++ cannot compile: tensor cores and clusters. compute-sanitizer checks such kernels on
a GPU instead. test_compiled.py, test_index_maps.py, test_gemm_launches.py and test_emulated.py test
them without a GPU."""

ON_GPU = {
    (variant.op, variant.name): variant
    for variant in variants()
    if isinstance(variant, CudaVariant)
}


def has_code_of_its_own(variant: CudaVariant) -> bool:
    """Return whether the operation is the first or the last of those that share the source.

    Of these operations, one has all optional parts, and the other has none.
    """
    names = OPERATIONS.named_by(variant.path.parent.name)
    return variant.op in {names[0], names[-1]}


def without_comments(text: str) -> str:
    return re.sub(r"//.*", "", text)


def can_run(source: Path) -> bool:
    return not CANNOT_RUN.search(without_comments(source.read_text(encoding="utf-8")))


RUN = [
    variant
    for variant in ON_GPU.values()
    if can_run(variant.source) and has_code_of_its_own(variant)
]


SHARES = re.compile(r"__shared__|__sync|\bworkspace\b")
"""Code in kernels whose threads read values of other threads. Other kernels cannot have races."""


def race_cases_of_one_tile(variant: CudaVariant) -> list[Case]:
    """Return cases of the smallest tile whose blocks have more than one warp.

    ThreadSanitizer takes milliseconds for each thread, and all tiles use barriers and shared arrays
    alike. The cases have several blocks, and loops that take several steps. A kernel of
    products with a vector has a case with long rows, and the smaller of two further cases.
    """
    tile = min(
        variant.tiles, key=lambda tile: (threads(variant, tile) <= WARP, threads(variant, tile))
    )
    of_tile = race_cases(variant, [tile])
    if of_tile[0].problem.operation.has_k:
        return of_tile[-2:-1]
    return [of_tile[1], min(of_tile[-2:], key=all_threads)]


def all_threads(case: Case) -> int:
    return sum(launch.blocks * launch.threads_per_block for launch in case.launch.sequence)


MAX_THREADS = 512
"""Maximum number of threads of a block, if the kernel has such tiles. Twice the number takes four
times as long; only the exhaustive test runs larger blocks."""


def cases_of_some_tiles(variant: CudaVariant) -> list[Case]:
    """Return the cases of the last tile, and of the first tile in a further dtype if there is one.

    The further dtype has another size, so that rows are aligned and read differently.
    """
    first, *further = variant.dtypes
    tiles = tiles_to_run(variant)
    small = [tile for tile in tiles if threads(variant, tile) <= MAX_THREADS]
    smallest, *_, largest = evenly(small or tiles, 2) * 2
    item_bytes = PRECISIONS[first].item_bytes
    others = [dtype for dtype in further if PRECISIONS[dtype].item_bytes != item_bytes]
    chosen = cases(variant, [largest], first)
    in_first = [] if smallest == largest else [first]
    for dtype in others or in_first:
        chosen += cases(variant, [smallest], dtype)
    return chosen


CASES = {Sanitizer.ADDRESS: cases_of_some_tiles, Sanitizer.THREAD: race_cases_of_one_tile}

Work = dict[tuple[CudaVariant, Sanitizer], tuple[list[Case], "Future[list[np.ndarray]]"]]


@pytest.fixture(scope="module")
def work(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Work]:
    """The programs of the chosen tests, built and run in parallel, one for each CPU."""
    folder = tmp_path_factory.mktemp("on_cpu")
    items = [getattr(item, "callspec", None) for item in request.session.items]
    chosen = [item.params["variant"] for item in items if item and "variant" in item.params]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        started: Work = {}
        # AddressSanitizer comes first, because its programs take longer.
        for sanitizer, select in CASES.items():
            for variant in [variant for variant in RUN if variant in chosen]:
                if not watched(variant, sanitizer):
                    continue
                of_variant = select(variant)
                place = folder / f"{variant.op}-{variant.name}-{sanitizer.name}"
                run = partial(run_on_cpu, of_variant, sanitizer, place)
                started[variant, sanitizer] = of_variant, pool.submit(run)
        yield started


def watched(variant: CudaVariant, sanitizer: Sanitizer) -> bool:
    """Return whether a kernel can have faults of this sanitizer, and no later kernel has its code.

    Operations that share a source have the same barriers.
    """
    text = without_comments(flattened(variant.source, set()))
    is_first = variant.op == OPERATIONS.named_by(variant.path.parent.name)[0]
    return sanitizer == Sanitizer.ADDRESS or (
        variant.name not in STEPS and is_first and bool(SHARES.search(text))
    )


def require_right(case: Case, output: np.ndarray) -> None:
    assert not differs(output, *right_result(case.problem)).any(), case.label


def label(variant: CudaVariant) -> str:
    return f"{variant.op}-{variant.name}"


@pytest.mark.slow
@pytest.mark.parametrize("variant", RUN, ids=label)
def test_a_kernel_is_right_and_clean(variant: CudaVariant, work: Work) -> None:
    for sanitizer in filter(partial(watched, variant), CASES):
        of_variant, future = work[variant, sanitizer]
        outputs = future.result()
        assert len(outputs) == len(of_variant) >= 1, sanitizer
        for case, output in zip(of_variant, outputs, strict=True):
            require_right(case, output)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("whole", RUN, ids=label)
def test_a_kernel_is_right_and_clean_at_every_tile(whole: CudaVariant, tmp_path: Path) -> None:
    at_every_tile = {
        Sanitizer.ADDRESS: all_cases(whole, tuple(whole.tiles)),
        Sanitizer.THREAD: race_cases(whole),
    }
    for sanitizer, of_variant in at_every_tile.items():
        outputs = run_on_cpu(of_variant, sanitizer, tmp_path / sanitizer.name)
        for case, output in zip(of_variant, outputs, strict=True):
            require_right(case, output)


def test_every_kernel_is_run_unless_it_has_code_that_the_cpu_cannot_run() -> None:
    sources = sorted(KERNELS.glob("*/*.cu"))
    assert sources
    run = {variant.source for variant in RUN}
    for source in sources:
        assert (source in run) == can_run(source), source


@pytest.mark.parametrize("variant", ON_GPU.values(), ids=label)
def test_a_kernel_can_be_launched_on_a_gpu_of_one_multiprocessor(variant: CudaVariant) -> None:
    for tile in variant.tiles.defaults if variant.tiles else ():
        k = 1024 if OPERATIONS[variant.op].has_k else 1
        problem = Problem(op=variant.op, m=1024, n=1024, k=k, dtype=variant.dtypes[0])
        assert variant.launch_on(ONE_MULTIPROCESSOR, tile, problem).main.blocks


def test_the_tiles_that_are_run_have_the_defaults_and_the_ends_among_them() -> None:
    for variant in RUN:
        assert variant.tiles
        tiles, legal = tiles_to_run(variant), tuple(variant.tiles)
        named = {*variant.tiles.defaults, legal[0], legal[-1]}
        assert named <= set(tiles) <= set(legal), variant.name
        assert len(tiles) >= min(len(legal), 3), variant.name


def test_sizes_are_odd_in_every_way_and_depend_on_the_area_of_a_block_alone() -> None:
    shared_tile, register_tile = ON_GPU["gemm", "shared_tile"], ON_GPU["gemm", "register_tile"]
    sizes = {(p.m, p.n, p.k) for p in problems(shared_tile, Config.parse("16"), "float32")}
    cubes = {(edge, edge, edge) for edge in (1, 17, 32, 13)}
    assert sizes == {*cubes, (17, 17, 3), (17, 1, 35), (1, 17, 47)}
    found_m = {p.m for p in problems(register_tile, Config.parse("4"), "float32")}
    assert found_m == {1, 33, 48, 31}


def test_the_area_of_a_block_follows_from_the_grid() -> None:
    def of_rows(m: int) -> Problem:
        return Problem(op="gemm", m=m, n=1, k=1, dtype="float32")

    never = replace(ON_GPU["gemm", "naive"], launch=lambda _t, _p: Launch(grid=(7,), block=(1,)))
    for edge in (1, 5, 32):
        assert covered(ON_GPU["gemm", "shared_tile"], Config.parse(str(edge)), of_rows) == edge
        assert covered(never, Config.parse(str(edge)), of_rows) == 1024


def refusing(why: Callable[[Problem], bool]) -> CudaVariant:
    def refuse(_tile: Config, problem: Problem) -> str | None:
        return "a test" if why(problem) else None

    return replace(ON_GPU["gemm", "naive"], refuse=refuse)


def test_a_refused_size_is_rounded_to_an_accepted_size() -> None:
    refused = Problem(op="gemm", m=17, n=9, k=5, dtype="float32")
    aligned = refusing(lambda p: (p.m | p.n | p.k) % 4 != 0)
    assert nearest(aligned, Config.parse("1"), refused) == replace(refused, m=20, n=12, k=8)
    small = refusing(lambda p: p.m > 16)
    assert nearest(small, Config.parse("1"), refused) == replace(refused, m=16, n=8, k=4)
    assert nearest(refusing(lambda _p: True), Config.parse("1"), refused) is None


def test_a_kernel_that_refuses_nearly_all_sizes_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"refuses nearly all sizes, such as 77: a test$"):
        all_cases(refusing(lambda p: p.m * p.n > 1))
    large = refusing(lambda p: p.m < 64)
    with pytest.raises(UsageError, match=r"such as 13: .*; a sweep verifies other sizes"):
        all_cases(large)
