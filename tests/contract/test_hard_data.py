"""The default of OnlinePCA on data that is hard for streaming algorithms, beside IncrementalPCA with as many directions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.linalg import lapack
from scipy.sparse import csr_array
from sklearn.decomposition import IncrementalPCA

from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error
from tests.hard_data import Case, harmonic


def batch(case: Case) -> tuple[Floats, Floats]:
    """The top components, (K, D), and their variances, from all rows at once."""
    X = case.X.astype(np.float64)
    w = np.ones(len(X)) if case.weights is None else case.weights
    if case.center:
        X = X - X[0]
        X = X - (w @ X) / w.sum()
    _, values, directions = np.linalg.svd(np.sqrt(w)[:, np.newaxis] * X, full_matrices=False)
    return directions[: case.K], values[: case.K] ** 2 / (w.sum() - (1.0 if case.center else 0.0))


def incremental(case: Case, kept: int) -> tuple[Floats, Floats]:
    """IncrementalPCA of `kept` directions in batches of five times that; by hand where it takes no weights, or centres."""
    X, step = case.X.astype(np.float64), 5 * kept
    if case.weights is None and case.center:
        model = IncrementalPCA(kept, batch_size=step).fit(X)
        return model.components_[: case.K], model.explained_variance_[: case.K]
    weights = np.ones(len(X)) if case.weights is None else case.weights
    S, total, mean = np.zeros((0, X.shape[1])), 0.0, np.zeros(X.shape[1])
    for start in range(0, len(X), step):
        rows, w = X[start : start + step], weights[start : start + step]
        stacked: list[Any] = [S, np.sqrt(w)[:, np.newaxis] * rows]
        if case.center:
            own = w @ rows / w.sum()
            stacked = [S, np.sqrt(w)[:, np.newaxis] * (rows - own), [np.sqrt(total * w.sum() / (total + w.sum())) * (own - mean)]]
            mean = mean + (own - mean) * w.sum() / (total + w.sum())
        total += w.sum()
        _, values, directions = np.linalg.svd(np.concatenate(stacked), full_matrices=False)
        S = values[:kept, np.newaxis] * directions[:kept]
    lengths = np.linalg.norm(S, axis=1)[: case.K]
    return S[: case.K] / lengths[:, np.newaxis], lengths**2 / (total - (1.0 if case.center else 0.0))


def check(name: str, case: Case, model: OnlinePCA, peer: tuple[Floats, Floats] | None = None) -> None:
    """What must be true of a model, with a message that gives both errors."""
    truth, variances = batch(case)
    kept = min(2 * case.K + 32, case.X.shape[1])
    found, found_variances = peer or incremental(case, kept)
    known = int((variances > 1e-26 * variances[0]).sum())
    ours, theirs = (subspace_error(np.asarray(each[:known], np.float64).T, truth[:known].T) for each in (model.components_, found))
    assert ours <= 1.3 * theirs + 0.003, f"{name}: error {ours:.5f}, IncrementalPCA with {kept} directions {theirs:.5f}"
    off, peer_off = (np.abs(each[:known] / variances[:known] - 1).max() for each in (model.explained_variance_, found_variances))
    assert off < 0.03 or peer_off > 0.03, f"{name}: variances {100 * off:.2f} % off, IncrementalPCA's {100 * peer_off:.2f} %"
    C = model.components_.astype(np.float64)
    skew = np.abs(C @ C.T - np.eye(len(C))).max()
    assert skew < (1e-5 if case.X.dtype == np.float32 else 1e-10), f"{name}: components are off orthonormal by {skew:.1e}"
    assert model.explained_variance_ratio_.sum() <= 1 + 1e-12, f"{name}: more explained than there is"
    assert np.isfinite(model.score(case.X)), f"{name}: the score is not finite"


@pytest.mark.parametrize(("unit", "dtype"), [(1e-100, np.float64), (1e100, np.float64), (1e-15, np.float32), (1e15, np.float32)])
@pytest.mark.parametrize("D", [40, 300])
def test_units_do_not_matter(unit: float, dtype: Any, D: int) -> None:
    X = (np.random.default_rng(5).standard_normal((700, D)) * np.r_[5.0, 4.0, 3.0, np.full(D - 3, 0.1)] + 1.0).astype(dtype)
    one, other = OnlinePCA(3), OnlinePCA(3)
    for stop in (2, 150, 700):
        start = one.n_samples_seen_ if stop > 2 else 0
        one.partial_fit(X[start:stop])
        other.partial_fit((X[start:stop].astype(np.float64) * unit).astype(dtype))
        known = slice(0, min(stop - 1, 3))  # two rows have one direction
        difference = np.abs(one.components_[known] - other.components_[known]).max()
        assert difference < (1e-6 if dtype is np.float64 else 1e-3), f"components differ by {difference:.1e} after {stop} rows"
    assert np.allclose(other.explained_variance_ / unit / unit, one.explained_variance_, rtol=1e-3)


def odd_units(D: int, ratio: float) -> tuple[Floats, Floats]:
    """Rows with one feature in other units, and the leading 5 directions, from a decomposition that the sizes of columns do not disturb."""
    rng = np.random.default_rng(31)
    X = rng.standard_normal((2000, D)) @ (rng.standard_normal((D, D)) / np.arange(1, D + 1)[:, np.newaxis])
    X[:, 7] *= ratio
    centred = X - X.mean(axis=0)
    order = np.argsort(-centred.std(axis=0))
    directions = np.empty((D, D))
    directions[order] = lapack.dgejsv(np.linalg.qr(centred[:, order])[1], joba=0, jobu=3, jobv=0, jobr=1, jobt=0, jobp=0)[2]
    return X, directions[:, :5]


@pytest.mark.parametrize(("D", "ratio", "most"), [(40, 1e9, 1e-9), (40, 1e14, 1e-9), (300, 1e9, 0.003), (300, 1e12, 0.003)])
def test_one_feature_in_other_units(D: int, ratio: float, most: float) -> None:
    X, truth = odd_units(D, ratio)
    model = OnlinePCA(5).fit(X)
    error = subspace_error(model.components_.T, truth)
    assert error <= most, f"subspace error {error:.1e}, at most {most:.0e} expected"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_directions_that_rounding_blurs_are_not_passed_over_in_silence(dtype: Any) -> None:
    """A clock, and a huge row that makes all features vary so much that none of them seems to be hidden by the clock."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((2000, 300)) @ (rng.standard_normal((300, 300)) / np.arange(1, 301)[:, np.newaxis] ** 2)
    X[1000] *= 3000.0
    X[:, 0] = np.linspace(0.0, 3e7, len(X))
    X = X.astype(dtype)
    truth = np.linalg.svd(X - X.astype(np.float64).mean(axis=0), full_matrices=False)[2][:6]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        error = subspace_error(OnlinePCA(6).fit(X).components_.astype(np.float64).T, truth.T)
    if dtype is np.float32:
        assert error < 0.003 or "dtype=np.float64" in str(said[0].message), f"error {error:.4f} without a word"
    else:
        assert error < 0.003, f"error {error:.4f} in double precision"
        assert not said, [str(each.message) for each in said]


