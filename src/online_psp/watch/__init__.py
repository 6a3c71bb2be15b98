"""Watch a stream in a browser: a live page beside a fit, beside your own loop, or of a model file that another process rewrites.

The page is served by a process of its own, so that the learner never waits for it: see `Dashboard`.
"""

from __future__ import annotations

from online_psp.watch.dashboard import Dashboard
from online_psp.watch.settings import MissingServerError, PageSettings

__all__ = ["Dashboard", "MissingServerError", "PageSettings"]
