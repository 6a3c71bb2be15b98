"""
Activations of a small network
==============================

What does a hidden layer use its units for while it learns? Its activations are a stream: too many to keep, and changing as the weights
change. A model that forgets follows them, epoch by epoch.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from online_psp import OnlinePCA

# %%
# Two layers, of 64 and 32 units, trained on digits by stochastic gradient descent. After each epoch the activations of the second go by.

X, digit = load_digits(return_X_y=True)
X = X / 16
network = MLPClassifier((64, 32), learning_rate_init=0.002, batch_size=64, random_state=0)
pca = OnlinePCA(10, half_life=len(X), axes="stable")
epochs, shown = 30, {1: None, 5: None, 30: None}
shares = []
for epoch in range(1, epochs + 1):
    network.partial_fit(X, digit, classes=np.arange(10))
    hidden = X
    for weights, bias in zip(network.coefs_[:2], network.intercepts_[:2], strict=True):
        hidden = np.maximum(hidden @ weights + bias, 0)
    for batch in np.array_split(hidden, 8):
        pca.partial_fit(batch)
    shares.append(np.sort(pca.explained_variance_ratio_)[::-1].cumsum())
    if epoch in shown:
        shown[epoch] = pca.transform(hidden)[:, :2]

# %%
# Above: the activations along two axes that stay put, coloured by digit. Below: how many directions hold the variance.

figure = plt.figure(figsize=(8.5, 5.6), layout="constrained")
above, below = figure.subfigures(2, 1, height_ratios=[1.2, 1])
for axes, (epoch, points) in zip(above.subplots(1, 3), shown.items(), strict=True):
    axes.scatter(*points.T, c=digit, cmap="tab10", s=4)
    axes.set(title=f"epoch {epoch}", xticks=[], yticks=[])
axes = below.subplots()
shares = np.array(shares)
for K, colour in ((1, "#9aa5b1"), (2, "#E69F00"), (5, "#0072B2"), (10, "#009E73")):
    axes.plot(np.arange(1, epochs + 1), 100 * shares[:, K - 1], color=colour, label=f"{K}")
axes.set(xlabel="epoch", ylabel="variance explained, %", ylim=(0, 100))
axes.legend(title="directions", ncols=4, frameon=False, loc="lower left")
plt.show()
