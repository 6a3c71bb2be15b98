"""
The background of a video
=========================

A camera looks at one scene while the light changes and somebody walks through it. Three components hold the scene under every light;
what a frame has beyond them is what moved.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from online_psp import OnlinePCA

# %%
# Three hundred frames of 60 × 80 pixels, from a picture that comes with scikit-learn: light from two sides, and a walker.

scene = load_sample_image("china.jpg")[::7, ::8].mean(axis=2)[:60, :80]
height, width = scene.shape
rng = np.random.default_rng(0)
across = np.linspace(-1, 1, width)


def frame(t):
    """The scene at time t, with a walker of 12 × 4 pixels."""
    light = 1 + 0.25 * np.sin(t / 40) + 0.2 * np.cos(t / 23) * across
    picture = scene * light + 3 * rng.standard_normal(scene.shape)
    at = int(1.7 * t) % (width - 4)
    picture[40:52, at : at + 4] = 235.0
    return picture


# %%
# Each frame is one row; here they come ten at a time.

pca = OnlinePCA(3)
for start in range(0, 300, 10):
    pca.partial_fit([frame(t).ravel() for t in range(start, start + 10)])

moments = (310, 331, 352)
figure, panels = plt.subplots(3, 3, figsize=(8, 6.2), layout="constrained")
for column, t in zip(panels.T, moments, strict=True):
    now = frame(t)
    background = pca.inverse_transform(pca.transform([now.ravel()])).reshape(scene.shape)
    moved = np.abs(now - background)
    pictures = {"frame": now, "background": background, "what moved": moved}
    for axes, (name, picture) in zip(column, pictures.items(), strict=True):
        axes.imshow(picture, cmap="gray", vmin=0, vmax=255 if name != "what moved" else 100)
        axes.set(xticks=[], yticks=[])
        if t == moments[0]:
            axes.set_ylabel(name)
    column[0].set_title(f"frame {t}")
plt.show()
