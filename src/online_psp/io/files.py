"""Output files, which are written whole or not at all, by one run at a time.

`replacing` writes a file under a temporary name and gives it its real name in one step. `claimed` locks an output for as long as a run
writes to it, so that a second run is refused at its start. Both refuse anything that is not a regular file; an output that is a symbolic
link is written where it leads.

The lock is a lock of the operating system on ``.NAME.lock``, a file beside the output that holds the number of the process. It is released
when the process ends, however that happens: the next run takes over the file that a killed run leaves behind.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from online_psp.io.pacing import unbroken

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)  # a file system that has none


class OutputError(ValueError):
    """An output cannot be written: it is not a regular file, its folder does not allow it, or it is in use."""


class OutputInUseError(OutputError):
    """Another run is writing the output."""


def target_of(path: str | os.PathLike[str]) -> Path:
    """The regular file, existing or not, that `path` names after symbolic links.

    Raises
    ------
    OutputError
        If there is something else, or the folder does not exist.
    """
    name = os.fspath(path)
    target = Path(os.path.realpath(name))
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise OutputError(f"{name} cannot be written: the folder {target.parent} does not exist.") from None
        return target
    except OSError as error:
        raise OutputError(f"{name} cannot be written: {error.strerror}.") from None
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no regular file but a pipe, a device or a socket"
        raise OutputError(f"{name} is {what}; the output must be a regular file, or a name that is not taken.")
    return target


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write that replaces `path` on success, and leaves nothing behind on an error.

    The bytes go to a temporary file in the same folder, are forced to disk, and get the real name in one step; then the folder is forced to
    disk as well. So there is one whole file at any moment, even if several processes write, and the last of them wins. A replaced file
    keeps its permissions. A process that is killed leaves its temporary file, which `claimed` removes.
    """
    target = target_of(path)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o666 if mode is None else mode)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(partial, mode)
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if os.name == "posix":
        _sync_folder(target.parent)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:  # some network file systems cannot do this
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(folder)


@contextlib.contextmanager
def claimed(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Hold an output for the duration of a run; yields the file that it names.

    Raises
    ------
    OutputInUseError
        If another process holds it; the message names the process.
    OutputError
        If it could not be written in the end: better to know before the work than after it.
    """
    target = target_of(path)
    lock = target.with_name(f".{target.name}.lock")
    descriptor: int | None = None
    try:
        with unbroken():
            descriptor = _take(lock, os.fspath(path))
        for left in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):  # of a killed run
            with contextlib.suppress(OSError):
                left.unlink()
        yield target
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.unlink(lock)
            os.close(descriptor)


def _take(lock: Path, name: str) -> int:
    """Open and lock the lock file of an output; returns its descriptor."""
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | _FLAGS, 0o644)
        except OSError as error:
            raise OutputError(f"{name} cannot be written: {lock} does not allow it ({error.strerror}).") from None
        try:
            if not _lock(descriptor):
                holder = os.read(descriptor, 200).decode("utf-8", "replace") or "another process"
                raise OutputInUseError(f"{name} is being written by {holder}; wait for it to end, or choose another output.")
            with contextlib.suppress(FileNotFoundError):  # the former holder may have removed the file in the meantime
                if os.path.samestat(os.lstat(lock), os.fstat(descriptor)):
                    with contextlib.suppress(OSError):  # on a full disk the file does not name its holder
                        os.ftruncate(descriptor, 0)
                        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


if os.name == "nt":  # pragma: no cover

    def _lock(descriptor: int) -> bool:
        import msvcrt

        os.lseek(descriptor, 1 << 20, os.SEEK_SET)  # far from the text, which others must be able to read
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True
else:

    def _lock(descriptor: int) -> bool:
        """Lock the file; returns False if another process has."""
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        return True
