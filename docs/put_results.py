"""Put the results of figures into docs/experiments.md, each between its own marks, with its picture; the other figures stay as they are.

``python docs/put_results.py FOLDER fig1 [fig2 …]``, where FOLDER is what ``psp reproduce`` wrote.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent


def put(name: str, results: Path, docs: Path = DOCS) -> None:
    """Replace the part of one figure; a ValueError, and nothing changed, where something for it is not there."""
    page, picture, part = docs / "experiments.md", results / f"{name}.png", results / f"results_{name}.md"
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    text = page.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"{page} does not have the marks {begin.strip()} and {end.strip()}, once each and in this order.")
    for needed in (picture, part):
        if not needed.is_file():
            raise ValueError(f"{needed} does not exist: run psp reproduce {name} --out {results} first.")
    before, after = text.split(begin)[0], text.split(end)[1]
    shutil.copyfile(picture, docs / "img" / picture.name)
    page.write_text(before + begin + part.read_text(encoding="utf-8").rstrip("\n") + "\n" + end + after, encoding="utf-8")


def main() -> None:
    """From the command line."""
    if len(sys.argv) < 3:
        sys.exit(f"{__doc__}")
    try:
        for name in sys.argv[2:]:
            put(name, Path(sys.argv[1]))
    except (OSError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
