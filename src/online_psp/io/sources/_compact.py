"""Cells of delimited text without what stands between them, as Arrow holds strings; compiled, in one pass over the bytes."""

from __future__ import annotations

from online_psp.engine.compiler import kernel
from online_psp.engine.types import Array


@kernel
def compact(text: Array, delimiter: int, width: int, cells: Array, offsets: Array) -> int:
    """Copy cells one after the other, and note where they end; how many rows there are.

    Parameters
    ----------
    text : (n,) uint8
        Lines that end in a newline, the last one too.
    delimiter : int
        The byte between cells.
    width : int
        Cells of a row.
    cells : (n,) uint8
        Where they are copied to.
    offsets : (rows × width + 1,) int32
        The end of each cell, after the 0 that it begins with.

    Returns
    -------
    int
        Rows; −1 where one has too few cells or too many, or where there are more rows than expected.
    """
    at = taken = found = column = 0
    while at < len(text):
        byte = text[at]
        while byte != delimiter and byte != 10:  # noqa: PLR1714
            cells[taken] = byte
            taken += 1
            at += 1
            byte = text[at]
        at += 1
        found += 1
        column += 1
        if found == len(offsets) or (byte == 10) != (column == width):
            return -1
        offsets[found] = taken
        if byte == 10:
            column = 0
    return found // width