def test_features_that_rounding_hides_are_not_passed_over_in_silence() -> None:
    model = OnlinePCA(5).fit(odd_units(300, 1e15)[0])
    with pytest.warns(RuntimeWarning, match="Feature 7 .*standardize=True"):
        _ = model.components_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _ = OnlinePCA(5, standardize=True).fit(odd_units(300, 1e15)[0]).components_
        _ = OnlinePCA(1).fit(odd_units(300, 1e15)[0]).components_


@pytest.mark.parametrize("D", [300, 6000])
def test_rows_that_overflow_are_named(D: int) -> None:
    X = np.random.default_rng(0).standard_normal((300, D))
    for unit in (1e160, 1e-160):
        with pytest.raises(ValueError, match=r"whose squares (over|under)flow"):
            OnlinePCA(2).fit(X * unit)
    X[200] *= 1e145
    model = OnlinePCA(2).fit(X[:100])
    before = model.components_
    with pytest.raises(ValueError, match="row 100, too large"):
        model.partial_fit(X[100:])
    assert np.array_equal(model.components_, before)


def beyond_squares(name: str) -> Floats:
    """Rows of few features whose directions differ by more than a covariance matrix can tell."""
    rng = np.random.default_rng(41)
    X = harmonic(rng, 700, 60)
    u = rng.standard_normal(60)
    if name in ("a row of 1e9", "a last row of 1e9"):
        X[400 if name == "a row of 1e9" else -1] = 1e9 * u
    elif name == "two clocks":
        X[:, 3] = 1.7e12 + 2e5 * np.arange(700)
        X[:, 8] = X[:, 3] + 3.0 * rng.standard_normal(700)
    elif name == "one direction grows":
        X += np.exp(np.linspace(0.0, 22.0, 700))[:, np.newaxis] * u
    return X


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("a row of 1e9", "merged"),
        ("a last row of 1e9", "dense"),
        ("two clocks", "dense"),
        ("two clocks", "merged"),
        ("one direction grows", "sparse"),
    ],
)
def test_few_features_are_exact_beyond_the_range_of_squares(name: str, how: str) -> None:
    X = beyond_squares(name)
    if how == "merged":
        model = OnlinePCA(4).fit(X[:333]).merge(OnlinePCA(4).fit(X[333:]))
    else:
        model = OnlinePCA(4).fit(csr_array(X) if how == "sparse" else X)
    truth, variances = batch(Case(X, 4))
    error = subspace_error(model.components_.T, truth.T)
    assert error < 1e-5, f"{name}, {how}: error {error:.1e}"
    assert np.allclose(model.explained_variance_, variances, rtol=1e-4), f"{name}, {how}: {model.explained_variance_} for {variances}"


