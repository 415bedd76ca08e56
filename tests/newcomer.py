"""Follows a page of the documentation: writes its files and types its commands."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
PAGES = REPOSITORY / "docs"

_BLOCK = re.compile(
    r'^```(?P<language>\w*)(?: title="(?P<title>[^"]*)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    """The file to save it as, or the machine that it needs."""

    text: str

    @property
    def commands(self) -> list[str]:
        """The commands of gpubench in it, each without the program's name."""
        whole = self.text.replace("\\\n", " ")
        return re.findall(r"^\.venv/bin/gpubench (.*)$", whole, re.MULTILINE)


def blocks(page: str) -> list[Block]:
    """The fenced blocks of `docs/<page>` in order."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return [
        Block(language=match["language"], title=match["title"] or "", text=match["text"])
        for match in _BLOCK.finditer(text)
    ]


class Newcomer:
    """A user in a folder whose `.venv` has the programs that the page installs.

    They are the test environment's, and run the package in `source`.
    """

    def __init__(self, folder: Path, source: Path = REPOSITORY) -> None:
        self._folder = folder
        self._source = source
        programs = {"gpubench": "-m gpubench ", "python": ""}
        (folder / ".venv" / "bin").mkdir(parents=True)
        for name, module in programs.items():
            program = folder / ".venv" / "bin" / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
            program.chmod(0o755)

    def write(self, block: Block) -> Path:
        """Save a block under its title."""
        path = self._folder / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        assert not path.exists()
        path.write_text(block.text, encoding="utf-8")
        return path

    def type(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run commands in a shell that stops at the first error."""
        return subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", text],
            cwd=self._folder,
            env=os.environ | {"PYTHONPATH": str(self._source)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
