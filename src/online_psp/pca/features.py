"""Features that come to a stream later: a model of more features, in which the new ones have been zero, or missing, so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
from scipy.sparse import csr_array

from online_psp.engine.rows import AnyRows, DenseRows, SparseRows
from online_psp.pca.buffer import Buffer, block_of
from online_psp.pca.learn import with_scale
from online_psp.pca.model import Model
from online_psp.pca.principal import principal
from online_psp.pca.settings import Settings
from online_psp.pca.state import State, opened
from online_psp.pca.window import learn


def check_names(names: Sequence[str] | int, known: Any) -> int:
    """The number of new features, given by number or by name; raises an error if names are not new, or do not go with those `known`."""
    if isinstance(names, int | np.integer) and not isinstance(names, bool):
        if known is not None:
            raise ValueError(f"The features have names, {known[0]!r} the first: give those of the new ones.")
        if names < 1:
            raise ValueError(f"The number of new features must be at least 1; got {names}.")
        return int(names)
    if isinstance(names, str) or not np.iterable(names) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"New features are a list of names, or their number; got {names!r}.")
    if known is None:
        raise ValueError(f"The features so far have no names: give the number of new ones, {len(names)}.")
    seen = set(known)
    for name in names:
        if name in seen:
            raise ValueError(f"There is a feature {name!r} already.")
        seen.add(name)
    return len(names)


def with_features(model: Model, count: int, settings: Settings) -> Model:
    """The model with so many features more, as settings for all of them say."""
    D = len(model.mean)
    after: Model = _padded(model._replace(window=None, robust=None), Model, count)  # what is far out has to be found anew
    if model.scale is not None:  # a feature that has not varied is divided by 1
        after = after._replace(scale=np.append(model.scale, np.ones(count)))
    if settings.missing == "impute" and model.seen:  # nobody has seen them
        known = np.full(D, model.weight) if model.known is None else model.known
        groups = np.zeros(D) if model.groups is None else model.groups
        after = after._replace(known=np.append(known, np.zeros(count)), groups=np.append(groups, np.arange(D, D + count, dtype=np.float64)))
    if model.few and not settings.few:
        basis, variances = principal(after, settings, settings.rank)
        after = with_scale(after._replace(covariance=None, basis=basis, variances=variances), settings)
    window = model.window
    if window is None:
        return after
    pieces: dict[str, Any] = {
        name: tuple(with_features(piece, count, settings) for piece in getattr(window, name)) for name in ("old", "new", "total")
    }
    return after._replace(window=window._replace(**pieces))


def _padded(state: Any, kind: Any, count: int) -> Any:
    """A NamedTuple, with zeros for new features wherever the annotation of an array has the letter D."""
    changed = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        value = getattr(state, name)
        if isinstance(value, np.ndarray):
            array = next(each for each in (hint, *get_args(hint)) if get_origin(each) is Annotated)
            wider = [(0, count if letter == "D" else 0) for letter in get_args(array)[1:]]
            padded = np.pad(value, wider)
            changed[name] = np.asfortranarray(padded) if value.flags.f_contiguous and value.ndim > 1 else padded
        elif hasattr(value, "_fields"):
            changed[name] = _padded(value, type(value), count)
    return state._replace(**changed)


def widened(state: State, count: int, n_components: Any) -> State:
    """The state of a stream with so many features more."""
    if state.settings.missing == "impute" or state.settings.robust:  # a block of both kinds of rows would be hard to judge
        state = state.closed()
    buffer, settings = state.buffer, state.settings
    settings = settings.begun(n_components, settings.D + count, settings.working)
    after = opened(settings, with_features(state.model, count, settings), state.last_time)
    block = _wider(buffer, count, settings), buffer.weights[: buffer.n], buffer.decays[: buffer.n]
    if buffer.n >= after.buffer.room:
        return opened(settings, learn(after.model, block_of(*block), settings), state.last_time)
    if buffer.n:
        after.buffer.add(*block)
    return after


def _wider(buffer: Buffer, count: int, settings: Settings) -> AnyRows:
    """The rows of a buffer with so many features more, which are zero."""
    rows = buffer.rows(buffer.n)
    if isinstance(rows, SparseRows):
        matrix = rows.matrix()
        return SparseRows(csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(len(rows), settings.D)))
    return DenseRows(np.pad(rows.dense(settings.working), ((0, 0), (0, count))))
