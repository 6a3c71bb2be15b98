"""Excel workbooks."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator

from online_psp.io.sources._options import Options
from online_psp.io.sources._places import Place
from online_psp.io.sources._records import Record, open_records
from online_psp.io.sources._source import MissingExtraError, Source, SourceError, UnknownSourceError, reason
from online_psp.io.sources._suspects import MOST_SAID
from online_psp.io.sources._text import Feed

_HIDDEN = re.compile(rb"""<(?:\w+:)?(row|col)\s[^<>]*?\bhidden=["'](?:1|true)["'][^<>]*>""")
_PIECE, _TAG = 1 << 20, 1 << 12  # bytes of a sheet to look through at once, and of a tag at most
_MOST_COLUMNS = 1 << 14


def open_excel(place: Place, options: Options) -> Source:
    """Open a sheet of a workbook: the first one, or the one named after ``::``."""
    try:
        import openpyxl
    except ImportError:
        raise MissingExtraError(f"Reading {place.name} needs openpyxl: pip install 'online-psp[excel]'.") from None
    try:
        with place.open() as file, zipfile.ZipFile(file) as archive:
            strings = max((entry.file_size for entry in archive.infolist() if "sharedStrings" in entry.filename), default=0)
        options.check(4 * strings, "the texts of the workbook", place.name)
        with place.open() as file:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            sheets = book.sheetnames
            parts = {each.title: getattr(each, "_worksheet_path", "") for each in book.worksheets}
            book.close()
    except (SourceError, KeyboardInterrupt):
        raise
    except Exception as error:  # errors of zip, of XML and of openpyxl
        raise SourceError(f"{place.name} is not a whole Excel workbook ({reason(error)}).") from None
    sheet = options.member or sheets[0]
    if sheet not in sheets:
        raise UnknownSourceError(f"{place.name} has no sheet {sheet!r}; it has {', '.join(sheets)}.")

    def records() -> Iterator[Record | None]:
        with place.open() as file:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            try:
                for at, row in enumerate(book[sheet].iter_rows(values_only=True), 1):
                    if any(value is not None for value in row) and at > (options.text.skip_rows or 0):
                        yield Record(at, list(row))
            finally:
                book.close()

    shown = f"{place.name}::{sheet}" if len(sheets) > 1 else place.name
    try:
        found = open_records(records, shown, "sheet row", options, "excel", Feed(place.name, place))
    except SourceError as error:
        if len(sheets) == 1 or options.member is not None:
            raise
        others = ", ".join(each for each in sheets[:6] if each != sheet)
        raise type(error)(f"{error} This is the first sheet; {place.name}::NAME reads another ({others}).") from None
    if any("is empty in all" in said for said in found.warnings):
        found.warnings.append("a formula reads as empty if its value was not saved: open the workbook in Excel and save it")
    found.warnings.extend(_hidden(place, parts.get(sheet, ""), found))
    if len(sheets) > 1 and options.member is None:
        found.notes.append(f"sheet {sheet!r} of {len(sheets)}; {place.name}::NAME reads another")
    return found


def _hidden(place: Place, part: str, source: Source) -> list[str]:
    """Warnings of rows and columns that a filter or the user has hidden; `part` is the file of the sheet in the workbook."""
    rows, columns, rest = 0, set[int](), b""
    try:
        with place.open() as file, zipfile.ZipFile(file) as archive, archive.open(part) as sheet:
            while piece := sheet.read(_PIECE):
                text = rest + piece
                for tag in _HIDDEN.finditer(text):
                    if tag[1] == b"row":
                        rows += not (tag[0].endswith(b"/>") or text.startswith(b"</", tag.end()))  # it has cells
                    else:
                        columns.update(_numbers(tag[0]))
                start = max(text.rfind(b"<"), len(text) - _TAG)
                rest = text[start:] if b">" not in text[start:] else b""
    except Exception:  # damage is reported when the rows are read
        return []
    said = [f"{rows} row{'s' if rows != 1 else ''} of the sheet {'are' if rows != 1 else 'is'} hidden, and read like the others"]
    learned = source.column_numbers or range(source.features)
    features = [feature for feature, column in enumerate(learned) if column in columns]
    return said[: rows > 0] + [
        f"{source.column(feature)} is hidden in the sheet, and is taken as a feature (--exclude {learned[feature]} to leave it out)"
        for feature in features[:MOST_SAID]
    ]


def _numbers(tag: bytes) -> range:
    """The columns, from 0, that the formatting of columns is for."""
    first, last = (re.search(rb"""\b%s=["'](\d{1,5})["']""" % name, tag) for name in (b"min", b"max"))
    return range(int(first[1]) - 1, min(int(last[1]), _MOST_COLUMNS)) if first and last else range(0)
