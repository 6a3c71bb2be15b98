"""Packs the cells of delimited text, without the delimiters, as Arrow stores strings; compiled, in one pass over the bytes."""

from __future__ import annotations

from online_psp.engine.compiler import kernel
from online_psp.engine.types import Array


@kernel
def compact(text: Array, delimiter: int, width: int, cells: Array, offsets: Array) -> int:
    """Copy cells one after the other, and record where each ends; returns the number of rows.

    Parameters
    ----------
    text : (n,) uint8
        Lines that end in a newline, the last one too.
    delimiter : int
        The byte between cells.
    width : int
        Number of cells per row.
    cells : (n,) uint8
        Receives the bytes of the cells.
    offsets : (rows × width + 1,) int32
        Receives the end of each cell, after a 0 at the beginning.

    Returns
    -------
    int
        Number of rows; −1 if a row has too few or too many cells, or if there are more rows than expected.
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
