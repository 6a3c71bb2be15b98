"""Model files of the paper's algorithms."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from online_psp.algorithms.base import StreamingAlgorithm, axes_of
from online_psp.engine.types import Array, Rate
from online_psp.io import model_file
from online_psp.io.model_file import Contents, Fields, ModelFileError

KIND = "algorithm"


def save(model: StreamingAlgorithm, path: str | os.PathLike[str], run: dict[str, Any] | None = None) -> None:
    """Write a model, and the state of its run over a source."""
    options, size = model.options(), model.block_size
    values = {
        "algorithm": _name_of(type(model)),
        "K": model.K,
        "D": model.D,
        "dtype": model.dtype.name,
        "block_size": size if size == "auto" else int(size),
        "options": {name: float(options[name]) for name in model.option_names},
        "callables": [name for name in model.rate_names if options[name] is not None],
    }
    model_file.write(path, Contents(KIND, dict(model.state()), values, run or {}))


def load(
    path: str | os.PathLike[str], rates: dict[str, Rate | None], cls: type[StreamingAlgorithm] = StreamingAlgorithm
) -> tuple[Any, dict[str, Any]]:
    """Read a model and its run.

    Parameters
    ----------
    path : path
    rates : dict
        Functions that the saved model had: they cannot be stored.
    cls : type, optional
        The expected class: the one that was saved, or one derived from it.
    """
    found = model_file.read(path)
    try:
        if found.kind != KIND:
            raise ModelFileError(f"it holds an {found.kind}; load it with {found.kind}.load")
        return _rebuilt(Fields(found.arrays, found.state), rates, cls), found.run
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be used as a model: {error}.") from None


def _name_of(cls: type) -> str:
    """The registered name of a class, or of the nearest registered class that it derives from."""
    from online_psp.algorithms import ALGORITHMS

    names = {known: name for name, known in ALGORITHMS.items()}
    for base in cls.__mro__:
        if base in names:
            return names[base]
    raise TypeError(f"{cls.__name__} is not one of the algorithms ({', '.join(ALGORITHMS)}), nor derived from one, and cannot be saved.")


def _rebuilt(fields: Fields, rates: dict[str, Rate | None], cls: type) -> Any:
    from online_psp.algorithms import ALGORITHMS

    kind: Any = ALGORITHMS[fields.choice("algorithm", *ALGORITHMS)]
    if issubclass(cls, kind):
        kind = cls
    elif not issubclass(kind, cls):
        raise ModelFileError(f"it holds an {kind.__name__} model; load it with {kind.__name__}.load")
    options: dict[str, Any] = {"K": fields.count("K", 1), "D": fields.optional("D", int)}
    options["dtype"] = np.dtype(fields.choice("dtype", "float64", "float32"))
    options["block_size"] = "auto" if fields.values.get("block_size") == "auto" else fields.count("block_size", 1, 1 << 24)
    stored, callables = Fields({}, fields.value("options", dict)), fields.value("callables", list)
    options |= {name: stored.number(name) for name in kind.option_names}
    for name, rate in rates.items():
        if (name in callables) != (rate is not None):
            raise ModelFileError(
                f"it was trained with a function as {name}, which no file can hold; pass {name}= when loading it"
                if name in callables
                else f"it was trained without a function as {name}; leave {name}= out when loading it"
            )
    options |= {name: rates.get(name) for name in kind.rate_names}
    try:
        return kind.from_state(options, _state(kind, fields, options))
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise ModelFileError(f"its options or its state are impossible ({error})") from None


def _state(kind: Any, fields: Fields, options: dict[str, Any]) -> dict[str, Array]:
    """The arrays of a file, with their shapes and precision checked, and that their numbers are finite."""
    counts = fields.array("counts", (3,))
    t, n, started = (int(count) for count in counts)
    K, D, dtype = options["K"], options["D"], options["dtype"]
    if not (np.array_equal(counts, [t, n, started]) and 0 <= n <= t and started in (0, 1) and (started or t < K)):
        raise ModelFileError("its counts of samples are impossible")
    sizes = {"K": K, "D": D or 0, "n": n, "m": K + n, "r": len(kind.rate_names)}
    state = {"counts": counts}
    if "first" in fields.arrays:
        state["first"] = fields.array("first", (t, sizes["D"]), dtype)
    for name, axes in axes_of(kind.State).items():
        if name in fields.arrays or started:
            shape = tuple(sizes[axis] if axis in sizes else int(axis) for axis in axes or "1")
            state[name] = fields.array(name, shape, dtype if "D" in axes else np.float64)
    return state
