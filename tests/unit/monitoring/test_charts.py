"""The control charts, on rows that depend on each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from online_psp import OnlinePCA
from online_psp.monitoring import Monitor


@pytest.mark.parametrize("memory", [0.0, 0.95])
def test_rows_that_depend_on_each_other_raise_no_alarm(memory: float) -> None:
    """Limits that do not count the autocorrelation of the rows are crossed again and again."""
    rng = np.random.default_rng(1)
    drawn = lfilter([np.sqrt(1.0 - memory**2)], [1.0, -memory], rng.standard_normal((8000, 15)), axis=0)
    monitor = Monitor(OnlinePCA(3))
    monitor.update(drawn[:, :3] * [3.0, 2.0, 1.5] @ rng.standard_normal((3, 12)) + 0.5 * drawn[:, 3:])
    assert not monitor.alarms, f"a false alarm: {monitor.alarms[0]}"
