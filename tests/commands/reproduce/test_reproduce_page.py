"""docs/reproduce.md says what is so."""

import re
from pathlib import Path

from gpubench.commands.reproduce.experiment import SELECTABLE, read_experiment, shipped
from gpubench.commands.reproduce.rules import STATEMENTS

PAGE = (Path(__file__).parents[3] / "docs" / "reproduce.md").read_text(encoding="utf-8")


def test_the_example_is_an_experiment(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(title.*?)```", PAGE, re.DOTALL)
    (tmp_path / "tiles.toml").write_text(example, encoding="utf-8")
    experiment = read_experiment(tmp_path / "tiles.toml")
    assert experiment.file.series[0].published == {"8": 41.0, "16": 12.5}


def test_it_names_every_experiment_rule_figure_and_key() -> None:
    names = (*shipped(), *STATEMENTS, *SELECTABLE)
    assert [name for name in names if f"`{name}`" not in PAGE] == []
    assert "ms, gflops, gbytes_per_s or speedup" in PAGE
