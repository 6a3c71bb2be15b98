"""Sheets of Excel and OpenDocument workbooks, by calamine: read as a whole, and then as text, so that both are understood in one way."""

from __future__ import annotations

import csv
import io
import zipfile
from dataclasses import replace
from datetime import date, datetime, time
from typing import Any

from online_psp.io.sources.options import Options
from online_psp.io.sources.places import Place, in_memory
from online_psp.io.sources.source import MissingExtraError, Source, SourceError, UnknownSourceError
from online_psp.io.sources.text import Feed, open_text


def open_sheet(place: Place, options: Options) -> Source:
    """Open a sheet of a workbook: the first one, or the one named after ``::``."""
    try:
        from python_calamine import CalamineWorkbook
    except ImportError:
        raise MissingExtraError(f"Reading {place.name} needs python-calamine: pip install 'online-psp[excel]'.") from None
    with place.open() as file:  # what a zip archive says that it unpacks to; .xls files are none
        unpacked = sum(entry.file_size for entry in zipfile.ZipFile(file).infolist()) if zipfile.is_zipfile(file) else 0
    options.check(max(4 * (place.size or 0), unpacked), "the workbook, which is read as a whole,", place.name)
    with place.open() as file:
        book = CalamineWorkbook.from_filelike(io.BytesIO(file.read()))
    sheets = book.sheet_names
    name = options.member or sheets[0]
    if name not in sheets:
        raise UnknownSourceError(f"{place.name} has no sheet {name!r}; it has {', '.join(sheets)}.")
    rows = book.get_sheet_by_name(name).to_python(skip_empty_area=False)
    text = io.StringIO()
    cells = ([_cell(value) for value in row] for row in rows)
    csv.writer(text, "excel-tab", lineterminator="\n").writerows(row if any(row) else [] for row in cells)
    shown = f"{place.name}::{name}" if len(sheets) > 1 else place.name
    held = in_memory(shown, text.getvalue().encode())
    alike = replace(options, text=options.text._replace(delimiter="tab", encoding="utf-8"), member=None)
    try:
        found = open_text(Feed(held), alike, "\t")
    except SourceError as error:
        if len(sheets) == 1 or options.member is not None:
            raise
        others = ", ".join(each for each in sheets[:6] if each != name)
        raise type(error)(f"{error} This is the first sheet; {place.name}::NAME reads another ({others}).") from None
    if len(sheets) > 1 and options.member is None:
        found.notes.append(f"sheet {name!r} of {len(sheets)}; {place.name}::NAME reads another")
    return replace(found, kind="excel", files=(place,), place=lambda row, mark: f"sheet row {mark[4]}")


def _cell(value: Any) -> str:
    """A cell as text: whole numbers without a point, dates as ISO 8601, texts in one line."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return " ".join(str(value).split())
