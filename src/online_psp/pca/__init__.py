"""`OnlinePCA` and what it is made of."""

from __future__ import annotations

from online_psp.pca.estimator import OnlinePCA

__all__ = ["OnlinePCA"]
