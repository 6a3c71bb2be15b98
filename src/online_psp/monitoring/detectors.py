"""Change detectors for a stream of numbers, with river's interface: ``update(value)`` and ``drift_detected``."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple, Protocol

from online_psp.engine.checks import check_count

_UNTOLD = 32  # values assumed to have come since a change, if the detector cannot tell


class Detector(Protocol):
    """The interface that a monitor needs; all detectors of ``river.drift`` have it."""

    @property
    def drift_detected(self) -> bool:
        """Whether the last value has raised an alarm."""

    def update(self, x: float) -> Any: ...


def check_detector(detector: Any) -> None:
    """Raise a TypeError that names the attributes that a detector lacks."""
    missing = [name for name in ("update", "drift_detected") if not hasattr(detector, name)]
    if missing or isinstance(detector, type):
        lacks = f"it has no {' and no '.join(missing)}" if missing else "it is a class; pass an object of it"
        raise TypeError(f"detector must have update(value) and drift_detected, as river's do; got {detector!r}: {lacks}.")


def fresh(detector: Any) -> Any:
    """A new detector of the same kind that has seen no values."""
    return detector.clone() if hasattr(detector, "clone") else copy.deepcopy(detector)


def rows_since(*detectors: Any) -> int:
    """Estimated number of values since a change that one of the detectors has found.

    A CUSUM knows when its sum began to rise, which is often a little before the change. If another detector is more than half way to an
    alarm and its sum began to rise later, the later time is the better estimate.
    """
    told = [each.since for each in detectors if isinstance(each, Cusum) and max(each.state.high, each.state.low) > each.threshold / 2]
    return min(told, default=_UNTOLD)


class CusumParameters(NamedTuple):
    """The parameters of a `Cusum`."""

    threshold: float
    allowance: float
    warmup: int
    clip: float
    correlated: bool
    upward: bool


class CusumState(NamedTuple):
    """Everything that a `Cusum` has learned."""

    seen: int = 0
    mean: float = 0.0
    scatter: float = 0.0
    lagged: float = 0.0
    """Sum of the products of neighbouring standardised values."""
    last: float = 0.0
    """The last standardised value."""
    high: float = 0.0
    low: float = 0.0
    since_high: int = 0
    """Number of values since the upper sum was last zero: those that speak for a change."""
    since_low: int = 0
    alarm: bool = False


class Cusum:
    """Two-sided CUSUM of standardised values: sums the deviations beyond an allowance, and raises an alarm when a sum is too large.

    The level and the spread of ordinary values are learned on the way: from the first `warmup` values, without alarms, and then from all
    values. Each value is clipped to `clip` standard deviations, so that one gross value raises no alarm: at least
    ``threshold / (clip − allowance)`` values must agree. After an alarm the detector starts anew with the next value.

    If neighbouring values are correlated, the part of each value that the one before it predicts is removed first (a first-order
    autoregression, whose coefficient is learned too). This costs nothing for independent values.

    Parameters
    ----------
    threshold : float
        Raise an alarm when a sum exceeds this, in standard deviations.
    allowance : float
        Half of the shift that should be found quickly, in standard deviations.
    warmup : int
        Values to learn from before there can be an alarm.
    clip : float
        Largest size of a standardised value.
    correlated : bool
        Whether to remove the correlation of neighbouring values.
    upward : bool
        Whether to look only for an increase.

    Examples
    --------
    >>> from online_psp.monitoring import Cusum
    >>> detector = Cusum(warmup=20)
    >>> for value in [0.0, 1.0] * 50 + [3.0] * 20:
    ...     detector.update(value)
    ...     if detector.drift_detected:
    ...         break
    >>> value
    3.0
    """

    def __init__(
        self,
        threshold: float = 35.0,
        *,
        allowance: float = 0.25,
        warmup: int = 200,
        clip: float = 3.0,
        correlated: bool = True,
        upward: bool = False,
    ) -> None:
        for name, value in (("threshold", threshold), ("allowance", allowance), ("clip", clip)):
            if not 0.0 < float(value) < math.inf:
                raise ValueError(f"{name} must be positive and finite; got {value!r}.")
        if clip <= allowance:
            raise ValueError(f"clip must be larger than the allowance, {allowance}; got {clip!r}.")
        self.threshold, self.allowance, self.clip = float(threshold), float(allowance), float(clip)
        self.correlated, self.upward = bool(correlated), bool(upward)
        self.warmup = check_count(warmup, "warmup", least=2)
        self.state = CusumState()

    @property
    def drift_detected(self) -> bool:
        return self.state.alarm

    @property
    def since(self) -> int:
        """Number of values that have gone into the larger of the two sums."""
        return self.state.since_high if self.state.high >= self.state.low else self.state.since_low

    def clone(self) -> Cusum:
        """A new detector with the same parameters that has seen no values."""
        return Cusum(**self.parameters()._asdict())

    def parameters(self) -> CusumParameters:
        return CusumParameters(self.threshold, self.allowance, self.warmup, self.clip, self.correlated, self.upward)

    def average_run_length(self, shift: float = 0.0) -> float:
        """Mean number of independent Gaussian values until an alarm, if they are shifted by `shift` standard deviations.

        Siegmund's approximation for a known level and spread. If these are learned from few values, runs are shorter.
        """
        b = self.threshold + 1.166
        sides = [_run_length(sign * shift - self.allowance, b) for sign in ((1.0,) if self.upward else (1.0, -1.0))]
        return 1.0 / sum(1.0 / side for side in sides)

    def update(self, x: float) -> None:
        """Add one value; values that are not finite are ignored."""
        s = self.state
        if s.alarm:
            s = CusumState()
        if not math.isfinite(x):
            self.state = s._replace(alarm=False)
            return
        z = self._standardised(s, x)
        since = s.seen - self.warmup
        step = 0.0
        if since >= 0:
            correlation = min(max(s.lagged / (s.seen - 1), 0.0), 0.99) if self.correlated else 0.0
            step = (z - correlation * s.last) / math.sqrt(1.0 - correlation * correlation)
            step = min(max(step, -self.clip), self.clip)
            # A gross value moves the level no more than the clipped value does.
            x = s.mean + z * math.sqrt(s.scatter / (s.seen - 1))
        high = max(s.high + step - self.allowance, 0.0) if since >= 0 else 0.0
        low = 0.0 if self.upward or since < 0 else max(s.low - step - self.allowance, 0.0)
        seen, apart = s.seen + 1, x - s.mean
        mean = s.mean + apart / seen
        self.state = CusumState(
            seen,
            mean,
            s.scatter + apart * (x - mean),
            s.lagged + z * s.last,
            z,
            high,
            low,
            s.since_high + 1 if high > 0.0 else 0,
            s.since_low + 1 if low > 0.0 else 0,
            high > self.threshold or low > self.threshold,
        )

    def _standardised(self, s: CusumState, x: float) -> float:
        """The value in standard deviations from the level so far, clipped to `clip`."""
        deviation = math.sqrt(s.scatter / (s.seen - 1)) if s.seen > 1 else 0.0
        if deviation <= 1e-12 * abs(s.mean):  # so far all values were equal: any other value is far off
            return 0.0 if s.seen < 2 or abs(x - s.mean) <= 1e-12 * abs(s.mean) else math.copysign(self.clip, x - s.mean)
        return min(max((x - s.mean) / deviation, -self.clip), self.clip)


def _run_length(drift: float, b: float) -> float:
    """Mean run length of a one-sided CUSUM whose steps have mean `drift` and variance one; b is the threshold plus its overshoot."""
    if abs(drift) < 1e-9:
        return b * b
    exponent = -2.0 * drift * b
    if exponent > 700.0:
        return math.inf
    return (math.exp(exponent) - exponent - 1.0) / (2.0 * drift * drift)
