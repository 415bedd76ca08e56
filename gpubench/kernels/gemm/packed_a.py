from dataclasses import replace

from gpubench.kernels.block_tiles import padded_stages_bytes, rasterized
from gpubench.kernels.gemm import register_banks
from gpubench.kernels.layouts import unaligned
from gpubench.model import ITEM_BYTES, Config, Launch, Problem


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch the packing, a block per tile of A, then the product, a block per tile of C."""
    bm, bk = tile.numbers("BM", "BK")
    tiles_of_a = -(-problem.m // bm) * -(-problem.k // bk)
    product = rasterized(tile, problem)
    return Launch(
        kernel="pack",
        grid=(tiles_of_a,),
        block=(256,),
        workspace_bytes=ITEM_BYTES[problem.dtype] * tiles_of_a * bm * bk,
        next_launches=(
            replace(
                product,
                kernel=unaligned("packed_a", tile, problem),
                shared_bytes=padded_stages_bytes(tile),
            ),
        ),
    )


VARIANT = replace(
    register_banks.VARIANT,
    idea="A packed once into the tiles of the blocks: copies of 16 bytes that do not transpose",
    after="register_banks",
    launch=launch,
)
