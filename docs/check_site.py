"""Opens every page of the built site in headless Chromium: nothing overflows, fails to load or leads nowhere.

    make docs docs-check
    python docs/check_site.py docs/_build/html          # the same, for a site that is built

Every page is shown at 1400 and at 400 pixels, in light and in dark. These are errors:

* a page, or the whole text of one, that scrolls sideways, with the elements that make it;
* at 1400 pixels, a block of code that is clipped;
* an error on the console or in a script, and a request that fails;
* a link or an image whose file is not in the site, or whose anchor is not in its page.

It needs no network. It takes playwright and Debian's chromium (``apt-get install chromium``).
"""

from __future__ import annotations

import argparse
import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

WIDTHS = (1400, 400)
SCHEMES = ("light", "dark")

# The innermost elements that reach beyond the page. Code and tables may scroll, each by itself; all other text may not,
# though the theme lets the whole text of a page scroll in its box.
_OVERFLOW = """() => {
  const edge = document.documentElement.clientWidth;
  const apart = 'pre, table, dialog, .headerlink, .highlight, [class*=scroll], [class*=sidebar]';
  const wide = [...document.body.querySelectorAll('*')].filter(node =>
    node.getBoundingClientRect().right > edge + 1 && !node.closest(apart) && node.getClientRects().length);
  const sideways = document.documentElement.scrollWidth > edge;
  const inner = wide.filter(node => !wide.some(other => other !== node && node.contains(other)));
  if (!sideways && !inner.length) return null;
  const told = inner.slice(0, 3).map(node => `<${node.tagName.toLowerCase()}> ${node.textContent.trim().slice(0, 60)}`);
  return `wider than the page: ${told.join('; ')}`;
}"""
_CLIPPED = """() => [...document.querySelectorAll('.bd-article pre, article pre')]
  .filter(node => node.scrollWidth > node.clientWidth + 1)
  .map(node => node.textContent.split('\\n').sort((a, b) => b.length - a.length)[0].slice(0, 100))"""


class Page(HTMLParser):
    """What a page has: its anchors, and the addresses that it leads to."""

    _ADDRESSES = {
        "a": "href",
        "link": "href",
        "img": "src",
        "script": "src",
        "iframe": "src",
        "source": "src",
    }

    def __init__(self, text: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.anchors.update(
            attributes[name] or "" for name in ("id", "name") if name in attributes
        )
        if attributes.get(self._ADDRESSES.get(tag, "")):
            self.addresses.append(attributes[self._ADDRESSES[tag]] or "")


def pages_of(site: Path) -> list[Path]:
    """Return the pages of a site, without those of its theme's own files."""
    pages = sorted(site.rglob("*.html"))
    return [path for path in pages if path.relative_to(site).parts[0] != "_static"]


def broken_links(site: Path) -> list[str]:
    """Return the links within a site that lead nowhere, each with its page.

    Links to other sites are left alone: ``make docs-links`` tries them.
    """
    texts = {path: Page(path.read_text(encoding="utf-8")) for path in pages_of(site)}
    found = []
    for path, page in texts.items():
        for address in page.addresses:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            file, anchor = urldefrag(address)
            name = unquote(urlsplit(file).path)
            target = (path.parent / name).resolve() if name else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                found.append(
                    f"{path.relative_to(site)}: {address}: there is no such file"
                )
            elif (
                anchor
                and target in texts
                and unquote(anchor) not in texts[target].anchors
            ):
                found.append(
                    f"{path.relative_to(site)}: {address}: there is no such anchor"
                )
    return found


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        """Say nothing of requests."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve a folder on this machine; gives its address."""
    handler = functools.partial(_Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _errors(message: Any) -> list[str]:
    """What a line on the console says, with its file, if it is an error."""
    if message.type != "error":
        return []
    return [f"{message.text} ({message.location.get('url', '')})"]


def shown_faults(site: Path, pages: list[Path]) -> Iterator[str]:
    """Open pages in a browser; yield what is wrong with them."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("There is no Chromium. Run: apt-get install chromium")
    with served(site) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"]
        )
        tab = browser.new_page()
        told: list[str] = []
        tab.on("console", lambda message: told.extend(_errors(message)))
        tab.on("pageerror", lambda error: told.append(str(error)))
        tab.on("requestfailed", lambda request: told.append(f"{request.url} failed"))
        for path in pages:
            name = path.relative_to(site).as_posix()
            told.clear()
            # One load for all four: the page itself changes with width and scheme.
            tab.set_viewport_size({"width": WIDTHS[0], "height": 900})
            tab.emulate_media(color_scheme=SCHEMES[0])
            tab.goto(f"{address}/{name}", wait_until="load")
            for width in WIDTHS:
                tab.set_viewport_size({"width": width, "height": 900})
                for scheme in SCHEMES:
                    tab.emulate_media(color_scheme=scheme)
                    overflow = tab.evaluate(_OVERFLOW)
                    if overflow:
                        yield f"{name} at {width} px, {scheme}: {overflow}"
                if width == WIDTHS[0]:
                    for line in tab.evaluate(_CLIPPED):
                        yield f"{name} at {width} px: code is clipped: {line}"
            yield from (f"{name}: {text}" for text in told)
        browser.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("site", type=Path)
    parser.add_argument("--only", default="", help="pages whose path has this in it")
    options = parser.parse_args()
    site = options.site.resolve()
    pages = [
        path
        for path in pages_of(site)
        if options.only in path.relative_to(site).as_posix()
    ]
    if not pages:
        raise SystemExit(f"{site} has no pages. Run: make docs")
    faults = broken_links(site)
    n_browsers = min(os.cpu_count() or 1, 4)
    parts = [pages[first::n_browsers] for first in range(n_browsers)]
    with ThreadPoolExecutor(n_browsers) as pool:
        for found in pool.map(lambda part: list(shown_faults(site, part)), parts):
            faults += found
    print(*faults, sep="\n", end="\n" if faults else "")
    print(
        f"{len(pages)} pages at {' and '.join(map(str, WIDTHS))} px, light and dark: {len(faults)} faults"
    )
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
