"""Rivals against their papers' updates, written here once more and in another way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error
from online_psp.suite.rivals import RIVALS, RivalModel

K, D = 4, 30


def rows(n: int = 280, seed: int = 0) -> Floats:
    """Spiked rows of mean norm one."""
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((D, K)))[0]
    X = rng.standard_normal((n, K)) * np.sqrt(np.linspace(1.0, 0.5, K)) @ U.T + 0.1 * rng.standard_normal((n, D))
    return np.asarray(X / np.linalg.norm(X, axis=1).mean())


def holed(X: Floats, share: float = 0.3) -> Floats:
    return np.where(np.random.default_rng(5).random(X.shape) < share, np.nan, X)


def top(X: Floats, K: int = K) -> Floats:
    return np.linalg.svd(X, full_matrices=False)[2][:K].T


def first(X: Floats) -> Floats:
    return np.linalg.qr(np.nan_to_num(X[:K]).T)[0]


def gram_schmidt(U: Floats) -> Floats:
    """Column by column, twice."""
    done: list[Floats] = []
    for u in U.T:
        for _ in range(2):
            for q in done:
                u = u - (q @ u) * q  # noqa: PLW2901
        done.append(u / np.sqrt(u @ u))
    return np.array(done).T


# The papers' updates, each from rows to a basis


def oja(X: Floats) -> Floats:
    U, sizes = first(X), []
    for t, x in enumerate(X, start=1):
        sizes.append(np.sqrt(x @ x * (U.T @ x @ U.T @ x)) / K)
        left, _, right = np.linalg.svd(U + 5.0 / t / np.mean(sizes) * np.outer(x, x) @ U, full_matrices=False)
        U = left @ right  # the polar factor
    return U


def krasulina(X: Floats) -> Floats:
    U, sizes = first(X), []
    for t, x in enumerate(X, start=1):
        P = U @ np.linalg.pinv(U)
        sizes.append(np.linalg.norm(x) * np.linalg.norm(P @ x) / K)
        U = U + 5.0 / t / np.mean(sizes) * (np.eye(D) - P) @ np.outer(x, x) @ U  # never made orthonormal
        U /= np.linalg.norm(U)
    return U


def own_gains(X: Floats, t: int, squares: list[Floats]) -> Floats:
    x, y2 = X[t - 1], squares[-1]
    return np.array([min(3.0 / t / v, 1.0 / max(x @ x, y2.sum())) if v else 0.0 for v in np.mean(squares, axis=0)])


def sga(X: Floats) -> Floats:
    U, squares = first(X), []
    for t, x in enumerate(X, start=1):
        squares.append((U.T @ x) ** 2)
        U = gram_schmidt(U + np.outer(x, x) @ U @ np.diag(own_gains(X, t, squares)))
    return U


def gha(X: Floats) -> Floats:
    U, squares = first(X), []
    for t, x in enumerate(X, start=1):
        y = U.T @ x
        squares.append(y**2)
        gains, new = own_gains(X, t, squares), U.copy()
        for k in range(K):
            new[:, k] += gains[k] * y[k] * (x - sum(y[i] * U[:, i] for i in range(k + 1)))
        U = new
    return U


def adaoja(X: Floats) -> Floats:
    Q, gradients = first(X), []
    for start in range(0, len(X), 10):
        A = X[start : start + 10]
        gradients.append(np.cov(A.T, bias=True) @ Q + np.outer(A.mean(axis=0), A.mean(axis=0)) @ Q)
        b = np.linalg.norm(np.concatenate(gradients), axis=0)
        Q = gram_schmidt(Q + gradients[-1] / b)
    return Q


def history_pca(X: Floats, m: int = 1) -> Floats:
    Q, A = first(X), np.zeros((D, D))
    for t, start in enumerate(range(0, len(X), 10), start=1):
        B = X[start : start + 10]
        A = (t - 1) / t * A + B.T @ B / 10 / t
        for _ in range(m):
            G = A @ Q
            Q = gram_schmidt(G)
        A = Q @ np.diag(np.linalg.norm(G, axis=0)) @ Q.T
    return Q


def isvd(X: Floats, f: float = 1.0) -> Floats:
    """By the papers' small matrix: R = [f Σ, Uᵀ X; 0, Ũᵀ X] with columns as samples, Ũ what the block adds."""
    U, sigma = np.zeros((D, 0)), np.zeros(0)
    for start in range(0, len(X), 5):
        B = X[start : start + 5].T
        added = np.linalg.qr(B - U @ (U.T @ B))[0]
        k = len(sigma)
        R = np.block([[f * np.diag(sigma), U.T @ B], [np.zeros((added.shape[1], k)), added.T @ B]])
        left, values, _ = np.linalg.svd(R)
        U, sigma = (np.hstack([U, added]) @ left)[:, :K], values[:K]
    return U


