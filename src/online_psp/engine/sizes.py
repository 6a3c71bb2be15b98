"""Block sizes, chosen by a model of what blocks cost, and every limit on memory.

A block has a fixed cost F whatever its size: calls, passes over the basis and, for some algorithms, its products with K×K matrices. The
cost that grows with its size n is that of the inner products between its samples: a sample has n/2 earlier ones on average. With p for
each, a sample costs ``F/n + n p``, which is least at ``n = sqrt(F/p)``. The optimum is flat: on a machine that differs from these constants
by a factor of two, a few per cent are lost.
"""

from __future__ import annotations

import math
from typing import NamedTuple

# Limits on memory. They affect speed alone: none of them changes a result, or the contents of a model file.
STRIP = 8192
"""Columns that the product of a single sample works on at a time."""
LARGE_STACK = 1 << 22
"""Size of a basis (K·D) from which BLAS, with its threads, beats the loop for single samples."""
TILED_BASIS = 1 << 18
"""Size of a basis (K·D) up to which tiles beat BLAS."""
TILE_BYTES = 1 << 26
"""Columns of a basis that are recombined at a time."""
GRAM_AHEAD = 1 << 21
"""Most inner products of rows to compute ahead of the blocks that need them."""
CHECK_BYTES = 1 << 24
"""Rows that are converted at a time to see whether they are finite."""
CENTRE_BYTES = 1 << 22
"""Rows that are centred at a time."""
REFRESH_ENTRIES = 4
"""Sparse entries, in multiples of D, after which quantities that are updated from block to block are computed anew."""

_FLOPS = 30e9  # matrix products, one core
_NEAR = 40e9  # bytes a second from the caches
_FAR = 20e9  # bytes a second from memory
_NEAR_BYTES = 1 << 24
_PACKING = 3.0  # a pass inside a matrix product costs this many times more: the library reorders the factors
_ADDING = 1.6  # and this many times more when a few rows are added to the basis, which is read and written in small pieces
_TILED_BLOCK = 1e-6  # seconds of overhead of a block in a compiled loop over blocks
_TILED_CLOSE = 4e-6  # and of one call that closes an open block
_LOOPS = 5e9  # multiplications and additions a second in compiled loops


class FixedCost(NamedTuple):
    """The cost of a block that does not depend on its size.

    Attributes
    ----------
    call : float
        Seconds of interpreter and call overhead.
    passes : float
        Reads and writes of the whole basis.
    turns : float
        Products of a K×K matrix with the basis.
    pairs : float
        Compiled operations for every pair of samples, in units of K.
    most : int
        Most rows of a block, however expensive blocks are.
    """

    call: float
    passes: float
    turns: float = 0.0
    pairs: float = 0.0
    most: int = 256

    def seconds(self, D: int, K: int, packing: float = 1.0) -> float:
        return self.call + packing * self.passes * 8 * D * K / _bandwidth(D, K) + self.turns * 2 * D * K * K / _FLOPS

    def block_rows(self, D: int, K: int) -> int:
        """Best number of rows for `fit_block`: inner products of samples are a matrix product, of which half is needed."""
        pair = D / _FLOPS + self.pairs * K / _LOOPS
        return _rounded(math.sqrt(self.seconds(D, K, _PACKING) / pair), 16, 32, self.most)

    def open_rows(self, D: int, K: int) -> int:
        """Best number of samples for `fit_next` to gather: each of them is one more row to read for the next."""
        pair = 4 * D / _bandwidth(D, K) + self.pairs * K / _LOOPS
        return _rounded(math.sqrt(self.seconds(D, K, _ADDING) / pair), 8, 8, 64)


def tiled_block_rows(D: int, K: int) -> int:
    """As `FixedCost.block_rows`, with products by tiles: they copy only the rows themselves, and a block makes no calls."""
    return _rounded(math.sqrt((_TILED_BLOCK + 24 * D * K / _NEAR) / (D / _FLOPS)), 8, 16, 64)


def tiled_open_rows(D: int, K: int) -> int:
    """As `FixedCost.open_rows`, with a tiled product that closes the block."""
    return _rounded(math.sqrt((_TILED_CLOSE + 16 * D * K / _bandwidth(D, K)) / (4 * D / _bandwidth(D, K))), 8, 8, 64)


def _rounded(size: float, step: int, least: int, most: int) -> int:
    """The nearest multiple of `step`: matrix products are quickest on whole tiles."""
    return int(min(max(step * round(size / step), least), most))


def _bandwidth(D: int, K: int) -> float:
    return _NEAR if 8 * D * K <= _NEAR_BYTES else _FAR


def sparse_frame_rows(D: int) -> int:
    """Number of sparse rows that IPCA and CCIPCA take at a time.

    The basis moves once a block, which costs 2 D K²; a row costs about K² times the number of rows.
    """
    return int(min(max(2 ** round(math.log2(math.sqrt(2 * D))), 32), 1024))