@pytest.mark.parametrize(("D", "sparse"), [(60, False), (60, True), (300, True)])
def test_a_clock_among_the_features(D: int, sparse: bool) -> None:
    """A mean that is 1e10 times its own deviation, and as much larger than everything else."""
    rng = np.random.default_rng(42)
    X = harmonic(rng, 900, D)
    X[:, 5] = 1.7e9 + np.arange(900.0) / 4096
    case = Case(X, 4)
    model = OnlinePCA(4).fit(csr_array(X) if sparse else X)
    check(f"clock, D={D}, sparse: {sparse}", case, model)
    own = np.cumsum(np.full(900, 1 / 4096)).var(ddof=1)
    assert np.isclose(model.var_[5], own, rtol=1e-6), f"variance of the clock {model.var_[5]}, {own} expected"
    if sparse:
        dense = OnlinePCA(4).fit(X)
        assert np.isclose(model.score(csr_array(X)), dense.score(X), rtol=1e-3), "sparse rows have another likelihood than dense ones"


def test_coordinates_of_float32_rows_far_from_zero() -> None:
    X = (harmonic(np.random.default_rng(43), 900) + 1e5).astype(np.float32)
    model = OnlinePCA(4).fit(X)
    exact = (X.astype(np.float64) - X.astype(np.float64).mean(axis=0)) @ model.components_.astype(np.float64).T
    for rows in (X, csr_array(X)):
        off = np.abs(model.transform(rows) - exact).max()
        assert off < 1e-3, f"coordinates of {type(rows).__name__} are off by {off:.1e} at deviations of 1"


@pytest.mark.parametrize(
    ("D", "dtype", "size", "where"),
    [
        (60, np.float64, 1e9, 0),
        (300, np.float64, 1e11, 600),
        (300, np.float32, 1e6, 0),
        (60, np.float32, 1e6, -1),
        (300, np.float64, 1e9, -1),
    ],
)
def test_variance_left_out_beside_one_huge_row(where: int, dtype: Any, size: float, D: int) -> None:
    """The variance left out is a difference of sums that the huge row is nearly all of. Where it is lost, directions that were not kept
    have none at least, and that of the last one kept at most.
    """
    rng = np.random.default_rng(45)
    X = harmonic(rng, 900, D)
    X[where] = size * rng.standard_normal(D) / np.sqrt(D)
    X = X.astype(dtype)
    model = OnlinePCA(4).fit(X)
    variances = np.linalg.svd(X - X.mean(axis=0, dtype=np.float64), compute_uv=False)[4:] ** 2 / 899
    least, most = variances[:36].sum() / (D - 4), (variances[:36].sum() + (D - 40) * variances[35]) / (D - 4)
    noise, true = model.noise_variance_, variances.sum() / (D - 4)
    assert 0.97 * least < noise < 1.03 * most, f"noise variance {noise:.3e}, {true:.3e} expected, within {least:.3e} and {most:.3e}"


@pytest.mark.parametrize(
    ("D", "where", "how"), [(60, 0, "fit"), (300, 600, "fit"), (300, 1, "fit_next"), (60, -1, "fit_next"), (300, -1, "sparse")]
)
def test_rows_that_rounding_hides_are_not_passed_over_in_silence(where: int, D: int, how: str) -> None:
    X = harmonic(np.random.default_rng(46), 900, D)
    X[where] = 1e20

    def score() -> float:
        model = OnlinePCA(3)
        if how == "fit_next":
            for row in X:
                model.fit_next(row)
        else:
            model.fit(csr_array(X) if how == "sparse" else X)
        return model.score(X)

    with pytest.warns(RuntimeWarning, match="robust=True"):
        assert np.isfinite(score())


def test_no_word_about_rows_that_hide_nothing() -> None:
    """Tiny rows, fewer directions than are asked for, and a float32 clock of 1e4 times the other features are no reason to warn."""
    rng = np.random.default_rng(47)
    few = rng.standard_normal((900, 2)) @ rng.standard_normal((2, 300))
    tiny, clock = harmonic(rng, 900), harmonic(rng, 1500)
    tiny[[0, -1]] *= 1e-30
    clock[:, 0] = np.linspace(0, 40_000, 1500)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for X in (few, tiny, tiny[:100], np.zeros((50, 4)), np.ones((50, 4))):
            _ = OnlinePCA(3).fit(X).components_
        check("float32 clock", Case(clock.astype(np.float32), 4), OnlinePCA(4).fit(clock.astype(np.float32)))