def frequent_directions(X: Floats, size: int = 2 * K) -> Floats:
    """Row by row into a sketch with room for 2ℓ, as published; the last rows as they are."""
    B = np.zeros((0, D))
    for x in X:
        B = np.vstack([B, x])
        if len(B) == 2 * size:
            values, vectors = np.linalg.eigh(B.T @ B)
            kept = np.maximum(values - values[-size], 0.0)
            B = (np.sqrt(kept) * vectors).T[1 - size :]
    return top(B)


def grouse(X: Floats) -> Floats:
    U, v = first(X), 0.0
    for t, x in enumerate(X, start=1):
        seen = np.flatnonzero(~np.isnan(x))
        w = np.linalg.pinv(U[seen]) @ x[seen]
        p, r = U @ w, np.zeros(D)
        r[seen] = x[seen] - U[seen] @ w
        v = (1 - 1 / t) * v + w @ w / K / t
        if np.linalg.norm(r) < 1e-12:
            continue
        theta = min(5.0 / t / v * np.linalg.norm(r) * np.linalg.norm(p), np.arctan2(np.linalg.norm(r), np.linalg.norm(p)))
        step = (np.cos(theta) - 1.0) * p / np.linalg.norm(p) + np.sin(theta) * r / np.linalg.norm(r)
        U = U + np.outer(step, w / np.linalg.norm(w))
    return U


def petrels(X: Floats, lam: float = 1.0) -> Floats:
    """By the weighted least-squares problem of every feature, solved anew."""
    U, coefficients = first(X), []
    regular = np.sum(np.nan_to_num(X[:K]) ** 2) / K**2 / 100.0
    U0 = U.copy()
    for x in X:
        seen = np.flatnonzero(~np.isnan(x))
        coefficients.append(np.linalg.pinv(U[seen]) @ x[seen])
        A, n = np.array(coefficients), len(coefficients)
        for m in seen:
            w = np.where(np.isnan(X[:n, m]), 0.0, lam ** np.arange(n - 1, -1, -1))
            R = lam**n * regular * np.eye(K) + (A.T * w) @ A
            U[m] = np.linalg.solve(R, lam**n * regular * U0[m] + (A.T * w) @ np.nan_to_num(X[:n, m]))
    return U


PAPERS: dict[str, Callable[..., Floats]] = {
    "oja": oja,
    "krasulina": krasulina,
    "sga": sga,
    "gha": gha,
    "adaoja": adaoja,
    "history_pca": history_pca,
    "isvd": isvd,
    "frequent_directions": frequent_directions,
    "grouse": grouse,
    "petrels": petrels,
}


def fed(name: str, X: Floats, *cuts: int, block: int | None = None, **options: Any) -> RivalModel:
    model = RivalModel(RIVALS[name], K, block=block, **options)
    for part in np.split(X, cuts):
        model.fit_block(part)
    return model


def test_every_rival_has_a_paper_here() -> None:
    assert set(PAPERS) == set(RIVALS)


@pytest.mark.parametrize("name", sorted(RIVALS))
def test_a_rival_is_its_papers_update(name: str) -> None:
    block = {"isvd": 5, "history_pca": 10}.get(name)
    for X in [rows(), holed(rows())] if RIVALS[name].handles_missing else [rows()]:
        for n in (20, 100, 280):
            expected = PAPERS[name](X[:n])
            found = fed(name, X[:n], 3, 50, block=block).get_components()
            assert subspace_error(found, expected) < 1e-8, f"{name} parts from its paper within {n} rows"


def test_columns_that_are_principal_components_are_the_papers() -> None:
    X = rows()
    for name in ("sga", "gha", "adaoja", "history_pca", "isvd", "frequent_directions"):
        expected = PAPERS[name](X)
        found = fed(name, X, block={"isvd": 5}.get(name)).get_components()
        np.testing.assert_allclose(np.abs(np.sum(found * gram_schmidt(expected), axis=0)), 1.0, atol=1e-8, err_msg=name)


