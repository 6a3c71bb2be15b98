"""Sources of rows: read from anywhere, one block at a time, in the memory of a few blocks.

>>> import numpy as np
>>> from online_psp.io.sources import open_source
>>> source = open_source(np.eye(5))
>>> source.features, source.total, [len(block.rows) for block in source.blocks(2)]
(5, 5, [2, 2, 1])
"""

from __future__ import annotations

from online_psp.io.sources.columns import column_list
from online_psp.io.sources.formats import FORMATS
from online_psp.io.sources.genes import numbered
from online_psp.io.sources.identity import different, identity
from online_psp.io.sources.opening import open_source
from online_psp.io.sources.source import (
    BadRow,
    Block,
    DifferentSourceError,
    MissingExtraError,
    Position,
    Source,
    SourceError,
    UnknownSourceError,
)

__all__ = [
    "FORMATS",
    "BadRow",
    "Block",
    "DifferentSourceError",
    "MissingExtraError",
    "Position",
    "Source",
    "SourceError",
    "UnknownSourceError",
    "column_list",
    "different",
    "identity",
    "numbered",
    "open_source",
]
