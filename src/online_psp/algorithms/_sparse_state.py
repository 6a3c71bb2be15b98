"""The part of a block learner's state that sparse rows need: the rows held, their running sum, and the store of the basis."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.linalg import lapack
from scipy.sparse import csr_array

from online_psp.engine.moments import Sums
from online_psp.engine.rows import SparseRows
from online_psp.engine.sparse_store import SparseStore, StoreState
from online_psp.engine.types import Array, Floats


class SparseRunning(NamedTuple):
    """CSR rows with their shares, the running sum by which they are centred, and the state of the store."""

    shares: Annotated[Floats, "open"]
    indptr: Annotated[Floats, "ends"]
    """Whole numbers, as are the indices."""
    indices: Annotated[Floats, "entries"]
    data: Annotated[Array, "entries"]
    sum: Annotated[Floats, "D"] | None
    """None if rows are not centred."""
    weight: float
    store: StoreState | None
    """None while the basis is a plain array."""


def described(rows: SparseRows | None, shares: Floats, store: SparseStore | None, dtype: np.dtype[Any]) -> SparseRunning:
    """The state of the rows held, if any, copied, and of the store, whose V takes the place of the basis."""
    sums = rows.sums if rows is not None else store.sums if store is not None else None
    matrix = csr_array((0, 0)) if rows is None else rows.matrix()
    fits = store is not None and store.sums is sums
    return SparseRunning(
        shares.copy(),
        matrix.indptr.astype(np.float64),
        matrix.indices.astype(np.float64),
        np.array(matrix.data, dtype=dtype),
        None if sums is None else sums.vector.copy(),
        1.0 if sums is None else sums.total,
        store.state() if store is not None and fits else None,
    )


def running_sum(state: SparseRunning) -> Sums | None:
    """The running sum of a state."""
    if state.sum is None:
        return None
    sums = Sums(np.zeros(0), 0.0)
    sums.vector, sums.total = np.array(state.sum), state.weight
    return sums


def rows_again(state: SparseRunning, sums: Sums | None, D: int) -> SparseRows | None:
    """The rows of a state, with their running sum; None if there are none."""
    if not len(state.shares):
        return None
    indptr, indices = (np.asarray(each, dtype=np.int64) for each in (state.indptr, state.indices))
    return SparseRows(csr_array((np.array(state.data), indices, indptr), shape=(len(state.shares), D)), None, sums)


def check(state: SparseRunning, D: int) -> None:
    """Raise a ValueError if no model can have stored this state."""
    if not ((state.shares >= 0) & (state.shares <= 1)).all():
        raise ValueError("its open rows do not have a share each")
    indptr, indices, store = state.indptr, state.indices, state.store
    ends = len(indptr) == len(state.shares) + 1 and indptr[0] == 0 and indptr[-1] == len(indices) and (np.diff(indptr) >= 0).all()
    whole = np.array_equal(indptr, np.floor(indptr)) and np.array_equal(indices, np.floor(indices))
    if not (ends and whole and ((indices >= 0) & (indices < D)).all()):
        raise ValueError("its sparse rows have impossible places")
    within = np.ones(len(indices), dtype=bool)
    within[indptr[:-1][np.diff(indptr) > 0].astype(np.intp)] = False
    if not (np.diff(indices, prepend=-1.0)[within] > 0).all():
        raise ValueError("its sparse rows are out of order")
    if not state.weight > 0 or (store is not None and (not store.s > 0 or store.square < 0 or store.entries < 0)):
        raise ValueError("its running sum has no weight")
    if store is not None and store.A is not None and lapack.dgetrf(store.A)[2] != 0:
        raise ValueError("its basis cannot be turned back")
