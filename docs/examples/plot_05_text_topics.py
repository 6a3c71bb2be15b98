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
parts = "linear_model", "cluster", "metrics", "ensemble"
modules += [f"sklearn.{part}" for part in parts]
documents, origin = [], []
for name in modules:
    module = importlib.import_module(name)
    entries = getattr(module, "__all__", [])
    texts = {inspect.getdoc(getattr(module, entry)) or "" for entry in entries}
    found = sorted(text.partition("Array API")[0] for text in texts if len(text) > 300)
    documents += found
    origin += [name] * len(found)

# %%
# Words to weights. The matrix is sparse; centring it would fill it, so OnlinePCA centres implicitly.

kept = {"stop_words": "english", "token_pattern": r"[a-z]{4,}", "min_df": 5, "max_df": 0.4}
vectorizer = TfidfVectorizer(sublinear_tf=True, **kept)
X = vectorizer.fit_transform(documents)
order = np.random.default_rng(0).permutation(X.shape[0])
pca = OnlinePCA(8)
for rows in np.array_split(order, 10):
    pca.partial_fit(X[rows])
documents, words_known = X.shape
filled = X.nnz / (documents * words_known)
print(f"{documents:,} documents, {words_known:,} words, {filled:.1%} of the entries filled")

# %%
# The words with the largest weights in the first four components, and where the documents lie along the first two.

words = vectorizer.get_feature_names_out()
figure = plt.figure(figsize=(9.5, 6.6), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[1, 1.2])
for number, axes in enumerate(left.subplots(4, 1), start=1):
    component = pca.components_[number - 1]
    top = np.argsort(-np.abs(component))[:6][::-1]
    colours = np.where(component[top] > 0, "#0072B2", "#D55E00")
    axes.barh(words[top], component[top], color=colours)
    axes.set_title(f"component {number}", fontsize=9, loc="left")
    axes.tick_params(labelsize=8)
    axes.set_xticks([])

scores = pca.transform(X)
axes = right.subplots()
for i, name in enumerate(modules):
    chosen = np.array(origin) == name
    axes.plot(*scores[chosen, :2].T, ".", markersize=4, color=f"C{i}", label=name)
axes.set(xlabel="component 1", ylabel="component 2")
axes.legend(fontsize=7, frameon=False, markerscale=2)
plt.show()
