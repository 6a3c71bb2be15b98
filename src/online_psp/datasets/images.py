"""A data set, and how its rows become pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class ImageLayout:
    """How the pixels of an image lie in a row.

    MATLAB stores images column by column (`column_major`), everybody else row by row.
    """

    height: int
    width: int
    column_major: bool = False

    @property
    def size(self) -> int:
        """Pixels in an image."""
        return self.height * self.width

    def image(self, row: ArrayLike) -> NDArray[Any]:
        """The picture of one row, the right way up.

        Parameters
        ----------
        row : (height × width,)

        Returns
        -------
        (height, width)
        """
        pixels = np.asarray(row)
        if pixels.shape != (self.size,):
            raise ValueError(f"A {self.height}×{self.width} image is a row of {self.size} numbers; got shape {pixels.shape}.")
        return pixels.reshape((self.height, self.width), order="F" if self.column_major else "C")


@dataclass(frozen=True, eq=False)
class DataSet:
    """Rows to learn from.

    Attributes
    ----------
    name : str
    X : (N, D)
        One sample per row, with the dtype of the file (often uint8).
    layout : ImageLayout or None
        Set if the rows are images.
    path : Path or None
        The file or folder that they were read from.
    feature_names : list of str or None
        Names of the columns, if the file has them.
    """

    name: str
    X: NDArray[Any]
    layout: ImageLayout | None = None
    path: Path | None = None
    feature_names: list[str] | None = None

    @property
    def N(self) -> int:
        """Number of samples."""
        return int(self.X.shape[0])

    @property
    def D(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    def image(self, row: ArrayLike) -> NDArray[Any]:
        """A row of this set (or a reconstruction of one) as a picture, (height, width)."""
        if self.layout is None:
            raise ValueError(f"The rows of {self.name} are not images.")
        return self.layout.image(row)
