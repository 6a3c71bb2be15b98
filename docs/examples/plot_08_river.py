"""
One row at a time, in river
===========================

river learns from dictionaries, one at a time, and tests on each before learning it. OnlinePCA is a transformer there: here eighty sensors
that repeat each other become four features in front of a logistic regression, which then needs fewer rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from river import compose, linear_model, preprocessing

from online_psp.integrations.river import OnlinePCA

# %%
# Four hidden causes drive eighty noisy sensors. The label depends on the causes.

rng = np.random.default_rng(0)
n, D, K = 1200, 80, 4
causes = rng.standard_normal((n, K)) * np.array([3.0, 2.5, 2.0, 1.5])
rows = causes @ rng.standard_normal((K, D)) + 6.0 * rng.standard_normal((n, D))
labels = causes @ np.array([1.0, -1.0, 1.0, -1.0]) > 0

# %%
# Two pipelines, tested on each row before they learn it.

pipelines = {
    "80 sensors": compose.Pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
    "4 components": compose.Pipeline(OnlinePCA(K), preprocessing.StandardScaler(), linear_model.LogisticRegression()),
}
right = {name: np.zeros(n) for name in pipelines}
for t, (row, label) in enumerate(zip(rows, labels, strict=True)):
    x = {f"s{i}": float(value) for i, value in enumerate(row)}
    for name, pipeline in pipelines.items():
        right[name][t] = pipeline.predict_one(x) == label
        pipeline.learn_one(x, bool(label))

figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
for (name, values), colour in zip(right.items(), ("#9aa5b1", "#0072B2"), strict=True):
    axes.plot(np.arange(50, n + 1), 100 * (values.cumsum() / np.arange(1, n + 1))[49:], color=colour, label=name)
axes.set(xlabel="rows seen", ylabel="predicted right so far, %", ylim=(50, 100))
axes.legend(frameon=False, loc="lower right")
plt.show()
