"""What an OnlinePCA has learned, and how it learns more: from rows that are dense, sparse or of another array library."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from online_psp.algorithms import BlockPCA
from online_psp.engine.finite import check_learned, worded
from online_psp.engine.libraries import to_host
from online_psp.engine.locks import InterruptsWait, model_lock
from online_psp.engine.moments import Moments, Sums, following
from online_psp.engine.rows import AnyRows, ArrayRows, DenseRows, SparseRows
from online_psp.engine.sizes import CENTRE_BYTES
from online_psp.engine.threads import suited_threads
from online_psp.engine.types import Array, Floats
from online_psp.pca.axes import nearest_turn
from online_psp.pca.careful import Careful, deviations_of
from online_psp.pca.exact import Kept, ReadOut, Scatter, exact_from_state, exact_phase, leading_directions
from online_psp.pca.forgetting import decays_of
from online_psp.pca.holes import first_hole, fitted_along
from online_psp.pca.notices import (
    Notices,
    growth_notice,
    leap_notice,
    rounding_notice,
    sizes_notice,
    start_notice,
    strangers_notice,
    tail_notice,
    underflow_notice,
    units_notice,
)
from online_psp.pca.offsets import needs_another, offset_for, shifted
from online_psp.pca.settings import Settings, rank_for, rank_found
from online_psp.pca.states import MomentsState, StreamState
from online_psp.pca.turning import turned
from online_psp.pca.units import largest_for, unit_for
from online_psp.pca.view import View, flip_signs
from online_psp.pca.waiting import Waiting

_ONE = np.ones(1)
_DOUBLED = 20.0  # doublings of the weights within a piece of rows that is learned as a whole, safe in single precision too
_MOST_SUMMED = 2.0**20  # largest weight in the algorithm's running sum before it begins anew
_LEAP = 8.0  # times its variance that one row may add to a feature before rows are divided by another deviation
_FAINTEST = float(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)  # total variance in units of the stream, at the least
_RESCALE = 0.2  # largest difference, in logarithms, of a deviation from the divisor of the rows


class Stream:
    """Everything learned; `fit` replaces it as a whole.

    Parameters
    ----------
    settings : Settings
    n_components : int, float or None
        Determines the number of directions to keep.
    D : int
    dtype : float64 or float32
    """

    def __init__(self, settings: Settings, n_components: Any, D: int, dtype: np.dtype[Any]) -> None:
        self.settings, self.D, self.dtype = settings, D, dtype
        self.lock = model_lock()
        self._largest = largest_for(dtype)
        self.share = None if n_components is None or isinstance(n_components, numbers.Integral) else float(n_components)
        self.rank = rank_for(n_components, settings, D)
        self.unit = 0.0  # known from the first row that is not zero
        self.moments = Moments(D)
        self.exact: Kept | Scatter | None = exact_phase(self.rank, D, dtype)
        self.model: BlockPCA | None = None  # the algorithm, once the exact phase is over
        self._sums: Sums | None = None  # of the rows that the algorithm has taken in, while they are sparse
        self._offset: Floats = np.zeros(D)  # of the features of those rows
        self._view: View | None = None
        self._broken: str | None = None  # says why the model cannot be used, if an error has ended a call in the middle
        self._notices = Notices()
        self._faintest = np.inf  # size of the smallest row looked at that is not zero
        self.last_time: float | None = None  # of the last row, where age is time
        self.axes: Floats | None = None  # shown at the last fixed place of the stream, (K, D), where they are to be stable
        self.scale: Floats | None = None  # what the features of the algorithm's rows are divided by, (D,), where they are standardised
        self.first_scale: Floats | None = None  # the first of these for each feature, (D,), 0 for those that have not varied yet
        self.components = int(n_components) if isinstance(n_components, numbers.Integral) else self.rank
        self.parameters_seen = True  # whether those of the estimator are as they were when they were last checked
        self.refresh_at = 0.0  # number of rows at which `fit_next` reads out anew
        self.gross_seen = 0.0  # share of the weight taken from gross rows when it was last looked at
        self.shown: Array = np.zeros((0, D), dtype=dtype)  # what it projects on until then, scaled if it whitens
        self.waiting = Waiting(D, dtype)  # rows of `fit_next`
        self.onlooker: Callable[[AnyRows], None] | None = None  # is told of rows when they have been learned; not saved
        self.timed = settings.half_life is not None and settings.half_life.in_time  # whether every row needs a time
        self._decays = decays_of(settings.half_life, None, None)  # of the rows in hand
        self.careful: Careful | None = None  # in place of the exact phase and the algorithm, from the first row with holes on
        if settings.robust:
            self.turn_careful()

    # Reading

    @worded
    def view(self) -> View:
        """The view for reading, cached until more is learned."""
        with self.lock, suited_threads(self.rank * self.D):
            self.settle()
            if self._view is None:
                now = None if self.careful is None else self.careful.settled()
                self._view = self._view_of(self.read_out() if now is None else now.read_out(), now)
            return self._view

    @worded
    def glance(self, count: int) -> View:
        """As `view`, but cheaper, for `fit_next`: at least `count` directions, as of the last block, with half of their digits."""
        with self.lock, suited_threads(self.rank * self.D):
            self.settle()
            if self._view is not None or self.careful is not None or self.settings.standardize:
                return self.view()
            if isinstance(self.exact, Kept):
                return self._view_of(self.exact.glance(count), None)
            return self.view() if self.model is None else self._view_of(ReadOut(*self.model.glance(count)), None)

    def _view_of(self, found: ReadOut, now: Careful | None) -> View:
        """The view of a read-out, of the careful learner where that is at work."""
        check_learned(found.components, found.variances)
        m, standardize = self.moments if now is None else now.moments, self.settings.standardize
        self._give_notices(found, now)
        unit = self._unit * (1.0 if now is None else now.factor)
        varying = float((m.variance > 0).sum())
        scale, total = (1.0, varying) if standardize else (1.0 / unit, m.total_variance if found.total is None else found.total)
        if total < _FAINTEST:  # faded so far that sums of its parts are mostly rounding
            found, total = found._replace(variances=np.zeros_like(found.variances)), 0.0
        excess = float(found.variances.sum()) / max(total, np.finfo(np.float64).tiny)
        return View(
            flip_signs(found.components),
            found.variances / max(excess, 1.0) * scale * scale,  # rounding must not explain more than all of the variance
            total * scale * scale,
            m.variance / unit**2,
            m.mean / unit,
            np.where(m.variance > 0, deviations_of(m) / unit, 1.0) if standardize else None,
            m.count,
            m.weight,
            m.squares,
            now.moments.known if now is not None and now.holes else None,
            1.0 if now is None else now.excess,
            now.gross_share if now is not None and self.settings.robust else 0.0,
        )

    def _give_notices(self, found: ReadOut, learner: Careful | None) -> None:
        """Warn, once of each kind, where what was found may not be what was asked for."""
        m, give = self.moments, self._notices.give
        if self.model is not None and self.scale is None:
            units = units_notice(m.variance, self.dtype, self.components)
            give("units", units)
            give(
                "rounding", None if units else rounding_notice(found.variances, self.dtype, self.components)
            )  # the same cause, said better
        if self.scale is not None and self.first_scale is not None:
            give("growth", growth_notice(m.variance, self.first_scale, found.variances, self.components))
        give("sizes", sizes_notice(found.variances, m.total_variance, self._faintest, self.dtype, self.components, m.count))
        if learner is not None:
            give("strangers", strangers_notice(learner.strangers()), UserWarning)
            give("tail", tail_notice(*learner.losses.tail_shares(learner.moments, learner.total())), UserWarning)
            give("start", start_notice(*learner.losses.start_shares(learner.moments, self.settings.standardize)), UserWarning)
        elif self.settings.standardize:
            give("underflow", underflow_notice(m.variance, m.moved))

    def note_sizes(self, rows: AnyRows) -> None:
        """Remember how small rows are that are not zero: the first and the last of a call are looked at, and no more, to cost little."""
        if isinstance(rows, ArrayRows):
            return
        for row in (rows[:1], rows[-1:]):
            values = row.data[row.indptr[0] : row.indptr[-1]] if isinstance(row, SparseRows) else row.X
            size = self._unit * float(np.fmax.reduce(np.abs(values), axis=None, initial=0.0))  # whatever is missing
            if 0.0 < size < self._faintest:
                self._faintest = size

    def read_out(self) -> ReadOut:
        """The K' directions as ordered principal components, in units of the stream, or of standardised features."""
        if self.careful is not None:
            return self.careful.settled().read_out()
        if self.exact is not None:
            return self.exact.read_out(self.deviations() if self.settings.standardize else None)
        assert self.model is not None
        directions, variances = self.model.principal_components()
        found = ReadOut(to_host(directions), variances)
        return found if self.scale is None else self._rescaled(found, self.scale / self.deviations())

    @property
    def cheap_to_read(self) -> bool:
        """Whether a read-out costs little at this moment."""
        if self.careful is not None:
            return self.careful.cheap_to_read
        return self.model is None or self.model.cheap_to_read

    def deviations(self) -> Floats:
        """Standard deviations of the features, (D,), in units of the stream; 1 for those that are constant."""
        return deviations_of(self.moments)

    def _rescaled(self, found: ReadOut, factors: Floats) -> ReadOut:
        """Directions after each feature has been multiplied by a factor, (D,)."""
        rows = np.sqrt(found.variances)[:, np.newaxis] * found.components * factors
        again = leading_directions(rows, len(rows))
        return again._replace(components=again.components.astype(self.dtype, copy=False))

    @property
    def _unit(self) -> float:
        return self.unit or 1.0

    # Learning

    def set_unit(self, rows: AnyRows) -> None:
        """Choose the unit from the first row that is not zero."""
        if self.unit:
            return
        for start in range(len(rows)):
            row = rows[start : start + 1].dense(np.dtype(np.float64))
            largest = float(np.abs(np.nan_to_num(row)).max(initial=0.0))
            if largest > 0.0:
                self.unit = unit_for(largest, self.dtype)
                return

    def learn(self, rows: AnyRows, weights: Floats, times: Floats | None = None) -> None:
        """Learn from rows of any kind, checked, with weights, (n,), all positive, and times, (n,), where age is time."""
        with self.lock:
            self.settle()
            self.waiting.close()
            self._learn(rows, weights, times)
            self._notices.release()

    @worded
    def _learn(self, rows: AnyRows, weights: Floats, times: Floats | None) -> None:
        self.check_whole()
        try:
            with suited_threads(self.rank * self.D):
                self._learn_pieces(rows, weights, times)
        except BaseException as error:
            self._break(error)
            raise
        if self.onlooker is not None:
            self.onlooker(rows)

    def _learn_pieces(self, rows: AnyRows, weights: Floats, times: Floats | None) -> None:
        self.set_unit(rows)
        self.note_sizes(rows)
        decays = decays_of(self.settings.half_life, times, self.last_time)
        start = 0
        while start < len(rows):
            self._decays = decays if len(decays) == 1 else decays[start:]
            stop = min(len(rows), start + self._room(rows, weights[start:]))
            if self.careful is None and self.settings.missing == "impute":
                stop = start + first_hole(rows[start:stop])
                if stop == start:
                    self.turn_careful()
                    continue
            self._decays = decays if len(decays) == 1 else decays[start:stop]
            if self._learn_piece(rows[start:stop], weights[start:stop]):
                start = stop
        if times is not None and len(times):
            self.last_time = float(times[-1])
        self._view, self.refresh_at = None, 0.0

    def _break(self, error: BaseException) -> None:
        """Remember that an error has ended a call after it may have changed something, so that nobody takes the model for whole."""
        self._broken = (
            f"Learning ended in the middle of a call ({type(error).__name__}), so that the model is between two states: load it from its "
            "last file, or fit it anew."
        )

    def check_whole(self) -> None:
        """Raise a ValueError if an error, such as a lack of memory, has ended a call in the middle."""
        if self._broken is not None:
            raise ValueError(self._broken)

    def take(self, row: Array, time: float | None) -> Array | None:
        """Let one row, (D,), of the right precision wait until it is learned together with others.

        Returns
        -------
        y : (K,), or None
            Its coordinates along the axes shown. None, and nothing is changed, if it has to be learned by itself: because nothing is
            prepared, or because it has values that are missing, not finite or too large.
        """
        if time is None:
            return self.waiting.take(row)
        return self.waiting.take_at(row, float(decays_of(self.settings.half_life, np.array([time]), self.last_taken)[0]), time)

    def prepare(self) -> None:
        """Get ready for rows that come one by one."""
        due = self.refresh_at - self.seen
        room = self.waiting.most if due <= 0.0 else math.ceil(due)
        inside = self.careful.room if self.careful is not None else self.waiting.most if self.model is None else self.model.room()
        moves, unit, decay = self.settings.center and self.careful is None, self.unit, float(self._decays[0])
        if unit:
            self.waiting.prepare(self.moments, self.weight, decay, moves, min(room, inside), unit, self._largest / unit, self.shown)

    @property
    def last_taken(self) -> float | None:
        """Time of the last row, whether it has been learned or waits."""
        return self.waiting.last_time if len(self.waiting) else self.last_time

    def settle(self, warn: bool = True) -> None:
        """Learn the rows that wait; with `warn` False, what there is to warn of is said by a later call."""
        if not len(self.waiting):
            return
        with self.lock, InterruptsWait():
            rows, times = self.waiting.empty()
            if len(rows):
                due = self.refresh_at
                self._learn(DenseRows(rows), np.ones(len(rows)), times)
                self.refresh_at = due
                if warn:
                    self._notices.release()

    def project(self, row: Array) -> Array:
        """Coordinates of a row, (D,), along the shown axes; if values are missing, those that fit the others best."""
        if self.careful is not None:
            seen = ~np.isnan(row)
            if not seen.all():
                apart = (row - self.moments.mean / self._unit)[seen].astype(np.float64)
                return fitted_along(self.shown.astype(np.float64), apart, seen).astype(self.dtype)
        return self.moments.project(self.shown, row, self.unit or 1.0)

    def _room(self, rows: AnyRows, weights: Floats) -> int:
        """Number of rows to take next: as many as the exact phase or a block has room for, within the memory for centring."""
        room = max(1, CENTRE_BYTES // (self.D * self.dtype.itemsize))
        if self.careful is not None:
            return min(room, self.careful.room)
        if self._all_at_once(rows, weights):
            room = 1 << 20 if isinstance(rows, SparseRows) else room
        elif self._after_pause(rows, weights):
            return 1
        elif self.exact is not None:
            room = min(room, self.exact.room)
        elif self.model is not None:
            room = min(room, self.model.room())
        for every in self._places():
            room = min(room, every - self.moments.count % every)
        return self._unfaded(weights[:room]) if self._all_at_once(rows, weights) else room

    def _stays_sparse(self, rows: AnyRows) -> TypeGuard[SparseRows]:
        """Whether rows are learned as sparse rows, without being made dense."""
        return isinstance(rows, SparseRows) and (self.exact is None or (isinstance(self.exact, Scatter) and self.exact.root is None))

    def _all_at_once(self, rows: AnyRows, weights: Floats) -> bool:
        """Whether a piece of rows is learned as a whole, each row weighted by how much the earlier ones will have faded when it comes."""
        if isinstance(rows, ArrayRows):
            return self.exact is None
        return self._stays_sparse(rows) and not self._after_pause(rows, weights)

    def _after_pause(self, rows: AnyRows, weights: Floats) -> bool:
        """Whether the first of these rows outweighs everything before it; a sparse row is then made dense."""
        return isinstance(rows, SparseRows) and bool(0.0 < self._decays[0] * self.moments.weight < 2.0**-_DOUBLED * weights[0])

    def _unfaded(self, weights: Floats) -> int:
        """Number of rows to take so that none outweighs those before it, and all weights stay within floating-point range."""
        if len(self._decays) == 1 and self._decays[0] == 1.0 and (weights == weights[0]).all():
            return len(weights)
        fading = np.broadcast_to(self._decays if len(self._decays) == 1 else self._decays[: len(weights)], weights.shape)
        heavier = np.log2(weights) - np.concatenate([[0.0], np.cumsum(np.log2(fading[1:]))])
        before = self._decays[0] * self.moments.weight
        total = np.logaddexp2.accumulate(np.concatenate([[np.log2(before) if before > 0 else -np.inf], heavier]))
        within = (heavier - heavier[0] < _DOUBLED) & (heavier - total[:-1] < _DOUBLED)
        within[0] = True
        return len(weights) if within.all() else int(np.argmin(within))

    def _learn_piece(self, rows: AnyRows, weights: Floats) -> bool:
        """Learn a piece; returns False, and learns nothing, if the rows have to be cut anew because they can no longer stay sparse."""
        if self.careful is not None:
            self._learn_carefully(rows, weights)
            return True
        before = self.moments.weight
        if isinstance(rows, SparseRows) and self._all_at_once(rows, weights):
            if not self._learn_sparse(rows, weights, before):
                return False
        elif isinstance(rows, ArrayRows) and self._all_at_once(rows, weights):
            self._learn_array(rows, weights, before)
        else:
            self._sums = None
            kept = None if self.scale is None else self.moments.copy()
            shares = self.moments.shares(weights, self._decays)
            space = self.model.space(len(rows)) if self.model is not None and self.scale is None else None
            part = self.moments.take_dense(rows.dense(self.dtype), shares, self.unit or 1.0, self.settings.center, space)
            if self.exact is not None:
                self._add_exactly(part, shares)
            elif self.scale is None:
                self._feed(part, shares)
            else:
                leap = self._first_leap(part / self.scale, shares)
                if kept is not None and leap < len(part) and len(part) > 1:
                    self.moments = kept
                    self._learn_around(leap, rows, weights)
                    return True
                if leap < len(part):
                    self._leap()
                self._feed(part / self.scale, shares)
        self._at_fixed_places()
        return True

    def _feed(self, rows: Array, shares: Floats) -> None:
        assert self.model is not None
        self.model.feed(DenseRows(rows), shares)

    def _first_leap(self, rows: Array, shares: Floats) -> int:
        """Index of the first standardised row, of (n, D), that changes the deviation of some feature by itself; n if none does.

        Features are divided by their present deviations first where that happens, as after a change of units: in the old ones such
        rows would be so large that everything else is lost beside them.
        """
        return int(np.argmax(np.append(np.abs(rows).max(axis=1) * np.sqrt(shares) > np.sqrt(_LEAP), True)))

    def _leap(self) -> None:
        """Divide features by their present deviations from now on; warn if one row has changed them beyond recognition."""
        assert self.scale is not None
        growth = self.deviations() / self.scale
        self.go_on_from(self.read_out())
        self._notices.hold("leap", leap_notice(self.moments.count - 1, growth))

    def _learn_around(self, leap: int, rows: AnyRows, weights: Floats) -> None:
        """Learn a piece in three: up to a row, that row, and the rest."""
        decays = self._decays
        for part in (slice(0, leap), slice(leap, leap + 1), slice(leap + 1, len(rows))):
            if len(weights[part]):
                self._decays = decays if len(decays) == 1 else decays[part]
                self._learn_piece(rows[part], weights[part])

    def turn_careful(self) -> None:
        """Switch to the learner for rows that may have missing values or be gross."""
        careful = Careful(self.settings, self.rank, self.D, self.dtype, self.share)
        if self.moments.count:
            directions = None if self.model is None else ReadOut(*self.model.principal_components())
            careful = turned(careful, self.moments, self.exact, directions, self.scale)
        self.take_careful(careful)

    def take_careful(self, careful: Careful) -> None:
        """Continue with a given learner for rows that may have missing values or be gross."""
        self.careful, self.moments = careful, careful.moments
        self.exact = self.model = self._sums = self._view = None
        self._note_block()

    def _learn_carefully(self, rows: AnyRows, weights: Floats) -> None:
        assert self.careful is not None
        part = rows.dense(self.dtype)
        if self.unit not in (0.0, 1.0):
            part = part * self.dtype.type(self.unit)
        if self.careful.add(part, weights, np.broadcast_to(self._decays, weights.shape)):
            self._note_block()

    @property
    def seen(self) -> int:
        """Number of rows learned, including those of an open block."""
        return self.moments.count + (0 if self.careful is None else self.careful.open_rows)

    def refresh_later(self) -> None:
        """Plan the next read-out for `fit_next`: after half as many rows as the model remembers, which are few if it forgets."""
        self.refresh_at = self.seen + max(1.0, min(self.seen / 2, self.weight / 2, 16.0 * self.rank))

    @property
    def weight(self) -> float:
        """Weight of all rows, including those of an open block."""
        return self.moments.weight + (0.0 if self.careful is None else self.careful.open_weight)

    @property
    def gross_share(self) -> float:
        """Share of the weight of all rows that was taken from gross ones, those of an open block left out."""
        return self.careful.gross_share if self.careful is not None and self.settings.robust else 0.0

    def _note_block(self) -> None:
        """Update what depends on a block having been learned."""
        assert self.careful is not None
        self.rank, self.scale = self.careful.rank, self.careful.scale
        self.unit, self.careful.factor = self.unit * self.careful.factor, 1.0
        self._note_scale()
        if self.settings.axes == "stable" and self.moments.count:
            self.carry()

    def _inflated(self, weights: Floats) -> tuple[Floats, float]:
        """Weights as seen from the first of the rows: each as much larger as the old ones will fade until it comes; and what is left of
        those after the last.
        """
        if len(self._decays) == 1 and self._decays[0] == 1.0:
            return weights, 1.0
        left = np.cumprod(np.broadcast_to(self._decays, weights.shape)[1:])
        return weights / np.concatenate([_ONE, left]), float(left[-1]) if len(left) else 1.0

    def _learn_sparse(self, rows: SparseRows, weights: Floats, before: float) -> bool:
        """Learn from sparse rows as such; returns False, and changes nothing, if they have to be made dense."""
        m, center = self.moments.copy(), self.settings.center
        inflated, left = self._inflated(weights)
        shares = m.shares(weights, self._decays)
        own = rows.scaled(self.unit or 1.0, self.dtype, inflated)
        sums = m.sums(before) if center else None
        before *= self._decays[0]
        if sums is not None:
            sums.fade(self._decays[0])
        m.take_sparse(own, inflated, before, center)
        old = None if sums is None else sums.copy()
        if sums is not None:
            sums.take(own)
        if self.exact is None:
            self._feed_sparse(own, shares, old, m)
        else:
            assert isinstance(self.exact, Scatter)
            offset = offset_for(m.mean, m.variance)
            apart = None if old is None else Sums(old.mean - offset, before)
            if not self.exact.add_sparse(own if old is None else shifted(own, offset), before, apart):
                return False
        if sums is not None:
            sums.fade(left)
        self.moments = m
        return True

    def _feed_sparse(self, rows: SparseRows, shares: Floats, old: Sums | None, now: Moments) -> None:
        """Let the algorithm learn. It has a running sum of its own, in which old rows never fade but new ones weigh more and more.

        Features that are far from zero are learned as differences from an offset.
        """
        assert self.model is not None
        if old is not None:
            stale = self._sums is None or self._sums.total > _MOST_SUMMED or needs_another(now.mean, now.variance, self._offset)
            if stale:
                self._offset = offset_for(now.mean, now.variance)
                mean = old.mean - self._offset
                self._sums = Sums(mean if self.scale is None else mean / self.scale, 1.0)
            rows = shifted(rows, self._offset)
        total = 1.0 if self._sums is None else self._sums.total
        rows = rows.scaled(1.0, self.dtype, following(total, shares))
        if self.scale is not None:
            rows.data = (rows.data / self.scale[rows.indices]).astype(self.dtype, copy=False)
        rows.sums = self._sums
        self.model.feed(rows, shares)

    def _learn_array(self, rows: ArrayRows, weights: Floats, before: float) -> None:
        """Learn from rows of another array library while streaming; they, and the basis, stay there."""
        assert self.model is not None
        self._sums = None
        inflated, _ = self._inflated(weights)
        shares = self.moments.shares(weights, self._decays)
        before *= self._decays[0]
        centred = self.moments.take_array(ArrayRows(rows.X, self.dtype), inflated, before, self.unit or 1.0, self.settings.center)
        if self.scale is not None:
            centred = ArrayRows(centred.X / centred.library.of(self.scale), self.dtype)
        self.model.feed(centred, shares)

    def _add_exactly(self, rows: Array, shares: Floats) -> None:
        assert self.exact is not None
        if self.exact.add(rows, shares):
            found = self.read_out()
            if self.share is not None:
                total = float((self.moments.variance > 0).sum()) if self.settings.standardize else self.moments.total_variance
                self.rank = rank_found(self.share, found.variances, total, self.settings)
                found = ReadOut(found.components[: self.rank], found.variances[: self.rank])
            self.go_on_from(found)

    def go_on_from(self, found: ReadOut) -> None:
        """Start the algorithm from these directions, with their variances."""
        self.model = BlockPCA.from_directions(found.components, found.variances, block_size=self.settings.block_size, dtype=self.dtype)
        self.exact, self._sums = None, None
        self.scale = self.deviations() if self.settings.standardize else None
        self._note_scale()
        if self.settings.half_life is not None:
            variance = self.moments.variance
            self.model.follow_total(float((variance if self.scale is None else variance / self.scale**2).sum()))

    def _note_scale(self) -> None:
        """Remember what each feature was divided by at first."""
        if self.scale is not None:
            now = np.where(self.moments.variance > 0, self.scale, 0.0)
            self.first_scale = now if self.first_scale is None else np.where(self.first_scale > 0, self.first_scale, now)

    def _places(self) -> list[int]:
        """Numbers of samples at whose multiples something is looked at, however the stream is cut into calls: seldom enough to cost
        little.
        """
        carried = [5 * self.rank] if self.settings.axes == "stable" or self.settings.standardize else []
        return carried if self.model is None else [max(8 * self.rank, self.D // 8), *carried]

    def _at_fixed_places(self) -> None:
        """At fixed places of the stream: repair an algorithm after a jump in the data, and carry stable axes along."""
        count, rank = self.moments.count, self.rank
        if self.model is not None and count % max(8 * rank, self.D // 8) == 0:
            self.model.mend()
        if count % (5 * rank) == 0:
            if self.settings.axes == "stable":
                self.carry()
            if self.scale is not None and np.abs(np.log(self.deviations() / self.scale)).max() > _RESCALE:
                self.go_on_from(self.read_out())

    def carry(self) -> None:
        """Make the present axes those that later ones stay near."""
        found = flip_signs(self.read_out().components[: self.components]).astype(np.float64)
        self.axes = found if self.axes is None else nearest_turn(found, self.axes) @ found

    # State

    def state(self) -> StreamState:
        """Everything except the algorithm, in arrays of its own."""
        self.settle()
        self.check_whole()
        m = self.moments
        moments = MomentsState(m.count, m.weight, m.squares, m.mean, m.variance.copy(), m.parts())
        kept = self.exact.state() if isinstance(self.exact, Kept) else None
        scatter = self.exact.state() if isinstance(self.exact, Scatter) else None
        axes = None if self.axes is None else self.axes.copy()
        careful = None if self.careful is None else self.careful.state()
        shown, offset = self.shown.copy(), None if self._sums is None else self._offset.copy()
        scales = self.scale, None if self.first_scale is None else self.first_scale.copy()
        learned = (self.rank, self.unit, moments, kept, scatter, shown, self.refresh_at, self.last_time)
        return StreamState(*learned, axes, scales[0], careful, offset, scales[1])

    def restore(self, state: StreamState, model: BlockPCA | None) -> None:
        """Restore a state, and the algorithm that belongs to it."""
        self.rank, self.unit = state.rank, state.unit
        self.shown, self.last_time = np.array(state.shown), state.last_time
        self.axes = None if state.axes is None else np.array(state.axes)
        self.scale = None if state.scale is None else np.array(state.scale)
        self.first_scale = None if state.first_scale is None else np.array(state.first_scale)
        self.careful = None
        if state.careful is not None:
            self.careful = Careful(self.settings, self.rank, self.D, self.dtype, self.share)
            self.careful.scale, self.moments = self.scale, self.careful.moments
            self.careful.restore(state.careful)
        m = self.moments
        m.count, m.weight, m.squares = state.moments.seen, state.moments.weight, state.moments.squares
        m.mean, m.variance = state.moments.mean.copy(), state.moments.variance.copy()
        if state.moments.parts is not None:
            m.take_parts(state.moments.parts)
        self.refresh_at = min(state.refresh_at, self.seen + 16.0 * self.rank)
        exact = state.kept or state.scatter
        self.exact, self.model = None if exact is None else exact_from_state(exact, self.rank), model
        self.gross_seen = self.gross_share
        if model is not None and state.offset is not None:
            self._sums, self._offset = model.running_sum, state.offset.copy()

    def __getstate__(self) -> dict[str, Any]:
        with self.lock:
            made: dict[str, Any] = {"settings": self.settings, "share": self.share, "D": self.D, "dtype": self.dtype}
            made["components"] = self.components
            return made | {"state": self.state(), "model": self.model}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__init__(saved["settings"], saved["share"] or 1, saved["D"], saved["dtype"])  # type: ignore[misc]
        self.components = saved["components"]
        self.restore(saved["state"], saved["model"])
