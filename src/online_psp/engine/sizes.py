"""Limits on memory. They affect speed alone: none of them changes a result, or the contents of a model file."""

from __future__ import annotations

CHECK_BYTES = 1 << 24
"""Rows that are converted at a time to see whether they are finite."""
CENTRE_BYTES = 1 << 22
"""Rows that are centred at a time."""
