"""Block sizes, chosen by a model of what blocks cost, and every limit on memory.

A block has a fixed cost F whatever its size: calls, passes over the basis and, for some algorithms, its products with K×K matrices. The
cost that grows with its size n is that of the inner products between its samples: a sample has n/2 earlier ones on average. With p for
each, a sample costs ``F/n + n p``, which is least at ``n = sqrt(F/p)``. The optimum is flat: on a machine that differs from these constants
by a factor of two, a few per cent are lost.
"""

from __future__ import annotations

# Limits on memory. They affect speed alone: none of them changes a result, or the contents of a model file.
CHECK_BYTES = 1 << 24
"""Rows that are converted at a time to see whether they are finite."""
CENTRE_BYTES = 1 << 22
"""Rows that are centred at a time."""
