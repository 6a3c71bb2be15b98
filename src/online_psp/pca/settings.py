"""What an OnlinePCA is given: its parameters and rows, checked before anything changes."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.utils.validation import _check_sample_weight, validate_data

from online_psp.algorithms import ALGORITHMS
from online_psp.engine.arrays import ForeignRows, namespace_of, to_host
from online_psp.engine.types import Floats

_FLOAT_RANK = 128  # directions kept when the number of components is a fraction of variance


def check_parameters(estimator: Any) -> None:
    """Raise an error that says which parameter is impossible."""
    wanted = estimator.n_components
    if isinstance(wanted, bool) or not (wanted is None or isinstance(wanted, numbers.Real)):
        raise TypeError(f"n_components must be a whole number, a fraction or None; got {wanted!r}.")
    if isinstance(wanted, numbers.Integral):
        if wanted < 1:
            raise ValueError(f"n_components must be at least 1; got {wanted}.")
    elif wanted is not None and not 0.0 < float(wanted) < 1.0:
        raise ValueError(f"n_components as a share of variance must be between 0 and 1; got {wanted!r}.")
    if estimator.algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}; got {estimator.algorithm!r}.")
    oversample = estimator.oversample
    if oversample is not None and (not isinstance(oversample, numbers.Integral) or oversample < 0):
        raise ValueError(f"oversample must be a whole number, 0 or more; got {oversample!r}.")
    if not estimator.gamma > 0:
        raise ValueError(f"gamma must be positive; got {estimator.gamma!r}.")


def foreign_namespace(X: Any) -> Any:
    """The array library of X where it is to be used as it is, or None: then X is for NumPy or SciPy."""
    return namespace_of(X) if get_config()["array_api_dispatch"] else None


def check_rows(estimator: Any, X: ArrayLike, reset: bool) -> Any:
    """Rows as a NumPy array, a CSR matrix or `ForeignRows`, (n, D); with `reset` the estimator takes its number of features from them."""
    dtypes = [np.float64, np.float32] if estimator.dtype is None else [np.dtype(estimator.dtype)]
    xp, wanted = foreign_namespace(X), estimator.n_components
    rows: Any
    if xp is None:
        rows = validate_data(estimator, X, accept_sparse="csr", reset=reset, dtype=dtypes, order="C")
    else:
        rows = ForeignRows(validate_data(estimator, X, reset=reset, dtype=[getattr(xp, np.dtype(kind).name) for kind in dtypes]))
    if reset and isinstance(wanted, numbers.Integral) and wanted > rows.shape[1]:
        raise ValueError(f"n_components must not be larger than the number of features, {rows.shape[1]}; got {wanted}.")
    return rows


def check_weights(sample_weight: ArrayLike | None, rows: Any) -> Floats:
    """The weights of rows, (n,): ones where there are none."""
    if sample_weight is None:
        return np.ones(rows.shape[0])
    if isinstance(rows, ForeignRows):  # weights are few, and stay on the host
        sample_weight, rows = to_host(sample_weight), np.zeros((len(rows), 1))
    weights: Floats = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
    return weights


def rank_for(n_components: Any, oversample: Any, D: int) -> int:
    """How many directions to keep of D features: K'."""
    if isinstance(n_components, numbers.Integral):
        K = int(n_components)
        rank = 2 * K + 8 if oversample is None else K + int(oversample)
    elif n_components is None:
        rank = D
    else:
        rank = _FLOAT_RANK if oversample is None else max(1, int(oversample))
    return min(rank, D)
