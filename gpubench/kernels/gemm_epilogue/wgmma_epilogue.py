from collections.abc import Sequence
from dataclasses import replace

from gpubench.kernels import fitted_tile, tensor_cores
from gpubench.kernels.fitted_tile import MAX_CLUSTER, ROWS_BY_8, STAGES, TURNS, Form
from gpubench.kernels.gemm_epilogue.operation import FORMS
from gpubench.kernels.tile_costs import Picks
from gpubench.model import Config, CudaVariant, Launch, Problem, TensorMap

EPILOGUE = Form(
    rows=ROWS_BY_8, columns=(64, 128, 192, 256), splits=range(1, MAX_CLUSTER + 1), options=""
)

TOGETHER = (EPILOGUE, TURNS)
"""The forms that are ranked together: those of this kernel and of `wgmma_epilogue_pingpong`."""

ACTS = {"bias": "Bias", "relu": "Relu", "gelu": "FastGelu", "silu": "FastSilu"}
"""Types of `activation.cuh`."""

RESIDUAL = 3  # index of the residual among the kernel's arrays


def instance(op: str, kernel: str, parameters: str) -> str:
    """Return the kernel of an operation as C++ names it, with the tile's parameters in braces."""
    form = FORMS[op]
    return f"{kernel}{form.suffix}<{{scalar}}, {parameters}, {ACTS[form.act]}>"


def stages_of(op: str) -> Sequence[int]:
    """Return the numbers of stages: a residual has up to two, besides two steps of K."""
    return STAGES[1:] if FORMS[op].has_residual else STAGES


def maps_of_epilogue(launch: Launch, problem: Problem, c: TensorMap) -> Launch:
    """Return a launch with the maps of A, B and C, and of a residual by the boxes of C."""
    output = len(problem.input_shapes)
    arrays = (output, RESIDUAL)[: output - 2]
    return replace(
        launch, tensor_maps=(*launch.tensor_maps[:2], *(replace(c, array=each) for each in arrays))
    )


def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Return a launch of one block per tile and part of K."""
    launch = fitted_tile.launches(tile, problem, multiprocessors)
    *_, c = fitted_tile.maps(tile, problem)
    return maps_of_epilogue(launch, problem, c)


def VARIANT(op: str) -> CudaVariant:  # noqa: N802 # the name that descriptions have
    """Return the kernel of an operation."""
    return tensor_cores.variant(
        idea="wgmma_split_cluster of gemm, which finishes sums in registers before they leave",
        after="fused_tile",
        kernel=instance(op, "wgmma_epilogue", "{BM}, {BN}, {BK}, {stages}, {splits}, {cluster}"),
        tiles=EPILOGUE.tiles(
            stages=stages_of(op),
            default=(
                "64x128x64/s8/k1/cluster=1x1",
                "128x128x64/s7/k1/cluster=2x1",
                "192x192x64/s4/k1/cluster=1x1",
                "128x128x64/s7/k2/cluster=1x1",
            ),
            shared_bytes=fitted_tile.shared_bytes,
            constraint=fitted_tile.why_not,
        ),
        launches=launches,
        auto_tiles=Picks(EPILOGUE, TOGETHER),
    )
