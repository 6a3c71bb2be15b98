"""Sparse rows that a block learner holds, and its basis while rows are sparse, as a state that goes on bit for bit."""

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
    """CSR rows with their shares, the running sum that they are centred by, and how the basis hangs on it."""

    shares: Annotated[Floats, "open"]
    indptr: Annotated[Floats, "ends"]
    """Whole numbers, as the indices are."""
    indices: Annotated[Floats, "entries"]
    data: Annotated[Array, "entries"]
    sum: Annotated[Floats, "D"] | None
    """None where rows are not centred."""
    weight: float
    store: StoreState | None
    """None while the basis is an array of its own."""


def described(rows: SparseRows | None, shares: Floats, store: SparseStore | None, dtype: np.dtype[Any]) -> SparseRunning:
    """The rows held, if any, in arrays of their own, and the store, whose V takes the place of the basis."""
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
    """The running sum again."""
    if state.sum is None:
        return None
    sums = Sums(np.zeros(0), 0.0)
    sums.vector, sums.total = np.array(state.sum), state.weight
    return sums


def rows_again(state: SparseRunning, sums: Sums | None, D: int) -> SparseRows | None:
    """The rows again, with their running sum; None where there were none."""
    if not len(state.shares):
        return None
    indptr, indices = (np.asarray(each, dtype=np.int64) for each in (state.indptr, state.indices))
    return SparseRows(csr_array((np.array(state.data), indices, indptr), shape=(len(state.shares), D)), None, sums)


def check(state: SparseRunning, D: int) -> None:
    """Raise a ValueError for what no model can have stored."""
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
