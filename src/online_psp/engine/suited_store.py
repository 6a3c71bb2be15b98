"""Choice of the store for the next rows."""

from __future__ import annotations

from online_psp.engine.array_store import ArrayStore
from online_psp.engine.rows import AnyRows, ArrayRows, SparseRows
from online_psp.engine.sparse_store import SparseStore
from online_psp.engine.store import DenseStore, Store


def suited(store: Store, rows: AnyRows, capacity: int) -> Store:
    """A store with the same basis that takes such rows: the given one, if it does. Its open block must be empty.

    `capacity` is the number of single samples that a dense store has room for.
    """
    if isinstance(rows, SparseRows):
        fits = isinstance(store, SparseStore) and store.sums is rows.sums
        return store if fits else SparseStore(store.read(), rows.sums)
    if isinstance(rows, ArrayRows):
        fits = isinstance(store, ArrayStore) and store.library == rows.library
        return store if fits else ArrayStore(store.read(), rows.library)
    return DenseStore(store.read(), capacity) if isinstance(store, SparseStore | ArrayStore) else store
