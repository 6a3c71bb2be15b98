"""The picture of docs/missing.md: ``python -m benchmarks.missing_picture [FOLDER]``; docs/img by default."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from online_psp import OnlinePCA
from online_psp.engine.types import Floats

SHOWN = 10


def digits() -> tuple[Floats, Floats, Floats, Floats]:
    """Ten digits that the model has not seen: whole, with half of their pixels missing, filled, and filled with the mean."""
    X, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    H = np.where(rng.random(X.shape) < 0.5, np.nan, X)
    model = OnlinePCA(20, missing="impute")
    for start in range(0, 1500, 100):  # a stream in which half of every picture is missing
        model.partial_fit(H[start : start + 100])
    at = [1500 + int(np.argmax(labels[1500:] == digit)) for digit in range(SHOWN)]
    return X[at], H[at], model.impute(H[at]), np.where(np.isnan(H[at]), model.mean_, H[at])


def main(folder: str = "docs/img") -> None:
    whole, holes, filled, mean = digits()
    figure, panels = plt.subplots(4, SHOWN, figsize=(9, 3.8), layout="constrained")
    shades = plt.get_cmap("gray").copy()
    shades.set_bad("#D55E00")
    names = ("half missing", "filled", "with the mean", "the picture")
    for line, (name, pictures) in enumerate(zip(names, (holes, filled, mean, whole), strict=True)):
        for panel, picture in zip(panels[line], pictures, strict=True):
            panel.imshow(np.ma.masked_invalid(picture.reshape(8, 8)), cmap=shades, vmin=0, vmax=16)
            panel.set_xticks([])
            panel.set_yticks([])
        panels[line, 0].set_ylabel(name, rotation=0, ha="right", va="center")
    figure.savefig(Path(folder) / "missing.png", dpi=110)
    wrong = [float(np.sqrt(np.mean((values - whole)[np.isnan(holes)] ** 2))) for values in (filled, mean)]
    print(f"missing values of the ten pictures: RMSE {wrong[0]:.2f} filled, {wrong[1]:.2f} with the mean")


if __name__ == "__main__":
    main(*sys.argv[1:])
