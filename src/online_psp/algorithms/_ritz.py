"""One step of `online_psp.algorithms.block`: a rank-K model and a block of rows become a rank-K model."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from online_psp.algorithms._ritz_exact import exactly
from online_psp.algorithms._ritz_fast import try_fast
from online_psp.algorithms._ritz_image import try_image
from online_psp.algorithms._ritz_model import RANGE, Model, leading, principal, rounding
from online_psp.engine.row_products import squares, widened
from online_psp.engine.rows import AnyRows, SparseRows
from online_psp.engine.sparse_store import SparseStore
from online_psp.engine.types import Array, Floats

__all__ = ["Model", "advance", "leading", "principal", "rounding"]

# Constants, chosen on other data than the tests' (docs/adr/0012).
_SAFE = 0.7  # a fast step needs ‖R‖ ≤ this times the smallest eigenvalue kept
_PART = 5 / 3  # rows, in multiples of K, that a fast step takes at a time where all of a block are safe: inner products cost less
_HOPELESS = 1.6  # times the smallest eigenvalue that ‖R‖ may be, overestimated, for a fast step to be tried
_FAINT = 1e-60


def advance(model: Model, rows: AnyRows, roots: Floats, keep: float, K: int) -> Model:
    """The best rank-K approximation of ``keep Bᵀ M B + X̂ᵀ X̂``, X̂ the rows times their root weights.

    Where the total is followed, ``keep σ² (I − Bᵀ B)`` belongs to it, σ² the mean variance along the directions that were left out.

    Arrays that come in are left alone; but a basis in a store for sparse rows, and their running sum, move past the rows: see `Model.own`.

    Parameters
    ----------
    model : Model
    rows : rows, (b, D)
        Centred, where they are to be.
    roots : (b,)
    keep : float
        What is left of the model.
    K : int
        Directions to keep.
    """
    floor = keep * model.floor(rows.D) if model.k == K else 0.0
    total = None if model.total is None else keep * model.total + float(roots**2 @ squares(rows))
    model = model._replace(M=_faded(model.M, keep))
    if model.k == K:
        model = model._replace(B=_suited(model, rows))
        found, reach = try_image(model, rows, roots)
        if found is not None:
            return found._replace(total=total)
        parts = max(1, round(len(rows) / (_PART * K)))
        step, done = -(-len(rows) // parts), 0
        while done < len(rows) and reach < _HOPELESS:
            part = slice(done, min(done + step, len(rows)))
            found = try_fast(model, rows[part], roots[part], _SAFE / parts)  # residuals of all parts together are no larger than their sum
            if found is None and done == 0 and parts > 1:
                step, parts = len(rows), 1
                continue
            if found is None:
                break
            model, done = found, part.stop
        rows, roots = rows[done:], roots[done:]
    if len(rows):
        model = _raised(exactly(_lowered(model, floor), widened(rows), roots, K), floor)
        if isinstance(rows, SparseRows) and rows.sums is not None:
            rows.sums.take(rows)
    return model._replace(total=total)


def _lowered(model: Model, floor: float) -> Model:
    """The model less what it has along every direction: so that a direction that was left out before, and now comes in, is not at a
    disadvantage.
    """
    if not floor:
        return model
    values, vectors = eigh(model.M)
    return model._replace(M=(vectors * np.maximum(values - floor, 0.1 * RANGE * values[-1])) @ vectors.T)


def _raised(model: Model, floor: float) -> Model:
    """The reverse."""
    return model._replace(M=model.M + floor * np.eye(len(model.M))) if floor else model


def _suited(model: Model, rows: AnyRows) -> Array | SparseStore:
    """The basis, where products with such rows are cheap."""
    if not isinstance(rows, SparseRows):
        return model.basis()
    fits = isinstance(model.B, SparseStore) and model.B.sums is rows.sums
    return model.B if fits else SparseStore(model.basis(), rows.sums)


def _faded(M: Floats, keep: float) -> Floats:
    """``keep M``, but no less than what floating point can tell from nothing: rows of zeros do not move the subspace."""
    largest = float(M.diagonal().max(initial=0.0))
    if 0.0 < keep * largest < _FAINT:
        return np.asarray(M * (_FAINT / largest))
    return np.asarray(keep * M)
