"""One variable of a MATLAB file, one sample a row, as face data is published."""

from __future__ import annotations

from typing import Any

import numpy as np

from online_psp.io.sources._numpy import as_table, table_source
from online_psp.io.sources._options import Options
from online_psp.io.sources._places import Place
from online_psp.io.sources._source import Source, SourceError, UnknownSourceError, reason, sliced
from online_psp.io.sources._sparse import open_sparse

_USUAL_NAMES = ("fea", "X", "data")


def open_mat(place: Place, options: Options) -> Source:
    """The variable named after ``::``, the only matrix, or the one called fea, X or data."""
    from scipy.io import loadmat, whosmat

    try:
        with place.open() as file:
            held = {name: shape for name, shape, _ in whosmat(file)}
    except NotImplementedError:  # HDF5, which SciPy does not read
        raise SourceError(f"{place.name} is a MATLAB 7.3 file, which is not read here: save it in MATLAB with the option -v7.") from None
    except Exception as error:  # SciPy's reader raises nearly anything for damaged files
        raise _damaged(place.name, error) from None
    name = _choose(held, options.member, place.name)
    options.check(8 * int(np.prod(held[name], dtype=object)), "the matrix, which is read as a whole,", place.name)
    try:
        with place.open() as file:
            array = loadmat(file, variable_names=[name])[name]
    except Exception as error:
        raise _damaged(place.name, error) from None
    label = f"{place.name}::{name}"
    if hasattr(array, "tocsr"):
        return open_sparse(array, options, label)
    if not isinstance(array, np.ndarray) or array.ndim != 2:
        raise SourceError(f"{name!r} in {place.name} must be a matrix with one sample a row; it has shape {np.shape(array)}.")
    table, shape = as_table(array, label)
    return table_source(table, shape, sliced(table, len(table)), label, "mat", options)


def _choose(held: dict[str, Any], member: str | None, path: str) -> str:
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
