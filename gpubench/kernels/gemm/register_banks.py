from dataclasses import replace

from gpubench.kernels.gemm import interleaved

VARIANT = replace(
    interleaved.VARIANT,
    idea="sums stored one by one: the compiler may place them in banks without conflicts",
    after="interleaved",
    launch=interleaved.block_per_tile("register_banks"),
)
