"""A hook of mkdocs, which adds files of the repository to the site if pages link to these files.

A broken link becomes a warning, which fails the build. Without this hook, mkdocs reports some
broken links only as notes.
"""

import logging
import re
from pathlib import Path
from typing import Any

FOLDERS = "results|configs|tests|research|examples|gpubench"
OUTSIDE = re.compile(rf"(?<=\]\()((?:\.\./)+)((?:{FOLDERS})/[^)#\s]+|README\.md)")


def on_startup(**_: Any) -> None:
    """Turn mkdocs' notes on links into warnings."""
    logging.getLogger("mkdocs.structure.pages").addFilter(_as_warning)


def _as_warning(record: logging.LogRecord) -> bool:
    if record.levelno == logging.INFO:
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


def on_files(files: Any, config: Any) -> Any:
    """Add each linked file, under its path in the repository."""
    from mkdocs.structure.files import File

    root = Path(config.docs_dir).parent
    for page in files.documentation_pages():
        for _, path in OUTSIDE.findall(page.content_string):
            if (root / path).is_file() and not files.get_file_from_path(_in_site(path)):
                files.append(File.generated(config, _in_site(path), abs_src_path=str(root / path)))
    return files


def _in_site(path: str) -> str:
    """Return the path in the site. Markdown is shown as text, because its links would be broken."""
    return f"{path}.txt" if path.endswith(".md") else path


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Shorten links to the added files, because the root of the site is docs/."""
    return OUTSIDE.sub(lambda link: link[1].removeprefix("../") + _in_site(link[2]), markdown)
