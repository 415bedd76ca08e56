"""The list of commands: their order and their help."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from commandline import COMMANDS
from typer.testing import CliRunner

from gpubench import commands
from gpubench.cli import app, package

EXAMPLE = re.compile(r"Example: gpubench (.*?)(?=\. |$)")


def test_every_package_of_commands_has_a_command() -> None:
    folders = {path.parent.name for path in Path(commands.__file__).parent.glob("*/__init__.py")}
    assert {package(name) for name in COMMANDS} == folders, (
        "name the command of each folder of gpubench/commands/ in SECTIONS of gpubench/cli.py, and "
        "its folder in PACKAGES if the folder has another name"
    )


def test_every_command_has_an_example_that_is_understood_and_help_of_every_parameter() -> None:
    """The example has only options and arguments of its command. The test does not run it."""
    for name, command in COMMANDS.items():
        example = EXAMPLE.search(command.epilog or "")
        assert example, f"the epilog of {name} needs 'Example: gpubench {name} …'"
        first, *arguments = example[1].split()
        assert first == name
        command.make_context(name, arguments)
        shown = [
            parameter for parameter in command.params if not getattr(parameter, "hidden", False)
        ]
        unhelped = [parameter.name for parameter in shown if not parameter.help]
        assert unhelped == [], f"these parameters of {name} need a help text"


def test_no_summary_of_a_command_is_cut_in_eighty_columns() -> None:
    shown = CliRunner().invoke(app, ["--help"], terminal_width=80)
    _, _, commands = shown.output.partition("Commands:")
    assert "..." not in commands


def test_the_help_of_own_kernels_says_that_their_code_is_run() -> None:
    for name in ("sweep", "compare-cublas", "variants"):
        (option,) = (
            parameter for parameter in COMMANDS[name].params if parameter.name == "kernels"
        )
        assert "runs the code" in option.help


def test_a_thing_has_one_spelling_in_all_commands() -> None:
    flags: dict[str, list[Any]] = {}
    for command in COMMANDS.values():
        for option in command.params:
            if option.param_type_name == "option" and not option.hidden:
                for flag in option.opts:
                    flags.setdefault(flag, []).append(option)
    assert not flags.keys() & {"--size", "--tile", "--dtype", "--variant", "--shape", "--folder"}
    for flag, options in flags.items():
        assert len({option.is_flag for option in options}) == 1, flag
    for option in flags["--output"]:
        assert "-o" in option.opts
        assert not re.search("directory|folder", (option.help or "").partition(".")[0].lower())
    assert all(option.metavar == "DIR" for option in flags["--dir"])
