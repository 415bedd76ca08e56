"""`--where` accepts conditions on tiles, and nothing else."""

from typing import Any

import pytest

from gpubench.commands.tune.where import condition
from gpubench.errors import UsageError

TILE = {"BM": 128, "BN": 64, "stages": 3, "cluster": "2x1"}


def holds(text: str, **values: Any) -> bool:
    return condition(text, TILE, "wgmma")(TILE | values)


def test_a_condition_that_the_tile_fulfils() -> None:
    for text in [
        "stages >= 3 and BM*BN >= 8192",
        "BM == 2*BN or stages > 100",
        "not stages < 3",
        "1 < stages <= 3",
        'cluster == "2x1"',
        'cluster in ("1x1", "2x1") and stages not in [2, 4]',
        "BM/BN == 2 and -BN == 0 - 64",
        "BM % 64 == 0 and BM // 64 - 1 == 1 and -BM < 0",
        "  stages == 3  ",
    ]:
        assert holds(text) is True
        assert condition(f"not ({text.strip()})", TILE, "wgmma")(TILE) is False


def test_other_python_expressions_are_refused() -> None:
    for text in [
        "",
        "stages >=",
        "__import__('os').system('true')",
        "().__class__",
        "BM.bit_length() > 3",
        "(lambda: 1)()",
        "BM ** BN ** 100 > 1",
        '"a" * BM == "a"',
        "1if BM else 2",  # Python warns of it
        "BM in cluster",
        "f'{BM}' == '128'",
        "(BM := 3) > 2",
        "BM > " + "-" * 450 + "1",
        "\x00",
    ]:
        with pytest.raises(UsageError, match=r"--where: .*(write a condition|unknown parameter)"):
            holds(text)


def test_an_invalid_condition_is_refused_with_the_reason() -> None:
    with pytest.raises(UsageError, match="wgmma: unknown parameter 'stage'; did you mean 'stages'"):
        holds("stage > 2")
    with pytest.raises(UsageError, match=r"--where: 'cluster > 2': .*not supported"):
        holds("cluster > 2")
    with pytest.raises(UsageError, match="division"):
        holds("BM / (stages - 3) > 2")
