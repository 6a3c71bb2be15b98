"""The whole state of an algorithm as arrays and JSON, and back: what continues from it continues bit for bit.

Arrays are stored at their full size with zeros where nothing is in use, so that loading allocates no more than the file holds, and the same
state always gives the same bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np

from online_psp.algorithms._base import StreamingAlgorithm
from online_psp.algorithms._frame import FrameAlgorithm
from online_psp.algorithms._similarity import SimilarityMatching
from online_psp.algorithms._smallest import NOT_MADE
from online_psp.algorithms.ipca import IPCA
from online_psp.engine.blocks import Block, GramBlock, least_scale
from online_psp.engine.frames import FrameBlock
from online_psp.engine.types import Array, Rate
from online_psp.io.model_file import Contents, Fields, ModelFileError


def used(array: Array, n: int) -> Array:
    """A copy with everything from row n on set to zero."""
    result = array.copy(order="K")
    result[n:] = 0.0
    return result


def algorithm_state(model: Any) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays and JSON; the model is left as it is, its open block open.

    A basis kept for sparse rows is stored as the dense one that it stands for: what goes on from there is the same to rounding.
    """
    from online_psp.algorithms import ALGORITHMS

    name = next((name for name, cls in ALGORITHMS.items() if type(model) is cls), None)
    if name is None:
        raise TypeError(f"Only {', '.join(cls.__name__ for cls in ALGORITHMS.values())} can be saved; got {type(model).__name__}.")
    model = copy(model)
    model._use_dense()
    arrays: dict[str, Array] = {}
    state: dict[str, Any] = {
        "algorithm": name,
        "K": model.K,
        "D": model.D,
        "dtype": model.dtype.name,
        "block_size": model.block_size if model.block_size == "auto" else operator.index(model.block_size),
        "t": model.t,
        "options": {option: float(getattr(model, option)) for option in model._options},
        "callables": [each for each in ("learning_rate", "beta") if getattr(model, each, None) is not None],
        "phase": "running" if model._block is not None else "new" if model._kept is None else "kept",
    }
    if state["phase"] == "kept":
        arrays["kept"], arrays["kept_factor"] = used(model._kept, model.t), used(model._kept_factor, model.t)
    if isinstance(model, SimilarityMatching):
        _take_similarity(model, arrays, state)
    else:
        arrays["sigma2"] = model._sigma2
        if model._block is not None:
            _take_frame(model._block, arrays)
            state["drift"] = float(model._block.drift)
            state["carried"], state["triangular"] = int(model._block.carried), bool(model._block._triangular)
        if isinstance(model, IPCA) and model._block is not None:
            n = model._block.n
            arrays["S"], arrays["N"] = model._S, model._N
            arrays["P"], arrays["T"] = (used(a, n) if n else np.zeros_like(b) for a, b in _moves(model))
            state["delta"] = None if model._delta == NOT_MADE else float(model._delta)
            state["spent"], state["since_restore"] = int(model._spent), int(model._since_restore)
    if model._block is not None:
        n = state["open"] = model._block.n
        direct = getattr(model._block, "direct", False)  # then the samples are not in the stack, and what is there was never written
        arrays["stack"] = used(model._block.stack, model.K + (0 if direct else n))
        for i, steps in enumerate(model._steps):
            arrays[f"steps{i}"] = used(steps, n)[: model._held_rows]
    return arrays, state


def _take_similarity(model: Any, arrays: dict[str, Array], state: dict[str, Any]) -> None:
    arrays["M"] = model._M
    block: GramBlock | None = model._block
    if block is None:
        return
    arrays["lateral"] = model._solver
    arrays["w"], arrays["Y"] = used(model._w, block.n), used(model._Y, block.n)
    state["a"] = float(model._a) if block.n else 1.0
    state["s"] = float(block.s)
    state["since_restore"], state["kept_since_restore"] = int(model._since_restore), float(model._kept_since_restore)
    state["level"] = float(model._level)


def _moves(model: Any) -> Iterator[tuple[Array, Array]]:
    """The two arrays of moves of an IPCA, as they are and as they would be for an open block."""
    rows: Array = model._block.open_rows
    yield model._P, np.zeros((len(rows), model.K))
    yield model._T, rows


def _take_frame(block: FrameBlock, arrays: dict[str, Array]) -> None:
    n = block.n
    arrays["Z"], arrays["rows"] = used(block.open_Z, block.K if n else 0), used(block.open_rows, n)
    arrays["frame"] = used(block.open_frame, block.K + n if n else 0)
    if block.H is not None:
        arrays["H"] = block.H


