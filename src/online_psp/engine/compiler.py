"""The decorator that compiles a kernel.

Every compiled function in the package goes through :func:`kernel`, so that the choice of compiler flags is made once. ``fastmath`` lets the
compiler reorder sums (needed to vectorise a dot product), but not assume that NaN and infinity never occur: the input checks rely on them.

Machine code is cached on disk for the next process, and the cache never makes a call fail. If it cannot be written, every process compiles
for itself, after one warning that says what to set. A damaged file is noticed and compiled anew: each begins with a digest of the rest. And
code is only used with the sources that it was made from, including those of the kernels that it calls, which are compiled into it.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import caching
from numba.core.types.misc import unliteral

F = TypeVar("F", bound=Callable[..., Any])

_FLAGS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "no_cfunc_wrapper": True,  # entry points for C, which nobody calls
}
_DIGEST = hashlib.sha256().digest_size
_said: list[str] = []


def kernel(function: F) -> F:
    """Compile a function at its first call, and cache the machine code on disk for the next process if possible.

    Write a loop that sums *and* stores as two loops. The compiler makes a vectorised and a plain version of it, which round differently,
    and chooses by how far apart the arrays lie in memory: the result would change from run to run.
    """
    return _compiled(function, _FLAGS)


def exact_kernel(function: F) -> F:
    """As `kernel`, but sums keep the order in which they are written, so dot products are not vectorised.

    For recurrences that amplify rounding. It also makes freshly compiled code agree with code from the cache, in which kernels called by
    kernels may have been optimised in another context.
    """
    return _compiled(function, {**_FLAGS, "fastmath": False})


def _compiled(function: F, flags: dict[str, Any]) -> F:
    compiled: Any = numba.njit(**flags)(function)
    if hasattr(compiled, "get_call_template"):
        _take_constants_as_numbers(compiled)
    if hasattr(compiled, "enable_caching"):  # it has none if the compiler is switched off
        try:
            compiled._cache = _KernelCache(function)
        except Exception as error:  # nowhere to write, or a folder that cannot be made
            _cannot_keep(error)
    result: F = compiled
    return result


def _take_constants_as_numbers(compiled: Any) -> None:
    """Let other kernels pass constants to a kernel without compiling it once more for each of them."""
    resolve = compiled.get_call_template

    def resolved(args: Any, kws: Any) -> Any:
        return resolve(tuple(map(unliteral, args)), {name: unliteral(kind) for name, kind in dict(kws).items()})

    compiled.get_call_template = resolved


def _cannot_keep(error: Exception) -> None:
    """Warn, once, that every process has to compile for itself."""
    if not _said:
        _said.append(str(error))
        warnings.warn(
            "Compiled kernels cannot be cached on disk, so every process compiles them anew, which takes some seconds; "
            f"set NUMBA_CACHE_DIR to a writable folder. ({str(error).splitlines()[0] if str(error) else type(error).__name__})",
            RuntimeWarning,
            stacklevel=3,
        )


def _made_from(function: Callable[..., Any]) -> bytes:
    """A digest of everything compiled into a kernel besides its own module: the kernels that it calls, wherever they are, and constants."""
    files: set[str] = set()
    constants: dict[str, str] = {}
    waiting, seen = [function], {function}
    while waiting:
        current = waiting.pop()
        files.add(current.__code__.co_filename)
        for name in current.__code__.co_names:
            value = current.__globals__.get(name)
            inner = getattr(value, "py_func", None) or getattr(value, "_defn", None)  # a kernel, or an intrinsic
            if inner is not None and inner not in seen:
                seen.add(inner)
                waiting.append(inner)
            elif isinstance(value, bool | int | float | str | tuple):
                constants[f"{current.__module__}.{name}"] = repr(value)
    digest = hashlib.sha256(repr(sorted(constants.items())).encode())
    for path in sorted(files):
        digest.update(_digest_of(path))
    return digest.digest()


@cache
def _digest_of(path: str) -> bytes:
    return hashlib.sha256(Path(path).read_bytes()).digest()


class _DigestedFile(caching.IndexDataCacheFile):  # type: ignore[misc,unused-ignore]
    """The cache files of one kernel, each preceded by its digest; a damaged file counts as missing."""

    def _dump(self, obj: Any) -> bytes:
        data: bytes = super()._dump(obj)
        return hashlib.sha256(data).digest() + data

    def _load_data(self, name: str) -> Any:
        return caching.pickle.loads(_checked(Path(self._data_path(name)).read_bytes()))

    def _load_index(self) -> Any:
        try:
            with open(self._index_path, "rb") as file:
                version = caching.pickle.load(file)
                data = file.read()
            if version != self._version:
                return {}
            stamp, overloads = caching.pickle.loads(_checked(data))
        except Exception:  # not there, or damaged in one of many ways
            return {}
        return overloads if stamp == self._source_stamp else {}


def _checked(data: bytes) -> bytes:
    """The contents after the digest; raises an OSError if they do not match it."""
    if len(data) < _DIGEST or hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
        raise OSError("a file of compiled code is damaged")
    return data[_DIGEST:]


class _KernelCache(caching.FunctionCache):  # type: ignore[misc,unused-ignore]
    """A cache whose failures to read or to write are ignored."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        before: Any = self._cache_file  # type: ignore[has-type,unused-ignore]
        self._cache_file = _DigestedFile(
            before._cache_path, before._index_name.removesuffix(".nbi"), (before._source_stamp, _made_from(function), "digested")
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # compiled anew, and written over
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _cannot_keep(error)
