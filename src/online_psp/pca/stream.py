"""What an OnlinePCA has learned, and how it learns more: from rows that are dense, sparse or of another array library."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from scipy.sparse import issparse

from online_psp.algorithms import ALGORITHMS
from online_psp.engine.arrays import ForeignRows, to_host
from online_psp.engine.moments import Moments, center_rows
from online_psp.engine.sparse import Centre, SparseRows
from online_psp.engine.state import WritableState
from online_psp.engine.types import Array, Floats, Rate
from online_psp.pca.exact import Exact, Kept, ReadOut, Scatter, add_to_scatter, exact_phase

_BLOCK_BYTES = 1 << 22
_ONE = np.ones(1)


class Settings(Protocol):
    """The parameters of an OnlinePCA that learning depends on."""

    algorithm: str
    gamma: float
    ell: float
    learning_rate: Rate | None
    center: bool
    block_size: int | str


def flip_signs(components: Array) -> Array:
    """The one rule for signs: the entry of largest size in each component is positive."""
    largest = components[np.arange(len(components)), np.argmax(np.abs(components), axis=1)]
    flipped: Array = components * np.where(largest < 0, -1.0, 1.0)[:, np.newaxis].astype(components.dtype)
    return flipped


class Stream(WritableState):
    """Everything learned; `fit` replaces it as a whole."""

    def __init__(self, rank: int, D: int, dtype: np.dtype[Any]) -> None:
        self.rank, self.dtype = rank, dtype
        self.exact: Exact | None = exact_phase(rank, D, dtype)
        self.model: Any = None  # the algorithm, once the exact phase is over
        self.centre: Centre | None = None  # the moments, while the rows are sparse
        self.moments = Moments(0.0, np.zeros(D), 0.0)
        self.n_samples = 0
        self.found: ReadOut | None = None
        self.refresh_at = 0.0  # weight at which `fit_next` reads out anew
        self.components: Array = np.zeros((0, D))  # what it projects on until then, scaled if it whitens

    @property
    def D(self) -> int:
        """Features."""
        return int(self.components.shape[1])

    @property
    def moments(self) -> Moments:
        """Weight, mean and scatter of the rows seen."""
        centre = self.centre
        return self._moments if centre is None else Moments(centre.total, centre.mean, centre.scatter)

    @moments.setter
    def moments(self, moments: Moments) -> None:
        self._moments, self.centre = moments, None

    def read_out(self) -> ReadOut:
        """The K' directions as ordered principal components; kept until more is learned."""
        if self.found is None:
            if self.exact is not None:
                directions, scatter = self.exact.read_out()
            else:
                directions, variances = self.model.principal_components()
                directions, scatter = to_host(directions), variances * self.moments.weight
            self.found = ReadOut(flip_signs(directions), scatter)
        return self.found

    def learn(self, rows: Any, weights: Floats, settings: Settings) -> None:
        """Learn from rows, (n, D), of any kind, with weights, (n,)."""
        if not weights.all():
            rows, weights = rows[np.flatnonzero(weights)], weights[weights > 0]
        start, every = 0, self._mend_every()
        while start < rows.shape[0]:
            stop = start + every - self.n_samples % every
            self._learn_part(rows[start:stop], weights[start:stop], settings)
            self._mend(settings)
            start = stop
        self.found, self.refresh_at = None, 0.0

    def learn_one(self, row: Array, settings: Settings) -> None:
        """Learn from one row, (D,), of weight one, which is changed in place."""
        before = self.moments.weight
        centred = self._centred(row[np.newaxis], _ONE, settings)
        if self.exact is None:
            self.model.fit_next(centred[0], _step(settings, before))
        else:
            self._add_exactly(centred, settings)
        self.n_samples += 1
        self._mend(settings)
        self.found = None

    def go_on_from(self, found: ReadOut, settings: Settings) -> None:
        """Start the algorithm at its fixed point for these directions, with their variances."""
        rank, D = found.components.shape
        variances = found.scatter / self.moments.weight
        variances = np.maximum(variances, np.finfo(self.dtype).eps * variances[0])
        start: dict[str, Any]
        if settings.algorithm in ("fsm", "sm"):
            lateral = {"Minv0": np.diag(1.0 / variances)} if settings.algorithm == "fsm" else {"M0": np.diag(variances)}
            start = {"W0": variances[:, np.newaxis] * found.components, **lateral}
        else:
            start = {"Uhat0": found.components.T, "sigma2_0": variances}
        self.model = ALGORITHMS[settings.algorithm](rank, D, block_size=settings.block_size, dtype=self.dtype, **start)
        self.exact = None

    def _mend_every(self) -> int:
        """How many samples lie between two looks at whether FSM or SM is near its fixed point: seldom enough to cost little."""
        return max(8 * self.rank, self.D // 8)

    def _mend(self, settings: Settings) -> None:
        """After a jump in the data, bring FSM and SM back; at the same samples however the stream is cut into calls."""
        if self.exact is None and settings.algorithm in ("fsm", "sm") and self.n_samples % self._mend_every() == 0:
            self.model.orthonormalize()

    def _learn_part(self, rows: Any, weights: Floats, settings: Settings) -> None:
        n = rows.shape[0]
        step = max(1, _BLOCK_BYTES // (rows.shape[1] * rows.dtype.itemsize))
        start = self._learn_sparse(rows, weights, settings) if issparse(rows) else 0
        foreign = isinstance(rows, ForeignRows)
        while start < n:
            stop = start + (step if self.exact is None else min(step, self.exact.room))
            part, weight = rows[start:stop], weights[start:stop]
            start = stop
            if foreign and self.exact is None:
                self._learn_foreign(part, weight, settings)
            else:
                self._learn_dense((part.toarray() if foreign else part).astype(self.dtype), weight, settings)
        self.n_samples += n

    def _learn_dense(self, rows: Array, weights: Floats, settings: Settings) -> None:
        """Learn from rows that are ours to change, no more than the exact phase has room for."""
        before = self.moments.weight
        centred = self._centred(rows, weights, settings)
        if self.exact is None:
            self.model.fit_block(centred, _steps(settings, before, weights))
        else:
            self._add_exactly(centred * np.sqrt(weights)[:, np.newaxis].astype(self.dtype), settings)

    def _learn_foreign(self, rows: Any, weights: Floats, settings: Settings) -> None:
        """Learn from rows of another array library while streaming; the rows and the weights of the model stay there."""
        before, mean, scatter = self.moments
        rows = ForeignRows(rows.X, self.dtype)
        rows, mean, added = rows.centred(weights, mean, before) if settings.center else (rows, mean, rows.scatter(weights))
        self.moments = Moments(before + float(weights.sum()), mean, scatter + added)
        self.model.fit_block(rows, _steps(settings, before, weights))

    def _learn_sparse(self, rows: Any, weights: Floats, settings: Settings) -> int:
        """Learn from CSR rows; all of them, always."""
        n, start = len(weights), 0
        while isinstance(self.exact, Kept) and start < n:  # it keeps dense rows, few of them
            stop = start + self.exact.room
            self._learn_dense(rows[start:stop].toarray().astype(self.dtype, copy=False), weights[start:stop], settings)
            start = stop
        if start < n:
            rows, weights = rows[start:], weights[start:]
            if settings.center and self.centre is None:
                weight, mean, scatter = self.moments
                self.centre = Centre(mean, weight, scatter)
            before = self._moments.weight if self.centre is None else self.centre.total
            part = SparseRows(rows.astype(self.dtype, copy=False), weights, self.centre)
            if self.centre is None:
                weight, mean, scatter = self.moments
                self.moments = Moments(weight + float(weights.sum()), mean, scatter + float(weights @ part.row_squares()))
            if isinstance(self.exact, Scatter):
                add_to_scatter(self.exact, part)
            else:
                self.model.fit_block(part, _steps(settings, before, weights))
        return n

    def _add_exactly(self, rows: Array, settings: Settings) -> None:
        assert self.exact is not None
        rest = self.exact.add(rows)
        if rest is not None:
            self.go_on_from(rest, settings)

    def _centred(self, rows: Array, weights: Floats, settings: Settings) -> Array:
        """Centre rows in place, online and exactly, and count them."""
        weight, mean, scatter = self.moments
        if settings.center:
            weight, added = center_rows(rows, weights, mean, weight)
        else:
            weight, added = weight + float(weights.sum()), float(np.einsum("i,ij,ij", weights, rows, rows))
        self.moments = Moments(weight, mean, scatter + added)
        return rows


def _steps(settings: Settings, before: float, weights: Floats) -> Floats:
    """Step sizes of samples with these weights; a plain average for gamma = 2 (FSM, SM), and for IPCA."""
    after = before + np.cumsum(weights)
    if settings.learning_rate is not None:
        rates = np.array([settings.learning_rate(t) for t in after])
        return np.asarray(1.0 - (1.0 - rates) ** weights)
    if settings.algorithm == "ccipca":
        share = (1.0 + settings.ell) * weights
        return np.asarray(share / (after - weights + share))
    gamma = settings.gamma if settings.algorithm in ("fsm", "sm") else 2.0
    return np.asarray(2.0 * weights / (gamma * (after - weights) + 2.0 * weights))


def _step(settings: Settings, before: float) -> float:
    """The same for a single sample of weight one, quickly."""
    if settings.learning_rate is not None or settings.algorithm == "ccipca":
        return float(_steps(settings, before, _ONE)[0])
    return 2.0 / ((settings.gamma if settings.algorithm in ("fsm", "sm") else 2.0) * before + 2.0)
