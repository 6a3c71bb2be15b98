"""Converts NamedTuples of arrays, numbers, text and other NamedTuples to arrays and JSON, and back by their annotations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np

from online_psp.engine.types import Array

T = TypeVar("T")


def flatten(state: Any) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays, by dotted names, and JSON of a NamedTuple."""
    arrays: dict[str, Array] = {}
    values: dict[str, Any] = {}
    for name, value in state._asdict().items():
        if isinstance(value, np.ndarray):
            arrays[name] = value
        elif hasattr(value, "_asdict"):
            inner, values[name] = flatten(value)
            arrays |= {f"{name}.{key}": array for key, array in inner.items()}
        else:
            values[name] = value.item() if isinstance(value, np.generic) else value
    return arrays, values


def unflatten(kind: type[T], arrays: Mapping[str, Array], values: Mapping[str, Any]) -> T:
    """Rebuild a NamedTuple."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        nested = next((each for each in (hint, *get_args(hint)) if hasattr(each, "_fields")), None)
        if name in arrays:
            found[name] = arrays[name]
        elif nested is not None and values[name] is not None:
            found[name] = unflatten(nested, under(arrays, name), values[name])
        else:
            found[name] = values[name]
    return kind(**found)


def under(arrays: Mapping[str, Array], name: str) -> dict[str, Array]:
    """The arrays of a part, by their names within it."""
    return {key.removeprefix(f"{name}."): array for key, array in arrays.items() if key.startswith(f"{name}.")}
