"""What an explanation says in sentences."""

from __future__ import annotations

from dataclasses import replace

from test_explanation import SPILLING, explained, loop, problem

from gpubench.commands.explain.explanation import (
    bound,
    grid,
    measured,
    registers,
    resident,
    sentences,
    time,
    traffic,
    warps,
)
from gpubench.commands.explain.explanation import loop as loop_sentence
from gpubench.model import Resources


def resources(used: int = 32, local: int = 0, spilled: int = 0, shared: int = 0) -> Resources:
    return Resources(registers=used, local_bytes=local, spill_bytes=spilled, shared_bytes=shared)


def grid_of(m: int, n: int, tile: int = 16, name: str = "shared_tile") -> str:
    return grid(explained(name, tile, of=problem(m, n)))


def test_more_accumulators_than_registers_spill() -> None:
    assert registers(explained("register_tile", 16, resources=SPILLING)).startswith(
        "256 accumulators do not fit 255 registers: 1248 bytes a thread go to local memory"
    )


def test_a_float64_accumulator_takes_two_registers() -> None:
    explanation = explained("register_tile", 12, of=problem(dtype="float64"), resources=SPILLING)
    assert registers(explanation).startswith(
        "144 accumulators of 2 registers each do not fit 255 registers: 1248 bytes"
    )


def test_accumulators_that_would_fit_alone_are_not_the_only_cause() -> None:
    explanation = explained("register_tile", 14, resources=resources(255, 64, 64))
    assert registers(explanation).startswith(
        "196 accumulators and what else a thread needs do not fit 255 registers: 64 bytes"
    )


def test_large_blocks_leave_a_thread_fewer_registers() -> None:
    explanation = explained("shared_tile", 32, resources=resources(64, 8, 8))
    assert "do not fit 64 registers, the most that 1024 threads a block leave each" in registers(
        explanation
    )


def test_a_compiler_that_used_few_registers_is_mentioned() -> None:
    explanation = explained("register_tile", 32, resources=resources(32, 7120, 17312))
    assert registers(explanation).endswith("the compiler used only 32.")


def test_local_arrays_are_not_spills() -> None:
    assert registers(explained(resources=resources(40, 64))).startswith("Nothing spills, yet 64")


def test_what_fits_is_said_too() -> None:
    explanation = explained("register_tile", 8, resources=resources(120))
    assert (
        registers(explanation)
        == "Nothing spills: 64 accumulators a thread fit into its 120 registers."
    )
    assert (
        registers(explained()) == "Nothing spills: a thread has one accumulator, and 32 registers."
    )


def test_idle_lanes_are_counted() -> None:
    assert warps(explained("naive", 3)) == (
        "9 threads a block are not whole warps: 23 of 32 lanes idle."
    )
    assert warps(explained("naive", 1)).startswith("1 thread a block is not whole warp")
    assert warps(explained("naive", 16)) == ""


def test_what_limits_occupancy_is_named() -> None:
    assert resident(explained("register_tile", 16, resources=SPILLING)) == (
        "Registers allow no more than 4 blocks of 64 threads a multiprocessor: 8 of 64 warps, so "
        "latency must be hidden by independent instructions within a warp."
    )
    shared = explained("shared_tile", 8, resources=resources(shared=40_000))
    assert resident(shared).startswith("Shared memory allows no more than 5 blocks of 64 threads")
    assert resident(explained()).startswith("Occupancy is full: 8 blocks of 256 threads")
    assert resident(explained("naive", 1)).startswith("The block slots allow no more than 32")


def test_a_block_that_is_too_large_cannot_be_launched() -> None:
    assert resident(explained("naive", 32, resources=resources(65))) == (
        "It cannot be launched: a block is too large for registers of a multiprocessor."
    )


def test_idle_multiprocessors_are_counted() -> None:
    explanation = explained("register_tile", 16, of=problem(512, 512), resources=SPILLING)
    assert grid(explanation) == (
        "16 blocks for 132 multiprocessors: 116 of them have nothing to do."
    )


