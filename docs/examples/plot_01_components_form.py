"""
Watch components form
=====================

Handwritten digits arrive one block at a time. After twenty rows the components are those of these twenty pictures; as more go by, they
take the shapes that all digits share. Nothing has to be kept but the model.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from online_psp import OnlinePCA
from online_psp.metrics import subspace_error

K, moments = 6, (20, 100, 500, 1797)
rows = np.random.default_rng(0).permutation(load_digits().data)
batch = PCA(K).fit(rows)

# %%
# Learn up to each of the four moments, and look at the components there.

pca, learned = OnlinePCA(K), 0
figure, panels = plt.subplots(len(moments), K, figsize=(7, 5.4), layout="constrained")
for line, moment in zip(panels, moments, strict=True):
    pca.partial_fit(rows[learned:moment])
    learned = moment
    error = subspace_error(pca.components_.T, batch.components_.T)
    signs = np.sign(np.sum(pca.components_ * batch.components_, axis=1))  # they are free
    for axes, component in zip(line, signs[:, np.newaxis] * pca.components_, strict=True):
        largest = np.abs(component).max()
        picture = component.reshape(8, 8)
        colours = {"cmap": "RdBu_r", "vmin": -largest, "vmax": largest}
        axes.imshow(picture, interpolation="bicubic", **colours)
        axes.set(xticks=[], yticks=[])
    label = f"{moment:,} rows\nerror {error:.2g}"
    line[0].set_ylabel(label, rotation=0, ha="right", va="center")
figure.suptitle("The first six components of a stream of digits")
plt.show()

# %%
# With 64 features the model is exact, so the last line is batch PCA's own answer up to rounding. ``pca.exact_`` says so.

print(pca.exact_, pca.n_samples_seen_)

# %%
# How sure are the variances, and the components? The bars are standard errors for Gaussian rows; below each, the expected sine of the
# angle between the component and that of the population.

number = np.arange(1, K + 1)
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
bars = pca.explained_variance_error_
axes.errorbar(number, pca.explained_variance_, bars, fmt="o", capsize=4)
axes.set(xlabel="component", ylabel="variance", ylim=(0, None))
sines = zip(number, pca.component_errors_, strict=True)
axes.set_xticks(number, [f"{k}\n{sine:.2f}" for k, sine in sines])
plt.show()
