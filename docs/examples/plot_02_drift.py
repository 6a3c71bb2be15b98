"""
A stream that drifts, with alarms
=================================

A monitor scores every row before the model learns it. T² says how far a row lies inside the subspace, SPE how far it lies from it. One
gross row is an outlier, and no drift. A shifted mean, and later a new subspace, raise an alarm that says what has changed.
"""

import matplotlib.pyplot as plt
import numpy as np

from online_psp import OnlinePCA
from online_psp.monitoring import Monitor

# %%
# Rows along five directions in forty features. At row 2,500 the mean moves, at row 4,500 the subspace changes.

rng = np.random.default_rng(1)
n, D, K = 6500, 40, 5
first, second = (np.linalg.qr(rng.standard_normal((D, K)))[0].T for _ in range(2))
scores = 2.0 * rng.standard_normal((n, K))
rows = np.concatenate([scores[:4500] @ first, scores[4500:] @ second])
rows += 0.3 * rng.standard_normal((n, D))
rows[2500:] += 0.25
rows[1200] *= 12  # one gross row

monitor = Monitor(OnlinePCA(K, half_life=2000), alpha=0.001, on_drift="reset")
found = monitor.update(rows)

# %%
# The alarms, and what they say.

for alarm in monitor.alarms:
    print(alarm)

figure, panels = plt.subplots(2, 1, sharex=True, figsize=(8, 4.6), layout="constrained")
charts = ("T²", found.t2, found.t2_limit), ("SPE", found.spe, found.spe_limit)
for axes, (name, values, limit) in zip(panels, charts, strict=True):
    axes.semilogy(values, ".", color="#9aa5b1", markersize=2)
    axes.semilogy(limit, color="#0072B2", label="limit, 0.1 %")
    axes.set_ylabel(name)
    for alarm in monitor.alarms:
        axes.axvline(alarm.row, color="#D55E00", linewidth=1.2)
        above = axes.get_xaxis_transform()  # rows across, the height of the axes up
        text = {"color": "#D55E00", "va": "top", "transform": above}
        axes.text(alarm.row, 0.95, f" {alarm.kind}", **text)
panels[0].legend(loc="upper left", frameon=False, ncols=2)
panels[1].set_xlabel("row")
plt.show()
