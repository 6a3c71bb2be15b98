"""Reads one variable of a MATLAB file, with one sample per row.

Files of version 5 (``save -v6`` and ``-v7``) are read by SciPy behind the checks of `online_psp.io.mat5`, those of version 7.3, which are
HDF5, by h5py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.sparse import issparse

from online_psp.io.mat5 import KindError, is_version_4, list_variables, read_variable
from online_psp.io.sources.arrays import as_table, choose_table
from online_psp.io.sources.options import Options
from online_psp.io.sources.places import Place
from online_psp.io.sources.source import Source, SourceError, sliced, working_dtype
from online_psp.io.sources.sparse import open_sparse

_SPARSE_COPIES = 5  # of a sparse matrix in memory: as stored, by columns and by rows, with wider row numbers


def open_mat(place: Place, options: Options) -> Source:
    """Open the variable named after ``::``, the only matrix, or the one called X, fea or data."""
    if place.head().startswith(b"MATLAB 7.3") or place.head()[512:520] == b"\x89HDF\r\n\x1a\n":
        from online_psp.io.sources.hdf5 import open_hdf5

        return open_hdf5(place, options, by_columns=True)
    options.check(place.size or 0, "the file, which is read as a whole,", place.name)
    with place.clear() as file:
        data = file.read(options.max_memory + 1)
    options.check(len(data), "the file, which is read as a whole,", place.name)
    try:
        if is_version_4(data):
            raise SourceError(f"{place.name} is a file of MATLAB 4: save it with -v7.")
        name, array = _variable(data, place.name, options)
    except KindError as error:
        raise SourceError(
            f"{place.name} cannot be used as a table, because {error}: choose another variable ({place.name}::NAME)."
        ) from None
    label = f"{place.name}::{name}"
    if issparse(array):
        return open_sparse(array, options, label)
    if not isinstance(array, np.ndarray):
        raise SourceError(f"{name!r} in {place.name} is text, not a matrix with one sample a row.")
    (total, features), _ = as_table(array.shape, label, options.time_axis)
    return Source(
        label, features, working_dtype(array.dtype, options.dtype, label), sliced(array, total), total, kind="mat", files=(place,),
        **options.common(),
    )  # fmt: skip


def _variable(data: bytes, path: str, options: Options) -> tuple[str, Any]:
    """A variable, with its name."""
    held = list_variables(data)
    name = choose_table(path, {name: variable.shape for name, variable in held.items()}, options.member, "variable")
    variable = held[name]
    if variable.shape and len(variable.shape) != 2:  # objects have no shape
        raise SourceError(f"{name!r} in {path} must be a matrix with one sample a row; it has shape {variable.shape}.")
    taken = 8 * sum(variable.shape) + _SPARSE_COPIES * len(data) if variable.sparse else 8 * math.prod(variable.shape)
    options.check(taken, "the matrix, which is read as a whole,", path)
    return name, read_variable(data, variable, options.max_memory)
