"""Data: families, files and arrays, tracks, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error
from online_psp.suite.data import FAMILIES, TRACKS, Data, Problem, Track, find, parse, problem, tracked

SMALL = parse("spiked:D=40,K=3,rho=0.01,N=400")


def on(track: Track, seed: int = 0) -> tuple[Floats, Callable[[int], Floats], Floats, Floats]:
    """Rows of a track, its truth, and the plain rows with their subspace."""
    plain = problem(SMALL, 3, seed)
    assert plain.truth is not None
    X = np.asarray(plain.X)
    return *tracked(track, X, plain.truth, seed), X, plain.truth


def rows(found: Problem, stop: int) -> Floats:
    return np.concatenate(list(found.blocks(0, stop)))


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_family_is_drawn_by_its_seed_and_standardised(family: str) -> None:
    data = parse(f"{family}:N=60,D=30,K=4")
    found = rows(problem(data, 4, 0), 60)
    np.testing.assert_array_equal(found, rows(problem(data, 4, 0), 60))
    assert not np.allclose(found, rows(problem(data, 4, 1), 60)), "another seed draws other rows"
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-12)
    assert np.linalg.norm(found, axis=1).mean() == pytest.approx(1.0)


def test_sketch_families_have_the_published_singular_values() -> None:
    """Ones, then 2^-p, 3^-p, … or 10^-q, 10^-2q, …; or those of ones and ξ times a Wishart matrix, whose mean is one."""

    def values(text: str) -> Floats:
        data = parse(text)
        return np.asarray(np.linalg.svd(FAMILIES[data.source][0](data, 0)[0], compute_uv=False), dtype=np.float64)

    for text, tail in (("poly-decay:N=50,D=20,K=5,rho=2", [2.0**-2, 3.0**-2]), ("exp-decay:N=50,D=20,K=5,rho=0.5", [10**-0.5, 10**-1.0])):
        np.testing.assert_allclose(values(text)[:7], [1.0] * 5 + tail, rtol=1e-10)
    noisy = values("low-rank:N=300,D=200,K=5,rho=0.1")
    assert noisy[4] > 1.0
    assert noisy[5] == pytest.approx(0.4, rel=0.1), "the largest of Wishart's eigenvalues is near 4"
    assert noisy[5:].sum() == pytest.approx(0.1 * 195, rel=0.05)


def test_generated_data_from_one_line() -> None:
    assert parse("spiked:D=64,K=4,rho=0.1,N=500") == Data("spiked", 500, 64, 4, 0.1, checksum="generated")
    assert (parse("spiked").D, parse("poly-decay").rho) == (1024, 1.0)
    for text in ("spiked:D=x", "spiked:M=3"):
        with pytest.raises(ValueError, match="is not right: write spiked:"):
            parse(text)
    with pytest.raises(ValueError, match="K ≤ D"):
        parse("spiked:D=4,K=5")


def test_what_is_wrong_with_rows_is_said() -> None:
    X = np.ones((9, 4))
    for bad, message in (
        (X[0], "samples as rows"),
        (X * 1j, "must be real"),
        (np.where(np.arange(9)[:, None] == 4, np.nan, X), "Row 4 of the data"),
        (X * 1e200, "scale the data"),
        (X * 1e-200, "scale the data"),
    ):
        with pytest.raises(ValueError, match=message):
            find(bad)
    with pytest.raises(ValueError, match="more than this machine has"):
        find("spiked:D=1000000,K=2,N=1000000000")


def test_files_have_a_checksum_and_the_seed_is_their_order(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((50, 6))
    np.save(tmp_path / "X.npy", X)
    data = find(tmp_path / "X.npy")
    assert (data.N, data.D) == (50, 6)
    np.save(tmp_path / "X.npy", X + 1.0)
    assert find(tmp_path / "X.npy").checksum != data.checksum, "other contents, other rows"
    one, other = problem(data, 2, 0), problem(data, 2, 1)
    assert sorted(one.order) == sorted(other.order)
    assert list(one.order) != list(other.order)
    np.testing.assert_array_equal(rows(one, 100)[:50], rows(one, 100)[50:], err_msg="a second pass repeats the order of the first")


def test_a_part_of_the_rows_is_measured_against_that_part() -> None:
    data = find(np.random.default_rng(0).standard_normal((50, 6)) + 7.0, most=20)
    found = problem(data, 2, 0)
    X = rows(found, 20)
    assert subspace_error(found.V, np.linalg.svd(X - X.mean(axis=0))[2][:2].T) < 1e-10, "centring may change nothing"


def test_rows_in_a_file_are_the_same_rows(tmp_path: Path) -> None:
    found = problem(SMALL, 3, 0, Track("missing", 0.2))
    stored = found.stored(tmp_path / "rows.f64")
    np.testing.assert_array_equal(rows(stored, 800), rows(found, 800))


def test_a_rotation_ends_where_nothing_is_left_of_the_start() -> None:
    turned, present, X, V = on(Track("drift-rotation"))
    assert subspace_error(present(1), V) < 1e-12
    assert subspace_error(present(400), V) == pytest.approx(np.sqrt(2.0))
    assert subspace_error(present(200), V) == pytest.approx(np.sqrt(2.0) * np.sin(np.pi / 2 * 199 / 399))
    np.testing.assert_allclose(np.linalg.norm(turned, axis=1), np.linalg.norm(X, axis=1), rtol=1e-12, err_msg="a turn keeps lengths")
    late = turned[350:]
    assert np.linalg.norm(late @ present(375)) / np.linalg.norm(late) > 0.9, "rows must lie in the subspace that is said to be present"


def test_a_switch_happens_once() -> None:
    turned, present, X, V = on(Track("drift-switch"))
    np.testing.assert_array_equal(turned[:200], X[:200])
    assert subspace_error(present(200), V) < 1e-12
    assert subspace_error(present(201), V) == pytest.approx(np.sqrt(2.0))


@pytest.mark.parametrize("track", TRACKS["missing"], ids=str)
def test_so_many_values_are_missing(track: Track) -> None:
    spoiled, _, X, _ = on(track)
    holes = np.isnan(spoiled)
    assert abs(holes.mean() - track.amount) < 0.02
    np.testing.assert_array_equal(spoiled[~holes], X[~holes])


@pytest.mark.parametrize("kind", ["outliers", "outliers-clump", "outliers-first", "outliers-along"])
def test_gross_rows_are_gross_and_few_and_the_truth_is_that_of_the_others(kind: str) -> None:
    spoiled, present, X, _ = on(Track(kind, 0.1))
    wrong = (spoiled != X).any(axis=1)
    assert wrong.sum() == 40
    lengths = np.linalg.norm(spoiled[wrong], axis=1) / np.linalg.norm(X, axis=1).mean()
    assert np.median(lengths) > 10
    where = np.flatnonzero(wrong)
    assert (where[-1] - where[0] == 39) == (kind in ("outliers-clump", "outliers-first"))
    assert np.linalg.matrix_rank(spoiled[wrong], tol=1e-6) == (1 if kind == "outliers-along" else 40)
    assert subspace_error(present(1), np.linalg.svd(X[~wrong])[2][:3].T) < 1e-9


def test_a_stretch_is_a_stretch_and_sorted_rows_are_the_same_rows() -> None:
    holes = np.isnan(on(Track("missing-stretch", 0.25))[0])
    assert holes[100:300, :10].all()
    assert holes.sum() == 200 * 10
    ordered, _, X, V = on(Track("sorted"))
    assert (np.diff(ordered @ V[:, 0]) >= 0).all()
    np.testing.assert_array_equal(np.sort(ordered[:, 0]), np.sort(X[:, 0]))
