"""Finds out what a file is by its first bytes, if its name says nothing or is wrong."""

from __future__ import annotations

import re
import zipfile

from online_psp.io.sources._bytes import clear_file, compression
from online_psp.io.sources._places import Place
from online_psp.io.sources._raw import looks_like_idx
from online_psp.io.sources._source import SourceError, UnknownSourceError

_HEAD = 1 << 12
_MAGIC = {
    b"\x93NUMPY": ".npy", b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\x89HDF\r\n\x1a\n": ".h5", b"MATLAB 5.0": ".mat",
    b"%%MatrixMarket": ".mtx", b"\xff\xff\xff\xff": ".arrow",
}  # fmt: skip
_OLD_EXCEL = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_TEXT_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")


_FOREIGN = {
    **dict.fromkeys((b"\x80\x02", b"\x80\x03", b"\x80\x04\x95", b"\x80\x05\x95"), "a pickle"),
    **dict.fromkeys((b"RDX2\n", b"RDX3\n", b"X\n\0\0\0"), "R's own data"),
    **dict.fromkeys((b"CDF\x01", b"CDF\x02"), "a NetCDF 3 file"),
    b"%PDF-": "a PDF file", b"SQLite format 3\0": "an SQLite database", b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive", b"Rar!": "a RAR archive",
    b"ORC": "an ORC file", b"FEA1": "a Feather file of version 1", b"Obj\x01": "an Avro file", b"<stata_dta>": "a Stata file",
    b"$FL2": "an SPSS file", b"SIMPLE  =": "a FITS file", b"\x1f\x9d": "compressed by compress (.Z)", b"{\\rtf": "a document (RTF)",
}  # fmt: skip
_BINARY_NAMES = (b"ORC", b"RDX2\n", b"RDX3\n", b"Rar!", b"FEA1", b"$FL2")  # magic numbers with which the name of a column may begin, too
_TAR = slice(257, 262), b"ustar"
_LFS = b"version https://git-lfs.github.com/spec/"
_MARKUP = re.compile(rb"\s*<(!doctype|html|\?xml|table|head|body)\b", re.IGNORECASE)


def refuse_stand_in(head: bytes, name: str) -> None:
    """Refuse what came in place of a file: a page of HTML, or the pointer that Git LFS leaves."""
    if head.startswith(_LFS):
        raise SourceError(f"{name} is a pointer of Git LFS, not the data: fetch it with git lfs pull.")
    if _MARKUP.match(head.removeprefix(b"\xef\xbb\xbf")):
        raise SourceError(f"{name} is HTML or XML, not a table: if it was downloaded, look at it in a browser; otherwise save it as .csv.")


def _refuse_foreign(head: bytes, name: str) -> None:
    """Refuse a file of a known kind that cannot be read here."""
    if head[_TAR[0]] == _TAR[1]:
        raise UnknownSourceError(f"{name} is a tar archive: unpack it, or write a zip archive in its place.")
    magic = next((magic for magic in _FOREIGN if head.startswith(magic)), None)
    if magic is not None and (magic not in _BINARY_NAMES or not _is_text(head)):
        raise UnknownSourceError(f"{name} is {_FOREIGN[magic]}, which is not read here: write its table as .csv or .parquet.")


def ending_by_content(place: Place) -> str | None:
    """The ending that a file should have; None if its first bytes do not tell."""
    with clear_file(place.open(), place.name) as file:
        found = ending_by_head(file.read(_HEAD), place.name)
    return _archive(place) if found == ".zip" else found


def ending_by_head(head: bytes, name: str) -> str | None:
    """The same, for the first bytes after decompression; all archives are ``.zip`` here."""
    head = head[:_HEAD]
    refuse_stand_in(head, name)
    _refuse_foreign(head, name)
    if compression(head) is not None:
        raise UnknownSourceError(f"{name} is compressed twice: decompress it once.")
    if head.startswith(_OLD_EXCEL):
        raise UnknownSourceError(f"{name} is a workbook of Excel 97 to 2003: save it as .xlsx or .csv.")
    if head.startswith(b"PK\x03\x04"):
        return ".zip"
    known = ".idx" if looks_like_idx(head) else next((ending for magic, ending in _MAGIC.items() if head.startswith(magic)), None)
    if known == ".mtx" or not _is_text(head):  # names of columns may begin with PAR1
        return known
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return ".json" if begins[:1] in (b"{", b"[") else ".txt"


def _archive(place: Place) -> str:
    """The ending for a zip archive: workbooks and NumPy's .npz files are archives too."""
    try:
        with place.open() as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            kind = archive.read("mimetype")[:100] if "mimetype" in names else b""
    except (zipfile.BadZipFile, OSError, ValueError):
        return ".zip"
    if b"opendocument" in kind:
        raise UnknownSourceError(f"{place.name} is an OpenDocument file: save it as .xlsx or .csv.")
    if "xl/workbook.xml" in names:
        return ".xlsx"
    return ".npz" if names and all(name.endswith(".npy") for name in names) else ".zip"


def _is_text(head: bytes) -> bool:
    if head.startswith(_TEXT_BOMS):
        return True
    control = sum(byte < 32 and byte not in b"\t\n\r\f" for byte in head)
    return bool(head) and control == 0


def check_json(place: Place) -> None:
    """Refuse a file that is one JSON value: each row must have its own line, so that rows can be read one after the other."""
    with clear_file(place.open(), place.name) as file:
        start = file.read(_HEAD)
        refuse_stand_in(start, place.name)
    refuse_array(start, place.name)
    if _squeezed(start) in (b"[", b"{"):
        raise _one_array(place.name)


def refuse_array(head: bytes, name: str) -> None:
    """Refuse a JSON array of objects or lists, by its first bytes."""
    if _squeezed(head).startswith((b"[{", b"[[")):
        raise _one_array(name)


def _squeezed(head: bytes) -> bytes:
    return b"".join(head[:_HEAD].lstrip(b"\xef\xbb\xbf \t\r\n").split())


def _one_array(name: str) -> UnknownSourceError:
    return UnknownSourceError(
        f"{name} is one JSON array; write JSON lines, one object or list a line (pandas: to_json(orient='records', lines=True))."
    )
