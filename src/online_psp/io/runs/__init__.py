"""A run over a source: block after block into a model, with the model and the position in the source always in step.

A run moves in *steps*, each a block of rows. Between two steps the model has learned exactly the rows before the position. A checkpoint
holds both in one file, together with the identity of the source. However a stream is cut the model is the same, so a run that was stopped
anywhere and resumed gives the same model, bit for bit, as one that was not. A pipe is also cut by the clock: rows that have arrived are
learned within a second, and saved when that is due.
"""

from __future__ import annotations

from online_psp.io.runs._begin import Begun, RunError, Task, begin, check_image, holes_for, remembered_columns
from online_psp.io.runs._checkpoints import (
    Stored,
    checkpoint,
    from_header,
    read_stored,
    reopen,
    write_model,
)
from online_psp.io.runs._driving import Saving, Stopped, drive
from online_psp.io.runs._fit import fit_stream
from online_psp.io.runs._page import RunPage
from online_psp.io.runs._run import (
    Learned,
    Run,
    give_names,
    start,
    take_names,
    updating,
)
from online_psp.io.runs._steps import steps
from online_psp.io.sources import DifferentSourceError

__all__ = [
    "Begun",
    "DifferentSourceError",
    "Learned",
    "Run",
    "RunError",
    "RunPage",
    "Saving",
    "Stopped",
    "Stored",
    "Task",
    "begin",
    "check_image",
    "checkpoint",
    "drive",
    "fit_stream",
    "from_header",
    "give_names",
    "holes_for",
    "read_stored",
    "remembered_columns",
    "reopen",
    "start",
    "steps",
    "take_names",
    "updating",
    "write_model",
]
