"""The step of the block learner without inner products of rows: close to the exact step where it is taken, and never taken where a
direction of the block belongs among those kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from online_psp import OnlinePCA
from online_psp.algorithms._ritz import Model, advance
from online_psp.algorithms._ritz_exact import exactly
from online_psp.algorithms._ritz_image import try_image
from online_psp.engine.rows import ArrayRows, DenseRows, SparseRows
from online_psp.engine.sparse_store import SparseStore
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error

K, D, ROWS = 12, 150, 60
SHARE = 1.0 / 4000  # of a row in the average of all: a stream of 4,000 rows


def calm_model(seed: int, dtype: Any = np.float64) -> tuple[Model, Floats, Floats]:
    """A model of variances 1/k along the first features, turned at random, its next block, and what the rows count."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
    deviations = 1.0 / np.sqrt(np.arange(1, D + 1))
    X = (rng.standard_normal((ROWS, D)) * deviations) @ Q.T
    model = Model(np.ascontiguousarray(Q[:, :K].T, dtype=dtype), np.diag(deviations[:K] ** 2), 0.0)
    return model, X.astype(dtype), np.full(ROWS, np.sqrt(SHARE))


def basis(model: Model) -> Floats:
    return np.asarray(model.basis().T, dtype=np.float64)


@pytest.mark.parametrize("seed", range(5))
def test_a_calm_step_is_close_to_the_exact_one(seed: int) -> None:
    model, X, roots = calm_model(seed)
    calm, exact = try_image(model, DenseRows(X), roots)[0], exactly(model, DenseRows(X), roots, K)
    assert calm is not None, "rows with hardly anything outside of the basis should take the calm step"
    before, after = subspace_error(basis(model), basis(exact)), subspace_error(basis(calm), basis(exact))
    assert after < 0.2 * before, f"one subspace iteration should leave less than a fifth of {before:.2e}; it left {after:.2e}"
    found, expected = np.linalg.eigvalsh(calm.M), np.linalg.eigvalsh(exact.M)
    assert (found <= expected * (1 + 1e-12)).all(), "Nyström's approximation is not larger than what it approximates"
    assert np.abs(found / expected - 1).max() < 2e-3, f"variances should agree to 0.2 %; off by {np.abs(found / expected - 1).max():.1e}"
    off = np.abs(basis(calm).T @ basis(calm) - np.eye(K)).max()
    assert off < 1e-14, f"the basis should be orthonormal to rounding; off by {off:.1e}"


def test_single_precision_is_orthonormal_too() -> None:
    model, X, roots = calm_model(3, np.float32)
    calm = try_image(model, DenseRows(X), roots)[0]
    assert calm is not None
    assert calm.dtype == np.float32
    off = np.abs(basis(calm).T @ basis(calm) - np.eye(K)).max()
    assert off < 2e-6, f"expected orthonormal rows to single precision; off by {off:.1e}"


def test_rows_of_every_kind_take_the_same_step() -> None:
    strict = pytest.importorskip("array_api_strict")
    model, X, roots = calm_model(7)
    X[np.abs(X) < 0.05] = 0.0
    dense = try_image(model, DenseRows(X), roots)[0]
    other = try_image(model, ArrayRows(strict.asarray(X), np.dtype(np.float64)), roots)[0]
    rows = SparseRows(csr_matrix(X), np.ones(ROWS), None)
    stored = try_image(model._replace(B=SparseStore(model.basis(), None)), rows, roots)[0]
    assert dense is not None
    for name, found in (("another library's", other), ("sparse", stored)):
        assert found is not None, f"{name} rows should take the calm step where dense ones do"
        apart = np.abs(basis(found) - basis(dense)).max(), np.abs(found.M - dense.M).max()
        assert max(apart) < 1e-12, f"{name} rows should lead to the same model as dense ones; off by {max(apart):.1e}"


