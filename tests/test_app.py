"""The commands together: their order and their help."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from commandline import COMMANDS
from typer.testing import CliRunner

from gpubench import commands
from gpubench.cli import app, package
from gpubench.errors import UsageError
from gpubench.model import DTYPES, LAYOUTS, OPERATIONS, Cache, Fill, Scope, Timer
from gpubench.options import OPTIONS, Option
from gpubench.plan.registry import of_op

PARAMETERS = [
    (name, one)
    for name, command in COMMANDS.items()
    for one in command.params
    if one.name != "help" and not getattr(one, "hidden", False)
]
VALUED = [
    (name, one)
    for name, one in PARAMETERS
    if one.param_type_name == "option" and not one.is_flag and one.default is None
]
"""Options that take a value; one with a default shows that, and arguments stand in the example."""

EXAMPLE = re.compile(r"Example: gpubench (.*?)(?=\. |$)")


def example(name: str) -> list[str]:
    """The words of the example in a command's epilog, which begins with the command."""
    found = EXAMPLE.search(COMMANDS[name].epilog or "")
    assert found, f"the epilog of {name} needs 'Example: gpubench {name} …'"
    return found[1].split()


KNOWN = {
    *DTYPES,
    *OPERATIONS,
    *(name for op in OPERATIONS for name in of_op(op)),
    *("auto", "cpu", "cuda", *Cache, *Fill, *LAYOUTS, *Scope, *Timer),
}
"""Words that are values by themselves."""


def words(text: str) -> list[str]:
    """The help's words without the punctuation round them."""
    return [word.strip("""()'".,;:""") for word in re.split(r"[\s]+", text)]


# ---- help


def test_every_package_of_commands_has_a_command() -> None:
    folders = {path.parent.name for path in Path(commands.__file__).parent.glob("*/__init__.py")}
    assert {package(name) for name in COMMANDS} == folders


def test_every_command_says_what_it_does_and_its_example_is_understood() -> None:
    """Its options and arguments are the command's own; the command itself is not run."""
    for name, command in COMMANDS.items():
        assert command.help
        first, *arguments = example(name)
        assert first == name
        command.make_context(name, arguments)


def test_every_option_and_argument_has_help() -> None:
    assert [(name, option.name) for name, option in PARAMETERS if not option.help] == []


def test_help_of_what_takes_a_value_holds_one() -> None:
    """A number, a file, a name with _, or a word that is known as a value; or the type.

    A type that says all is one that lists its choices, or a file.
    """
    for _, option in VALUED:
        says_all = re.search(r"\||FILE|DIR|SECONDS|PERCENT", option.metavar or "")
        examples = [
            word
            for word in words(option.help)
            if re.search(r"\d|\w[._/]\w|^DIR$", word) or word in KNOWN
        ]
        assert says_all or examples, option.help


def test_help_of_an_option_of_a_sweep_holds_a_value_that_it_takes() -> None:
    for option in OPTIONS.values():

        def taken(word: str, option: Option = option) -> bool:
            try:
                option.convert(word)
            except UsageError:
                return False
            return True

        assert any(map(taken, words(f"{option.help} {option.metavar}"))), option.name


def test_no_summary_of_a_command_is_cut_in_eighty_columns() -> None:
    shown = CliRunner().invoke(app, ["--help"], terminal_width=80)
    _, _, commands = shown.output.partition("Commands:")
    assert "..." not in commands


def test_the_help_of_own_kernels_says_that_their_code_is_run() -> None:
    for name in ("sweep", "compare-cublas", "variants"):
        (option,) = (one for one in COMMANDS[name].params if one.name == "kernels")
        assert "runs the code" in option.help
    shown = CliRunner().invoke(app, ["sweep", "--help"])
    assert "runs the code" in " ".join(shown.output.split())


def visible_options() -> dict[str, dict[str, Any]]:
    """The options that help texts show, by flag and command."""
    shown: dict[str, dict[str, Any]] = {}
    for name, command in COMMANDS.items():
        for option in command.params:
            if option.param_type_name == "option" and not option.hidden:
                for flag in option.opts:
                    shown.setdefault(flag, {})[name] = option
    return shown


def test_a_thing_has_one_spelling_in_all_commands() -> None:
    flags = visible_options()
    assert not flags.keys() & {"--size", "--tile", "--dtype", "--variant", "--shape", "--folder"}
    for flag, by_command in flags.items():
        assert len({option.is_flag for option in by_command.values()}) == 1, flag
    for option in flags["--output"].values():
        assert "-o" in option.opts
        assert not re.search("directory|folder", (option.help or "").partition(".")[0].lower())
    assert all(option.metavar == "DIR" for option in flags["--dir"].values())
