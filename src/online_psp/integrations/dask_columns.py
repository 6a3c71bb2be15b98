"""FSM for very many features with Dask: columns are distributed over workers.

Each worker holds its columns of the weights, and compresses its columns of a block of n rows. Only ``P = X Wᵀ`` and ``G = X Xᵀ`` come back
and are summed: n (K + n) numbers from each worker, whatever D. The recurrence runs on the client, on those sums, and its result (K n
numbers) goes out with the request for the next block. The iterates are those of one machine, up to rounding.

The weights stay in the memory of the workers, and change there. Every request has a number, so that nothing is done twice; and a lost
worker ends the fit with an error, so that nothing is silently forgotten.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.linalg import eigh, solve_triangular
from scipy.sparse import issparse

from online_psp.algorithms._base import State
from online_psp.algorithms._provided import BlockSize
from online_psp.algorithms._similarity import inverse
from online_psp.algorithms.fsm import FSM
from online_psp.engine.checks import check_count, checked_steps
from online_psp.engine.types import Array, Floats, Rate
from online_psp.integrations import dask_shards as shards

_PATIENCE = 2.0  # seconds between two checks that all workers are still there


class Piece(NamedTuple):
    """Rows `start` … `stop`−1 of a chunk whose columns are on the workers."""

    chunks: list[Any]
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


class Workers:
    """The workers that hold the columns, in order, and requests to all of them at once."""

    def __init__(self, client: Any, addresses: list[str]) -> None:
        self.client, self.addresses = client, addresses
        name = uuid.uuid4().hex
        self.names = [f"online-psp-{name}-{index}" for index in range(len(addresses))]  # workers may share a process

    def start(self, function: Any, *columns: list[Any]) -> list[Any]:
        """Start a function on every worker, and return one future for each; each of `columns` has one argument per worker."""
        return [
            self.client.submit(function, *arguments, workers=[address], allow_other_workers=False, pure=False)
            for address, *arguments in zip(self.addresses, *columns, strict=True)
        ]

    def same(self, *values: Any) -> list[list[Any]]:
        return [[value] * len(self.addresses) for value in values]

    def results(self, futures: list[Any]) -> list[Any]:
        """The values of futures; raises an error if a worker is gone."""
        from distributed import TimeoutError as NotYet
        from distributed import wait

        with self.said():
            while True:
                try:
                    wait(futures, timeout=_PATIENCE)
                    break
                except NotYet:
                    self.check_present()
            return list(self.client.gather(futures))

    def place(self, pieces: list[Any]) -> list[Any]:
        """Send a piece to every worker; returns one future for each."""
        with self.said():
            self.check_present()
            return [self.client.scatter(piece, workers=[at], hash=False) for piece, at in zip(pieces, self.addresses, strict=True)]

    def check_present(self) -> None:
        """Raise an error that names a worker that is gone."""
        present = self.client.scheduler_info(n_workers=-1)["workers"]
        missing = [address for address in self.addresses if address not in present]
        if missing:
            raise RuntimeError(f"Worker {missing[0]} is gone, and its columns with it; start the fit anew.")

    @contextlib.contextmanager
    def said(self) -> Iterator[None]:
        """Turn the many errors that Dask raises for a lost worker into one sentence."""
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        try:
            yield
        except (KeyError, OSError, CancelledError, KilledWorker) as error:
            self.check_present()
            raise RuntimeError(f"A worker was lost ({type(error).__name__}), and its columns with it; start the fit anew.") from None


class ColumnStore:
    """A basis whose columns are on the workers; operations on it wait for the next request."""

    def __init__(self, K: int, D: int, workers: Workers) -> None:
        self.K, self.D = K, D
        self.workers = workers
        self.number = 0
        self.operations: list[tuple[str, tuple[Any, ...]]] = []

    def request(self, chunks: list[Any] | None, start: int = 0, stop: int = 0) -> list[Any]:
        """Send the waiting operations, and ask for the products of some rows."""
        ask = self.workers
        number, operations, first, last = ask.same(self.number + 1, self.operations, start, stop)
        answers = ask.results(ask.start(shards.request, ask.names, number, operations, chunks or ask.same(None)[0], first, last))
        self.number += 1
        self.operations = []
        return answers

    def compress(self, rows: Piece, G: Array | None = None) -> tuple[Floats, Floats]:
        answers = self.request(rows.chunks, rows.start, rows.stop)
        return sum(P for P, _ in answers), sum(G for _, G in answers)

    def add(self, a: float, C: Floats) -> None:
        self.operations.append(("add", (a, C)))

    def move(self, A: Floats, C: Floats) -> None:
        self.operations.append(("move", (A, C)))

    def turn(self, A: Floats) -> None:
        self.operations.append(("turn", (A,)))

    def scale(self, factor: float) -> None:
        self.operations.append(("scale", (factor,)))

    def gram(self) -> Floats:
        self.request(None)
        return np.asarray(sum(self.workers.results(self.workers.start(shards.own_gram, self.workers.names))))

    def read(self) -> Array:
        return self._read(None)

    def times(self, A: Floats) -> Array:
        return self._read(A)

    def _read(self, A: Floats | None) -> Array:
        self.request(None)
        return np.concatenate(self.workers.results(self.workers.start(shards.read, self.workers.names, *self.workers.same(A))), axis=1)


class ColumnFSM(FSM):
    """FSM with its columns distributed over the workers of a `distributed.Client`.

    Parameters
    ----------
    K, gamma, learning_rate, beta, block_size, dtype
        As in `FSM`.
    client : distributed.Client, optional
        The current client by default.
    workers : list of addresses, optional
        Workers that are to hold columns; all of them by default.

    Notes
    -----
    The start is the orthonormal basis of the first K rows, as in `FSM`, up to the signs of its vectors, and so of the outputs.
    """

    def __init__(
        self,
        K: int,
        *,
        client: Any = None,
        workers: list[str] | None = None,
        gamma: float = 2.0,
        learning_rate: Rate | None = None,
        beta: Rate | None = None,
        block_size: BlockSize = "auto",
        dtype: DTypeLike = np.float64,
    ) -> None:
        super().__init__(K, gamma=gamma, learning_rate=learning_rate, beta=beta, block_size=block_size, dtype=dtype)
        if client is None:
            from distributed import get_client

            client = get_client()
        self._workers = Workers(client, workers or sorted(client.scheduler_info(n_workers=-1)["workers"]))
        check_count(len(self._workers.addresses), "the number of workers")
        self._edges: list[int] = []

    def fit_next(self, x: Any, step: float | None = None) -> Array:
        raise TypeError("ColumnFSM takes blocks of rows, with fit_block: a round trip per sample would cost far more than the work.")

    def fit_block(self, X: Any, steps: ArrayLike | None = None) -> Array:
        """Learn from n samples; the iterates are those of `FSM.fit_block`.

        Parameters
        ----------
        X : dask array or array, (n, D)
            Each worker reads its own columns of a dask array, one row of chunks after the other; chunks may be sparse. The first row of
            chunks must have at least K rows.

        Returns
        -------
        Y : (n, K)
        """
        if np.ndim(X) != 2 or (self.D is not None and X.shape[1] != self.D):
            raise ValueError(f"fit_block takes samples as rows, shape (n, {self.D or 'D'}); got shape {np.shape(X)}.")
        with self._lock:
            if self.D is None:
                self._check_features(X.shape[1])
                self._edges = [int(edge) for edge in np.linspace(0, X.shape[1], len(self._workers.addresses) + 1)]
            rates = self._rates(self.t, X.shape[0]) if steps is None else (checked_steps(steps, X.shape[0], self.most_step),) * 2
            self._check_chunks(X)
            outputs, done = [np.empty((0, self.K))], 0
            for n, chunks in self._chunks(X):
                own = tuple(rate[done : done + n] for rate in rates)
                first = 0
                if not self._started:
                    outputs.append(self._start_from(chunks, n, X.shape[1], [rate[: self.K] for rate in own]))
                    self.t = first = len(outputs[-1])
                for start, stop in self._cuts(first, n, own, self.block_rows):
                    outputs.append(self._take_block(Piece(chunks, start, stop), [rate[start:stop] for rate in own]).copy())
                    self.t += stop - start
                done += n
            return np.concatenate(outputs).astype(self.dtype)

    def _check_chunks(self, X: Any) -> None:
        """Raise a ValueError if any row of a call is not finite, before anything is learned from it; each worker checks its own columns."""
        done = 0
        for n, chunks in self._chunks(X):
            if not all(self._workers.results(self._workers.start(shards.is_finite, chunks))):
                raise ValueError(f"Rows {done} to {done + n - 1} have NaN or infinity; every value must be finite.")
            done += n

    def state(self) -> State:
        raise TypeError("A model whose columns are on workers cannot be copied or saved; read its components or its W instead.")

    def _chunks(self, X: Any) -> Any:
        """Rows of chunks, as (number of rows, one future per worker); the next one is read while one is used."""
        ask, slices = self._workers, [slice(start, stop) for start, stop in itertools.pairwise(self._edges)]
        if not hasattr(X, "rechunk"):
            rows = X if issparse(X) else np.asarray(X)
            yield X.shape[0], ask.place([rows[:, columns] for columns in slices])
            return
        X = X.rechunk({1: tuple(part.stop - part.start for part in slices)})
        grid = X.to_delayed()

        def read(i: int) -> list[Any]:
            return [ask.client.compute(piece, workers=[at]) for piece, at in zip(grid[i], ask.addresses, strict=True)]

        ahead = read(0)
        for i, n in enumerate(X.chunks[0]):
            chunks, ahead = ahead, read(i + 1) if i + 1 < len(grid) else []
            yield int(n), chunks

    def _start_from(self, chunks: list[Any], n: int, D: int, rates: list[Floats]) -> Floats:
        """Start from the orthonormal basis of the first K rows, computed in two rounds of Cholesky.

        Returns the outputs of the first rows that have been learned with the start: all K of them, or none.
        """
        ask, K = self._workers, self.K
        if n < K:
            raise ValueError(f"The first block must have at least K={K} rows; it has {n}.")
        values, vectors = eigh(sum(ask.results(ask.start(shards.first_gram, chunks, *ask.same(K)))))
        known = values > 1e-10 * values[-1]
        if known.all():  # in the order of the rows, as in QR
            A = np.linalg.inv(np.linalg.cholesky((vectors * values) @ vectors.T))
        else:  # dependent rows are replaced by random directions
            missing = int(K - known.sum())
            A = np.zeros((K, K + missing))
            A[missing:, :K] = (vectors[:, known] / np.sqrt(values[known])).T
            A[:missing, K:] = np.eye(missing) / np.sqrt(D)
        seeds = [(index, K) for index in range(len(ask.addresses))]
        answers = ask.results(ask.start(shards.begin, ask.names, chunks, *ask.same(A), seeds, *ask.same(self.dtype)))
        turn = np.linalg.inv(np.linalg.cholesky(sum(H for H, _ in answers)))
        self.D = D
        self._begin_in(ColumnStore(K, D, ask))
        self._started = True
        self._store.turn(self._scale * turn)
        if not (known.all() and self._stays_put((rates[0], rates[1]))):
            return np.empty((0, K))
        Y: Floats = sum(P for _, P in answers) @ turn.T
        self._learn_within(Y, rates[0])
        return Y

    def principal_components(self) -> tuple[Any, Floats]:
        """As in `FSM`, but the components stay on the workers.

        Returns
        -------
        components : dask array (K, D)
        variances : (K,)
        """
        from dask import array, delayed

        if not self._started:
            raise ValueError(f"There is no model yet: it starts with the first {self.K} samples.")
        ask = self._workers
        H = self._store.gram()
        Minv = inverse(self._M)
        factor = np.linalg.cholesky(Minv @ H @ Minv)  # M⁻¹ W = factor Q, with Q orthonormal
        variances, vectors = eigh(self._covariance_within(np.asarray(factor.T, dtype=np.float64)))
        A = solve_triangular(factor, Minv, lower=True)
        futures = ask.start(shards.read, ask.names, *ask.same(vectors[:, ::-1].T @ A))
        widths = np.diff(self._edges)
        parts = [array.from_delayed(delayed(part), (self.K, int(w)), dtype=self.dtype) for part, w in zip(futures, widths, strict=True)]
        return array.concatenate(parts, axis=1), np.maximum(variances[::-1], 0.0)

    def close(self) -> None:
        """Delete the columns on the workers."""
        self._workers.results(self._workers.start(shards.forget, self._workers.names))
        self._started = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