def planted(kind: str, seed: int) -> tuple[Model, Floats, Floats, Floats]:
    """A calm model whose next block has a new direction of three times the smallest variance kept, in some way; and that direction."""
    model, X, roots = calm_model(seed)
    rng = np.random.default_rng(1000 + seed)
    new = rng.standard_normal(D)
    new -= basis(model) @ (basis(model).T @ new)
    new /= np.linalg.norm(new)
    energy = 3.0 * float(model.M.diagonal().min()) / SHARE
    size = {"one row": 1, "two rows": 2, "last rows": 10, "all rows": ROWS}.get(kind, ROWS)
    along = np.zeros(ROWS)
    along[ROWS - size :] = rng.standard_normal(size)
    if kind == "constant":
        along[:] = 1.0
    elif kind == "alternating":
        along[:] = np.where(np.arange(ROWS) % 2, 1.0, -1.0)
    elif kind == "a wave":
        along = np.sin(0.7 * np.arange(ROWS))
    elif kind == "quarters":  # rows that are summed lie a quarter of the block apart
        along = np.tile(rng.standard_normal(ROWS // 4), 4) * np.repeat([1.0, -1.0, 1.0, -1.0], ROWS // 4)
    along *= np.sqrt(energy) / np.linalg.norm(along)
    return model, X + np.outer(along, new), roots, new


KINDS = ["one row", "two rows", "last rows", "all rows", "constant", "alternating", "a wave", "quarters"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(10))
def test_a_new_direction_is_never_overlooked(kind: str, seed: int) -> None:
    model, X, roots, new = planted(kind, seed)
    assert try_image(model, DenseRows(X), roots)[0] is None, f"a new direction ({kind}) should not take the calm step"
    found = advance(model, DenseRows(X), roots, 1.0 - ROWS * SHARE, K)
    part = float(np.linalg.norm(basis(found).T @ new))
    assert part > 0.95, f"the new direction ({kind}) should be among those kept; only {part:.2f} of it is"


def test_streams_without_new_directions_take_it_and_continue_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []

    def counted(*arguments: Any) -> tuple[Model | None, float]:
        found = try_image(*arguments)
        taken.append(found[0] is not None)
        return found

    monkeypatch.setattr("online_psp.algorithms._ritz.try_image", counted)
    rng = np.random.default_rng(5)
    X = rng.standard_normal((9000, 300)) / np.sqrt(np.arange(1, 301))
    whole = OnlinePCA(4, oversample=4).fit(X)
    again = OnlinePCA(4, oversample=4).fit(X[:7013])
    again.save(tmp_path / "half.psp")
    again = OnlinePCA.load(tmp_path / "half.psp")
    for x in X[7013:7300]:
        again.fit_next(x)
    again.partial_fit(X[7300:])
    assert np.array_equal(whole.components_, again.components_), "a stopped stream should continue bit for bit"
    assert np.array_equal(whole.explained_variance_, again.explained_variance_)
    assert np.mean(taken) > 0.8, f"nearly all blocks should take the step, or the test shows nothing; {np.mean(taken):.2f} did"


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("seed", range(5))
def test_a_second_iteration_is_made_where_one_is_not_enough(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, X, _ = calm_model(seed)
    roots = np.full(ROWS, np.sqrt(10.0 * SHARE))  # a stream of 400 rows
    X[np.abs(X) < 0.05] = 0.0

    def step() -> Model:
        if kind == "dense":
            found = try_image(model, DenseRows(X), roots)[0]
        else:
            found = try_image(model._replace(B=SparseStore(model.basis(), None)), SparseRows(csr_matrix(X), np.ones(ROWS), None), roots)[0]
        assert found is not None, "two subspace iterations should be enough for these rows"
        return found

    exact, twice = exactly(model, DenseRows(X), roots, K), step()
    monkeypatch.setattr("online_psp.algorithms._ritz_image._CALM", 1.0)
    once = step()
    errors = [subspace_error(basis(each), basis(exact)) for each in (once, twice)]
    assert errors[1] < 0.7 * errors[0], f"a second iteration should bring the error well below {errors[0]:.1e}; it is {errors[1]:.1e}"
    losses = [1 - np.trace(each.M) / np.trace(exact.M) for each in (once, twice)]
    assert -1e-12 < losses[1] < losses[0], f"Nyström's approximation should lose less variance with two iterations than with one: {losses}"
    off = np.abs(basis(twice).T @ basis(twice) - np.eye(K)).max()
    assert off < 1e-13, f"the basis should be orthonormal to rounding; off by {off:.1e}"
