"""Sources of rows: read from anywhere, one block at a time, in the memory of a few blocks.

>>> import numpy as np
>>> from online_psp.io.sources import open_source
>>> source = open_source(np.eye(5))
>>> source.features, source.total, [len(block.rows) for block in source.blocks(2)]
(5, 5, [2, 2, 1])
"""

from __future__ import annotations

from online_psp.io.sources._columns import column_list
from online_psp.io.sources._formats import FORMATS
from online_psp.io.sources._identity import different
from online_psp.io.sources._names import numbered
from online_psp.io.sources._open import open_source
from online_psp.io.sources._source import BadRow, Block, MissingExtraError, Source, SourceError, UnknownSourceError

__all__ = [
    "FORMATS",
    "BadRow",
    "Block",
    "MissingExtraError",
    "Source",
    "SourceError",
    "UnknownSourceError",
    "column_list",
    "different",
    "numbered",
    "open_source",
]
