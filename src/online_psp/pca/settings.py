"""The parameters of an OnlinePCA, which are checked at the first row and fixed from then on."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from online_psp.engine.checks import check_block_size, check_count, check_dtype
from online_psp.engine.types import Floats
from online_psp.pca.few import FEW
from online_psp.pca.forgetting import HalfLife, check_half_life
from online_psp.pca.gross import LEAST_FIRST, LEAST_ROWS
from online_psp.pca.signals import RULES

MAX_RANK, MAX_SIGNALS = 512, 128
"""Most directions to keep if a share of the variance is asked for, or all that is not noise."""
SPARE = 32
"""Directions kept beyond twice the number of components."""


BLOCK, FIRST_BLOCK = 5, 6
"""Rows of a block, and of the first one, in multiples of the directions kept."""
FEW_ROWS = 256
"""Rows of a block where the covariance of all features is kept, or as many as there are features."""
CARRIED_ROWS = 64
"""The same where axes are stable: they are carried along from block to block, from the first one on."""


_DOUBLE: np.dtype[Any] = np.dtype(np.float64)


@dataclass(frozen=True)
class Settings:
    """The parameters that learning depends on. (Once a stream has begun, `n_components` and `whiten` only matter for reading.)"""

    oversample: int | None
    max_rank: int | None
    center: bool
    half_life: HalfLife | None
    axes: str
    standardize: bool
    block_size: int | str
    dtype: str | None
    missing: str = "error"
    robust: bool = False
    window: int | None = None
    # What follows from the first rows.
    share: float | str | None = None
    """What determines the number of components: the share of the variance that they are to explain, or a rule of `pca.signals`."""
    rank: int = 0
    """Directions to keep, at the most."""
    shown: int = 0
    """Components, if their number is known."""
    D: int = 0
    working: np.dtype[Any] = _DOUBLE

    def differs(self, other: Settings) -> str | None:
        """One sentence about the first parameter in which `other` differs from this, or None."""
        for field in fields(self):
            was, now = getattr(self, field.name), getattr(other, field.name)
            if field.name == "share":
                break
            if was != now:
                shown = [str(each) if isinstance(each, HalfLife) else repr(each) for each in (was, now)]
                return f"{field.name} was {shown[0]} when learning began and is {shown[1]} now; set it back, or start anew with fit."
        return None

    def begun(self, n_components: Any, D: int, working: np.dtype[Any]) -> Self:
        """The settings of a stream of D features."""
        share: float | str | None = n_components if isinstance(n_components, str) else None
        if isinstance(n_components, numbers.Real) and not isinstance(n_components, numbers.Integral):
            share = float(n_components)
        if share is not None:
            rank = shown = min(self.max_rank or (MAX_SIGNALS if isinstance(share, str) else MAX_RANK), D)
        elif n_components is None:
            rank = shown = D
        else:
            shown = int(n_components)
            rank = min(self._kept(shown), D)
        return replace(self, share=share, rank=rank, shown=min(shown, D), D=D, working=working)

    def _kept(self, K: int) -> int:
        return 2 * K + SPARE if self.oversample is None else K + self.oversample

    @property
    def rule(self) -> str | None:
        """The rule that determines the number of components, if it is not a share of the variance."""
        return self.share if isinstance(self.share, str) else None

    def rank_for_share(self, variances: Floats, total: float, signals: int) -> tuple[int, int]:
        """How many directions explain the share of the variance that is asked for, or are signals, and how many to keep then."""
        if not isinstance(self.share, float):
            K = min(max(signals, 1), self.rank)
            return K, min(self._kept(K), self.rank)
        enough = np.cumsum(variances) >= (self.share - 1e-12) * total
        K = int(np.argmax(enough)) + 1 if enough.any() else len(variances)
        return K, min(max(self._kept(K), K if enough.any() else K + 1), self.rank)

    @property
    def few(self) -> bool:
        """Whether the covariance of all features is kept."""
        return self.D <= FEW * self.rank

    def block_rows(self, rank: int, first: bool, most: float = math.inf) -> int:
        """Rows of the next block, if so many directions are kept; more than `most` only if gross rows could not be told otherwise."""
        least = 1 if not self.robust else LEAST_FIRST if first else LEAST_ROWS
        return int(max(min(self._block_rows(rank, first), most), least))

    def _block_rows(self, rank: int, first: bool) -> int:
        if self.block_size != "auto" and (self.few or not first):
            return int(self.block_size)
        if self.few:
            return CARRIED_ROWS if self.axes == "stable" else max(FEW_ROWS, self.D)
        return FIRST_BLOCK * self.rank if first else BLOCK * rank


def _truth(value: Any, name: str, also: str = "") -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False{also}; got {value!r}.")
    return bool(value)


def _choice(value: Any, name: str, *choices: str) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be {' or '.join(repr(choice) for choice in choices)}; got {value!r}.")
    return value


def check_components(wanted: Any) -> None:
    """Raise an error if `wanted` is no number of components; how many there can be depends on the data."""
    if isinstance(wanted, str):
        if wanted in RULES:
            return
        raise ValueError(
            f"n_components must be a whole number, a share of the variance such as 0.95, 'auto', 'filter' or None; got {wanted!r}."
        )
    if isinstance(wanted, bool | np.bool_) or not (wanted is None or isinstance(wanted, numbers.Real)):
        raise TypeError(f"n_components must be a whole number, a share of the variance such as 0.95, or None; got {wanted!r}.")
    if isinstance(wanted, numbers.Integral):
        if wanted < 1:
            raise ValueError(f"n_components must be at least 1; got {wanted}.")
    elif wanted is not None and not 0.0 < float(wanted) < 1.0:
        raise ValueError(f"n_components as a share of variance must be between 0 and 1; got {wanted!r}.")


def check_kept(wanted: Any, settings: Settings) -> None:
    """Raise a ValueError if `n_components` was changed to more than the model keeps."""
    if isinstance(wanted, numbers.Integral) and int(wanted) > settings.rank:
        raise ValueError(
            f"n_components is {wanted} now, but the model keeps only {settings.rank} directions; start anew with fit to have more."
        )


def check_settings(estimator: Any) -> Settings:
    """The settings of an estimator; raises an error that says in one sentence which parameter is impossible."""
    check_components(estimator.n_components)
    if estimator.whiten != "zca":
        _truth(estimator.whiten, "whiten", " or 'zca'")
    oversample, max_rank, half_life = estimator.oversample, estimator.max_rank, estimator.half_life
    if _choice(estimator.axes, "axes", "principal", "stable") == "stable" and not isinstance(estimator.n_components, numbers.Integral):
        raise ValueError(f"axes='stable' needs a whole number of components; n_components is {estimator.n_components!r}.")
    _choice(estimator.missing, "missing", "error", "impute")
    robust = _truth(estimator.robust, "robust")
    if estimator.standardize is True and estimator.center is False:
        raise ValueError("standardize=True divides by deviations from the mean: it needs center=True.")
    if estimator.reference is not None and estimator.axes != "stable":
        raise ValueError("reference holds stable axes near given ones: it needs axes='stable'.")
    window = None if estimator.window is None else check_count(estimator.window, "window", least=2)
    if window is not None and half_life is not None:
        raise ValueError("window and half_life are two ways to forget: set one of them to None.")
    return Settings(
        oversample=None if oversample is None else check_count(oversample, "oversample", least=0),
        max_rank=None if max_rank is None else check_count(max_rank, "max_rank"),
        center=_truth(estimator.center, "center"),
        half_life=check_half_life(half_life),
        axes=estimator.axes,
        standardize=_truth(estimator.standardize, "standardize"),
        block_size=check_block_size(estimator.block_size),
        dtype=None if estimator.dtype is None else check_dtype(estimator.dtype).name,
        missing=estimator.missing,
        robust=robust,
        window=window,
    )
