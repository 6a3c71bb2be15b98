"""Learning from rows that may have missing values or be gross, one block of raw rows at a time.

Rows are held as they came until a block is full. Blocks end at fixed places of the stream, so the model does not depend on how the rows are
cut into calls. A read in between gives the model of all rows so far, including the open ones, and changes nothing. The steps of a block:

1. The model as of its beginning says what it expects of each row, and how far away each row is (`holes.py`).
2. If the model is robust, rows that are too far away get less weight (`robust.py`).
3. The means and variances of the features are updated, each from its observed values (`engine/partial_moments.py`).
4. Few features: sums of pairs move, and nothing is filled (`pairs.py`). Many: filled rows move the leading directions, by the step of
   `online_psp.algorithms.block`.

`completing.py` says how rows are filled. Early rows were filled with a poor model, so they are forgotten faster the more is missing: the
share s of a row in the average becomes ``1 − (1 − s)^(1 + p)``, p the share of values missing so far.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from online_psp.algorithms._ritz import Model, advance, principal, rounding
from online_psp.algorithms.block import BLOCK
from online_psp.engine.finite import check_learned
from online_psp.engine.moments import Moments, weights_left
from online_psp.engine.partial_moments import PartialMoments
from online_psp.engine.rows import DenseRows
from online_psp.engine.types import Array, Floats
from online_psp.pca.completing import Completed, at_least, carried_over, complete, first_directions, typical_share
from online_psp.pca.exact import FIRST_ROWS, ReadOut, leading_directions
from online_psp.pca.held import OpenRows
from online_psp.pca.holes import Gaussian, Mask, expect, observed_in
from online_psp.pca.losses import Losses, Start, Tail
from online_psp.pca.pairs import Pairs
from online_psp.pca.repeats import Held
from online_psp.pca.robust import LEAST_FIRST, LEAST_ROWS, Guard, first_weights, middle_deviations, spread_of
from online_psp.pca.settings import Settings, rank_found
from online_psp.pca.states import CarefulState, GuardState, RitzState
from online_psp.pca.together import connect, one_group, single_groups, strangers_in
from online_psp.pca.units import unit_for

FEW_FEATURES = 2
"""Features, in multiples of K', up to which covariances of pairs are kept, and nothing is filled."""

# Constants, chosen on other data than the tests' (docs/adr/0013).
_PER_DIRECTION = 4  # values that a row must have for each direction that it is filled with
_RESCALE = 0.2  # largest difference, in logarithms, of a deviation from the divisor of the rows


_TINY = float(np.finfo(np.float64).tiny)


