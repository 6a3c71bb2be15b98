"""Check a built site without a network: every link inside it leads somewhere, and every picture has words in its place.

Used as ``python docs/check_site.py docs/_build/html``; prints what is wrong, a line each, and exits with 1 if anything is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links, pictures and anchors of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.pictures: list[tuple[str, str | None]] = []
        self.anchors = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        for name in ("id", "name"):
            if values.get(name):
                self.anchors.add(str(values[name]))
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        elif tag == "img" and values.get("src"):
            self.pictures.append((str(values["src"]), values.get("alt")))
            self.links.append(str(values["src"]))


def problems(root: Path) -> Iterator[str]:
    """What is wrong with the site in a folder, a sentence each."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.html"))}
    if not pages:
        yield f"{root} has no pages."
    for path, page in pages.items():
        name = path.relative_to(root.resolve())
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                yield f"{name}: {link} does not exist."
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: {link} names a place that {target.name} does not have."
        for source, words in page.pictures:
            if words is None:
                yield f"{name}: the picture {source} has no words in its place (alt)."


def main() -> int:
    found = list(problems(Path(sys.argv[1])))
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
