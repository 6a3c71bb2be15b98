"""A run over a source: block after block into a model, with the model and the position in the source always in step.

A run moves in *steps*: a block of rows or, with a shuffle buffer, that many rows, which are shuffled and then fed block by block. Between
two steps the model has learned exactly the rows before the position. A checkpoint holds both in one file, together with the identity of
the source. Steps are cut at fixed rows, and the shuffle depends on the seed and the position alone, so a run that was stopped anywhere and
resumed gives the same model, bit for bit, as one that was not. Only a pipe is also cut by the clock: rows that have arrived are learned
within a second, and saved when that is due.
"""

from __future__ import annotations

from online_psp.io.runs._checkpoints import (
    Stored,
    checkpoint,
    from_header,
    read_model,
    read_stored,
    reopen,
    reopen_any,
    write_model,
)
from online_psp.io.runs._driving import Saving, Stopped, drive, fit_stream
from online_psp.io.runs._run import (
    DifferentSourceError,
    Learned,
    Run,
    RunOptions,
    anew,
    difference,
    give_names,
    start,
    take_names,
    updating,
)
from online_psp.io.runs._steps import steps

__all__ = [
    "DifferentSourceError",
    "Learned",
    "Run",
    "RunOptions",
    "Saving",
    "Stopped",
    "Stored",
    "anew",
    "checkpoint",
    "difference",
    "drive",
    "fit_stream",
    "from_header",
    "give_names",
    "read_model",
    "read_stored",
    "reopen",
    "reopen_any",
    "start",
    "steps",
    "take_names",
    "updating",
    "write_model",
]
