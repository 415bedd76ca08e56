"""Print the number of words of each page, and of all pages: `python research/words.py`."""

from pathlib import Path

REPOSITORY = Path(__file__).parent.parent


def words_by_page() -> dict[str, int]:
    """Return the number of words of each page, as `wc -w` counts them.

    CHANGELOG and the decisions are left out, because nobody reads them from start to end.
    """
    names = ("README", "ARCHITECTURE", "CONTRIBUTING", "AGENTS")
    pages = [REPOSITORY / f"{name}.md" for name in names]
    pages += sorted((REPOSITORY / "docs").glob("*.md"))
    return {
        page.relative_to(REPOSITORY).as_posix(): len(page.read_text(encoding="utf-8").split())
        for page in pages
    }


if __name__ == "__main__":
    words = words_by_page()
    for page, number in sorted(words.items(), key=lambda item: -item[1]):
        print(f"{number:6,} {page}")
    print(f"{sum(words.values()):6,} in all")
