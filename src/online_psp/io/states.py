"""Converts NamedTuples to arrays and JSON, and back by their annotations: of arrays, numbers, text, states within, and tuples of these.

A field ``W: Annotated[Array, "K", "D"]`` has that shape; the lengths that letters stand for must agree in all of a state, because compiled
kernels do not look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from scipy.sparse import csr_array

from online_psp.engine.rows import AnyRows, DenseRows, SparseRows
from online_psp.engine.types import Array
from online_psp.io.model_file import ModelFileError

T = TypeVar("T")


def flatten(state: Any) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays, by dotted names, and JSON of a NamedTuple."""
    arrays: dict[str, Array] = {}
    values: dict[str, Any] = {}
    for name, value in (state._asdict() if hasattr(state, "_asdict") else {str(i): each for i, each in enumerate(state)}).items():
        if isinstance(value, np.ndarray):
            arrays[name] = value
        elif isinstance(value, tuple):
            inner, values[name] = flatten(value)
            arrays |= {f"{name}.{key}": array for key, array in inner.items()}
        else:
            values[name] = value.item() if isinstance(value, np.generic) else value
    return arrays, values


def unflatten(kind: type[T], arrays: Mapping[str, Array], values: Mapping[str, Any], sizes: dict[str, int]) -> T:
    """Rebuild a NamedTuple; fields that the file does not have yet take their defaults. `sizes` are the letters known so far."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if name in arrays:
            _check_shape(hint, name, arrays[name].shape, sizes)
            found[name] = arrays[name]
        elif isinstance(values.get(name), dict):
            found[name] = _nested(hint, under(arrays, name), values[name], sizes)
        elif name in values:
            found[name] = values[name]
    return kind(**found)


def _nested(hint: Any, arrays: Mapping[str, Array], values: Mapping[str, Any], sizes: dict[str, int]) -> Any:
    """A state within another, that may be None, or a tuple of states, whose sizes may differ."""
    if get_origin(hint) is tuple:
        each, known = get_args(hint)[0], {"D": sizes["D"]}
        return tuple(_nested(each, under(arrays, str(i)), values[str(i)], dict(known)) for i in range(len(values)))
    kind = next(each for each in (hint, *get_args(hint)) if hasattr(each, "_fields"))
    return unflatten(kind, arrays, values, sizes)


def _check_shape(hint: Any, name: str, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    letters = next((get_args(each)[1:] for each in (hint, *get_args(hint)) if get_origin(each) is Annotated), None)
    if letters is None or len(letters) != len(shape) or shape != tuple(map(sizes.setdefault, letters, shape)):
        raise ModelFileError(f"its array {name!r} has the shape {shape}, which does not go with the others")


def under(arrays: Mapping[str, Array], name: str) -> dict[str, Array]:
    """The arrays of a part, by their names within it."""
    return {key.removeprefix(f"{name}."): array for key, array in arrays.items() if key.startswith(f"{name}.")}


def arrays_of(rows: SparseRows | DenseRows) -> dict[str, Array]:
    """Rows as arrays."""
    if isinstance(rows, DenseRows):
        return {"rows": rows.X}
    matrix = rows.matrix()
    return {name: getattr(matrix, name) for name in ("data", "indices", "indptr")}


def rows_of(arrays: Mapping[str, Array], D: int) -> AnyRows | None:
    """Rows from arrays; None if there are none."""
    if "rows" in arrays:
        return DenseRows(arrays["rows"])
    if "data" not in arrays:
        return None
    matrix = csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(len(arrays["indptr"]) - 1, D))
    matrix.check_format()
    return SparseRows(matrix)
