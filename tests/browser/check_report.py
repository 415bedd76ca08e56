"""The page of `gpubench report` in Chromium: sorting, filtering, dark mode, a phone, the keyboard.

    python tests/browser/check_report.py [--screenshots FOLDER] results/h200/sweep.csv …

Not part of the test suite, which needs no browser: `pip install playwright`, and `playwright
install chromium` or the path of one in CHROMIUM.
"""

import argparse
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from gpubench.commands.report.page import page
from gpubench.results.row import Row, read

MAX_BYTES = 2_000_000
LEAST_CONTRAST = 4.5
"""WCAG 2.2, success criterion 1.4.3."""

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}

COLUMN = """
(title) => {
  const table = document.querySelector('[aria-labelledby=points] table');
  const heads = [...table.tHead.rows[0].cells];
  const index = heads.findIndex((head) => head.textContent.trim() === title);
  return {
    head: heads[index],
    shown: [...table.tBodies[0].rows].filter((row) => !row.hidden)
      .map((row) => row.cells[index].textContent.trim()),
  };
}"""

CONTRAST = """
(() => {
  const luminance = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const page = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (!colour.endsWith(', 0)')) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  let least = [99, ''];
  for (const one of document.querySelectorAll('h1, h2, p, a, caption, td, th, dt, dd, label')) {
    const pair = [getComputedStyle(one).color, page(one)].map(luminance).sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < least[0]) least = [ratio, one.tagName + ' ' + one.textContent.slice(0, 40)];
  }
  return least;
})()"""


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("files", nargs="+", type=Path)
    arguments.add_argument("--screenshots", type=Path)
    asked = arguments.parse_args()
    results = [(path, read(path)) for path in asked.files]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM"))
        tab = browser.new_page(viewport=DESK, color_scheme="light")
        requests: list[str] = []
        complaints: list[str] = []
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        target = Path(folder, "report.html")
        target.write_text(page(results), encoding="utf-8")
        assert target.stat().st_size < MAX_BYTES, target.stat().st_size
        tab.goto(target.as_uri())
        check_sorting(tab)
        check_filtering(tab)
        check_keyboard(tab)
        check_structure(tab)
        check_looks(tab, asked.screenshots)
        target.write_text(page([(Path("evil.csv"), evil(results[0][1]))]), encoding="utf-8")
        tab.goto(target.as_uri())
        assert tab.evaluate("window.injected") is None
        assert {url for url in requests if not url.startswith("data:")} == {target.as_uri()}
        assert complaints == []
    sys.stdout.write("the page is sound: sorting, filtering, keyboard, dark, phone, no network\n")


def check_sorting(tab: Page) -> None:
    column = f"({COLUMN})('ms')"
    for direction in ("ascending", "descending"):
        tab.evaluate(f"{column}.head.querySelector('button').click()")
        values = [
            float(text.split()[0].replace(",", "")) for text in tab.evaluate(f"{column}.shown")
        ]
        assert len(values) > 1
        assert values == sorted(values, reverse=direction == "descending")
        assert tab.evaluate(f"{column}.head.getAttribute('aria-sort')") == direction


def check_filtering(tab: Page) -> None:
    variants = f"({COLUMN})('variant').shown"
    everything = tab.evaluate(variants)
    chosen = everything[0]
    section = "document.querySelector('.listing[aria-labelledby=points]')"
    tab.evaluate(
        f"(() => {{ const menu = {section}.querySelector('select'); menu.value = '{chosen}';"
        "menu.dispatchEvent(new Event('input', {bubbles: true})) })()"
    )
    left = tab.evaluate(variants)
    assert left == [chosen] * everything.count(chosen)
    assert len(left) < len(everything)
    said = tab.evaluate(f"{section}.querySelector('output').value")
    assert said == f"{len(left)} of {len(everything)} rows"
    tab.evaluate(
        f"(() => {{ {section}.querySelector('select').value = '';"
        f"const field = {section}.querySelector('input'); field.value = 'no such words';"
        "field.dispatchEvent(new Event('input', {bubbles: true})) })()"
    )
    assert tab.evaluate(variants) == []
    tab.evaluate(
        f"(() => {{ const field = {section}.querySelector('input'); field.value = '';"
        "field.dispatchEvent(new Event('input', {bubbles: true})) })()"
    )
    assert sorted(tab.evaluate(variants)) == sorted(everything)


def check_keyboard(tab: Page) -> None:
    """Tab reaches the skip link first; Enter on a head's button sorts."""
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    column = f"({COLUMN})('variant')"
    tab.evaluate(f"{column}.head.querySelector('button').focus()")
    tab.keyboard.press("Enter")
    values = tab.evaluate(f"{column}.shown")
    assert values == sorted(values)
    assert tab.evaluate(f"{column}.head.getAttribute('aria-sort')") == "ascending"


def check_structure(tab: Page) -> None:
    """What a screen reader lives by."""
    session = tab.context.new_cdp_session(tab)
    tree = session.send("Accessibility.getFullAXTree")["nodes"]
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if not node["ignored"]
    ]
    roles = [role for role, _ in named]
    for role in ("main", "banner", "navigation", "contentinfo", "table", "columnheader"):
        assert role in roles, role
    for role in ("table", "region", "combobox", "searchbox", "button", "image", "link"):
        nameless = [one for one in named if one[0] == role and not one[1]]
        assert not nameless, role
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))


def check_looks(tab: Page, screenshots: Path | None) -> None:
    """Nothing too faint, nothing wider than a phone, nothing empty beside a table."""
    for scheme in ("light", "dark"):
        for name, size in (("desk", DESK), ("phone", PHONE)):
            tab.set_viewport_size(size)
            tab.emulate_media(color_scheme=scheme)
            tab.evaluate("scrollTo(0, 0)")
            least, where = tab.evaluate(CONTRAST)
            assert least >= LEAST_CONTRAST, (scheme, least, where)
            assert tab.evaluate("document.documentElement.scrollWidth") <= size["width"], (
                scheme,
                name,
            )
            boxes = "[...document.querySelectorAll('.scroll')].map((box) => "
            empty = tab.evaluate(
                boxes + "box.clientWidth - box.querySelector('table').offsetWidth)"
            )
            assert max(empty) <= 0, (scheme, name, empty)
            if screenshots:
                path = screenshots / f"report-{scheme}-{name}.png"
                tab.screenshot(path=path, full_page=True)
    ink = tab.evaluate("getComputedStyle(document.body).color")
    labels = "[...new Set([...document.querySelectorAll('svg text')].map((one) => "
    fills = tab.evaluate(labels + "getComputedStyle(one).fill))]")
    assert ink in fills, (ink, fills)


def evil(rows: list[Row]) -> list[Row]:
    """The rows with markup wherever a file has text."""
    attack = "</svg></script><script>window.injected = 1</script><img src=x onerror=injected=1>"
    return [
        replace(row, variant=attack + row.variant, device=attack, library=attack, reason=attack)
        for row in rows
    ]


if __name__ == "__main__":
    main()
