"""Watch a stream in a browser: a live page beside a fit or a loop of your own, or of a model file that another process rewrites."""

from __future__ import annotations

from online_psp.watch.dashboard import Dashboard

__all__ = ["Dashboard"]
