"""What a file is by its first bytes, for names that say nothing, or something else."""

from __future__ import annotations

import zipfile

from online_psp.io.sources._bytes import clear_file
from online_psp.io.sources._numpy import looks_like_idx
from online_psp.io.sources._places import Place
from online_psp.io.sources._source import UnknownSourceError

_HEAD = 1 << 12
_MAGIC = {
    b"\x93NUMPY": ".npy", b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\x89HDF\r\n\x1a\n": ".h5", b"MATLAB 5.0": ".mat",
    b"%%MatrixMarket": ".mtx",
}  # fmt: skip
_OLD_EXCEL = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_TEXT_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")


def ending_by_content(place: Place) -> str | None:
    """The ending that a file should have; None where its first bytes do not tell."""
    with clear_file(place.open(), place.name) as file:
        head = file.read(_HEAD)
    if head.startswith(_OLD_EXCEL):
        raise UnknownSourceError(f"{place.name} is a workbook of Excel 97 to 2003: save it as .xlsx or .csv.")
    if head.startswith(b"PK\x03\x04"):
        return _archive(place)
    known = ".idx" if looks_like_idx(head) else next((ending for magic, ending in _MAGIC.items() if head.startswith(magic)), None)
    if known == ".mtx" or not _is_text(head):  # names of columns may begin with PAR1
        return known
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return ".json" if begins[:1] in (b"{", b"[") else ".txt"


def _archive(place: Place) -> str:
    """Workbooks and arrays are archives too."""
    try:
        with place.open() as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return ".zip"
    if "xl/workbook.xml" in names:
        return ".xlsx"
    return ".npz" if names and all(name.endswith(".npy") for name in names) else ".zip"


def _is_text(head: bytes) -> bool:
    if head.startswith(_TEXT_BOMS):
        return True
    control = sum(byte < 32 and byte not in b"\t\n\r\f" for byte in head)
    return bool(head) and control == 0


def check_json(place: Place) -> None:
    """Refuse a file that is one JSON value: rows must come a line each, so that they can be read one after the other."""
    with clear_file(place.open(), place.name) as file:
        head = b"".join(file.read(_HEAD).lstrip(b"\xef\xbb\xbf \t\r\n").split())
    if head.startswith((b"[{", b"[[")) or head in (b"[", b"{"):
        raise UnknownSourceError(
            f"{place.name} is one JSON array; write JSON lines, one object or list a line (pandas: to_json(orient='records', lines=True))."
        )
