"""Each page is listed in the site, and the targets of its links exist."""

import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from commandline import COMMANDS
from newcomer import PAGES, REPOSITORY, RESEARCH, blocks

from gpubench.commands.diff.findings import DiffVerdict
from gpubench.commands.reproduce.experiment import SELECTABLE, read_experiment, shipped
from gpubench.commands.reproduce.rules import STATEMENTS

sys.path.insert(0, str(RESEARCH))
from site_links import OUTSIDE
from words import words_by_page

NAMES = sorted(path.relative_to(PAGES).as_posix() for path in PAGES.rglob("*.md"))
COMMAND = re.compile(r"^(?:\.venv/bin/|git bisect run )?gpubench (.*)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


MAX_WORDS_OF_README, MAX_LINES_OF_README = 900, 110
MAX_WORDS = 45_000  # maximum number of words of all pages; shorten a page before you write more


def text_of(page: Path) -> str:
    """Return the text of a page without its fenced blocks."""
    return re.sub(
        r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )


def anchors(page: Path) -> set[str]:
    """Return the names of the headings that links use."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def check_links(page: Path) -> None:
    for link in LINK.findall(text_of(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page}: {link}"
        if page.is_relative_to(PAGES):  # the site has no directories, and no Markdown files
            assert target.is_file(), f"{page}: {link}"
            inside = target.resolve().is_relative_to(PAGES)
            is_on_site = inside or OUTSIDE.search(f"]({link})")
            assert is_on_site, f"{page}: the site does not get {link}"
        assert not anchor or anchor in anchors(target), f"{page}: {link} names no heading"


def test_the_site_lists_every_page_and_no_other() -> None:
    navigation = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"^ *- (\S+\.md)$", navigation, re.MULTILINE)
    differing = sorted({*listed} ^ {*NAMES})
    assert differing == [], "the nav of mkdocs.yml must list each page of docs/, and no other page"
    assert len(listed) == len(NAMES), "the nav of mkdocs.yml lists a page twice"
    assert listed[0] == "index.md"


def test_links_between_pages_have_targets() -> None:
    for name in NAMES:
        check_links(PAGES / name)


def test_links_from_the_repository_have_targets() -> None:
    names = ("README", "AGENTS", "CONTRIBUTING", "ARCHITECTURE", "research/README")
    pages = [REPOSITORY / f"{name}.md" for name in names]
    results = REPOSITORY / "results"
    for page in (*pages, *sorted(results.glob("*.md")), results / "operating" / "README.md"):
        assert LINK.findall(text_of(page))
        check_links(page)


def test_the_readme_can_be_read_in_a_minute() -> None:
    lines = (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_LINES_OF_README
    assert words_by_page()["README.md"] <= MAX_WORDS_OF_README


def test_the_pages_do_not_grow() -> None:
    words = sum(words_by_page().values())
    assert words <= MAX_WORDS, (
        f"the pages have {words - MAX_WORDS} words too many: shorten any page "
        "(`python research/words.py` lists the words of each)"
    )


def test_the_commands_in_all_pages_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scheduler.json").touch()  # `--on` reads it
    texts = [block.text.replace("\\\n", " ") for name in NAMES for block in blocks(name)]
    commands = [command for text in texts for command in COMMAND.findall(text)]
    assert len(commands) > 80
    for command in commands:
        name, *words = shlex.split(command.partition(" > ")[0], comments=True)
        assert name in COMMANDS, f"gpubench {command}"
        try:
            COMMANDS[name].make_context(name, words)
        except typer.TyperException as error:
            pytest.fail(f"gpubench {command}: {error.format_message()}")


def test_the_architecture_names_files_that_exist() -> None:
    text = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:gpubench|tests|configs|docs)/[\w./]*)`", text)
    assert len(named) > 15
    missing = [name for name in named if not (REPOSITORY / name).exists()]
    assert missing == [], "ARCHITECTURE.md names files that do not exist"


def test_every_command_is_on_the_page_of_commands() -> None:
    text = (PAGES / "commands.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\|.*", text, re.MULTILINE))
    missing = [name for name in COMMANDS if not any(f"`gpubench {name}`" in at for at in listed)]
    assert missing == [], "add a row to the table of docs/commands.md for each of these commands"


def test_every_test_and_file_that_the_page_of_failures_names_exists() -> None:
    text = (PAGES / "reliability.md").read_text(encoding="utf-8")
    files = re.findall(r"`((?:tests|research|results)/[\w./]+)`", text)
    missing = [name for name in files if not (REPOSITORY / name).exists()]
    assert missing == [], "docs/reliability.md names files that do not exist"
    paths = (REPOSITORY / "tests").rglob("test_*.py")
    tests = "".join(path.read_text(encoding="utf-8") for path in paths)
    assert {
        name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in tests
    } == set(), "docs/reliability.md names tests that do not exist"


def test_the_page_of_experiments_has_an_example_and_every_name(tmp_path: Path) -> None:
    text = (PAGES / "reproduce.md").read_text(encoding="utf-8")
    names = (*shipped(), *STATEMENTS, *SELECTABLE)
    missing = [name for name in names if f"`{name}`" not in text]
    assert missing == [], "docs/reproduce.md must name each experiment, kind of rule and column"
    (example,) = re.findall(r"```toml\n(title.*?)```", text, re.DOTALL)
    (tmp_path / "tiles.toml").write_text(example, encoding="utf-8")
    assert read_experiment(tmp_path / "tiles.toml").file.series


def test_the_code_that_reads_a_csv_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    code = next(block.text for block in blocks("files.md") if block.language == "python")
    exec(code, {})  # noqa: S102 # the page's own code
    assert "shared_tile" in capsys.readouterr().out


def test_every_verdict_of_diff_is_explained() -> None:
    text = (PAGES / "diff.md").read_text(encoding="utf-8")
    missing = [verdict for verdict in DiffVerdict if f"`{verdict}`" not in text]
    assert missing == [], "docs/diff.md must explain each verdict"


def test_the_page_of_installation_lists_every_extra() -> None:
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    page = (root / "docs" / "install.md").read_text()
    rows = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", rows)) == set(project["optional-dependencies"])
