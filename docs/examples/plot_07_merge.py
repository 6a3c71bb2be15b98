"""
One model from eight parts
==========================

Eight machines each see an eighth of the rows, and none sees the others'. Their models merge into one: counts and means exactly, and
components that are nearly those of one pass over everything.
"""

from functools import reduce

import matplotlib.pyplot as plt
import numpy as np

from online_psp import OnlinePCA
from online_psp.metrics import batch_components, subspace_error

# %%
# Rows whose k-th variance is 1/k, as in natural images, so that no gap helps; and machines that see different rows, because they are
# sorted by the first coordinate before they are dealt out.

rng = np.random.default_rng(0)
n, D, K = 8_000, 300, 8
X = rng.standard_normal((n, D)) / np.sqrt(np.arange(1, D + 1))
X = X[np.argsort(X[:, 0])] @ np.linalg.qr(rng.standard_normal((D, D)))[0]
truth = batch_components(X - X.mean(axis=0), K)

parts = [OnlinePCA(K).fit(part) for part in np.array_split(X, 8)]
alone = [subspace_error(part.components_.T, truth) for part in parts]
merged = reduce(OnlinePCA.merge, parts[1:], parts[0])
single = OnlinePCA(K).fit(rng.permutation(X))

# %%
# Counts and means are those of all rows.

print(merged.n_samples_seen_, float(np.abs(merged.mean_ - X.mean(axis=0)).max()) < 1e-12)

names = [f"part {i}" for i in range(1, 9)] + ["merged", "one pass"]
together = [subspace_error(model.components_.T, truth) for model in (merged, single)]
errors = [*alone, *together]
figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
axes.bar(names, errors, color=["#9aa5b1"] * 8 + ["#0072B2", "#009E73"])
axes.set_yscale("log")
axes.set(ylabel="subspace error against batch PCA", ylim=(None, 1))
axes.tick_params(axis="x", rotation=40)
for i, error in enumerate(errors):
    axes.annotate(f"{error:.3f}", (i, error), ha="center", va="bottom", fontsize=8)
plt.show()
