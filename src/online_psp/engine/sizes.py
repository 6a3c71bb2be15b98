"""Block sizes, from a model of what blocks cost, and every limit on memory. ``python -m benchmarks speed`` measures how good the model is.

A block has a fixed cost F, whatever its size: calls, passes over the basis, for some algorithms products of K² with the basis. What grows
with its size n is, per sample, what its samples have to do with each other: n/2 inner products with earlier ones, each at p. Then
``F/n + n p`` is least at ``n = sqrt(F/p)``. The optimum is flat: a machine that differs from these constants by a factor of two loses a
few per cent.
"""

from __future__ import annotations

import math
from typing import NamedTuple

# Limits on memory. Each is a matter of speed alone: none of them changes a result, or what a model file holds.
STRIP = 8192
"""Columns of a row that a single-sample product works on at a time."""
LARGE_STACK = 1 << 22
"""Numbers in a basis from which on BLAS, with its threads, beats the loop for single samples."""
TILED_BASIS = 1 << 18
"""Numbers in a basis up to which tiles beat BLAS."""
TILE_BYTES = 1 << 26
"""Columns of a basis that are recombined at a time."""
GRAM_AHEAD = 1 << 21
"""Inner products of rows that are computed ahead of the blocks that need them."""
CHECK_BYTES = 1 << 24
"""Rows that are converted at a time to see whether they are finite."""
CENTRE_BYTES = 1 << 22
"""Rows that are centred at a time."""
REFRESH_ENTRIES = 4
"""Sparse entries, in multiples of D, between two exact computations of what is otherwise followed from block to block."""

_FLOPS = 30e9  # matrix products, one core
_NEAR = 40e9  # bytes a second from the caches
_FAR = 20e9  # bytes a second from memory
_NEAR_BYTES = 1 << 24
_PACKING = 3.0  # a pass inside a matrix product costs this much more: the library reorders what it multiplies
_ADDING = 1.6  # and this much where a few rows are added to the basis, which are read and written in small pieces
_TILED_BLOCK = 1e-6  # seconds of overhead of a block in a compiled loop over blocks
_TILED_CLOSE = 4e-6  # and of one call that closes an open block
_LOOPS = 5e9  # multiplications and additions a second in compiled loops


class FixedCost(NamedTuple):
    """What a block costs whatever its size.

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
        Rows of a block, however dear blocks are.
    """

    call: float
    passes: float
    turns: float = 0.0
    pairs: float = 0.0
    most: int = 256

    def seconds(self, D: int, K: int, packing: float = 1.0) -> float:
        return self.call + packing * self.passes * 8 * D * K / _bandwidth(D, K) + self.turns * 2 * D * K * K / _FLOPS

    def block_rows(self, D: int, K: int) -> int:
        """Rows for `fit_block`: samples meet each other in a matrix product, of which half is needed."""
        pair = D / _FLOPS + self.pairs * K / _LOOPS
        return _rounded(math.sqrt(self.seconds(D, K, _PACKING) / pair), 16, 32, self.most)

    def open_rows(self, D: int, K: int) -> int:
        """Samples that `fit_next` gathers: every pending one is a row more to read."""
        pair = 4 * D / _bandwidth(D, K) + self.pairs * K / _LOOPS
        return _rounded(math.sqrt(self.seconds(D, K, _ADDING) / pair), 8, 8, 64)


def tiled_block_rows(D: int, K: int) -> int:
    """Rows for `fit_block` where products are tiles: they copy no more than the rows themselves, and a block makes no calls."""
    return _rounded(math.sqrt((_TILED_BLOCK + 24 * D * K / _NEAR) / (D / _FLOPS)), 8, 16, 64)


def tiled_open_rows(D: int, K: int) -> int:
    """Samples that `fit_next` gathers where a tiled product closes the block."""
    return _rounded(math.sqrt((_TILED_CLOSE + 16 * D * K / _bandwidth(D, K)) / (4 * D / _bandwidth(D, K))), 8, 8, 64)


def _rounded(size: float, step: int, least: int, most: int) -> int:
    """The nearest multiple of a step: matrix products are quickest on whole tiles."""
    return int(min(max(step * round(size / step), least), most))


def _bandwidth(D: int, K: int) -> float:
    return _NEAR if 8 * D * K <= _NEAR_BYTES else _FAR


def sparse_frame_rows(D: int) -> int:
    """How many sparse rows IPCA and CCIPCA take at a time: the basis moves once a block, at 2 D K²; a row costs about K² times their
    number.
    """
    return int(min(max(2 ** round(math.log2(math.sqrt(2 * D))), 32), 1024))
