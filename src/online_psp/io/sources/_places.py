"""Places that hold data: local files, URLs, members of zip archives; and the files that a name stands for."""

from __future__ import annotations

import difflib
import glob
import hashlib
import os
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import unquote

from online_psp.io.sources._bytes import owning
from online_psp.io.sources._identity import MEGABYTE, FilePrint, Print
from online_psp.io.sources._source import MissingExtraError, SourceError, UnknownSourceError, reason

_URL = re.compile(r"^([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Place:
    """A sequence of bytes with a name."""

    name: str
    """The name for messages, as the user wrote it or would write it."""
    open: Callable[[], BinaryIO] = field(repr=False)
    """Opens it at its first byte."""
    size: int | None = None
    path: Path | None = None
    """The path, if it is a local file."""
    remote: Any = None
    """fsspec's file system and the path in it, if it is neither local nor in an archive."""

    @property
    def short(self) -> str:
        """The last part of the name."""
        return PurePosixPath(self.name.replace(os.sep, "/")).name

    def print(self) -> Print:
        """The print of its bytes, for the identity of a source."""
        return FilePrint(self.path, self.short) if self.path is not None else _OpenedPrint(self)


class _OpenedPrint:
    """Bytes that are not in a local file, digested by opening them."""

    unit = "bytes"

    def __init__(self, place: Place) -> None:
        self.place, self.name = place, place.short

    def size(self) -> int | None:
        return self.place.size

    def span(self) -> int:
        return MEGABYTE

    def digest(self, start: int, stop: int) -> str | None:
        try:
            with self.place.open() as file:
                file.seek(start)
                data = file.read(stop - start)
        except Exception:  # remote file systems raise many errors; the digest is then not known
            return None
        return hashlib.sha256(data).hexdigest() if len(data) == stop - start else None


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
    return Place(name or str(path), lambda: path.open("rb"), path.stat().st_size, path)


def remote(url: str) -> list[Place]:
    """The files that a URL stands for: one file, those of a folder, or those that match a pattern, in natural order."""
    scheme = url.partition("://")[0].lower()
    if scheme == "file":
        path = Path(url.partition("://")[2])
        path = path if path.exists() else Path(unquote(str(path)))
        if not path.is_file():
            raise UnknownSourceError(f"{url} {'is a folder: name it by its path' if path.is_dir() else f'does not exist{similar(path)}'}.")
        return [local(path)]
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
        why = reason(error.__cause__ if error.__cause__ is not None and url in str(error) else error)
        missing = why == url or isinstance(error, FileNotFoundError)
        raise UnknownSourceError(f"{url} cannot be opened: {'it is not there' if missing else why}.") from None
    except Exception as error:  # every file system has its own errors
        raise SourceError(f"{url} cannot be opened ({type(error).__name__}: {reason(error)}).") from None
    if not places:
        raise UnknownSourceError(f"{url} matches no file.")
    return places


def _remote_place(system: Any, path: str, name: str) -> Place:
    folder = system.isdir(path) if path.rstrip("/").lower().endswith(".zarr") else False
    size = None if folder else system.info(path).get("size")
    return Place(name, lambda: system.open(path, "rb"), size, None, (system, path))


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
    try:
        with place.open() as file, zipfile.ZipFile(file) as archive:
            names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise SourceError(f"{place.name} is not a whole zip archive ({reason(error)}).") from None
    return natural(name for name in names if not any(part.startswith((".", "__")) for part in name.split("/")))


def archived(file: BinaryIO, member: str) -> BinaryIO:
    """A member of an open archive; closing it closes the archive."""
    try:
        archive = zipfile.ZipFile(file)
        return owning(archive.open(member), archive, file)
    except BaseException:
        file.close()
        raise


def in_zip(place: Place, member: str) -> Place:
    """A member of an archive; it can be read forward, and again."""

    def opened() -> BinaryIO:
        try:
            return archived(place.open(), member)
        except (NotImplementedError, RuntimeError) as error:  # an unknown compression, or a password
            raise SourceError(f"{place.name}::{member} cannot be read ({reason(error)}).") from None

    with place.open() as file, zipfile.ZipFile(file) as archive:
        size = archive.getinfo(member).file_size
    return Place(f"{place.name}::{member}", opened, size)
