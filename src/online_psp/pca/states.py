"""What a stream has learned, as a state to continue from: what files and pickles keep.

Fields that may be None came later: files written before lack them.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from online_psp.engine.moments import MeanParts
from online_psp.engine.types import Array, Floats
from online_psp.pca.exact import KeptState, ScatterState
from online_psp.pca.losses import Start, Tail
from online_psp.pca.pairs import PairsState


class RitzState(NamedTuple):
    """The leading directions."""

    B: Annotated[Array, "k", "D"]
    M: Annotated[Floats, "k", "k"]
    drift: float


class GuardState(NamedTuple):
    middle: float
    width: float
    blocks: float
    strange: float
    total: float
    strange_kinds: float
    kinds: float


class CarefulState(NamedTuple):
    """The whole state, except the moments that all streams have."""

    known: Annotated[Floats, "D"]
    holes: bool
    rows: Annotated[Array, "n", "D", "infinite"]
    weights: Annotated[Floats, "n"]
    squares: Annotated[Floats, "n"]
    decays: Annotated[Floats, "n"]
    pairs: PairsState | None
    ritz: RitzState | None
    guard: GuardState | None
    excess: float | None
    lacking: float | None
    given: float
    tail: Tail | None = None
    start: Start | None = None
    groups: Annotated[Floats, "D"] | None = None


class MomentsState(NamedTuple):
    seen: int
    weight: float
    squares: float
    mean: Annotated[Floats, "D"]
    variance: Annotated[Floats, "D"]
    parts: MeanParts | None = None


class StreamState(NamedTuple):
    """Everything learned, except the state of the algorithm that follows the exact phase."""

    rank: int
    unit: float
    moments: MomentsState
    kept: KeptState | None
    scatter: ScatterState | None
    shown: Annotated[Array, "shown", "D"]
    refresh_at: float
    last_time: float | None
    axes: Annotated[Floats, "axes", "D"] | None
    scale: Annotated[Floats, "D"] | None
    careful: CarefulState | None
    offset: Annotated[Floats, "D"] | None = None
    """Offset of sparse rows, if the algorithm keeps their running sum."""
    first_scale: Annotated[Floats, "D"] | None = None
    """What each feature was divided by at first, 0 for those that have not varied yet, where features are standardised."""
