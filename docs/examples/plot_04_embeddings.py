"""
Embeddings at an eighth of their size
=====================================

A store of embeddings grows without end and is searched by nearest neighbours. Keep the first components instead of all the features: how
many of the ten nearest neighbours are still found?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.neighbors import NearestNeighbors

from online_psp import OnlinePCA

# %%
# Synthetic embeddings of length 256: two hundred topics, with variances that fall as those of real ones do.

rng = np.random.default_rng(0)
n, D, neighbours = 6000, 256, 10
spectrum = np.arange(1, D + 1) ** -0.75
turn = np.linalg.qr(rng.standard_normal((D, D)))[0]
topics = 1.5 * rng.standard_normal((200, D))
X = ((topics[rng.integers(200, size=n)] + rng.standard_normal((n, D))) * spectrum) @ turn

# %%
# One pass, in blocks as they would arrive. A single model with 128 components serves every size: the first K are the model of size K.

pca = OnlinePCA(128, dtype="float32")
for block in np.array_split(X, 30):
    pca.partial_fit(block)
scores = pca.transform(X)
queries = slice(0, 400)


def nearest(rows):
    """The ten nearest rows of each query, itself left out."""
    search = NearestNeighbors(n_neighbors=neighbours + 1).fit(rows)
    return search.kneighbors(rows[queries], return_distance=False)[:, 1:]


truth = nearest(X)


def found_again(found):
    """The share of the true neighbours that are among those found."""
    common = [len(set(a) & set(b)) for a, b in zip(truth, found, strict=True)]
    return np.mean(common) / neighbours


sizes = [128, 64, 32, 16, 8]
recall = [found_again(nearest(scores[:, :K])) for K in sizes]

# %%
# Beside it: as many features taken at random, the price of not looking at the data.

columns = [rng.permutation(D)[:K] for K in sizes]
random = [found_again(nearest(X[:, chosen])) for chosen in columns]

figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
ratios = [D // K for K in sizes]
axes.plot(ratios, recall, "o-", label="components of OnlinePCA")
axes.plot(ratios, random, "s--", color="#9aa5b1", label="features at random")
axes.axvline(8, color="#D55E00", linewidth=0.8)
axes.text(8, 0.03, f" 8:1, {100 * recall[ratios.index(8)]:.0f} % found", color="#D55E00")
axes.set_xscale("log", base=2)
axes.set_xticks(ratios, [f"{ratio}:1" for ratio in ratios])
axes.set(xlabel="compression", ylabel="recall of the 10 nearest neighbours", ylim=(0, 1))
axes.legend(frameon=False)
plt.show()
