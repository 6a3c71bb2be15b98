"""SubspaceOutlierDetector under scikit-learn's own checks, and what they do not look at."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.utils.estimator_checks import parametrize_with_checks

from online_psp.engine.types import Floats
from online_psp.monitoring import SubspaceOutlierDetector


@parametrize_with_checks([SubspaceOutlierDetector(), SubspaceOutlierDetector(1), SubspaceOutlierDetector(1, half_life=50.0)])
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)
