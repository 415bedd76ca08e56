"""The pages together: each can be found, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from newcomer import PAGES, REPOSITORY

NAMES = sorted(path.name for path in PAGES.glob("*.md"))
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LISTED = re.compile(r"^ *- (?:\w+: )?(\S+\.md)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(path: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(
        r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )


def anchors(path: Path) -> set[str]:
    """The headings as links name them."""
    headings = re.findall(r"^#+ (.*)$", text_of(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).strip().replace(" ", "-") for one in headings}


def test_the_site_lists_every_page_and_no_other() -> None:
    listed = re.findall(
        r"^ *- (?:\w+: )?(\S+\.md)$", (REPOSITORY / "mkdocs.yml").read_text(), re.MULTILINE
    )
    assert sorted(listed) == NAMES
    assert listed[0] == "index.md"


@pytest.mark.parametrize("name", NAMES)
def test_links_between_pages_lead_somewhere(name: str) -> None:
    for link in LINK.findall(text_of(PAGES / name)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = PAGES / (path or name)
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "results/README.md"])
def test_links_from_the_repository_lead_somewhere(name: str) -> None:
    page = REPOSITORY / name
    links = [link for link in LINK.findall(text_of(page)) if "://" not in link]
    assert links
    assert [link for link in links if not (page.parent / link.partition("#")[0]).exists()] == []