@pytest.mark.parametrize(
    ("name", "options", "block", "expected"),
    [
        ("history_pca", {"iterations": 3}, 10, lambda X: history_pca(X, 3)),
        ("isvd", {"forgetting": 0.8}, 5, lambda X: isvd(X, 0.8)),
        ("frequent_directions", {"sketch": 13}, None, lambda X: frequent_directions(X, 13)),
        ("petrels", {"forgetting": 0.97}, None, lambda X: petrels(X, 0.97)),
    ],
)
def test_options_are_the_papers(name: str, options: dict[str, Any], block: int | None, expected: Callable[[Floats], Floats]) -> None:
    X = rows(160)
    found = fed(name, X, block=block, **options).get_components()
    assert subspace_error(found, expected(X)) < 1e-7
    assert subspace_error(found, PAPERS[name](X)) > 1e-4, "the option has no effect"


def test_grouse_with_a_least_step_follows_a_switch() -> None:
    one, two = rows(600, seed=1), rows(600, seed=2)
    X = np.concatenate([one, two])
    errors = {least: subspace_error(fed("grouse", X, least=least).get_components(), top(two)) for least in (0.0, 0.02)}
    assert errors[0.02] < 0.3, errors
    assert errors[0.0] > 0.6, errors


@pytest.mark.parametrize("name", sorted(RIVALS))
def test_a_rival_learns_in_any_units_and_cuts(name: str) -> None:
    X = rows(600)
    found = fed(name, X, 1, 2, 30, 31, 333).get_components()
    np.testing.assert_allclose(found.T @ found, np.eye(K), atol=1e-9, err_msg=f"{name}: columns must be orthonormal")
    assert subspace_error(found, top(X)) < (0.25 if name == "adaoja" else 0.15), f"{name} has not learned"
    for unit in (1e-60, 1e60):
        assert subspace_error(fed(name, unit * X).get_components(), found) < 1e-8, f"{name} depends on units ({unit:g})"


@pytest.mark.parametrize("name", sorted(RIVALS))
def test_functions_are_pure_and_reading_changes_nothing(name: str) -> None:
    X, rival = rows(120), RIVALS[name]
    kept = X.copy()
    state = rival.start(X, K)
    before = [np.array(part) for part in state]
    after = rival.step(state, X[:20])
    again = rival.step(state, X[:20])
    for old, new in zip(before, state, strict=True):
        np.testing.assert_array_equal(old, new, err_msg=f"{name}: step changed its argument")
    for one, two in zip(after, again, strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(X, kept, err_msg=f"{name} changed the rows")
    read, unread = RivalModel(rival, K), RivalModel(rival, K)
    for x in X:
        read.fit_next(x)
        read.get_components()
    unread.fit_block(X)
    assert subspace_error(read.get_components(), unread.get_components()) < 1e-9


@pytest.mark.parametrize("name", sorted(RIVALS))
@pytest.mark.parametrize("what", ["zero rows", "one direction", "gross rows"])
def test_awkward_rows_give_a_finite_orthonormal_basis(name: str, what: str) -> None:
    X = rows(200)
    if what == "zero rows":
        X[::3] = 0.0
        X[:10] = 0.0
    elif what == "one direction":
        X = np.outer(X[:, 0], X[0])
    else:
        X[[0, 50, 51, 120]] *= 1e6
    found = fed(name, X).get_components()
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.T @ found, np.eye(K), atol=1e-8)


@pytest.mark.parametrize("order", ["random", "sorted", "a burst at the end"])
@pytest.mark.parametrize("size", [8, 20])
def test_frequent_directions_keeps_its_promise(order: str, size: int) -> None:
    """0 ≤ ‖Av‖² − ‖Bv‖² ≤ ‖A − A_k‖²/(ℓ − k) for every v: all eigenvalues of AᵀA − BᵀB."""
    rng, rival = np.random.default_rng(size), RIVALS["frequent_directions"]
    A = rng.standard_normal((601, 40)) / np.arange(1, 41)
    if order == "sorted":
        A = A[np.argsort(A[:, 0])]
    elif order == "a burst at the end":
        A[-30:, 35] += 2.0
    state = rival.start(A, 5)
    for part in np.split(A, [1, 100, 107]):
        state = rival.step(state, part, sketch=size)
    gaps = np.linalg.eigvalsh(A.T @ A - state.B.T @ state.B)
    squares = np.linalg.svd(A)[1] ** 2
    bound = min(squares[k:].sum() / (size - k) for k in range(size))
    assert gaps[0] > -1e-9 * squares[0], "the sketch is never larger than the data"
    assert gaps[-1] <= bound * (1 + 1e-9), f"{gaps[-1]:.4f} is missing in a direction, at most {bound:.4f} promised"