def algorithm_from_state(fields: Fields, rates: dict[str, Rate | None], cls: type | None = None) -> Any:
    """The model again.

    Parameters
    ----------
    fields : Fields
    rates : dict
        Callables for `learning_rate` and `beta`, where the saved model had them: functions cannot be stored.
    cls : type, optional
        What it is expected to be.
    """
    from online_psp.algorithms import ALGORITHMS

    kind: Any = ALGORITHMS[fields.choice("algorithm", *ALGORITHMS)]
    if cls is not None and not issubclass(kind, cls):
        raise ModelFileError(f"it holds an {kind.__name__} model; load it with {kind.__name__}.load")
    K, D = fields.count("K", 1), fields.optional("D", int)
    phase = fields.choice("phase", "new", "kept", "running")
    if (phase != "new") if D is None else D < K:
        raise ModelFileError("it has fewer features than directions")
    size = fields.values.get("block_size")
    block_size: Any = "auto" if size == "auto" else fields.count("block_size", 1)
    options = Fields({}, fields.value("options", dict))
    callables = fields.value("callables", list)
    for name, rate in rates.items():
        if (name in callables) != (rate is not None):
            raise ModelFileError(
                f"it was trained with a function as {name}, which no file can hold; pass {name}= when loading it"
                if name in callables
                else f"it was trained without a function as {name}; leave {name}= out when loading it"
            )
    model: Any = kind.__new__(kind)
    model.K, model.D, model.dtype = K, D, np.dtype(fields.choice("dtype", "float64", "float32"))
    model.block_size, model.t = block_size, fields.count("t")
    model._kept, model._block, model._steps = None, None, np.zeros((model._kinds, 0))
    for option in kind._options:
        setattr(model, option, options.number(option, 0.0))
    model.learning_rate = rates.get("learning_rate")
    if phase == "kept":
        model.t = fields.count("t", 0, K - 1)
        model._kept = fields.array("kept", (K, D), model.dtype)
        model._kept_factor = fields.array("kept_factor", (K, K), finite=False)
    elif phase == "new" and model.t:
        raise ModelFileError("it has seen samples and kept none of them")
    if issubclass(kind, SimilarityMatching):
        model.beta, model._scale = rates.get("beta"), 0.01
        if not model.gamma > 0:
            raise ModelFileError("its gamma is not positive")
        model._M = fields.array("M", (K, K))
    else:
        model._sigma2 = fields.array("sigma2", (K,))
        if (model._sigma2 < 0).any():
            raise ModelFileError("it has negative variances")
    if phase == "running":
        _set_running(model, fields)
    return model


def _set_running(model: Any, fields: Fields) -> None:
    K, D, pending = model.K, model.D, model.open_rows
    stack = fields.array("stack", (K + pending, D), model.dtype)  # first: whatever is allocated below is no larger
    rows = model._held_rows
    model._steps = np.stack([fields.array(f"steps{i}", (rows,)) for i in range(model._kinds)])
    block: Any
    if isinstance(model, SimilarityMatching):
        block = _bare(GramBlock, stack, K, D, pending)
        block.s = fields.number("s", least_scale(stack.dtype))
        model._solver = fields.array("lateral", (K, K))
        model._w, model._Y = fields.array("w", (rows,)), fields.array("Y", (rows, K))
        model._a, model._level = fields.number("a", 0.0, 1.0), fields.number("level", 0.0)
        model._since_restore = fields.count("since_restore")
        model._kept_since_restore = fields.number("kept_since_restore", 0.0, 1.0)
    else:
        assert isinstance(model, FrameAlgorithm)
        block = _bare(FrameBlock, stack, K, D, pending)
        eps = float(np.finfo(stack.dtype).eps)
        block.orthonormal, block.direct = model._orthonormal, K + pending >= D
        m = D if block.direct else K + pending
        kept = K if block.direct or not model._orthonormal else 0
        block.open_Z, block.open_rows = fields.array("Z", (kept, m)), fields.array("rows", (pending, m))
        block.open_frame = fields.array("frame", (0, 0) if block.direct else (m, m))
        block._source = block._frame = None
        block.drift, block._known = fields.number("drift", 0.0), block.known()
        block.H = fields.array("H", (K, K)) if "H" in fields.arrays else None
        block.carried, block._triangular = fields.count("carried"), fields.value("triangular", bool)
        if isinstance(model, IPCA):
            model._S, model._N = fields.array("S", (K, K)), fields.array("N", (K, K))
            model._P, model._T = fields.array("P", (pending, K)), fields.array("T", (pending, m))
            model._delta = NOT_MADE if fields.values.get("delta") is None else fields.number("delta")
            model._spent, model._since_restore = fields.count("spent"), fields.count("since_restore")
        block._trust, block._negligible = 10.0 * eps**0.5, 4.0 * eps
    block.loaded = block.X = None
    block.n = fields.count("open", 0, pending - 1)
    if isinstance(model, SimilarityMatching):
        model._taken = block.n
    model._block = block


def _bare(kind: type[Block], stack: Array, K: int, D: int, pending: int) -> Any:
    block: Any = kind.__new__(kind)
    block.stack, block.K, block.D, block.pending = stack, K, D, pending
    return block


def contents(model: StreamingAlgorithm[Any]) -> Contents:
    """What a file of this model holds."""
    arrays, state = algorithm_state(model)
    return Contents("algorithm", arrays, state, {})


def from_contents(found: Contents, cls: type, path: Any, rates: dict[str, Rate | None]) -> Any:
    """The model of a file."""
    try:
        if found.kind != "algorithm":
            raise ModelFileError(f"it holds an {found.kind}; load it with {found.kind}.load")
        return algorithm_from_state(Fields(found.arrays, found.state), rates, cls)
    except ModelFileError as error:
        raise ModelFileError(f"{path} cannot be used as a model: {error}.") from None
