"""Saving algorithms to model files, and loading them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from online_psp.algorithms._base import State, StreamingAlgorithm
from online_psp.algorithms._first_rows import KeptRows
from online_psp.engine.types import Array, Rate
from online_psp.io import model_file
from online_psp.io.model_file import Contents, Fields, ModelFileError
from online_psp.io.states import flatten, unflatten

_MOST_SAMPLES = 1 << 52  # floating point cannot tell larger numbers from the next


def registered_name(cls: type) -> str:
    """The registered name of a class, or of the nearest registered class that it derives from."""
    return "block"


def describe(model: StreamingAlgorithm) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the JSON values of a model; the model does not change, and its open block stays open."""
    options, state = model.options(), model.state()
    arrays, values = flatten(state)
    size = options["block_size"]
    return {f"state.{name}": array for name, array in arrays.items()}, {
        "algorithm": registered_name(type(model)),
        "K": model.K,
        "D": model.D,
        "dtype": model.dtype.name,
        "block_size": size if size == "auto" else int(size),
        "options": {name: float(options[name]) for name in model.option_names},
        "callables": [name for name in model.rate_names if options[name] is not None],
        "state": values,
    }


def rebuild(fields: Fields, rates: dict[str, Rate | None], cls: type | None = None) -> Any:
    """Rebuild a model from what `describe` returned.

    Parameters
    ----------
    fields : Fields
        Arrays and values from the file.
    rates : dict
        Functions that the saved model had: they cannot be stored.
    cls : type, optional
        The expected class: the one that was saved, or one derived from it.
    """
    from online_psp.algorithms.block import BlockPCA

    kind: Any = {"block": BlockPCA}[fields.choice("algorithm", "block")]
    if cls is not None and issubclass(cls, kind):
        kind = cls
    elif cls is not None and not issubclass(kind, cls):
        raise ModelFileError(f"it holds an {kind.__name__} model; load it with {kind.__name__}.load")
    K, D = fields.count("K", 1), fields.optional("D", int)
    options: dict[str, Any] = {"K": K, "D": D, "dtype": np.dtype(fields.choice("dtype", "float64", "float32"))}
    options["block_size"] = "auto" if fields.values.get("block_size") == "auto" else fields.count("block_size", 1, 1 << 24)
    stored = Fields({}, fields.value("options", dict))
    options |= {name: stored.number(name) for name in kind.option_names} | _callables(kind, fields.value("callables", list), rates)
    try:
        return kind.from_state(options, _state(kind, fields.under("state"), options))
    except ModelFileError:
        raise
    except (ValueError, TypeError, IndexError, MemoryError) as error:
        raise ModelFileError(f"its options or its state are impossible ({error})") from None


def _callables(kind: Any, stored: list[Any], rates: dict[str, Rate | None]) -> dict[str, Rate | None]:
    for name, rate in rates.items():
        if (name in stored) != (rate is not None):
            raise ModelFileError(
                f"it was trained with a function as {name}, which no file can hold; pass {name}= when loading it"
                if name in stored
                else f"it was trained without a function as {name}; leave {name}= out when loading it"
            )
    missing = [name for name in stored if rates.get(str(name)) is None]
    if missing:
        raise ModelFileError(f"it was trained with a function as {missing[0]}, which no file can hold")
    return {name: rates.get(name) for name in kind.rate_names}


def _state(kind: Any, fields: Fields, options: dict[str, Any]) -> State:
    """The state in a file; allocates no more memory than the file itself holds."""
    K, D, dtype = options["K"], options["D"], options["dtype"]
    t = fields.count("t", most=_MOST_SAMPLES)
    sizes = {"K": K} if D is None else {"K": K, "D": D}
    start = fields.array("start", (len(fields.arrays["start"]), K)) if "start" in fields.arrays else None
    kept, running = (fields.values.get(name) is not None for name in ("kept", "running"))
    if D is None and (t or kept or running):
        raise ModelFileError("it has seen samples, and does not say how many features they have")
    if D is not None and D < K:
        raise ModelFileError("it has fewer features than directions")
    if kept:
        rows = unflatten(KeptRows, fields.under("kept"), sizes, dtype)
        if running or not 1 <= len(rows.rows) == t < K:
            raise ModelFileError("it has kept more or fewer rows than it has seen")
        return State(t, rows, None, start)
    if not running:
        if t:
            raise ModelFileError("it has seen samples and kept none of them")
        return State(0, None, None, start)
    return State(t, None, kind.checked(unflatten(kind.Running, fields.under("running"), sizes, dtype)))


def save(model: StreamingAlgorithm, path: str | os.PathLike[str]) -> None:
    """Write a model file."""
    arrays, state = describe(model)
    model_file.write(path, Contents("algorithm", arrays, state, {}))


def load(cls: type, path: str | os.PathLike[str], rates: dict[str, Rate | None]) -> Any:
    """Read a model file."""
    found = model_file.read(path)
    try:
        if found.kind != "algorithm":
            raise ModelFileError(f"it holds an {found.kind}; load it with {found.kind}.load")
        fields = Fields(found.arrays, found.state)
        model = rebuild(fields, rates, cls)
        fields.nothing_left()
        return model
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be used as a model: {error}.") from None
