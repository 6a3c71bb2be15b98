"""The newest rows, in the plane of two components."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack

from online_psp.engine.types import Floats
from online_psp.pca import OnlinePCA
from online_psp.pca.axes import nearest_turn
from online_psp.watch.frames import Piece
from online_psp.watch.pictures import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from online_psp.watch.settings import text

SHOWN = 10
"""Number of components from which the reader can choose two."""
_ROWS, _BYTES = 3000, 32 << 20  # largest number of rows to keep, and of bytes
_GROUP_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY)
_TEXT = 80  # longest ID to show, in characters


class Axes:
    """Keeps the axes of the plane stable, while the principal axes of the model may swap and flip.

    The stable axes start anew from the principal ones each time the number of rows has doubled: the axes of a young model mean little.
    """

    def __init__(self) -> None:
        self._axes: Floats | None = None
        self._anchored = 0

    def turn(self, components: Floats, rows: int) -> Floats:
        """The matrix (k, k) that turns coordinates along the components (k, D) into coordinates along the stable axes."""
        if self._axes is None or self._axes.shape != components.shape or rows >= 2 * self._anchored or rows < self._anchored:
            self._axes, self._anchored = components, max(1, rows)
            return np.eye(len(components))
        turn = nearest_turn(components, self._axes)
        self._axes = turn @ components
        return turn


class Cloud:
    """Keeps the newest rows, and computes their coordinates with the newest model.

    Parameters
    ----------
    id_names : list of str
    """

    def __init__(self, id_names: list[str]) -> None:
        self.id_names = id_names
        self._axes = Axes()
        self._pieces: list[Piece] = []
        self._spe: list[Floats] = []
        self._count = 0

    def add(self, piece: Piece, spe: Floats) -> None:
        """Add rows with their SPE, and drop the oldest."""
        rows = piece.rows.astype(_precision(piece.rows))
        piece = piece._replace(rows=rows if issparse(rows) else np.asarray(rows))
        self._pieces.append(piece)
        self._spe.append(spe)
        self._count += len(piece.numbers)
        most = int(np.clip(_BYTES // (4 * max(1, rows.shape[1])), 100, _ROWS))
        while self._count - len(self._pieces[0].numbers) >= most:
            self._count -= len(self._pieces.pop(0).numbers)
            self._spe.pop(0)

    def table(self, model: OnlinePCA) -> tuple[dict[str, Any], dict[str, list[list[str]]]]:
        """Columns of points (row number, SPE, IDs and colours, coordinates s1… along stable and p1… along principal axes), and legends."""
        if not self._pieces:
            return _empty(self.id_names), {}
        numbers = np.concatenate([piece.numbers for piece in self._pieces])
        parts = [piece.rows for piece in self._pieces]
        rows: Any = vstack(parts).tocsr() if any(issparse(part) for part in parts) else np.concatenate(parts)
        stable, principal = self._coordinates(model, rows)
        columns: dict[str, Any] = {"row": numbers.astype(np.float64), "spe": np.concatenate(self._spe)}
        for letter, found in (("s", stable), ("p", principal)):
            columns |= {f"{letter}{k + 1}": _column(found, k) for k in range(SHOWN)}
        legends = {}
        for i, name in enumerate(self.id_names):
            texts = [text for piece in self._pieces for text in _texts(piece, i)]
            columns[f"id{i}"] = texts
            columns[f"colour{i}"], legends[name] = _groups(texts)
        return columns, legends

    def _coordinates(self, model: OnlinePCA, rows: Any) -> tuple[Floats, Floats]:
        found = np.asarray(model.transform(rows), dtype=np.float64)
        k = min(SHOWN, found.shape[1])
        if model.axes == "stable":
            _, turn = np.linalg.eigh(np.asarray(model.scores_covariance_, dtype=np.float64))
            return found[:, :k], (found @ turn[:, ::-1])[:, :k]
        components = np.asarray(model.components_[:k], dtype=np.float64)
        return found[:, :k] @ self._axes.turn(components, model.n_samples_seen_).T, found[:, :k]


def _precision(rows: Any) -> Any:
    """Single precision, to halve the memory, if the values and their squares are in its range; otherwise double precision."""
    sizes = np.abs(rows.data if issparse(rows) else rows)
    most = float(np.fmax.reduce(sizes, axis=None, initial=0.0))
    return np.float32 if 1e-12 < most < 1e12 or most == 0.0 else np.float64


def _column(found: Floats, k: int) -> NDArray[Any]:
    values = found[:, k] if k < found.shape[1] else np.full(len(found), math.nan)
    return np.asarray(values, dtype=_precision(values))


def _texts(piece: Piece, column: int) -> list[str]:
    if piece.ids is None:
        return [""] * len(piece.numbers)
    return [text(row[column])[:_TEXT] if column < len(row) else "" for row in piece.ids]


def _groups(texts: list[str]) -> tuple[list[str], list[list[str]]]:
    """A colour for each of the most frequent texts, grey for the others; and the legend."""
    frequent = [text for text, _ in Counter(texts).most_common(len(_GROUP_COLOURS))]
    colours = dict(zip(sorted(frequent), _GROUP_COLOURS, strict=False))
    legend = [[text, colour] for text, colour in colours.items()]
    if len(set(texts)) > len(frequent):
        legend.append(["others", GREY])
    return [colours.get(text, GREY) for text in texts], legend


def _empty(id_names: list[str]) -> dict[str, Any]:
    names = ["row", "spe", *(f"{letter}{k + 1}" for letter in "sp" for k in range(SHOWN))]
    texts: dict[str, Any] = {f"{kind}{i}": [] for i in range(len(id_names)) for kind in ("id", "colour")}
    return {name: np.zeros(0) for name in names} | texts
