"""Merged models: their error by the number of parts, and what a part sends."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from online_psp import distributed
from online_psp.metrics import subspace_error
from online_psp.pca import OnlinePCA
from online_psp.suite.data import images
from online_psp.suite.tables import Table


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """Rows shuffled, and sorted by cluster; K of 16."""
    from sklearn.cluster import MiniBatchKMeans

    K, X = 16, images(2000 if quick else None)[1]
    exact = np.linalg.eigh(np.cov(X.T))[1][:, -K:]
    clusters = MiniBatchKMeans(10, n_init=1, random_state=0).fit_predict(X)
    orders = {"shuffled": np.random.default_rng(0).permutation(len(X)), "by cluster": np.argsort(clusters, kind="stable")}
    counts, lines = (1, 4, 16, 128, 1024), []
    for oversample, (order, rows) in product((K + 32, 2 * (K + 32)), orders.items()):
        errors, sent = [], 0
        for count in counts:
            parts = [OnlinePCA(K, oversample=oversample).fit(part) for part in np.array_split(X[rows], count)]
            model = distributed.reduce(parts)
            errors.append(f"{subspace_error(model.components_.T, exact):.4f}")
            sent = max(sent, *(len(pickle.dumps(part)) for part in parts))
        lines.append((str(K + oversample), order, *errors, f"{sent / 1e6:.2f}", f"{len(pickle.dumps(model)) / 1e6:.2f}"))
    header = ("directions kept", "rows", *(f"parts: {count:,}" for count in counts), "MB of a part, at most", "MB of the merged model")
    yield Table(f"Error by the number of parts, {len(X):,} × {X.shape[1]}, K={K}", header, tuple(lines))
