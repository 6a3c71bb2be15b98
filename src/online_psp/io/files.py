"""Output files, which are written whole or not at all, by one run at a time.

`replacing` writes a file under a temporary name of its own and gives it its real name in one step. `claimed` locks an output for as long
as a run writes to it, so that a second run is refused at its start. Both refuse anything that is not a regular file, and follow symbolic
links. What `claimed` yields is an `Output`, which knows what was there: a file that somebody else has put in its place in the meantime,
lock or no lock, is not replaced.

The lock is a lock of the operating system on ``.NAME.lock``, a file beside the output that holds the number of the process. It is released
when the process ends, however that happens: the next run takes over the file that a killed run leaves behind.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import secrets
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_PATIENCE = 50  # hundredths of a second to wait for a process to write its number into its lock
_LONG_NAME = 200  # bytes, of the 255 that file systems allow
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class OutputError(ValueError):
    """An output cannot be written: it is not a regular file, its folder does not allow it, or it is in use."""


class OutputInUseError(OutputError):
    """Another run is writing the output."""


class OutputReplacedError(OutputError):
    """Somebody else has written the output during the run.

    Parameters
    ----------
    output : path
        It is left as it is.
    beside : path
        A new file with what was to be written.
    """

    def __init__(self, output: str | os.PathLike[str], beside: Path) -> None:
        self.output, self.beside = os.fspath(output), beside
        super().__init__(
            f"{self.output} was written by somebody else during the run, and is left as it is; what was to be written is in {beside}."
        )


def target_of(path: str | os.PathLike[str]) -> Path:
    """The regular file, existing or not, that `path` names after symbolic links.

    Raises
    ------
    OutputError
        If there is something else, or the folder does not exist.
    """
    name = os.fspath(path)
    try:
        target = Path(os.path.realpath(name))
    except OSError as error:  # of a relative path, in a working folder that has been deleted
        raise OutputError(f"{name} cannot be written: {error.strerror}.") from None
    try:
        found = os.stat(target)
    except FileNotFoundError:
        _check_folder(target)
        return target
    except OSError as error:
        raise OutputError(f"{name} cannot be written: {error.strerror}.") from None
    if not stat.S_ISREG(found.st_mode):
        kind = next((words for test, words in _KINDS if test(found.st_mode)), "no regular file")
        raise OutputError(f"{name} is {kind}; the output must be a regular file, or a name that is not taken.")
    return target


def _hidden(target: Path, ending: str) -> Path:
    """A hidden name beside an output; if that were too long, a digest takes the place of the end of the output's name."""
    name = target.name
    if len(os.fsencode(name)) > _LONG_NAME:
        name = f"{name[:40]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"
    return target.with_name(f".{name}.{ending}")


def _check_folder(target: Path) -> None:
    if not target.parent.is_dir():
        raise OutputError(f"The folder {target.parent} does not exist.") from None


# Writing


