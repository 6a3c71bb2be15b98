"""
One row at a time, in river
===========================

river learns from dictionaries, one at a time, and tests on each before learning it. Twenty sensors follow three causes. The detector
scores each row by how far it lies from what the rows before it had in common. Then one sensor sticks.
"""

import matplotlib.pyplot as plt
import numpy as np

from online_psp.integrations.river import OnlinePCA, SubspaceAnomaly

# %%
# Twenty sensors, three causes, a little noise. From row 900 to row 1,000 sensor 7 shows its last value.

rng = np.random.default_rng(0)
n, D, K = 1500, 20, 3
rows = rng.standard_normal((n, K)) @ rng.standard_normal((K, D))
rows += 0.1 * rng.standard_normal((n, D))
rows[900:1000, 7] = rows[899, 7]

# %%
# Score, then learn, each row; and the first two components beside it.

detector, pca = SubspaceAnomaly(n_components=K), OnlinePCA(n_components=2)
scores, points = [], []
for row in rows:
    x = {f"sensor {i}": float(value) for i, value in enumerate(row)}
    scores.append(detector.score_one(x))
    detector.learn_one(x)
    pca.learn_one(x)
    points.append(list(pca.transform_one(x).values()))

size = {"figsize": (9, 3.6), "width_ratios": [2, 1], "layout": "constrained"}
figure, (left, right) = plt.subplots(1, 2, **size)
left.axvspan(900, 1000, color="#D55E00", alpha=0.2, linewidth=0)
left.plot(scores, ".", markersize=3, color="#0072B2")
left.annotate("sensor 7 sticks", (890, max(scores)), ha="right", va="top", color="#D55E00")
left.set(xlabel="row", ylabel="score, before the row is learned")
right.scatter(*np.array(points[100:]).T, c=np.arange(100, n), s=3)
right.set(xlabel="pc0", ylabel="pc1", title="rows after the first hundred")
plt.show()
