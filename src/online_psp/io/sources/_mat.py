"""Reads one variable of a MATLAB file, with one sample per row.

Files of version 5 (``save -v6`` and ``-v7``) are read by `online_psp.io.mat5`, which damaged files cannot crash. Files of MATLAB 4 are read
by SciPy, whose reader for them has no compiled part.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from scipy.sparse import issparse

from online_psp.io.mat5 import KindError, MatError, NewerMatError, is_version_4, list_variables, read_variables
from online_psp.io.sources._numpy import as_table, table_source
from online_psp.io.sources._options import Options
from online_psp.io.sources._places import Place
from online_psp.io.sources._source import Source, SourceError, UnknownSourceError, reason, sliced
from online_psp.io.sources._sparse import open_sparse

_USUAL_NAMES = ("fea", "X", "data")
_SPARSE_COPIES = 5  # of a sparse matrix in memory: as stored, by columns and by rows, with wider row numbers
Shapes = dict[str, tuple[int, ...]]


def open_mat(place: Place, options: Options) -> Source:
    """Open the variable named after ``::``, the only matrix, or the one called fea, X or data."""
    data = _read(place, options)
    try:
        name, array = _old(data, place.name, options) if is_version_4(data) else _current(data, place.name, options)
    except NewerMatError:
        raise SourceError(f"{place.name} is a MATLAB 7.3 file, which is not read here: save it in MATLAB with the option -v7.") from None
    except KindError as error:
        raise SourceError(
            f"{place.name} cannot be used as a table, because {error}: choose another variable ({place.name}::NAME)."
        ) from None
    except MatError as error:
        raise _damaged(place.name, error) from None
    label = f"{place.name}::{name}"
    if issparse(array):
        return open_sparse(array, options, label)
    if not isinstance(array, np.ndarray):
        raise SourceError(f"{name!r} in {place.name} is text, not a matrix with one sample a row.")
    table, shape = as_table(np.require(array, array.dtype.newbyteorder("="), ["A"]), label)
    return table_source(table, shape, sliced(table, len(table)), label, "mat", options)


def _read(place: Place, options: Options) -> bytes:
    """The whole file, if it fits into the memory allowed."""
    with place.open() as file:
        data = file.read(options.max_memory + 1) if place.size is None else b""
        options.check(max(len(data), place.size or 0), "the file, which is read as a whole,", place.name)
        return data or file.read()


def _current(data: bytes, path: str, options: Options) -> tuple[str, Any]:
    """A variable of a file of version 5, with its name."""
    held = {variable.name: variable for variable in list_variables(data)}
    name = _choose({name: variable.shape for name, variable in held.items()}, options.member, path)
    variable = held[name]
    if variable.shape:  # objects have no shape
        _check_shape(name, variable.shape, path)
    if variable.sparse:
        options.check(8 * sum(variable.shape) + _SPARSE_COPIES * len(data), "the matrix, which is read as a whole,", path)
    else:
        options.check(8 * math.prod(variable.shape), "the matrix, which is read as a whole,", path)
    return name, read_variables(data, (name,), options.max_memory)[name]


def _old(data: bytes, path: str, options: Options) -> tuple[str, Any]:
    """A variable of a file of MATLAB 4, with its name."""
    from scipy.io import loadmat, whosmat

    try:
        held = {name: tuple(shape) for name, shape, _ in whosmat(io.BytesIO(data))}
    except Exception as error:  # SciPy's reader raises nearly anything for damaged files
        raise _damaged(path, error) from None
    name = _choose(held, options.member, path)
    _check_shape(name, held[name], path)
    options.check(8 * math.prod(held[name]), "the matrix, which is read as a whole,", path)
    try:
        return name, loadmat(io.BytesIO(data), variable_names=[name])[name]
    except Exception as error:
        raise _damaged(path, error) from None


def _check_shape(name: str, shape: tuple[int, ...], path: str) -> None:
    if len(shape) != 2:
        raise SourceError(f"{name!r} in {path} must be a matrix with one sample a row; it has shape {shape}.")


def _choose(held: Shapes, member: str | None, path: str) -> str:
    listing = ", ".join(f"{name} ({'×'.join(map(str, shape))})" for name, shape in held.items())
    if member is not None:
        if member not in held:
            raise UnknownSourceError(f"{path} has no variable {member!r}: it {f'holds {listing}' if held else 'is empty'}.")
        return member
    found = [name for name in _USUAL_NAMES if name in held] or (list(held) if len(held) == 1 else [])
    if not found:
        hint = f"it holds {listing}; name the one to take ({path}::NAME)" if held else "it is empty"
        raise UnknownSourceError(f"{path} has no variable 'fea', 'X' or 'data': {hint}.")
    return found[0]


def _damaged(name: str, error: Exception) -> SourceError:
    return SourceError(f"{name} cannot be read as a MATLAB file ({reason(error)}): it is damaged or something else, so get it again.")
