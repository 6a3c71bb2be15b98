"""What every algorithm provides: its facts as class variables, and the methods that `StreamingAlgorithm` calls."""

from __future__ import annotations

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

    #: The state once the algorithm has started: a NamedTuple.
    Running: ClassVar[type[Any]]
    #: The callables that give step sizes, in the order in which `_rates` returns them.
    rate_names: ClassVar[tuple[str, ...]] = ("learning_rate",)
    #: Other options of the class, all numbers.
    option_names: ClassVar[tuple[str, ...]] = ()
    #: The largest step that makes sense.
    most_step: ClassVar[float] = BELOW_ONE
    #: Whether arrays of other libraries stay where they are; otherwise they are taken to NumPy.
    takes_arrays: ClassVar[bool] = False
    #: Whether `block_size` is a parameter of the algorithm itself, so that results depend on it.
    block_changes_results: ClassVar[bool] = False
    #: Whether `OnlinePCA` takes it: its directions and variances come close to those of PCA on ordinary data, in any units.
    learns_pca: ClassVar[bool] = True
    #: Whether `OnlinePCA` offers missing="impute" and robust=True with it: both work on the whole blocks that it takes.
    allows_careful: ClassVar[bool] = False
    #: Whether NaN is a missing value; otherwise it is refused.
    handles_missing: ClassVar[bool] = False
    #: What a block costs, for the choice of its size.
    _cost: ClassVar[FixedCost]

    @abstractmethod
    def _begin(self, basis: Array) -> None:
        """Start from `basis` (K×D, orthonormal rows)."""

    @classmethod
    @abstractmethod
    def from_directions(cls, components: Array, variances: Floats, *, block_size: BlockSize, dtype: Any) -> Self:
        """A model that stands where one of these K orthonormal directions (K, D), with these variances, would stand."""

    def follow_total(self, total: float) -> None:  # noqa: B027
        """Follow the total variance of the rows from this one on, where the algorithm has a use for what it leaves out."""

    @staticmethod
    def positive(variances: Floats, dtype: Any) -> Floats:
        """Variances that an algorithm can divide by: the smallest are raised to what rounding would make of them."""
        info = np.finfo(dtype)
        least = max(float(info.eps) * float(variances[0]), float(info.tiny) ** 0.25)  # squares of its shares are in range
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
        """Learn from one sample, dense and of the right length, with the scheduled step size or a given one; returns its output."""

    @abstractmethod
    def _take_block(self, rows: Any, rates: list[Floats], G: Array | None = None) -> Floats:
        """Learn from a block; returns its outputs, (n, K)."""

    @abstractmethod
    def _open_samples(self) -> int:
        """Samples that the basis has not taken in yet."""

    @abstractmethod
    def _close(self) -> None:
        """Bring the basis up to date with the open samples."""

    @abstractmethod
    def _use_store_for(self, rows: AnyRows) -> None:
        """Keep the basis in a place that takes such rows; nothing is open."""

    @abstractmethod
    def _raw_basis(self) -> Array:
        """(K, D) rows that span the subspace, best known directions first where the algorithm orders them; nothing is open."""

    @abstractmethod
    def _covariance_within(self, R: Floats) -> Floats:
        """(K, K) covariance of the data in the orthonormal basis Q, where the raw basis, as columns, is ``Q R``; nothing is open."""

    @abstractmethod
    def _running_state(self) -> Any:
        """The state after the start, as `Running`, in arrays of its own."""

    @abstractmethod
    def _restore(self, running: Any) -> None:
        """Take up a state after the start; its arrays are copied."""

    def _given_start(self) -> Floats | None:
        """What there is of a start besides a basis, (r, K), in an array of its own."""
        return None

    def _take_start(self, start: Floats) -> None:
        """Take it up again."""
        raise ValueError("it has a start that the algorithm does not know")

    @classmethod
    def checked(cls, running: Any) -> Any:
        """A state after the start that came from a file; raises a ValueError where it cannot be one."""
        return running

    @property
    def cheap_to_read(self) -> bool:
        """Whether reading now costs little of what it may cost at other moments."""
        return True

    def mend(self) -> None:  # noqa: B027
        """Put right what a jump in the data may have left, where the algorithm needs that."""
