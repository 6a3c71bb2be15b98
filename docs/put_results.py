"""Put what a command of the suite wrote into the page that has its marks, with its pictures.

``python docs/put_results.py FOLDER NAME [NAME …]``, where FOLDER is the output of ``psp bench NAME`` or ``psp reproduce NAME``. The page
has the marks ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``, once each.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent


def put(name: str, results: Path, docs: Path = DOCS) -> None:
    """Replace one part; a ValueError, and nothing changed, where something for it is not there."""
    begin, end, part = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n", results / f"{name}.md"
    pages = [page for page in sorted(docs.glob("*.md")) if begin in page.read_text(encoding="utf-8")]
    text = pages[0].read_text(encoding="utf-8") if len(pages) == 1 else ""
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"No page in {docs} has the marks {begin.strip()} and {end.strip()}, once each and in this order.")
    if not part.is_file():
        raise ValueError(f"{part} does not exist: run the command that writes it first.")
    for picture in results.glob("*.png"):
        if f"img/{picture.name}" in text:
            shutil.copyfile(picture, docs / "img" / picture.name)
    before, after = text.split(begin)[0], text.split(end)[1]
    made = re.sub(r" --out \S+(?=.*`$)", "", part.read_text(encoding="utf-8"), flags=re.MULTILINE)  # a folder of one machine
    pages[0].write_text(before + begin + made.rstrip("\n") + "\n" + end + after, encoding="utf-8")


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
