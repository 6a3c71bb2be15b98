"""Refuses what came in place of data, or is of a known kind that is not read here, by its first bytes."""

from __future__ import annotations

import re

from online_psp.io.sources.places import compression
from online_psp.io.sources.source import SourceError, UnknownSourceError

_TEXT_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")
_FOREIGN = {
    **dict.fromkeys((b"\x80\x02", b"\x80\x03", b"\x80\x04\x95", b"\x80\x05\x95"), "a pickle"),
    **dict.fromkeys((b"RDX2\n", b"RDX3\n", b"X\n\0\0\0"), "R's own data"),
    **dict.fromkeys((b"CDF\x01", b"CDF\x02"), "a NetCDF 3 file"),
    b"%PDF-": "a PDF file", b"SQLite format 3\0": "an SQLite database", b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive", b"Rar!": "a RAR archive",
    b"ORC": "an ORC file", b"FEA1": "a Feather file of version 1", b"Obj\x01": "an Avro file", b"<stata_dta>": "a Stata file",
    b"$FL2": "an SPSS file", b"SIMPLE  =": "a FITS file", b"\x1f\x9d": "compressed by compress (.Z)", b"{\\rtf": "a document (RTF)",
}  # fmt: skip
_MAY_BE_NAMES = (b"ORC", b"RDX2\n", b"RDX3\n", b"Rar!", b"FEA1", b"$FL2")  # with which the name of a column may begin, too
_MARKUP = re.compile(rb"\s*<(!doctype|html|\?xml|table|head|body)\b", re.IGNORECASE)


def is_text(head: bytes) -> bool:
    """Whether bytes may be text: they have no control characters, or a byte order mark."""
    head = head[:4096]
    return head.startswith(_TEXT_BOMS) or (bool(head) and not any(byte < 32 and byte not in b"\t\n\r\f" for byte in head))


def refuse_stand_in(head: bytes, name: str) -> None:
    """Refuse what came in place of a file: a page of HTML, or the pointer that Git LFS leaves."""
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        raise SourceError(f"{name} is a pointer of Git LFS, not the data: fetch it with git lfs pull.")
    if _MARKUP.match(head.removeprefix(b"\xef\xbb\xbf")):
        raise SourceError(f"{name} is HTML or XML, not a table: if it was downloaded, look at it in a browser; otherwise save it as .csv.")


def refuse_foreign(head: bytes, name: str) -> None:
    """Refuse a file of a known kind that cannot be read here."""
    refuse_stand_in(head, name)
    if head[257:262] == b"ustar":
        raise UnknownSourceError(f"{name} is a tar archive: unpack it, or write a zip archive in its place.")
    if compression(head) is not None:
        raise UnknownSourceError(f"{name} is compressed twice: decompress it once.")
    magic = next((magic for magic in _FOREIGN if head.startswith(magic)), None)
    if magic is not None and (magic not in _MAY_BE_NAMES or not is_text(head)):
        raise UnknownSourceError(f"{name} is {_FOREIGN[magic]}, which is not read here: write its table as .csv or .parquet.")
