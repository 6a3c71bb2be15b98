"""Where data lies: local files, URLs, members of zip archives, pipes, memory; and the files that a name stands for."""

from __future__ import annotations

import bz2
import difflib
import glob
import gzip
import io
import lzma
import os
import re
import weakref
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from online_psp.io.sources.source import MissingExtraError, SourceError, UnknownSourceError, reason

PIECE = 1 << 20
HEAD = 1 << 17
_URL = re.compile(r"^([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_GLOB = re.compile(r"[*?\[]")
_PACKED = {b"\x1f\x8b\x08": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


@dataclass
class Place:
    """A sequence of bytes with a name."""

    name: str
    """The name for messages, as the user wrote it or would write it."""
    open: Callable[[], BinaryIO] = field(repr=False)
    """Opens it at its first byte, as it is stored."""
    path: Path | None = None
    """The path, if it is a local file."""
    packed: str | None = None
    """How it is compressed, once it has been opened."""
    stored: int | None = None
    """Size in bytes of what is not a local file."""
    seen: bytes = field(default=b"", repr=False)
    """The first bytes, unpacked, once they have been looked at."""

    @property
    def short(self) -> str:
        """The last part of the name."""
        return PurePosixPath(self.name.replace(os.sep, "/")).name

    @property
    def size(self) -> int | None:
        """Size in bytes as it is stored; None if it is not known."""
        try:
            return self.stored if self.path is None else self.path.stat().st_size
        except OSError:
            return None

    def clear(self, at: int = 0) -> BinaryIO:
        """The bytes, unpacked, from one on."""
        stored = self.open()
        start = exactly(stored, 6)
        self.packed = compression(start)
        if stored.seekable():
            stored.seek(0)
        file: Any = stored if stored.seekable() else _Again(start, stored)
        if self.packed == "zstd":
            import pyarrow as pa

            file = io.BufferedReader(_Again(b"", pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")), PIECE)
        elif self.packed is not None:
            file = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}[self.packed](file)  # type: ignore[operator]
        if file is not stored:
            weakref.finalize(file, stored.close)
        if at and file.seekable():
            file.seek(at)
            return file  # type: ignore[no-any-return]
        while at > 0 and (part := file.read(min(at, PIECE))):
            at -= len(part)
        return file  # type: ignore[no-any-return]

    def head(self, size: int = HEAD) -> bytes:
        """The first bytes, unpacked; not for pipes."""
        if len(self.seen) < size and (not self.seen or len(self.seen) >= HEAD):
            with self.clear() as file:
                self.seen = exactly(file, size)
        return self.seen


def exactly(file: Any, size: int) -> bytes:
    """Read this many bytes, or fewer if the data ends; pipes and archives may give fewer at a time."""
    data = file.read(size)
    while data and len(data) < size and (part := file.read(size - len(data))):
        data += part
    return bytes(data)


def compression(head: bytes) -> str | None:
    """The compression of data that begins with these bytes."""
    return next((kind for magic, kind in _PACKED.items() if head.startswith(magic)), None)


class _Again(io.RawIOBase):
    """A file from its first bytes on, which have been read."""

    def __init__(self, start: bytes, file: BinaryIO) -> None:
        self.start, self.file = start, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        data, self.start = (self.start[:size], self.start[size:]) if self.start else (some(self.file, size), b"")
        buffer[: len(data)] = data
        return len(data)


def some(file: Any, size: int) -> bytes:
    """What one read gives, without waiting for more."""
    return bytes((file.read1 if hasattr(file, "read1") else file.read)(size) or b"")


def is_url(text: str) -> bool:
    """Whether this is a URL, such as ``s3://bucket/x.npy``."""
    return bool(_URL.match(text))


def split_member(text: str) -> tuple[str, str | None]:
    """Split ``file::member``; a local file whose own name contains ``::`` is not split."""
    if not is_url(text) and os.path.exists(text):
        return text, None
    file, _, member = text.partition("::")
    return file, member or None


def similar(path: Path) -> str:
    """`` (is x.csv meant?)`` if the folder has something with a similar name, otherwise empty."""
    try:
        names = [each.name for each in path.parent.iterdir()][:10_000]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, names, 1, 0.8)
    return f" (is {path.parent / close[0]} meant?)" if close else ""


def local(path: Path, name: str | None = None) -> Place:
    """A file on this machine."""
    return Place(name or str(path), lambda: path.open("rb"), path)


def in_memory(name: str, data: bytes) -> Place:
    """Bytes that have been read."""
    return Place(name, lambda: io.BytesIO(data), stored=len(data), seen=data[:HEAD])


def remote(url: str) -> list[Place]:
    """The files that a URL stands for: one file, those of a folder, or those that match a pattern, in natural order."""
    scheme = url.partition("://")[0].lower()
    try:
        import fsspec
    except ImportError:
        raise MissingExtraError(f"Reading {url} needs fsspec: pip install 'online-psp[remote]'.") from None
    try:
        system, path = fsspec.core.url_to_fs(url)
        if _GLOB.search(path) and scheme not in ("http", "https"):
            paths = system.glob(path)
        elif scheme not in ("http", "https") and system.isdir(path) and not path.rstrip("/").lower().endswith(".zarr"):
            paths = [each for each in system.find(path) if not PurePosixPath(each).name.startswith((".", "_"))]
        else:
            paths = [path]
        places = [_remote_place(system, each, url if paths == [path] else system.unstrip_protocol(each)) for each in natural(paths)]
    except ImportError as error:
        raise MissingExtraError(f"Reading {url} needs a package that is not installed: {reason(error)}.") from None
    except (ValueError, FileNotFoundError) as error:
        missing = isinstance(error, FileNotFoundError) or reason(error) == url
        raise UnknownSourceError(f"{url} cannot be opened: {'it is not there' if missing else reason(error)}.") from None
    except Exception as error:  # every file system has its own errors
        raise SourceError(f"{url} cannot be opened ({type(error).__name__}: {reason(error)}).") from None
    if not places:
        raise UnknownSourceError(f"{url} matches no file.")
    return places


def _remote_place(system: Any, path: str, name: str) -> Place:
    folder = system.isdir(path) if path.rstrip("/").lower().endswith(".zarr") else False
    size = None if folder else system.info(path).get("size")
    return Place(name, lambda: system.open(path, "rb"), stored=size)


def expand(text: str) -> list[Path] | None:
    """The files that match a pattern, in natural order; None if the text is not a pattern."""
    if not _GLOB.search(text) or os.path.exists(text):
        return None
    found = natural(each for each in glob.glob(os.path.expanduser(text), recursive=True) if os.path.isfile(each))
    if not found:
        raise UnknownSourceError(f"{text} matches no file.")
    return [Path(each) for each in found]


def natural(names: Any) -> list[Any]:
    """Sort in natural order: part2 before part10."""
    return sorted(names, key=natural_key)


def natural_key(name: Any) -> list[tuple[int, str]]:
    """The key by which `natural` sorts."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", str(name).replace(os.sep, "/"))]


def files_in(folder: Path) -> list[Path]:
    """The files in a folder and its subfolders, except hidden ones, in natural order."""
    found = (file for file in folder.rglob("*") if file.is_file())
    kept = [file for file in found if not any(part.startswith((".", "_", "~$")) for part in file.relative_to(folder).parts)]
    return sorted(kept, key=lambda file: natural_key(file.relative_to(folder)))


def zip_members(place: Place) -> list[str]:
    """The files in an archive, in natural order."""
    with place.open() as file, zipfile.ZipFile(file) as archive:
        names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    return natural(name for name in names if not any(part.startswith((".", "__")) for part in name.split("/")))


def in_zip(place: Place, member: str) -> Place:
    """A member of an archive; it can be read forward, and again."""

    def opened() -> BinaryIO:
        stored = place.open()
        inside: Any = zipfile.ZipFile(stored).open(member)  # noqa: SIM115
        weakref.finalize(inside, stored.close)
        return io.BufferedReader(inside, PIECE)

    with place.open() as file, zipfile.ZipFile(file) as archive:
        return Place(f"{place.name}::{member}", opened, stored=archive.getinfo(member).file_size)


def check_once(names: Iterable[str], where: str) -> None:
    """Refuse a file that is given twice, or beside its compressed copy: its rows would count twice."""
    seen: dict[str, str] = {}
    for name in names:
        bare = os.path.abspath(name)
        bare = next((bare[: -len(ending)] for ending in COMPRESSED if bare.lower().endswith(ending)), bare)
        if bare in seen:
            both = f"{name} twice" if seen[bare] == name else f"both {seen[bare]} and {name}"
            raise UnknownSourceError(f"{where} has {both}: the rows would count twice; name the files to read.")
        seen[bare] = name
