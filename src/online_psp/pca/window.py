"""What the last n rows have taught, and no others.

Nothing can be taken out of a model, but a model can be left out. So rows are learned in pieces of a sixteenth of the window, each a model
of its own, which are merged when the model is read. The oldest piece leaves by degrees: it weighs as much as it takes for the window to
hold n rows. Each time a piece is full, the window is exactly the last n rows; in between, the oldest rows, up to a sixteenth more than n,
have the weight of the oldest piece.

Few merges suffice, and no piece is kept twice. The pieces are two queues. Of the older ones there are sums only: of all, of all but the
oldest, and so on. With S that of all, S′ that without the oldest and f what is left of it, the window has ``f S + (1 − f) S′``. Of the
newer ones there are the pieces and their sum. When the older ones have gone, sums of the newer ones take their place.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce
from itertools import accumulate

from online_psp.pca import learn as plain
from online_psp.pca.merge import merge, weighing
from online_psp.pca.model import Block, Model, Window, empty_model
from online_psp.pca.principal import with_signals
from online_psp.pca.settings import Settings

PIECES = 16
_ALMOST_NOTHING = 1e-200  # weight of the past at the start of a piece that needs its directions, and none of its rows


def learn(model: Model, block: Block, settings: Settings) -> Model:
    """As `online_psp.pca.learn.learn`; where there is a window, the model is that of its newest piece."""
    if settings.window is None:
        return plain.learn(model, block, settings)
    window = model.window or Window()
    after = plain.learn(model, block, replace(settings, axes="principal") if window.start else settings)
    return _begun(after, window, settings) if rows_left(after, settings) <= 0 else after


def rows_left(model: Model, settings: Settings) -> float:
    """Rows that the newest piece still takes; infinite if there is no window."""
    if settings.window is None:
        return math.inf
    start, pieces = (model.window or Window()).start, min(PIECES, settings.window)
    number = -(-(start + 1) * pieces // settings.window)  # so many are as nearly equal as can be, and sum to the window
    return number * settings.window // pieces - model.seen


def whole(model: Model, settings: Settings) -> Model:
    """The model of all rows of the window; the model itself where there is none."""
    window = model.window
    if settings.window is None or window is None:
        return model
    own = model._replace(seen=model.seen - window.start)
    parts = [part for part in (*window.total, own) if part.seen]
    if window.old:
        first, held = window.old[0], window.old[0].seen + sum(part.seen for part in parts)
        rest = window.old[1] if len(window.old) > 1 else None
        oldest = first.seen - (rest.seen if rest is not None else 0)
        left = min(max(1.0 - (held - settings.window) / oldest, 0.0), 1.0)
        if rest is not None and left < 1.0:
            both = merge(weighing(first, left), weighing(rest, 1.0 - left), settings)
            first = both._replace(seen=first.seen, squares=left**2 * max(first.squares - rest.squares, 0.0) + rest.squares)
        elif left < 1.0:
            first = weighing(first, left)
        parts = [first, *parts]
    after = reduce(lambda one, two: merge(one, two, settings), parts)
    after = _with_guard(after, model)
    return with_signals(after._replace(window=None, axes=model.axes, first_scale=model.first_scale, signals=window.signals), settings)


def _with_guard(model: Model, newest: Model) -> Model:
    """A model with the limit for gross rows of the newest piece, which goes on from piece to piece."""
    if model.robust is None or newest.robust is None:
        return model
    return model._replace(robust=model.robust._replace(guard=newest.robust.guard))


def _begun(model: Model, before: Window, settings: Settings) -> Model:
    """The start of a new piece: empty, but for what judges gross rows and fills missing values."""
    window = _advanced(before, model._replace(seen=model.seen - before.start, window=None, axes=None), settings)
    window = window._replace(start=model.seen)
    start = empty_model(settings.D, settings.few, settings.working)._replace(
        unit=model.unit, seen=model.seen, window=window, axes=model.axes, first_scale=model.first_scale
    )
    carried = model.robust is not None or model.known is not None
    if not (carried or settings.rule or settings.axes == "stable"):
        return start
    now = whole(start, settings)
    if carried:
        start = weighing(now, _ALMOST_NOTHING)._replace(seen=model.seen)
        start = _with_guard(start, weighing(model, 1.0 - 1.0 / PIECES))  # the limit fades, so that it remembers as much as a window
    return start._replace(window=window._replace(signals=now.signals), axes=plain.with_axes(now, settings).axes)


def _advanced(window: Window, piece: Model, settings: Settings) -> Window:
    """The window with one more piece, and without those that have left."""
    assert settings.window is not None
    old, new = window.old, (*window.new, piece)
    total = (*(merge(sum_before, piece, settings) for sum_before in window.total),) or (piece,)
    while True:
        if not old and new and total[0].seen + -(-settings.window // PIECES) > settings.window:
            sums = accumulate(reversed(new), lambda later, earlier: merge(earlier, later, settings))
            old, new, total = tuple(sums)[::-1], (), ()
        if not old or sum(part.seen for part in (*old[1:2], *total)) < settings.window:
            return window._replace(old=old, new=new, total=total)
        old = old[1:]
