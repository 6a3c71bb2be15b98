"""`OnlinePCA` and its parts."""

from __future__ import annotations

from online_psp.pca.estimator import OnlinePCA

__all__ = ["OnlinePCA"]