class Careful:
    """The learner for rows that may have missing values or be gross.

    Parameters
    ----------
    settings : Settings
    rank : int
        Directions kept, K'.
    D : int
    dtype : float64 or float32
    share : float, optional
        Share of the variance, if that determines the number of directions.
    """

    def __init__(self, settings: Settings, rank: int, D: int, dtype: np.dtype[Any], share: float | None) -> None:
        self.settings, self.rank, self.D, self.dtype, self.share = settings, rank, D, dtype, share
        self.moments = PartialMoments(D)
        self.factor = 1.0  # multiplies values from now on, besides the unit of the stream
        self.holes = False  # whether any value was missing
        self.groups = single_groups(D)  # of features that rows have connected (`together.py`)
        self.excess = 1.0  # f of rows with holes (`completing.py`), its geometric mean
        self.lacking = 0.0  # share of such rows in the average of all
        self.few = D <= FEW_FEATURES * rank
        self.core: Pairs | Model | None = Pairs(D) if self.few and not settings.robust else None
        self.guard: Guard | None = None  # once the first rows are weighed, if the model is robust
        self.losses = Losses()  # what weighing rows has cost
        self.scale: Floats | None = None  # what features of the model's rows are divided by, (D,), where they are standardised
        self._open = OpenRows(D, dtype)

    # Rows in

    @property
    def _size(self) -> int:
        """Rows of the block in hand."""
        robust, size = self.settings.robust, self.settings.block_size
        if self.core is None:
            return max(FIRST_ROWS * self.rank, LEAST_FIRST if robust else 1)
        return max(BLOCK * self.rank if size == "auto" else int(size), LEAST_ROWS if robust else 1)

    @property
    def room(self) -> int:
        """Rows until the block is closed."""
        return self._size - self._open.n

    @property
    def cheap_to_read(self) -> bool:
        """Whether no block is open, or none has been closed yet."""
        return not self._open.n or self.core is None

    @property
    def open_rows(self) -> int:
        """Number of the rows of the open block."""
        return self._open.n

    @property
    def open_weight(self) -> float:
        """Weight of the rows held."""
        return float(self._open.all().weights.sum())

    def add(self, rows: Array, weights: Floats, decays: Floats) -> bool:
        """Hold raw rows in units of the stream, (n, D), no more than there is room for; returns whether that has closed a block.

        Parameters
        ----------
        rows : (n, D)
            NaN where a value is missing.
        weights : (n,), positive
        decays : (n,)
            Share of everything before that is left when each row comes.
        """
        self._open.add(rows, weights, decays, self._size)
        if self._open.n < self._size:
            return False
        if self.settings.robust and self.core is None:
            self._drop_repeats()
            if 2 * self._open.n <= self._size:
                return False
        self._close()
        return True

    def _drop_repeats(self) -> None:
        """Hold each kind of row once: the first rows are judged when enough of them differ."""
        self.moments.count += self._open.drop_repeats()

    def _close(self) -> None:
        """Learn from the rows held."""
        if self.settings.robust and self.core is None:
            self._drop_repeats()
        held = self._open.all()
        rows, weights, decays = held.rows.astype(np.float64), held.weights, held.decays
        self._open.n = 0
        observed = observed_in(rows)
        self.holes = self.holes or not observed.all()
        weights = np.where(observed.any(axis=1), weights, 0.0)  # a row without any value is seen, and teaches nothing
        left = np.cumprod(decays[::-1])[::-1]
        later, faded = np.append(left[1:], 1.0), float(left[0])
        losses = self.losses._replace(given=faded * self.losses.given + float(weights @ later))
        squares = np.where(weights > 0, held.squares, 0.0)
        if not self.settings.robust:
            self._learn(rows, observed, weights, squares, decays)
            self.losses = losses
            return
        rows = self._to_own_unit(rows)
        raw, first = rows.copy(), self.core is None or self.guard is None
        influence = self._influence_of_new(rows, observed, weights) if first else self._influence_of_block(rows, observed, weights, decays)
        self._learn(rows, observed, weights * influence, squares * influence**2, decays)
        start = losses.start and losses.start.faded(faded)
        if self.guard is not None:
            tail = losses.tail.after(self._squares(raw, observed), weights * later, influence, self.guard.width, faded)
            losses = losses._replace(tail=tail)
        if first and self.guard is not None:  # in the units of the model that further rows are compared with
            self.guard = Guard(*spread_of(self._distances(raw, observed)[weights > 0], weights[weights > 0]))
            start = Start(self.moments.weight, self.moments.mean, self.moments.variance.copy())
        self.losses = losses._replace(start=start)

    def strangers(self) -> tuple[int, int] | None:
        """Two observed features that no row connects; None if there are none, or if that is not known.

        With few features that means: no row has both. With many, what is known of a third feature may say how they vary together.
        """
        known = np.flatnonzero(self.moments.known > 0)
        if isinstance(self.core, Pairs):
            alien = np.argwhere(self.core.weights[np.ix_(known, known)] == 0)
            return (int(known[alien[0, 0]]), int(known[alien[0, 1]])) if len(alien) else None
        return strangers_in(self.groups, known)

    def _learn(self, rows: Floats, observed: Mask, weights: Floats, squares: Floats, decays: Floats) -> None:
        self.moments.take_squares(squares, decays)
        self.groups = connect(self.groups, observed[weights > 0])
        if self.few and not isinstance(self.core, Model):
            pairs = self.core.copy() if isinstance(self.core, Pairs) else Pairs(self.D)
            self._take_pairs(pairs, rows, observed, weights, decays)
        elif not isinstance(self.core, Model) or not self.moments.weight:
            self._begin(rows, observed, weights, decays)
        else:
            self._advance(self.core, rows, observed, weights, decays)

    def settled(self) -> Careful:
        """This learner if it has no open rows, otherwise a copy that has learned them."""
        if not self._open.n:
            return self
        twin = copy.copy(self)
        twin.moments, twin._open = self.moments.copy(), copy.copy(self._open)
        twin._close()
        return twin

    # Gross rows

    def _influence_of_new(self, rows: Floats, observed: Mask, weights: Floats) -> Floats:
        """Weights of the first rows, (n,), from 0 to 1."""
        scale = middle_deviations(rows, observed) if self.settings.standardize else 1.0
        found = first_weights(rows / scale, observed, weights, self.rank, self.settings.center)
        self.guard = found.guard
        return found.weights

    def _influence_of_block(self, rows: Floats, observed: Mask, weights: Floats, decays: Floats) -> Floats:
        """Weights of the rows of a block, (n,), from 0 to 1; the guard learns from them."""
        assert self.guard is not None
        distances = self._distances(rows, observed)
        some = observed.any(axis=1)
        self.guard = self.guard.after(distances[some], weights[some], float(np.prod(decays)))
        return self.guard.weights(distances)

    @property
    def gross_share(self) -> float:
        """Share of the weight of all rows that was taken from gross ones, those of an open block left out."""
        return self.losses.gross_share(self.moments)

    def _squares(self, rows: Floats, observed: Mask) -> Floats:
        """Squares of the distances of raw rows from the mean, (n,), of standardised features where these are asked for."""
        apart = np.where(observed, rows - self.moments.mean if self.settings.center else rows, 0.0)
        if self.settings.standardize:
            apart = apart / self.deviations()
        return np.asarray(np.einsum("ij,ij->i", apart, apart) * self.D / np.maximum(observed.sum(axis=1), 1))

    def _to_own_unit(self, rows: Floats) -> Floats:
        """Bring the first rows to a unit that follows from their median row: the very first may be gross."""
        sizes = np.abs(np.nan_to_num(rows)).max(axis=1, initial=0.0)
        if self.core is not None or not sizes.any():
            return rows
        self.factor = unit_for(float(np.median(sizes[sizes > 0])), self.dtype)
        return rows * self.factor

    def _distances(self, rows: Floats, observed: Mask) -> Floats:
        """δ² of raw rows, (n,), times D over the values observed, and times the D-th root of the determinant of the covariance.

        With the determinant only the shape of the model matters. Otherwise rows that are all alike, coming for long, would make the
        variances smaller, and all other rows would seem farther away than before.
        """
        apart = rows - self.moments.mean if self.settings.center else rows
        size = 0.0
        if self.settings.standardize:
            scale = self.deviations() if self.scale is None else self.scale
            apart, size = apart / scale, 2.0 * float(np.log(scale).mean())
        found = self.read_out() if isinstance(self.core, Pairs) else ReadOut(*principal(self.core, len(self.core.M)))  # type: ignore[union-attr,arg-type]
        if not len(found.variances):
            return np.ones(len(rows))
        familiar = observed & (self.moments.known > 0)
        model = self._fillers(found, observed)
        expected, _ = expect(model, apart, familiar)
        left = self.D - len(model.variances)
        size += (float(np.log(np.maximum(model.variances, model.floor)).sum()) + left * float(np.log(model.floor))) / self.D
        return np.asarray(np.exp(size) * expected.distances * self.D / np.maximum(expected.counts, 1.0))

    def influence(self, rows: Floats) -> Floats:
        """The weights that raw rows would have, (n,), from 0 to 1; only with no open rows."""
        observed = observed_in(rows)
        return np.ones(len(rows)) if self.guard is None or self.core is None else self.guard.weights(self._distances(rows, observed))

    # Few features

    def _take_pairs(self, pairs: Pairs, rows: Floats, observed: Mask, weights: Floats, decays: Floats) -> None:
        if not pairs.weights.any() and self.settings.center:  # count from about where the values are: those of the row that counts most
            near = np.argmax(observed * weights[:, np.newaxis], axis=0)
            pairs.place = np.where(observed.any(axis=0), rows[near, np.arange(self.D)], 0.0)
        left = np.cumprod(decays[::-1])[::-1]
        pairs.add(rows, observed, weights * np.append(left[1:], 1.0), float(left[0]))
        self.moments.take_partial(rows, weights, decays, self.settings.center)
        if self.settings.center:
            pairs.move(self.moments.mean)
        self.core = pairs

    # Many features

    def _begin(self, rows: Floats, observed: Mask, weights: Floats, decays: Floats) -> None:
        """Find the directions of the first rows."""
        shares = self.moments.take_partial(rows.copy(), weights, decays, self.settings.center)
        left, _ = weights_left(shares)
        apart = rows - self.moments.mean if self.settings.center else rows
        if self.settings.standardize:
            self.scale = self.deviations()
            apart = apart / self.scale
        total = self.total()
        found = first_directions(apart, observed, left, self.rank, total, lambda found: self._fillers(found, observed))
        if self.share is not None:
            self.rank = rank_found(self.share, found.variances, total, self.settings)
            found = ReadOut(found.components[: self.rank], found.variances[: self.rank])
        self.go_on_from(found)

    def go_on_from(self, found: ReadOut) -> None:
        """Take up directions, of features divided by `scale` where that is set."""
        known = found.variances > rounding(found.variances, self.dtype)
        self.core = Model(np.ascontiguousarray(found.components[known], dtype=self.dtype), np.diag(found.variances[known]), 0.0)

    def _advance(self, core: Model, rows: Floats, observed: Mask, weights: Floats, decays: Floats) -> None:
        raw = rows.copy()
        fresh = (self.moments.known <= 0) & observed.any(axis=0)  # features first observed in this block
        place, forgotten = self.moments.mean.copy(), 1.0 + self.moments.missing_share
        shares = self.moments.take_partial(rows, weights, decays, self.settings.center)
        place[fresh] = self.moments.mean[fresh]
        apart = raw - place if self.settings.center else raw
        if self.scale is not None:
            self.scale = np.where(fresh, self.deviations(), self.scale)
            apart, rows = apart / self.scale, rows / self.scale
        found = ReadOut(*principal(core, len(core.M)))
        if fresh.any() and len(core.M):
            found = carried_over(found, self._fillers(found, observed), apart, observed, weights, fresh)
        model = self._fillers(found, observed)
        left, keep = weights_left(1.0 - (1.0 - shares) ** forgotten)
        kept = Model(found.components, np.diag(keep * found.variances), core.drift)
        if not len(core.M):  # nothing has varied so far
            rows = np.where(observed, rows, 0.0)
        elif not observed.all():
            made = complete(model, apart, rows, observed, left)
            rows, left, k = made.rows, made.weights, len(model.directions)
            M = kept.M.copy()
            M[:k, :k] += made.added
            self._note_excess(made, keep)
            kept = kept._replace(M=at_least(M, 0.01 * (1.0 - keep) * model.floor))
        self.core = advance(kept, DenseRows(np.ascontiguousarray(rows, dtype=self.dtype)), np.sqrt(left), 1.0, self.rank)
        self._rescale()

    def _note_excess(self, made: Completed, keep: float) -> None:
        lacking = keep * self.lacking + made.lacking
        if lacking > 0.0:
            self.excess *= (made.excess / self.excess) ** (made.lacking / lacking)
        self.lacking = lacking

    def _fillers(self, found: ReadOut, observed: Mask) -> Gaussian:
        """The model to fill rows with, given what is observed: the leading directions.

        A row with few values cannot tell many directions apart: those beyond a quarter of its values count as noise. Features that hardly
        vary say little, so that values count by the variances v of the features: there are ``(Σv)²/Σv²`` of them.
        """
        variance = self.moments.variance / self.deviations() ** 2 if self.settings.standardize else self.moments.variance
        with np.errstate(over="ignore"):
            square = np.square(variance.sum())
        check_learned(square)
        features = float(square) / max(float(variance @ variance), _TINY)
        k = min(len(found.variances), max(1, int(typical_share(observed) * features / _PER_DIRECTION)))
        directions, variances = found.components[:k].astype(np.float64), found.variances[:k]
        return Gaussian(directions, variances, max(self.total() - float(variances.sum()), 0.0) / max(self.D - k, 1))

    def _rescale(self) -> None:
        """Start anew from the same directions if deviations have moved too far from the divisors of the rows."""
        if self.scale is not None and np.abs(np.log(self.deviations() / self.scale)).max() > _RESCALE:
            found = self.read_out()
            self.scale = self.deviations()
            self.go_on_from(found)

    # Reading; only with no open rows

    def total(self) -> float:
        """Sum of the variances of the features, as the directions see them."""
        variance = self.moments.variance
        return float((variance > 0).sum()) if self.settings.standardize else float(variance.sum())

    def deviations(self) -> Floats:
        """Standard deviations of the features, (D,); 1 for those that are constant."""
        return deviations_of(self.moments)

    def read_out(self) -> ReadOut:
        """Ordered principal directions, of standardised features where these are asked for."""
        if isinstance(self.core, Pairs):
            found = self.core.read_out(self.rank, self.settings.center, self.deviations() if self.settings.standardize else None)
            return found._replace(components=found.components.astype(self.dtype, copy=False))
        if self.core is None:  # no rows at all
            return ReadOut(np.eye(self.rank, self.D, dtype=self.dtype), np.zeros(self.rank))
        found = ReadOut(*principal(self.core, self.rank))
        if self.scale is None:
            return found
        rows = np.sqrt(found.variances)[:, np.newaxis] * found.components * (self.scale / self.deviations())
        again = leading_directions(rows, len(rows))
        return again._replace(components=again.components.astype(self.dtype, copy=False))

    # State

    def state(self) -> CarefulState:
        core, held = self.core, self._open.all()
        rows = (held.rows.copy(), held.weights.copy(), held.squares.copy(), held.decays.copy())
        pairs = core.state() if isinstance(core, Pairs) else None
        ritz = RitzState(core.basis().copy(), core.M.copy(), core.drift) if isinstance(core, Model) else None
        guard = None if self.guard is None else GuardState(*self.guard)
        of_holes, (given, tail, start) = (self.excess, self.lacking), self.losses
        known, groups = self.moments.known.copy(), self.groups.astype(np.float64)
        return CarefulState(known, self.holes, *rows, pairs, ritz, guard, *of_holes, given, tail, start, groups)

    def restore(self, state: CarefulState) -> None:
        """Restore a state; the moments have been restored already."""
        self.moments.known, self.holes = state.known.copy(), state.holes
        self.groups = one_group(self.D) if state.groups is None else state.groups.astype(np.intp)
        self.losses = Losses(state.given, state.tail or Tail(), state.start)
        self._open = OpenRows.of(Held(state.rows, state.weights, state.squares, state.decays))
        self.excess, self.lacking = state.excess or 1.0, state.lacking or 0.0
        self.guard = None if state.guard is None else Guard(*state.guard)
        if state.pairs is not None:
            self.core = Pairs.from_state(state.pairs)
        elif state.ritz is not None:
            self.core = Model(np.array(state.ritz.B), np.array(state.ritz.M), state.ritz.drift)


def deviations_of(moments: Moments) -> Floats:
    """Standard deviations of features, (D,); 1 for those that are constant."""
    return np.sqrt(np.where(moments.variance > 0, moments.variance, 1.0))
