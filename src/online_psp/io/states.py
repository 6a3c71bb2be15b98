"""Converts states to arrays and JSON, and back, by the annotations of their NamedTuples.

A field ``W: Annotated[Array, "K", "D"]`` is an array of that shape, in the precision of the model; ``Floats`` is always float64. Letters
without a known size take it from the first array that has them, and must agree everywhere. The word ``"infinite"`` after
them allows values that are not finite. Numbers, truth values, text, None and nested NamedTuples and tuples of them are stored as JSON.
"""

from __future__ import annotations

import types
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from online_psp.engine.types import Array, Floats
from online_psp.io.model_file import Fields, ModelFileError

T = TypeVar("T")


def flatten(state: Any) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays, by dotted names, and JSON of a NamedTuple."""
    arrays: dict[str, Array] = {}
    values: dict[str, Any] = {}
    fields = state._asdict() if hasattr(state, "_asdict") else {str(i): each for i, each in enumerate(state)}
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            arrays[name] = value
        elif isinstance(value, tuple):
            inner, values[name] = flatten(value)
            arrays |= {f"{name}.{key}": array for key, array in inner.items()}
        else:
            values[name] = value.item() if isinstance(value, np.generic) else value
    return arrays, values


def unflatten(kind: type[T], fields: Fields, sizes: dict[str, int], dtype: Any) -> T:
    """Rebuild a NamedTuple, with every field checked; `sizes` gives the known letters, and the others are added to it."""
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{name: _field(hint, name, fields, sizes, dtype) for name, hint in hints.items()})


def _field(hint: Any, name: str, fields: Fields, sizes: dict[str, int], dtype: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        inner = next(each for each in get_args(hint) if each is not type(None))
        absent = name not in fields.arrays if get_origin(inner) is Annotated else fields.values.get(name) is None
        return None if absent else _field(inner, name, fields, sizes, dtype)
    if get_origin(hint) is Annotated:
        return _array(hint, name, fields, sizes, dtype)
    if get_origin(hint) is tuple:  # of states whose sizes differ
        inside, each = fields.under(name), get_args(hint)[0]
        return tuple(_field(each, str(i), inside, {"D": sizes["D"]}, dtype) for i in range(len(inside.values)))
    if hasattr(hint, "_fields"):
        return unflatten(hint, fields.under(name), sizes, dtype)
    numbers: dict[Any, Any] = {int: fields.count, float: fields.number}
    return numbers[hint](name) if hint in numbers else fields.value(name, hint)


def _array(hint: Any, name: str, fields: Fields, sizes: dict[str, int], dtype: Any) -> Array:
    base, *words = get_args(hint)
    letters = [word for word in words if word != "infinite"]
    found = fields.arrays.get(name)
    if found is None or found.ndim != len(letters):
        raise ModelFileError(f"its array {name!r} is missing or of another shape")
    shape = tuple(sizes.setdefault(letter, length) for letter, length in zip(letters, found.shape, strict=True))
    return fields.array(name, shape, np.float64 if base == Floats else dtype, finite="infinite" not in words)