class Output(os.PathLike[str]):
    """An output that knows what was there when it was last looked at; `replacing` does not replace anything else.

    Parameters
    ----------
    path : path
    digest : callable, optional
        Tells the contents of a file. If only its inode or time differ, as on some network disks, equal contents are the same file.

    Raises
    ------
    OutputError
        As `target_of`.
    """

    def __init__(self, path: str | os.PathLike[str], digest: Callable[[Path], str | None] | None = None) -> None:
        self.name, self.target = os.fspath(path), target_of(path)
        self._digest = digest
        self.look()

    def __fspath__(self) -> str:
        return self.name

    def look(self) -> None:
        """Remember what is there now."""
        self._place, self._contents = self._now()

    @property
    def exists(self) -> bool:
        """Whether there was a file when it was last looked at."""
        return self._place is not None

    def unchanged(self) -> bool:
        """Whether the file is still the same, or gone."""
        place, contents = self._now()
        return place in (None, self._place) or (contents is not None and contents == self._contents)

    def _now(self) -> tuple[tuple[int, ...] | None, str | None]:
        try:
            found = os.lstat(self.target)  # a link that somebody puts here is another file
        except OSError:
            return None, None
        contents = self._digest(self.target) if self._digest is not None and stat.S_ISREG(found.st_mode) else None
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns), contents


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write that replaces `path` on success, and leaves nothing behind on an error.

    The bytes go to a temporary file in the same folder, are forced to disk, and get the real name in one step; then the folder is forced to
    disk as well. So there is one whole file at any moment, even if several processes write, and the last of them wins; but an `Output`
    replaces only what it knows. A replaced file keeps its owner and permissions. A process that is killed leaves its temporary file, which
    `claimed` removes.

    Raises
    ------
    OutputReplacedError
        If `path` is an `Output`, and somebody else has written it. The new file is whole, under a name beside it.
    """
    output = path if isinstance(path, Output) else None
    target = target_of(path) if output is None else output.target
    _check_folder(target)
    found = os.lstat(target) if os.path.lexists(target) else None
    before = found if found is not None and stat.S_ISREG(found.st_mode) else None
    partial = _hidden(target, f"{os.getpid()}-{secrets.token_hex(4)}.partial")
    mode = 0o666 if before is None else stat.S_IMODE(before.st_mode) & 0o777
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, mode)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            if before is not None:
                _keep_permissions(file.fileno(), before)
            os.fsync(file.fileno())
        beside = _put(partial, target, output)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if os.name == "posix":
        _sync_folder(target.parent)
    if beside is not None:
        raise OutputReplacedError(path, beside)


def _put(partial: Path, target: Path, output: Output | None) -> Path | None:
    """Give a whole file its name; returns the name beside it that it got instead, if somebody else has taken its own."""
    if output is None:
        os.replace(partial, target)
        return None
    if output.unchanged():
        if os.path.lexists(target):
            os.replace(partial, target)
        elif not _link(partial, target):
            return _put(partial, target, output)
        output.look()
        return None
    numbered = (target.with_name(f"{target.stem}-{number}{target.suffix}") for number in itertools.count(2))
    return next(name for name in numbered if not os.path.lexists(name) and _link(partial, name))


def _link(partial: Path, name: Path) -> bool:
    """Rename a file to a name that is free; False if it is not. Where there are no links, whoever takes it in this very moment loses it."""
    try:
        os.link(partial, name, follow_symlinks=False)
    except FileExistsError:
        return False
    except (OSError, NotImplementedError):
        if os.path.lexists(name):
            return False
        os.rename(partial, name)
    else:
        os.unlink(partial)
    return True


def _keep_permissions(descriptor: int, before: os.stat_result) -> None:
    """Give a file the owner and the permissions of the file that it replaces, as far as this user is allowed to."""
    if os.name == "posix":
        with contextlib.suppress(OSError):
            os.fchown(descriptor, before.st_uid, before.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:  # some network file systems cannot do this
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(folder)


# One run at a time


@contextlib.contextmanager
def claimed(path: str | os.PathLike[str]) -> Iterator[Output]:
    """Hold an output for the duration of a run; what is written to the `Output` that it yields replaces nothing of somebody else's.

    Raises
    ------
    OutputInUseError
        If another process holds it; the message names the process.
    OutputError
        If it could not be written in the end: better to know before the work than after it.
    """
    target = target_of(path)
    lock = _hidden(target, "lock")
    with contextlib.ExitStack() as held:
        _take(lock, os.fspath(path), held)
        _remove_leftovers(target)
        yield Output(path)


def _take(lock: Path, name: str, held: contextlib.ExitStack) -> None:
    """Open the lock file and lock it; `held` releases it. Whatever comes in between, nothing stays locked or lies about."""
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | _NO_FOLLOW, 0o644)
        except OSError as error:
            what = {errno.ELOOP: "a symbolic link", errno.EISDIR: "a folder"}.get(error.errno or 0)
            if what is not None:
                raise OutputError(f"{lock} is {what}, and no lock of this program; remove it.") from None
            raise OutputError(f"{name} cannot be written, because its folder {lock.parent} does not allow it: {error.strerror}.") from None
        locked = False
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                raise OutputError(f"{lock} is not a lock of this program; remove it.")
            locked = _lock(descriptor)
            if not locked:
                raise OutputInUseError(f"{name} is being written by {_holder(descriptor)}; wait for it to end, or choose another output.")
            if _is_still(lock, descriptor):
                with contextlib.suppress(OSError):  # on a full disk the file does not name its holder
                    os.ftruncate(descriptor, 0)
                    os.lseek(descriptor, 0, os.SEEK_SET)
                    os.write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
                held.callback(_release, lock, descriptor)
                return
        except BaseException:  # a signal, too
            if locked and _is_still(lock, descriptor):
                os.unlink(lock)
            os.close(descriptor)
            raise
        os.close(descriptor)  # the former holder has removed the file in the meantime


def _release(lock: Path, descriptor: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(lock)
    os.close(descriptor)


def _is_still(lock: Path, descriptor: int) -> bool:
    """Whether the locked file is still the one of that name."""
    try:
        return os.path.samestat(os.stat(lock, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


if os.name == "nt":  # pragma: no cover

    def _lock(descriptor: int) -> bool:
        import msvcrt

        os.lseek(descriptor, 1 << 20, os.SEEK_SET)  # far from what the file says, which others must be able to read
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True
else:

    def _lock(descriptor: int) -> bool:
        """Lock the file; returns False if another process has."""
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):  # a file system without locks: go on without
                raise
        return True


def _holder(descriptor: int) -> str:
    """The process that a lock file names, for messages; waits a moment for a new holder to write its number."""
    for _ in range(_PATIENCE):
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)
            said: Any = json.loads(os.read(descriptor, 1000))
            number, host = int(said["pid"]), str(said["host"])
        except (OSError, ValueError, TypeError, KeyError):
            number, host = 0, ""
        if number and host != socket.gethostname():
            return f"process {number} on {host}"
        if number == os.getpid():
            return f"this process ({number}) already"
        if number and (os.name != "posix" or _alive(number)):  # otherwise a killed run left it there
            return f"process {number}"
        time.sleep(0.01)
    return "another process"


def _remove_leftovers(target: Path) -> None:
    """Remove the temporary files of killed runs; nobody else can be writing them while this process holds the lock."""
    start, end = _hidden(target, "").name, ".partial"
    with contextlib.suppress(OSError):
        for name in os.listdir(target.parent):
            if name.startswith(start) and name.endswith(end):
                number = name.removeprefix(start).partition("-")[0]
                if number.isdecimal() and not _alive(int(number)):
                    with contextlib.suppress(OSError):
                        os.unlink(target.parent / name)


def _alive(number: int) -> bool:
    """Whether there is a process of this number, if that can be told; a reused number only keeps a file a little longer."""
    if os.name != "posix":
        return False
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
