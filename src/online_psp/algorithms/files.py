"""Model files of the paper's algorithms."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from online_psp.algorithms.base import StreamingAlgorithm
from online_psp.engine.types import Array, Rate
from online_psp.io import model_file
from online_psp.io.model_file import Contents, ModelFileError

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
    with model_file.refusing(path):
        if found.kind != KIND:
            raise ModelFileError(f"it holds an {found.kind}; load it with {found.kind}.load")
        return _rebuilt(found.arrays, found.state, rates, cls), found.run


def _name_of(cls: type) -> str:
    """The registered name of a class, or of the nearest registered class that it derives from."""
    from online_psp.algorithms import ALGORITHMS

    names = {known: name for name, known in ALGORITHMS.items()}
    for base in cls.__mro__:
        if base in names:
            return names[base]
    raise TypeError(f"{cls.__name__} is not one of the algorithms ({', '.join(ALGORITHMS)}), nor derived from one, and cannot be saved.")


def _rebuilt(arrays: dict[str, Array], values: dict[str, Any], rates: dict[str, Rate | None], cls: type) -> Any:
    from online_psp.algorithms import ALGORITHMS

    kind: Any = ALGORITHMS[values["algorithm"]]
    if issubclass(cls, kind):
        kind = cls
    elif not issubclass(kind, cls):
        raise ModelFileError(f"it holds an {kind.__name__} model; load it with {kind.__name__}.load")
    for name, rate in rates.items():
        if (name in values["callables"]) != (rate is not None):
            raise ModelFileError(
                f"it was trained with a function as {name}, which no file can hold; pass {name}= when loading it"
                if name in values["callables"]
                else f"it was trained without a function as {name}; leave {name}= out when loading it"
            )
    options = {name: values[name] for name in ("K", "D", "block_size")} | {"dtype": np.dtype(values["dtype"])} | values["options"]
    return kind.from_state(options | {name: rates.get(name) for name in kind.rate_names}, arrays)