def test_waves_come_with_their_tail() -> None:
    assert grid_of(1024, 1024) == (
        "4,096 blocks are 3.88 waves: after 3 full waves, the last leaves 12 % of the GPU's block "
        "slots empty."
    )
    assert grid_of(1024, 272) == (
        "1,088 blocks are 1.03 waves: after 1 full wave, the last leaves 97 % of the GPU's block "
        "slots empty."
    )
    assert grid_of(16 * 1056, 16) == (
        "All 1,056 blocks are resident at once on 132 multiprocessors, where 1,056 would fit."
    )
    assert grid_of(16 * 2112, 16) == "2,112 blocks are 2 full waves."
    assert "the tail does not matter" in grid_of(8192, 8192)
    assert grid_of(16 * 133, 16).endswith("the busiest get 2, the average 1.0.")


def test_the_bound_says_on_which_side_of_the_ridge_the_problem_lies() -> None:
    assert "lie above the ridge of 13.9: arithmetic is its bound" in bound(explained())
    thin = explained("naive", 16, of=problem(4096, 1, 4096))
    assert "lie below the ridge of 13.9: memory is its bound" in bound(thin)


def test_the_kernels_own_traffic_is_compared_with_the_ridge() -> None:
    assert "55.8 times too few for the peak" in traffic(explained("naive"))
    assert "no slower" in traffic(explained("register_tile", 64))


def test_where_memory_is_the_bound_traffic_is_compared_with_what_must_move() -> None:
    thin = problem(4096, 1, 4096)
    assert "2.0 times the bytes that must move" in traffic(explained("naive", 16, of=thin))
    assert "hardly more than must move" in traffic(explained("register_tile", 64, of=thin))


def test_where_memory_is_the_bound_nothing_is_said_of_the_peak() -> None:
    explanation = explained("naive", 16, of=problem(4096, 1, 4096), inner_loop=loop(64, 16))
    assert loop_sentence(explanation) == "16 of the inner loop's 64 instructions are multiply-adds."


def test_the_inner_loop_comes_with_its_issue_bound() -> None:
    explanation = explained(inner_loop=loop(64, 16, shared_loads={"32": 16, "128": 4}))
    assert loop_sentence(explanation) == (
        "16 of the inner loop's 64 instructions are multiply-adds, 0.8 for each load from shared "
        "memory: at one instruction a clock and scheduler, at most 25 % of the peak."
    )
    assert "enough for the peak" in loop_sentence(explained(inner_loop=loop(64, 63)))
    assert "reads local memory 91 times and writes it 43 times" in loop_sentence(
        explained(inner_loop=loop(493, 256, local_loads=91, local_stores=43))
    )
    assert loop_sentence(explained(inner_loop=loop(64, 0, tensor=8))).startswith(
        "The inner loop has 8 matrix instructions among 64"
    )
    # On the H200 1,024 × 4 operations a clock, and 128 bytes: 1/32 byte an operation is all.
    matrix_loop = loop(64, 0, tensor=8, shared_bytes_per_operation=1 / 64)
    assert loop_sentence(explained(of=problem(dtype="bfloat16"), inner_loop=matrix_loop)) == (
        "The inner loop has 8 matrix instructions among 64; at their peak rate they would read "
        "50 % of what shared memory can deliver."
    )


def test_a_peak_of_a_unit_that_the_loop_does_not_use_is_named() -> None:
    explanation = explained(of=problem(dtype="float64"), inner_loop=loop(64, 16))
    assert "(that of the tensor cores, which it does not use)" in loop_sentence(explanation)


def test_a_measured_time_is_compared_with_the_bound() -> None:
    explanation = explained(measured_us=242.0)
    assert measured(explanation) == (
        "Measured: 0.242 ms, 7.54 times the bound: 13.3 % of what the GPU could do."
    )
    assert measured(explained()) == ""


def test_what_is_not_known_is_left_out() -> None:
    found = sentences(explained(architecture="sm_107"))
    assert found == ["Nothing spills: a thread has one accumulator, and 32 registers."]


def test_every_sentence_starts_and_ends_as_one() -> None:
    explanation = replace(
        explained("register_tile", 16, resources=SPILLING, inner_loop=loop(493, 256)),
        measured_us=776.0,
    )
    found = sentences(explanation)
    assert len(found) == 7
    for sentence in found:
        assert sentence[0].isupper() or sentence[0].isdigit()
        assert sentence.endswith(".")
        assert "  " not in sentence


def test_times_have_a_unit_that_suits_them() -> None:
    for time_us, text in ((0.000203, "0.000203 µs"), (8.02, "8.02 µs"), (32.1, "0.0321 ms")):
        assert time(time_us) == text
