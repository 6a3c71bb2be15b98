"""What every algorithm provides: its facts as class variables, and the methods that `StreamingAlgorithm` calls."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from online_psp.engine.rows import AnyRows
from online_psp.engine.sizes import FixedCost
from online_psp.engine.types import Array, Floats

BlockSize: TypeAlias = int | Literal["auto"]

BELOW_ONE = float(np.nextafter(1.0, 0.0))


class Provided(ABC):
    """The part of an algorithm that differs from one to the next; `StreamingAlgorithm` has the rest."""

    #: The NamedTuple that holds the state once the algorithm has started.
    Running: ClassVar[type[Any]]
    #: Parameters that are functions of t and give step sizes, in the order in which `_rates` returns them.
    rate_names: ClassVar[tuple[str, ...]] = ("learning_rate",)
    #: Other parameters of the class, all numbers.
    option_names: ClassVar[tuple[str, ...]] = ()
    #: The largest step size allowed.
    most_step: ClassVar[float] = BELOW_ONE
    #: Whether arrays of other libraries stay on their device; otherwise they are copied to NumPy.
    takes_arrays: ClassVar[bool] = False
    #: Whether `block_size` is a parameter of the algorithm itself, so that results depend on it.
    block_changes_results: ClassVar[bool] = False
    #: Whether `OnlinePCA` can use it: its directions and variances come close to those of PCA on ordinary data, in any units.
    learns_pca: ClassVar[bool] = True
    #: Whether `OnlinePCA` offers missing="impute" and robust=True with it: both work on the whole blocks that it takes.
    allows_careful: ClassVar[bool] = False
    #: Whether NaN counts as a missing value; otherwise it is refused.
    handles_missing: ClassVar[bool] = False
    #: The cost of a block, from which its size is chosen.
    _cost: ClassVar[FixedCost]

    @abstractmethod
    def _begin(self, basis: Array) -> None:
        """Start from `basis` (K×D, orthonormal rows)."""

    @classmethod
    @abstractmethod
    def from_directions(cls, components: Array, variances: Floats, *, block_size: BlockSize, dtype: Any) -> Self:
        """A model that has converged to these K orthonormal directions (K, D) with these variances."""

    def follow_total(self, total: float) -> None:  # noqa: B027
        """Keep track of the total variance of the rows, which is `total` so far, if the algorithm uses the variance that it leaves out."""

    @staticmethod
    def positive(variances: Floats, dtype: Any) -> Floats:
        """Variances that an algorithm can divide by: the smallest are raised to the level of rounding."""
        info = np.finfo(dtype)
        least = max(float(info.eps) * float(variances[0]), float(info.tiny) ** 0.25)  # small multiples of it can still be squared
        return np.asarray(np.maximum(variances.astype(np.float64), least))

    @classmethod
    def steps_of(cls, shares: Floats) -> Floats:
        """Step sizes, (n,), of samples with these shares in a weighted average of all samples."""
        return np.minimum(shares, cls.most_step)

    @abstractmethod
    def _rates(self, t: int, n: int) -> tuple[Floats, ...]:
        """The step sizes of samples t+1 … t+n, one array for each of `rate_names`."""

    @abstractmethod
    def _take_open(self, row: Array, step: float | None) -> Array:
        """Learn from one dense sample of the right length, with `step` or, if it is None, the scheduled step size; returns its output."""

    @abstractmethod
    def _take_block(self, rows: Any, rates: list[Floats], G: Array | None = None) -> Floats:
        """Learn from a block; returns its outputs, (n, K)."""

    @abstractmethod
    def _open_samples(self) -> int:
        """Number of samples that the basis has not learned from yet."""

    @abstractmethod
    def _close(self) -> None:
        """Bring the basis up to date with the open samples."""

    @abstractmethod
    def _use_store_for(self, rows: AnyRows) -> None:
        """Move the basis to a store that takes such rows; only with no open block."""

    @abstractmethod
    def _raw_basis(self) -> Array:
        """(K, D) rows that span the subspace, in the algorithm's order if it has one; only with no open block."""

    @abstractmethod
    def _covariance_within(self, R: Floats) -> Floats:
        """(K, K) covariance of the data in the orthonormal basis Q, where the raw basis, as columns, is ``Q R``; with no open block."""

    @abstractmethod
    def _running_state(self) -> Any:
        """The state after the start, as a `Running`, in arrays of its own."""

    @abstractmethod
    def _restore(self, running: Any) -> None:
        """Restore a state after the start; its arrays are copied."""

    def _given_start(self) -> Floats | None:
        """The part of a given start that is no basis, (r, K), copied; None if there is none."""
        return None

    def _take_start(self, start: Floats) -> None:
        """Restore what `_given_start` returned."""
        raise ValueError("it has a start that the algorithm does not know")

    @classmethod
    def checked(cls, running: Any) -> Any:
        """A state after the start, from a file; raises a ValueError if it is impossible."""
        return running

    def room(self) -> int:
        """Rows until the model is next cheap to read, if it is not always."""
        return sys.maxsize

    def space(self, n: int) -> Array | None:
        """Where the next n dense rows may be written, (n, D), so that `feed` need not copy them; None if there is no such place."""
        return None

    @property
    def cheap_to_read(self) -> bool:
        """Whether a read is now much cheaper than at other moments."""
        return True

    def mend(self) -> None:  # noqa: B027
        """Repair what a jump in the data may have left behind, if the algorithm needs that."""
