"""Metrics of a basis, against what they must be where it is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from online_psp.suite.data import Problem
from online_psp.suite.measure import METRICS

E = np.eye(6)


@pytest.mark.parametrize(
    ("metric", "directions", "t", "expected"),
    [
        ("err_batch", [0, 1], 1, 0.0),
        ("err_batch", [0, 2], 1, 1.0),  # sqrt(2 − 2/2)
        ("err_pop", [0, 1], 1, 2.0**0.5),
        ("err_pop", [2, 3], 1, 0.0),
        ("err_present", [0, 1], 5, 0.0),
        ("err_present", [0, 1], 50, 2.0**0.5),
        ("err_present", [4, 5], 50, 0.0),
    ],
)
def test_errors_are_distances_to_the_subspace_that_is_meant(metric: str, directions: list[int], t: int, expected: float) -> None:
    """Of the batch solution, of the population, and of the moment on a track where it moves."""
    problem: Any = Problem(E, np.arange(6), 6, E[:, :2], E[:, 2:4], lambda t: 3.0 * (E[:, :2] if t < 10 else E[:, 4:]))
    assert METRICS[metric](E[:, directions], problem, t) == pytest.approx(expected, abs=1e-12)
