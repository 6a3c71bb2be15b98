"""
Sensor rows with missing values
===============================

Sensors drop out: single values get lost, and a whole cabinet of sensors is off for a while. The model learns from what is there, and fills
what is not, from the other sensors of the same moment.
"""

import matplotlib.pyplot as plt
import numpy as np

from online_psp import OnlinePCA

# %%
# A hundred and twenty sensors follow four slow movements. A tenth of the values is lost, and forty sensors are off between rows 1,200 and
# 2,000.

rng = np.random.default_rng(2)
n, D, K = 3000, 120, 4
time = np.arange(n)
waves = ((240, 0), (410, 1), (97, 2), (733, 3))  # period and phase of each movement
movements = [np.sin(2 * np.pi * time / period + phase) for period, phase in waves]
rows = 5.0 * np.transpose(movements) @ rng.standard_normal((K, D))
rows += rng.standard_normal((n, D)) + 20.0
received = np.where(rng.random(rows.shape) < 0.1, np.nan, rows)
received[1200:2000, :40] = np.nan

# %%
# One pass, in blocks as they come; then the missing values are filled. The mean of a sensor is what people fill with.

model = OnlinePCA(K, missing="impute")
for block in np.array_split(received, 30):
    model.partial_fit(block)
filled = model.impute(received)

missing = np.isnan(received)
by_mean = np.where(missing, model.mean_, received)
for name, values in (("the model", filled), ("the mean", by_mean)):
    error = np.sqrt(np.mean((values - rows)[missing] ** 2))
    print(f"filled by {name}: root mean square error {error:.2f}")

# %%
# A sensor of the cabinet that was off. The noise of a deviation of 1 cannot be known; the movements can.

figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
lost, true, guess = missing[:, 7], rows[:, 7], filled[:, 7]
axes.plot(time[~lost], true[~lost], ".", color="#9aa5b1", markersize=2, label="received")
axes.plot(time[lost], true[lost], ".", color="#D55E00", markersize=2, label="lost")
axes.plot(time[lost], guess[lost], ".", color="#0072B2", markersize=3, label="filled")
axes.axhline(model.mean_[7], color="black", linewidth=0.8, linestyle=":", label="the mean")
axes.set(xlabel="row", ylabel="sensor 7", xlim=(900, 2300), ylim=(-2, 46))
axes.legend(loc="upper right", ncols=4, frameon=False, markerscale=4)
plt.show()
