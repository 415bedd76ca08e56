"""Lists on the command line: their meaning, and refusals."""

from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpubench.errors import UsageError
from gpubench.model import LARGEST, Config, Problem
from gpubench.plan.ranges import MAX_ITEMS, parse_fraction, parse_names, parse_sizes, parse_tiles

SPANS = [
    ("16", [16]),
    ("007", [7]),
    ("1..4", [1, 2, 3, 4]),
    ("5..5", [5]),
    ("1..10:4", [1, 5, 9]),
    ("64..256:64", [64, 128, 192, 256]),
    ("1..64:x2", [1, 2, 4, 8, 16, 32, 64]),
    ("1..100:x10", [1, 10, 100]),
    ("3..20:X2", [3, 6, 12]),
    (" 8 , 4..6 ", [8, 4, 5, 6]),
    ("6,4..7,6", [6, 4, 5, 7]),
    (f"{LARGEST}", [LARGEST]),
    (f"1..{LARGEST}:x2", [2**power for power in range(31)]),
]

NOT_UNDERSTOOD = [
    "", " ", ",", "1,", ",1", "1,,2",
    "0", "-5", "abc", "1e9", "1.5", "0x10", "+1", "1_000", "²", "٣",
    "1..", "..5", "1...5", "9..1", "1..4:", "1..4:0", "1..4:x", "1..4:-1", "1..2:3:4",
    "1..64:x1", "1..64:x0", "0..4", "1..99999999999",
    f"{LARGEST + 1}", "9" * 30, "9" * 5_000, f"1..{'9' * 5_000}", f"1..4:{'9' * 5_000}",
    f"1..{MAX_ITEMS + 1}", "1..2000000000", "1..6000,7000..12000",
    "1x2x", "x2", "4x0x4x", "1..2x3", "1x1x1..2", "1x" * 3_000 + "1", "1\n2", "1\x1b[2J",
]  # fmt: skip

SIZES_NOT_UNDERSTOOD = ["0x1x1", "1x2x3x4", "1x1x4294967296", "16x16x16/8x8", "٣x٣x٣"]

TILES_NOT_UNDERSTOOD = [
    "16x0", "16x16/", "16x16/8", "16x16/8x8x8", "16x16/s", "16x16/s0", "16x16s3", "0x0",
    "16x16/8x0", "16x4294967296", "16/s0", "16/a", "16/a=1..4", "16/a=1/a=2", "16x٣",
    f"{'9' * 5_000}x1", f"{'9' * 4_000}x1",
]  # fmt: skip


def refusal(parse: Any, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(text)
    return str(caught.value)


def items(parse: Any, text: str) -> list[Any] | None:
    """Return the meaning of a text, or None if it is refused in one short line."""
    try:
        return list(parse(text))
    except UsageError as error:
        message = str(error)
    assert is_one_short_line(message)
    return None


def is_one_short_line(message: str) -> bool:
    return message.isprintable() and 0 < len(message) < 300


def test_a_list_means_these_edges_of_tiles_and_these_squares() -> None:
    for text, numbers in SPANS:
        assert parse_tiles(text) == tuple(map(str, numbers))
        assert parse_sizes(text) == tuple((number, number, number) for number in numbers)


def test_a_size_without_k_is_rows_and_columns() -> None:
    expected = ((4096, 4096, 1), (8192, 32_768, 1), (2, 2, 1), (4, 4, 1))
    assert parse_sizes("4096,8192x32768,2..4:2", "gemv") == expected


def test_a_size_of_another_operation_is_refused_with_the_right_form() -> None:
    for op, text, right in (
        ("gemv", "8x9x10", "320x640 (MxN)"),
        ("atax", "8x0", "320x640 (MxN)"),
        ("gemm", "8x9", "320x640x320 (MxNxK)"),
    ):
        message = refusal(partial(parse_sizes, op=op), text)
        assert is_one_short_line(message)
        assert f"'{text}'" in message
        assert f"a size of {op} is 1024, {right}" in message


@given(st.sampled_from(["gemm", "gemv", "atax"]), *(st.integers(1, LARGEST) for _ in range(3)))
def test_a_size_is_read_back_from_what_a_problem_prints(op: str, m: int, n: int, k: int) -> None:
    k = k if op == "gemm" else 1
    size = Problem(op=op, m=m, n=n, k=k, dtype="float32").size
    assert parse_sizes(size, op) == ((m, n, k),)


def test_further_parameters_follow_by_name_and_commas_only_separate_tiles() -> None:
    text = "128x256x64/s4/cluster=2x1, 16/Unroll=4,16/s2/order=row/deep=0"
    assert parse_tiles(text) == (
        "128x256x64/s4/cluster=2x1",
        "16/unroll=4",
        "16/s2/order=row/deep=0",
    )


def test_invalid_sizes_and_tiles_are_refused_in_one_line() -> None:
    for flag, parse, wrong in (
        ("--sizes", parse_sizes, ["1x2", *SIZES_NOT_UNDERSTOOD]),
        ("--tiles", parse_tiles, TILES_NOT_UNDERSTOOD),
    ):
        for text in NOT_UNDERSTOOD + wrong:
            message = refusal(parse, text)
            assert message.startswith(f"{flag}: "), text
            assert is_one_short_line(message), text


def test_a_message_quotes_what_the_user_typed() -> None:
    for parse in (parse_sizes, parse_tiles):
        assert "'64KB' is not understood" in refusal(parse, "32,64KB")
    assert parse_sizes("8X8X16,1..2:X2") == parse_sizes("8x8x16,1..2:x2")


list_like = st.one_of(
    st.text(),
    st.text("0123456789.x:,/s- ", max_size=40),
    st.lists(
        st.from_regex(r"[0-9]{1,12}(\.\.[0-9]{1,12}(:x?[0-9]{0,4})?)?", fullmatch=True), max_size=5
    ).map(",".join),
)


@pytest.mark.slow
@given(list_like)
@example("1..2147483647:x2," * 400)
@example("9" * 100_000)
@example("0" * 5_000 + "1")
@example("0" * 5_000 + "9..1")
@example("1x" * 50_000 + "1")
def test_any_text_is_a_bounded_list_or_refused_in_one_line(text: str) -> None:
    sizes, tiles = items(parse_sizes, text), items(parse_tiles, text)
    for read_items in (sizes, tiles):
        assert read_items is None or 1 <= len(read_items) == len(set(read_items)) <= MAX_ITEMS
    assert all(1 <= extent <= LARGEST for size in sizes or () for extent in size)
    assert all(str(Config.parse(tile)) == tile for tile in tiles or ())


def test_names_lose_blanks_and_repeats_and_keep_their_order() -> None:
    assert parse_names(" b, a ,,b,c ") == ("b", "a", "c")


def test_repeats_count_towards_the_limit_of_a_list() -> None:
    with pytest.raises(UsageError, match="more than 10000 items"):
        parse_tiles(",".join(["1..9999"] * 5000))
    assert parse_tiles("8,8,8") == ("8",)
    assert len(parse_tiles("1..10000,5..7")) == MAX_ITEMS


def test_a_percentage_needs_its_sign() -> None:
    assert parse_fraction("0.5%", "--precision") == 0.005
    for wrong in ("0.5", "50", 0.02, 1, "%", "x%", "nan%", "200%", "-1%", "-1", -0.5, "", True):
        with pytest.raises(UsageError, match="is not a percentage with its sign, from 0% to 100%"):
            parse_fraction(wrong, "--precision")
