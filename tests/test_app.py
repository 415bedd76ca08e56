"""The commands together: their order, their help, and what is said to a misspelt one."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gpubench.cli import app
from gpubench.errors import UsageError
from gpubench.model import DTYPES, OPERATIONS, Cache, Scope, Timer
from gpubench.plan.config import _OPTIONS
from gpubench.plan.registry import of_op

GROUP = typer.main.get_command(app)
COMMANDS = GROUP.commands
PARAMETERS = [
    (name, one)
    for name, command in COMMANDS.items()
    for one in command.params
    if one.name != "help"
]
VALUED = [
    (name, one)
    for name, one in PARAMETERS
    if one.param_type_name == "option" and not one.is_flag and one.default is None
]
"""Options that take a value; one with a default shows that, and arguments stand in the example."""

EXAMPLE = re.compile(r"Example: (gpubench .*?)(?=\. |$)")

KNOWN = {
    *DTYPES,
    *OPERATIONS,
    *(name for op in OPERATIONS for name in of_op(op)),
    *("auto", "cpu", "cuda", *Cache, *Scope, *Timer),
}
"""Words that are values by themselves."""


def label(case: tuple[str, Any]) -> str:
    return f"{case[0]}-{case[1].name}"


def words(text: str) -> list[str]:
    """The help's words without the punctuation round them."""
    return [word.strip("""()'".,;:""") for word in re.split(r"[\s]+", text)]


# ---- help


def test_the_main_command_is_listed_first() -> None:
    listed = GROUP.list_commands(typer.Context(GROUP))
    assert sorted(listed) == sorted(COMMANDS)
    assert listed[0] == "sweep"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_does_and_shows_itself_at_work(name: str) -> None:
    assert COMMANDS[name].help
    assert EXAMPLE.search(COMMANDS[name].epilog)[1].split()[1] == name


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_is_understood(name: str) -> None:
    """Its options and arguments are the command's own; the command itself is not run."""
    _, _, *arguments = EXAMPLE.search(COMMANDS[name].epilog)[1].split()
    COMMANDS[name].make_context(name, arguments)


@pytest.mark.parametrize("case", PARAMETERS, ids=label)
def test_every_option_and_argument_has_help(case: tuple[str, Any]) -> None:
    assert case[1].help


@pytest.mark.parametrize("case", VALUED, ids=label)
def test_help_of_what_takes_a_value_holds_one(case: tuple[str, Any]) -> None:
    """A number, a file or folder, a name with _, or a word that is known or offered as a value."""
    name, one = case
    found = words(one.help)
    offered = {item.value for item in one.shell_complete(typer.Context(COMMANDS[name]), "")}
    known = KNOWN | offered
    examples = [w for w in found if re.search(r"\d|\w[._/]\w|^DIR$", w) or w in known]
    assert examples, one.help


@pytest.mark.parametrize("name", _OPTIONS)
def test_help_of_an_option_of_a_sweep_holds_a_value_that_it_takes(name: str) -> None:
    (option,) = (one for one in COMMANDS["sweep"].params if one.name == name)
    _, read = _OPTIONS[name]

    def taken(word: str) -> bool:
        try:
            read(f"--{name}", word)
        except UsageError:
            return False
        return True

    assert any(map(taken, words(option.help)))


# ---- misspelt


def refused(*arguments: str) -> str:
    """The message of Typer's refusal."""
    with pytest.raises(typer.TyperException) as caught:
        GROUP(arguments, standalone_mode=False)
    return str(caught.value.format_message())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_misspelt_command_gives_the_nearest(name: str) -> None:
    misspelt = name[:-1] + ("x" if name[-1] != "x" else "y")
    assert f"Did you mean '{name}'" in refused(misspelt) or f"'{name}'" in refused(misspelt)


@pytest.mark.parametrize(("typed", "meant"), [("--tile", "--tiles"), ("--varaints", "--variants")])
def test_a_misspelt_option_gives_the_nearest(typed: str, meant: str) -> None:
    message = refused("sweep", typed, "8")
    assert f"No such option: {typed}" in message
    assert meant in message


def test_the_help_of_own_kernels_says_that_their_code_is_run() -> None:
    for name in ("sweep", "compare-cublas", "variants"):
        (option,) = (one for one in COMMANDS[name].params if one.name == "kernels")
        assert "runs the code" in option.help
    shown = CliRunner().invoke(app, ["sweep", "--help"])
    assert "runs the code" in " ".join(shown.output.split())
