"""Reads bytes in pieces: decompresses them if needed, and never waits long for a pipe."""

from __future__ import annotations

import bz2
import io
import lzma
import os
import select
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from online_psp.io.sources._source import MissingExtraError, SourceError, reason

PIECE = 1 << 20
WAIT_SECONDS = 0.2
_PIPE_BYTES = 1 << 16
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")

Pieces = Iterator[bytes | None]
"""Pieces of bytes; None means that nothing has arrived for a while."""


def pieces_of(file: BinaryIO, patient: bool = True) -> Pieces:
    """The contents of a file, as they arrive.

    Parameters
    ----------
    patient : bool
        Whether to wait for as long as it takes. Otherwise None is yielded about five times a second while nothing arrives.
    """
    number = None if patient else _pollable(file)
    if number is None:
        while data := file.read(PIECE):
            yield data
        return
    while True:
        if not select.select([number], [], [], WAIT_SECONDS)[0]:
            yield None
        elif data := os.read(number, _PIPE_BYTES):
            yield data
        else:
            return


def _pollable(file: BinaryIO) -> int | None:
    """The file descriptor, if it can be waited for with a time limit: not on Windows, and not for files in memory."""
    try:
        number = file.fileno()
        select.select([number], [], [], 0)
    except (OSError, ValueError, AttributeError, io.UnsupportedOperation):
        return None
    return number


def compression(head: bytes) -> str | None:
    """The compression of data that begins with these bytes."""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def decompressed(pieces: Pieces, kind: str | None, name: str) -> Pieces:
    """Decompress pieces; never more than one piece at a time, however well the data was compressed."""
    if kind is None:
        return pieces
    if kind == "zstd":
        return _zstd(pieces, name)
    make: Any = {"gzip": lambda: zlib.decompressobj(31), "bzip2": bz2.BZ2Decompressor, "xz": lzma.LZMADecompressor}[kind]
    return _inflated(pieces, make, kind, name)


def _inflated(pieces: Pieces, make: Any, kind: str, name: str) -> Pieces:
    """Decompress one or several concatenated streams."""
    machine, begun = make(), False
    for piece in pieces:
        if piece is None:
            yield None
            continue
        data = piece
        while data or (begun and not machine.eof and not getattr(machine, "needs_input", True)):
            if machine.eof:
                data = data.lstrip(b"\0")  # padding between streams
                if not data:
                    break
                machine, begun = make(), False
            try:
                out = machine.decompress(data, PIECE)
            except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
                raise SourceError(f"{name}: the compressed data ({kind}) is damaged or cut short ({reason(error)}).") from None
            begun = True
            data = machine.unused_data if machine.eof else getattr(machine, "unconsumed_tail", b"")
            if out:
                yield out
    while begun and not machine.eof and (out := _drained(machine)):
        yield out
    if not machine.eof:
        raise SourceError(f"{name}: the compressed data ({kind}) is damaged or cut short; write or download it again.")


def _drained(machine: Any) -> bytes:
    """The rest of a decompressor's output after all input."""
    try:
        return bytes(machine.decompress(b"", PIECE))
    except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError):
        return b""


def _zstd(pieces: Pieces, name: str) -> Pieces:
    """Decompress zstd with pyarrow (extra `arrow`); the standard library has it from Python 3.14 on."""
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError(f"Reading {name}, compressed by zstd, needs pyarrow: pip install 'online-psp[arrow]'.") from None
    stream = pa.CompressedInputStream(pa.PythonFile(AsFile(pieces), mode="r"), "zstd")
    while True:
        try:
            out = stream.read(PIECE)
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"{name}: the compressed data (zstd) is damaged or cut short ({reason(error)}).") from None
        if not out:
            return
        yield out


class Owning(io.RawIOBase):
    """A file that closes others with itself: the compressed file, or the archive that it is in."""

    def __init__(self, inner: Any, *others: Any) -> None:
        self.inner, self.others = inner, others

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def seekable(self) -> bool:
        """Whether the inner file can seek."""
        return bool(self.inner.seekable())

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the result of one read; returns the number of bytes."""
        data = self.inner.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move the inner file to a position."""
        return int(self.inner.seek(offset, whence))

    def tell(self) -> int:
        """Position of the inner file."""
        return int(self.inner.tell())

    def close(self) -> None:
        """Close this file and the others."""
        if not self.closed:
            for each in (self.inner, *self.others):
                each.close()
        super().close()


def owning(inner: Any, *others: Any) -> BinaryIO:
    """A file that closes `others` when it is closed."""
    return io.BufferedReader(Owning(inner, *others), PIECE)


class AsFile(io.RawIOBase):
    """Pieces as a file that can be read forward."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces, self.rest = pieces, b""

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer from the next piece; returns the number of bytes."""
        while not self.rest:
            piece = next(self.pieces, b"")
            if piece == b"":
                return 0
            self.rest = piece or b""
        count = min(len(buffer), len(self.rest))
        buffer[:count], self.rest = self.rest[:count], self.rest[count:]
        return count


def clear_file(file: BinaryIO, name: str) -> BinaryIO:
    """A file to read forward, decompressed if its first bytes say that it is compressed."""
    head = file.read(6)
    kind = compression(head)
    if kind is None and file.seekable():
        file.seek(0)
        return file

    def again() -> Pieces:
        yield head
        yield from pieces_of(file)

    return owning(io.BufferedReader(AsFile(decompressed(again(), kind, name)), PIECE), file)
