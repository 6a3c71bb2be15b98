"""What a stream has taught so far, as a value, and the block of rows that takes it further.

A `Model` is never changed, only replaced: `online_psp.pca.learn.learn` takes a model and a block of raw rows to the next model,
`online_psp.pca.merge.merge` takes two models to one, and `online_psp.pca.view.view_of` says what it shows.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from online_psp.engine.rows import AnyRows
from online_psp.engine.types import Array, Floats
from online_psp.pca.fill import Trust
from online_psp.pca.gross import Guard, Losses


class Covariance(NamedTuple):
    """The covariance of few features, whole."""

    matrix: Annotated[Floats, "D", "D"]
    """The covariance; or, once squares cannot tell its directions, an upper triangular R with ``Rᵀ R`` equal to it."""
    is_root: bool = False
    checked: float = 0.0
    """Largest variance of a feature when it was last checked whether squares tell the directions."""


class Turned(NamedTuple):
    """The basis ``turn Vᵀ + along meanᵀ`` of sparse rows: a block changes V only in the features that occur in it."""

    V: Annotated[Array, "D", "m"]
    turn: Annotated[Floats, "k", "m"]
    along: Annotated[Floats, "k"]


class Robust(NamedTuple):
    """Where ordinary rows lie, and what taking weight from the others has cost."""

    guard: Guard
    losses: Losses


class Model(NamedTuple):
    """Everything learned from the rows of closed blocks, in units of the stream."""

    unit: float
    """Power of two that rows are multiplied by; 0 before the first row that is not zero."""
    seen: int
    """Rows so far."""
    weight: float
    """Sum of the weights of the rows, which fade if the stream forgets."""
    squares: float
    """Sum of the squares of these weights."""
    mean: Annotated[Floats, "D"]
    low: Annotated[Floats, "D"]
    """The mean is the sum ``mean + low``: as one number, a mean of 1e12 deviations would stop moving."""
    variance: Annotated[Floats, "D"]
    """Of each feature about its mean, or about zero if rows are not centred."""
    basis: Annotated[Array, "k", "D"] | None
    """Orthonormal rows, the leading directions in order; None where there are few features, or rows are sparse."""
    variances: Annotated[Floats, "k"]
    """Along the basis."""
    scale: Annotated[Floats, "D"] | None = None
    """What features are divided by in the coordinates of the basis, where they are standardised."""
    turned: Turned | None = None
    """The basis, while rows are sparse."""
    covariance: Covariance | None = None
    """In place of a basis, where there are few features."""
    known: Annotated[Floats, "D"] | None = None
    """Weight of the observed values of each feature; None while no value has been missing."""
    groups: Annotated[Floats, "D"] | None = None
    """Number of the group of each feature: groups are features that rows have connected; None while no value has been missing."""
    trust: Trust | None = None
    """What the predictions of missing values are worth."""
    robust: Robust | None = None
    axes: Annotated[Floats, "axes", "D"] | None = None
    """Axes shown when the last block closed, where they are to be stable."""
    first_scale: Annotated[Floats, "D"] | None = None
    """What each feature was divided by at first; 0 for those that have not varied yet."""
    signals: int = 0
    """Directions beyond noise, where that determines the number of components."""
    faintest: float = 0.0
    """Size of a typical row of the block whose rows were smallest; 0 while all rows are zero."""
    window: Window | None = None
    """The pieces of a window before this one."""

    @property
    def full_mean(self) -> Floats:
        return self.mean + self.low

    @property
    def few(self) -> bool:
        """Whether the covariance of all features is kept."""
        return self.covariance is not None


class Window(NamedTuple):
    """The pieces of a window but for the newest, which is being learned; `seen` are the rows of each."""

    start: int = 0
    """Rows of the stream before the newest piece."""
    old: tuple[Model, ...] = ()
    """Sums of the older pieces: of all, of all but the oldest, …, the newest of them alone."""
    new: tuple[Model, ...] = ()
    """The newer pieces, oldest first."""
    total: tuple[Model, ...] = ()
    """Their sum, if there are any."""
    signals: int = 0
    """Directions beyond noise when the last piece was full."""


class Block(NamedTuple):
    """Rows to learn together, as they came, and what they weigh."""

    rows: AnyRows
    left: Floats
    """(n,): the weight of each row after the last of them."""
    keep: float
    """Share that is left of everything before, after the last of them."""


def empty_model(D: int, few: bool, dtype: np.dtype[Any]) -> Model:
    """The model of no rows."""
    nothing = np.zeros(D)
    covariance = Covariance(np.zeros((D, D), order="F")) if few else None
    basis = None if few else np.zeros((0, D), dtype)
    return Model(0.0, 0, 0.0, 0.0, nothing, nothing, nothing, basis, np.zeros(0), covariance=covariance)
