"""
Topics of sparse text
=====================

Documents become rows with a few dozen entries among thousands of words, and stay sparse all the way. The text here is already on your
machine: the docstrings of SciPy and scikit-learn.
"""

import importlib
import inspect

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from online_psp import OnlinePCA

modules = ["scipy.stats", "scipy.signal", "scipy.sparse", "scipy.optimize", "scipy.special"]
modules += ["sklearn.linear_model", "sklearn.cluster", "sklearn.metrics", "sklearn.ensemble"]
documents, origin = [], []
for name in modules:
    module = importlib.import_module(name)
    texts = {inspect.getdoc(getattr(module, entry)) for entry in getattr(module, "__all__", [])}
    found = sorted(text.partition("Array API")[0] for text in texts if text and len(text) > 300)
    documents += found
    origin += [name] * len(found)

# %%
# Words to weights. The matrix is sparse; centring it would fill it, so OnlinePCA centres implicitly.

vectorizer = TfidfVectorizer(stop_words="english", token_pattern=r"[a-z]{4,}", min_df=5, max_df=0.4, sublinear_tf=True)
X = vectorizer.fit_transform(documents)
order = np.random.default_rng(0).permutation(X.shape[0])
pca = OnlinePCA(8)
for rows in np.array_split(order, 10):
    pca.partial_fit(X[rows])
documents, words_known = X.shape
filled = X.nnz / (documents * words_known)
print(f"{documents:,} documents, {words_known:,} words, {filled:.1%} of the entries not zero")

# %%
# The words with the largest weights in the first four components, and where the documents lie along the first two.

words = vectorizer.get_feature_names_out()
figure = plt.figure(figsize=(9.5, 6.6), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[1, 1.2])
for number, axes in enumerate(left.subplots(4, 1), start=1):
    component = pca.components_[number - 1]
    top = np.argsort(-np.abs(component))[:6][::-1]
    axes.barh(words[top], component[top], color=np.where(component[top] > 0, "#0072B2", "#D55E00"))
    axes.set_title(f"component {number}", fontsize=9, loc="left")
    axes.tick_params(labelsize=8)
    axes.set_xticks([])

scores = pca.transform(X)
axes = right.subplots()
colours = plt.get_cmap("tab10")
for i, name in enumerate(modules):
    chosen = np.array(origin) == name
    axes.plot(scores[chosen, 0], scores[chosen, 1], ".", markersize=4, color=colours(i), label=name)
axes.set(xlabel="component 1", ylabel="component 2")
axes.legend(fontsize=7, frameon=False, markerscale=2)
plt.show()
