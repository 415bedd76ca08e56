"""Finding the inner loop in listings of our own kernels, which were recorded from nvdisasm."""

from pathlib import Path

from gpubench.commands.explain.sass import InnerLoop, inner_loop

RECORDED = Path(__file__).parent / "sass"


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.sass").read_text(encoding="utf-8")


def loop_of(name: str, dtype: str) -> InnerLoop:
    inner = inner_loop(recorded(name), dtype)
    assert inner
    return inner


def listing(*lines: str) -> str:
    """Return a listing in nvdisasm's form. Lines that end with a colon are labels."""
    return "\n".join(
        line if line.endswith(":") else f"        /*{index:04x}*/                   {line} ;"
        for index, line in enumerate(lines)
    )


def test_the_unrolled_loop_of_a_shared_tile_is_found_with_its_accesses() -> None:
    loop = loop_of("shared_tile-8-float32-sm_90", "float32")
    # Two tiles of 8 along K: 16 multiply-adds, a load per element of B, a load per four of A.
    assert (loop.instructions, loop.multiply_adds) == (90, 16)
    assert loop.shared_loads == {"32": 16, "128": 4}
    assert loop.global_loads == {"32": 4}
    assert (loop.local_loads, loop.local_stores, loop.tensor) == (0, 0, 0)
    assert list(loop.opcodes.items())[:2] == [("LDS", 20), ("FFMA", 16)]
    assert loop.multiply_add_share == 16 / 90


def test_multiply_adds_of_integers_and_float64_are_told_from_moves_and_addresses() -> None:
    double = inner_loop(listing(".L_x_0:", "DFMA R0, R2, R4, R0", "BRA `(.L_x_0)"), "float64")
    assert double
    assert double.multiply_adds == 1
    code = listing(
        ".L_x_0:",
        "IMAD R0, R1, R2, R0",
        "IMAD R4, R5, R6, RZ",
        "IMAD.MOV.U32 R7, RZ, RZ, R8",
        "IMAD.WIDE R22, R29, R38, R2",
        "BRA `(.L_x_0)",
    )
    of_all = inner_loop(code, "int32")
    assert of_all
    assert (of_all.multiply_adds, of_all.opcodes["IMAD"]) == (1, 4)


def test_a_kernel_without_such_arithmetic_has_no_inner_loop() -> None:
    assert inner_loop(recorded("shared_tile-8-float32-sm_90"), "float64") is None
    assert inner_loop(recorded("shared_tile-8-float32-sm_90"), "bfloat16") is None
    assert inner_loop("", "float32") is None
    assert inner_loop("no disassembly at all", "float32") is None


def test_the_loop_with_the_most_multiply_adds_of_its_own_is_the_inner_one() -> None:
    code = listing(
        ".L_x_0:",  # the outer loop, which has one multiply-add itself
        "FFMA R0, R1, R2, R0",
        ".L_x_1:",  # the inner loop
        "FFMA R0, R1, R2, R0",
        "FFMA R0, R1, R2, R0",
        "@P0 BRA `(.L_x_1)",
        "IADD3 R5, R5, 0x1, RZ",
        "@!P1 BRA `(.L_x_0)",
        ".L_x_2:",  # a loop for the remainder
        "FFMA R0, R1, R2, R0",
        "@P0 BRA `(.L_x_2)",
        ".L_x_3:",
        "BRA `(.L_x_3)",
    )
    loop = inner_loop(code, "float32")
    assert loop
    assert (loop.instructions, loop.multiply_adds) == (3, 2)


def test_a_small_loop_within_does_not_count_for_the_loop_around_it() -> None:
    code = listing(
        ".L_x_0:",
        *["FFMA R0, R1, R2, R0"] * 8,
        ".L_x_1:",  # copies the next tile
        "LDG.E R4, desc[UR8][R24.64]",
        "STS [R30], R4",
        "@P0 BRA `(.L_x_1)",
        "@P1 BRA `(.L_x_0)",
    )
    loop = inner_loop(code, "float32")
    assert loop
    assert (loop.instructions, loop.multiply_adds, loop.global_loads) == (9, 8, {})


def test_spills_widths_copies_and_matrix_instructions_are_counted() -> None:
    code = listing(
        ".L_x_0:",
        "LDL.LU R4, [R1+0x10]",
        "LDL.64 R4, [R1+0x18]",
        "@!P0 STL [R1+0x10], R4",
        "LDG.E.128.CONSTANT R4, desc[UR8][R24.64]",
        "LDG.E.U8 R4, desc[UR8][R24.64]",
        "LDGSTS.E.BYPASS.128 [R5], desc[UR8][R24.64]",
        "UTMALDG.2D [UR8], [UR4]",
        "HGMMA.64x128x8.F32.TF32 R24, gdesc[UR4], R24",
        "FFMA2 R4, R6, R8, R4",
        "BRA.U !UP0, `(.L_x_0)",
    )
    loop = inner_loop(code, "float32")
    assert loop
    assert (loop.local_loads, loop.local_stores) == (2, 1)
    assert loop.global_loads == {"8": 1, "128": 1}
    assert (loop.tensor, loop.multiply_adds) == (1, 2)


def test_what_matrix_instructions_read_from_shared_memory_is_counted() -> None:
    def bytes_per_operation(*code: str) -> float | None:
        inner = inner_loop(listing(".L_x_0:", *code, "BRA `(.L_x_0)"), "bfloat16")
        return inner and inner.shared_bytes_per_operation

    both = "HGMMA.64x256x16.F32.BF16 R24, gdesc[UR12].tnspB, R24, gsb0"
    assert bytes_per_operation(both) == (64 + 256) * 16 * 2 / (2 * 64 * 256 * 16)
    only_b = "HGMMA.64x128x8.F32.TF32 R24, R4, gdesc[UR12], R24"
    assert bytes_per_operation(only_b) == 128 * 8 * 4 / (2 * 64 * 128 * 8)
    # 16 by 16 elements of A, and of B, serve four products of 16 by 8 by 16.
    loads = ("LDSM.16.M88.4 R4, [R96]", "LDSM.16.MT88.2 R8, [R213+0x4000]", "LDS.64 R2, [R9]")
    products = ["HMMA.16816.F32.BF16 R12, R4, R8, R12"] * 4
    assert bytes_per_operation(*loads, *products) == (512 + 256 + 256) / (4 * 2 * 16 * 8 * 16)
    # One wgmma takes operands from the registers of four warps. A DMMA takes them from one warp.
    operations = 2 * 64 * 128 * 8
    assert bytes_per_operation("LDS.64 R4, [R9]", only_b) == (4 * 256 + 128 * 32) / operations
    double = ("LDS.128 R4, [R9]", "DMMA.16x8x16 R12, R4, R8, R12")
    assert bytes_per_operation(*double) == 512 / (2 * 16 * 8 * 16)
    assert bytes_per_operation("FFMA R4, R6, R8, R4") is None
