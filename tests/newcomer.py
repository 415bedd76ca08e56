"""Fenced blocks of the documentation, which tests save as files and type as commands."""

import re
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
PAGES = REPOSITORY / "docs"
RESEARCH = REPOSITORY / "research"

_BLOCK = re.compile(
    r'^```(?P<language>\w*)(?: title="(?P<title>[^"]*)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    """The name of the file to save, or the machine that the block needs."""

    text: str

    @property
    def commands(self) -> list[str]:
        """The commands of gpubench in the block, each without the program's name."""
        whole = self.text.replace("\\\n", " ")
        return re.findall(r"^(?:\.venv/bin/|git bisect run )gpubench (.*)$", whole, re.MULTILINE)


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of `docs/<page>` in order."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return [
        Block(language=match["language"], title=match["title"] or "", text=match["text"])
        for match in _BLOCK.finditer(text)
    ]


def write(block: Block, folder: Path) -> Path:
    """Save a block in a folder under its title; return the path. No file may exist there."""
    path = folder / block.title
    path.parent.mkdir(parents=True, exist_ok=True)
    assert not path.exists()
    path.write_text(block.text, encoding="utf-8")
    return path
