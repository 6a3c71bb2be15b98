"""Other packages to compare with, which may not be installed."""

from __future__ import annotations

from importlib import metadata, util

import numpy as np

from online_psp.engine.types import Array, Floats

INSTALL = "pip install 'online-psp[peers]'"


def version(package: str) -> str | None:
    """The installed version, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def absent(package: str) -> str | None:
    """Why there is no comparison with a package, in one sentence, or None if there is one."""
    return None if version(package) is not None else f"not installed: {INSTALL}"


def river_note() -> str:
    """A note about river, which up to at least 0.26 has no PCA to run."""
    found = version("river")
    if found is None:
        return f"river: not installed ({INSTALL}); up to 0.26 at least it has no online PCA to compare with"
    if util.find_spec("river.decomposition") is None:
        return f"river {found}: has no online PCA to compare with (proposed in online-ml/river#1509)"
    return f"river {found}: has a module `decomposition`, which this comparison does not know yet"


def prosvd(X: Array, K: int, rank: int, block: int) -> Floats:
    """proSVD (Draelos et al., "Bubblewrap", 2021): incremental SVD whose basis turns as little as possible.

    It takes samples as columns, does not centre, and starts from the QR of the first `rank` samples. If it keeps more directions
    than wanted, the top K of them are read from its small factor B at the end.

    Parameters
    ----------
    X : (N, D)
    K, rank : int
        Directions wanted, and directions kept.
    block : int
        Samples per update.

    Returns
    -------
    (D, K)
    """
    from proSVD import proSVD

    model = proSVD(k=rank, w_len=block, track_prev=False)
    A = X.T
    model.initialize(A[:, :rank])
    for first in range(rank, A.shape[1], block):
        model.updateSVD(A[:, first : first + block])
    basis: Floats = model.Q @ np.linalg.svd(model.B)[0][:, :K]
    return basis
