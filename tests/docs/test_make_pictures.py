"""The pictures in docs/images follow from results/."""

import hashlib
import importlib.util
import re
import shlex
from html import unescape
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return research/make_pictures.py as a module, in the repository's root."""
    monkeypatch.chdir(ROOT)
    spec = importlib.util.spec_from_file_location("make_pictures", "research/make_pictures.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def said(path: Path) -> tuple[list[str], list[str]]:
    """Return the words of a picture, and its description, which has the hashes of its CSVs.

    Bytes are not compared, because another version of matplotlib may draw a tick elsewhere.
    """
    text = unescape(path.read_text(encoding="utf-8"))
    words = re.findall(r"<text[^>]*>([^<]*[a-z][^<]*)</text>", text)
    return re.findall(r"<dc:description>([^<]*)", text), sorted(words)


def test_the_page_has_the_commands_that_draw_the_pictures(script: ModuleType) -> None:
    page = " ".join(Path("docs/plots.md").read_text(encoding="utf-8").replace("\\\n", "").split())
    assert [command for command in script.COMMANDS if command not in page] == []


@pytest.mark.slow
def test_every_picture_is_up_to_date(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One picture of `gpubench plot` is drawn again. All pictures must name their data."""
    for command in script.COMMANDS:
        data, image = (Path(word) for word in shlex.split(command) if word.endswith(("csv", "svg")))
        (digest,) = re.findall(r"sha256 ([0-9a-f]+)", image.read_text())
        assert hashlib.sha256(data.read_bytes()).hexdigest().startswith(digest), image
    monkeypatch.setattr(script, "COMMANDS", script.COMMANDS[:1])
    made = script.make(tmp_path)
    assert len(made) == 3
    stale = [path.name for path in made if said(path) != said(script.IMAGES / path.name)]
    assert stale == [], "not up to date in docs/images; run 'doit pages'"
