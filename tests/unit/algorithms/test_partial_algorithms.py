"""GROUSE and PETRELS: the papers' updates for rows with missing values, after every sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from online_psp.algorithms import GROUSE, PETRELS, grouse, petrels
from online_psp.engine.types import Floats
from online_psp.experiments.learners import takes_missing
from online_psp.experiments.records import Curve
from online_psp.metrics import subspace_error

BOTH: list[Any] = [(GROUSE, grouse), (PETRELS, petrels)]


def rows_with_holes(n: int, D: int = 100, K: int = 3, noise: float = 0.01, seed: int = 0) -> tuple[Floats, Floats]:
    """Rows half of whose values are missing, and their subspace, (D, K): the setting of both papers."""
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((D, K)))[0]
    X = rng.standard_normal((n, K)) @ U.T + noise * rng.standard_normal((n, D))
    return np.where(rng.random(X.shape) < 0.5, np.nan, X), U


@pytest.mark.parametrize(("cls", "module"), BOTH)
@pytest.mark.parametrize("share", [0.0, 0.05])
def test_the_papers_update_after_every_sample(cls: Any, module: Any, share: float) -> None:
    H, _ = rows_with_holes(150, 20)
    H[50], H[51], H[60, 2:] = np.nan, 0.0, np.nan  # nothing observed, nothing but zeros, fewer values than directions
    model = cls(3, learning_rate=lambda t: max(1.0 / t, share))
    state = module.reference_start(np.linalg.qr(np.nan_to_num(H[:3]).T)[0])
    for t, x in enumerate(H, start=1):
        state, y = module.reference_step(state, np.nan_to_num(x) if t <= 3 else x, max(1.0 / t, share))
        found = model.fit_next(x)
        if t > 3:
            assert np.allclose(found, y, atol=1e-9), f"output of sample {t}"
            assert subspace_error(model.get_components(), module.reference_basis(state)) < 1e-9, f"after sample {t}"


@pytest.mark.parametrize(("cls", "module"), BOTH)
def test_half_of_the_values_are_enough(cls: Any, module: Any, tmp_path: Path) -> None:
    H, U = rows_with_holes(1200)
    model = cls(3)
    for part in np.split(H, [1, 2, 500, 501]):
        model.fit_block(part)
        model.save(tmp_path / "m.psp")
        model = cls.load(tmp_path / "m.psp")
    whole = cls(3)
    whole.fit_block(H)
    error = subspace_error(model.get_components(), U)
    assert error < 0.02, f"error {error:.3f} where half of the values are missing"
    assert subspace_error(model.get_components(), whole.get_components()) < 1e-9
    assert np.allclose(model.principal_components()[1], 1.0, atol=0.15), "the variances of the coordinates"
    assert takes_missing(Curve("c", cls.__name__.lower()), 3, 100), "tracks with holes must hand them over"


@pytest.mark.parametrize(("cls", "module"), BOTH)
def test_a_subspace_that_is_exact_is_found_exactly(cls: Any, module: Any) -> None:
    """Without noise a constant step converges; it also shows that long forgetting does not wear the inverses of PETRELS out."""
    H, U = rows_with_holes(2500, 40, noise=0.0)
    model = cls(3, learning_rate=lambda t: max(1.0 / t, 0.05))
    model.fit_block(H)
    assert subspace_error(model.get_components(), U) < 1e-8


@pytest.mark.parametrize(("cls", "module"), BOTH)
def test_infinity_is_refused_and_nothing_changes(cls: Any, module: Any) -> None:
    H, _ = rows_with_holes(60, 20)
    for seen in (0, 2, 40):
        model = cls(3, 20)
        model.fit_block(H[:seen])
        before = model.get_components()
        bad = H[40:].copy()
        bad[7, 4] = np.inf
        with pytest.raises(ValueError, match="Row 7 has inf in column 4"):
            model.fit_block(bad)
        with pytest.raises(ValueError, match="Row 0 has inf in column 4"):
            model.fit_next(bad[7])
        assert np.array_equal(model.get_components(), before)
        assert model.t == seen
