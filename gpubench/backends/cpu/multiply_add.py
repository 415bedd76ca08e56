"""Compiles chains of multiply-adds in vector registers, which measure the rate of a CPU."""

from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

CHAINS = 12
"""Number of independent sums, each a vector. 12 sums hide the latency of two multiply-add units (4
to 5 cycles) and fit into 16 registers."""

ELEMENTS = {
    "float32": (ir.FloatType(), types.float32, 4),
    "float64": (ir.DoubleType(), types.float64, 8),
    "int32": (ir.IntType(32), types.int32, 4),
}
"""Maps each dtype to its type in LLVM, its type in Numba, and its number of bytes."""


def lanes(dtype: str) -> int:
    """Return the number of elements in a vector register of this machine."""
    features = llvm.get_host_cpu_features()
    return (64 if features.get("avx512f") else 32) // ELEMENTS[dtype][2]


@cache
def multiply_adds(dtype: str) -> Any:
    """Return a compiled function that takes (count, x, y) and computes multiply-adds.

    The function replaces each sum s by s·x + y, and repeats this `count` times. There are `CHAINS`
    vectors of sums. The function runs without Python's lock. The function returns the total of all
    sums, so that the compiler cannot omit any work.
    """
    element, number, _ = ELEMENTS[dtype]
    width = lanes(dtype)

    @intrinsic  # type: ignore[untyped-decorator]
    def loop(_context: Any, _count: Any, _x: Any, _y: Any) -> Any:
        def code(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            count, x, y = arguments
            vector = ir.VectorType(element, width)

            def spread(value: Any) -> Any:
                filled = ir.Constant(vector, ir.Undefined)
                for lane in range(width):
                    filled = builder.insert_element(filled, value, ir.IntType(32)(lane))
                return filled

            name = f"llvm.fma.v{width}f{8 * ELEMENTS[dtype][2]}"
            fused = builder.module.globals.get(name) or ir.Function(
                builder.module, ir.FunctionType(vector, [vector] * 3), name
            )
            xs, ys = spread(x), spread(y)
            before = builder.block
            body, after = (builder.append_basic_block() for _ in range(2))
            builder.branch(body)
            builder.position_at_end(body)
            turn = builder.phi(count.type)
            turn.add_incoming(ir.Constant(count.type, 0), before)
            sums = [builder.phi(vector) for _ in range(CHAINS)]
            results = []
            for chain, total in enumerate(sums):
                total.add_incoming(ir.Constant(vector, [element(chain)] * width), before)
                if dtype.startswith("int"):
                    following = builder.add(builder.mul(total, xs), ys)
                else:
                    following = builder.call(fused, [total, xs, ys])
                total.add_incoming(following, body)
                results.append(following)
            following_turn = builder.add(turn, ir.Constant(count.type, 1))
            turn.add_incoming(following_turn, body)
            builder.cbranch(builder.icmp_signed("<", following_turn, count), body, after)
            builder.position_at_end(after)
            add = builder.add if dtype.startswith("int") else builder.fadd
            total = results[0]
            for other in results[1:]:
                total = add(total, other)
            lane_sum = builder.extract_element(total, ir.IntType(32)(0))
            for lane in range(1, width):
                lane_sum = add(lane_sum, builder.extract_element(total, ir.IntType(32)(lane)))
            return lane_sum

        return number(types.int64, number, number), code

    @njit(number(types.int64, number, number), nogil=True)  # type: ignore[untyped-decorator]
    def run(count: Any, x: Any, y: Any) -> Any:
        return loop(count, x, y)

    return run


def operations(dtype: str, count: int) -> int:
    """Return the number of operations in a call. A multiply-add counts as two operations."""
    return 2 * count * CHAINS * lanes(dtype)
