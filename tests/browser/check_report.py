"""Check `gpubench report` in Chromium: sorting, filtering, dark mode, a phone, the keyboard.

    python tests/browser/check_report.py [--screenshots FOLDER] results/h200/sweep.csv …

The test suite does not run this, because it needs no browser. Install it with `pip install
playwright` and `playwright install chromium`, or set CHROMIUM to the path of a Chromium.
"""

import argparse
import os
import re
import sys
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path

from playwright.sync_api import Locator, Page, expect, sync_playwright

from gpubench.commands.report.page import page
from gpubench.results.row import Row, read

MAX_BYTES = 2_000_000
LEAST_CONTRAST = 4.5
"""Minimum contrast of text: WCAG 2.2, success criterion 1.4.3."""

SIZES = {"phone": {"width": 390, "height": 844}, "desk": {"width": 1280, "height": 900}}

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
        tab = browser.new_page(viewport=SIZES["desk"], color_scheme="light")
        requests: list[str] = []
        complaints: list[str] = []
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        target = Path(folder, "report.html")
        target.write_text(page(results), encoding="utf-8")
        assert target.stat().st_size < MAX_BYTES, target.stat().st_size
        tab.goto(target.as_uri())
        check_use(tab)
        check_looks(tab, asked.screenshots)
        target.write_text(page([(Path("evil.csv"), evil(results[0][1]))]), encoding="utf-8")
        tab.goto(target.as_uri())
        assert tab.evaluate("window.injected") is None
        assert {url for url in requests if not url.startswith("data:")} == {target.as_uri()}
        assert complaints == []
    sys.stdout.write("the page is sound: sorting, filtering, keyboard, dark, phone, no network\n")


def shown(points: Locator, title: str) -> list[str]:
    """Return the texts of a column in the visible rows."""
    heads = [text.strip() for text in points.locator("thead th").all_text_contents()]
    place = heads.index(title) + 1
    cells = points.locator(f"tbody tr:not([hidden]) > :nth-child({place})")
    return [text.strip() for text in cells.all_text_contents()]


def check_use(tab: Page) -> None:
    """Check that Tab reaches the skip link first, that headings sort, and that filters work."""
    tab.keyboard.press("Tab")
    expect(tab.locator(".skip")).to_be_focused()
    points = tab.locator(".listing[aria-labelledby=points]")
    for title, number in (("ms", True), ("variant", False)):
        head = points.locator("thead th").filter(has_text=re.compile(rf"^\s*{title}\s*$"))
        for direction in ("ascending", "descending"):
            head.get_by_role("button").press("Enter")
            expect(head).to_have_attribute("aria-sort", direction)
            texts = shown(points, title)
            values = [float(text.split()[0].replace(",", "")) if number else text for text in texts]
            assert len(values) > 1
            assert values == sorted(values, reverse=direction == "descending")
    everything = shown(points, "variant")
    chosen = everything[0]
    menu, words = points.get_by_role("combobox").first, points.get_by_role("searchbox")
    menu.select_option(chosen)
    left = shown(points, "variant")
    assert left == [chosen] * everything.count(chosen)
    assert len(left) < len(everything)
    expect(points.locator("output")).to_have_text(f"{len(left)} of {len(everything)} rows")
    menu.select_option("")
    words.fill("no such words")
    assert shown(points, "variant") == []
    words.fill("")
    assert shown(points, "variant") == everything


def check_looks(tab: Page, screenshots: Path | None) -> None:
    """Check the contrast, and that nothing is wider than a phone or wider than its table."""
    for scheme, (name, size) in product(("light", "dark"), SIZES.items()):
        tab.set_viewport_size(size)
        tab.emulate_media(color_scheme=scheme)
        tab.evaluate("scrollTo(0, 0)")
        contrast, where = tab.evaluate(CONTRAST)
        assert contrast >= LEAST_CONTRAST, (scheme, contrast, where)
        width = tab.evaluate("document.documentElement.scrollWidth")
        assert width <= size["width"], (scheme, name)
        empty = tab.locator(".scroll").evaluate_all(
            "all => all.map(box => box.clientWidth - box.querySelector('table').offsetWidth)"
        )
        assert max(empty) <= 0, (scheme, name, empty)
        if screenshots:
            tab.screenshot(path=screenshots / f"report-{scheme}-{name}.png", full_page=True)
    ink = tab.evaluate("getComputedStyle(document.body).color")
    fills = tab.locator("svg text").evaluate_all("all => all.map(x => getComputedStyle(x).fill)")
    assert ink in fills, (ink, fills)


def evil(rows: list[Row]) -> list[Row]:
    """Return the rows with markup in each text that comes from a file."""
    attack = "</svg></script><script>window.injected = 1</script><img src=x onerror=injected=1>"
    return [
        replace(row, variant=attack + row.variant, device=attack, library=attack, reason=attack)
        for row in rows
    ]


if __name__ == "__main__":
    main()
