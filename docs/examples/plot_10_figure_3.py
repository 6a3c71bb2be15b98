"""
The paper's Figure 3 in ten lines
=================================

Error against samples seen, for the algorithms of the paper, on real data in random order. The paper uses faces and MNIST; the digits of
scikit-learn need no download. ``psp reproduce fig3`` makes the whole figure, with verdicts. The curves of
IPCA and FSM γ=2 lie on each other.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from online_psp import CCIPCA, FSM, IPCA
from online_psp.metrics import batch_components, standardize, subspace_error

X, K = standardize(load_digits().data), 8
truth, D = batch_components(X, K), X.shape[1]
stream = np.concatenate([np.random.default_rng(i).permutation(X) for i in range(10)])
models = {"IPCA": IPCA(K, D), "CCIPCA": CCIPCA(K, D)}
models |= {"FSM γ=0.6": FSM(K, D, gamma=0.6), "FSM γ=2": FSM(K, D)}
for name, model in models.items():
    errors = []
    for block in np.array_split(stream, 80):
        model.fit_block(block)  # the same iterates as fit_next, row by row
        errors.append(subspace_error(model.get_components(), truth))
    plt.loglog(np.linspace(0, len(stream), 81)[1:], errors, label=name)
plt.gca().set(xlabel="samples seen", ylabel="subspace error")
plt.title(f"digits, D = {D}, K = {K}")
plt.legend(frameon=False)
plt.show()
