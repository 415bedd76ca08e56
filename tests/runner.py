"""Run the action as GitHub does: its steps in order, with the files for outputs of a job."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from newcomer import REPOSITORY

ACTION: Any = yaml.safe_load((REPOSITORY / "action.yml").read_text(encoding="utf-8"))
STEPS: list[Any] = ACTION["runs"]["steps"]
EXPRESSION = re.compile(r"\$\{\{ (?:inputs|steps)\.([\w.-]+) \}\}")

RECORDING = """#!/bin/sh
echo "$@" >> "$RUNNER_TEMP/log"
for word in "$@"; do [ "$previous" = --output ] && echo "a comment" > "$word"; previous=$word; done
exit {code}
"""
PYTHON = """#!/bin/sh
echo "$(basename "$0") $@" >> "$RUNNER_TEMP/log"
[ "$2" = venv ] || exit 0
mkdir -p "$3/bin"
cp "$0" "$3/bin/pip"
cp "$RUNNER_TEMP/gpubench" "$3/bin"
"""
"""A program named `python3`. It makes an environment with the test's `gpubench`, and with a copy of
itself as `pip`."""


class Job:
    """A job in a folder. `python3` is the program that it runs under this name."""

    def __init__(
        self,
        folder: Path,
        temporary: Path | None = None,
        python3: str = PYTHON,
        **variables: str,
    ) -> None:
        self.folder, self.temporary = folder, temporary or folder / "temp dir"
        (self.temporary / "bin").mkdir(parents=True)
        self._program("bin/python3", python3)
        self.install(RECORDING.format(code=0))
        self.output, self.summary, self.log = (
            self.temporary / name for name in ("output", "summary", "log")
        )
        self._variables = variables | {
            "GITHUB_ACTION_PATH": "/action",
            "GITHUB_JOB": "bench",
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "RUNNER_TEMP": str(self.temporary),
            "PATH": f"{self.temporary / 'bin'}:{os.environ['PATH']}",
        }

    def _program(self, name: str, text: str) -> None:
        path = self.temporary / name
        path.write_text(text)
        path.chmod(0o755)

    def install(self, program: str) -> None:
        self._program("gpubench", program)

    def script(
        self, text: str, prepare: Callable[[], None] | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the script of a step, in a process that has called `prepare`."""
        return subprocess.run(
            ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text],
            cwd=self.folder,
            env=variables | self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            preexec_fn=prepare,
        )

    def run(self, **inputs: str) -> Any:
        """Run the action's steps until one fails; return the exit code, output and files."""
        values = {name.replace("_", "-"): text for name, text in inputs.items()}
        assert values.keys() <= ACTION["inputs"].keys()
        for file in (self.output, self.summary, self.log):
            file.write_text("")

        def evaluated(texts: dict[str, object]) -> dict[str, str]:
            return {
                name: EXPRESSION.sub(lambda match: values.get(match[1], ""), str(text))
                for name, text in texts.items()
            }

        ended = SimpleNamespace(code=0, said="", uploaded={})
        for step in STEPS:
            if "uses" in step:
                ended.uploaded = evaluated(step["with"])
                continue
            done = self.script(step["run"], **evaluated(step["env"]))
            ended.code, ended.said = done.returncode, ended.said + done.stdout
            for name, text in re.findall("^(.*?)=(.*)$", self.output.read_text(), re.MULTILINE):
                values[f"{step.get('id')}.outputs.{name}"] = text
            if ended.code:
                break
        ended.outputs = evaluated({name: out["value"] for name, out in ACTION["outputs"].items()})
        ended.summary, ended.log = self.summary.read_text(), self.log.read_text().splitlines()
        return ended
