"""``psp score``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from online_psp.cli._common import holes_for, model_first, open_rows, plural, read_fitted, remembered_columns
from online_psp.cli._errors import say
from online_psp.cli._options import READING, AsJson, Force, OnBadRow, Quiet, check_alpha, grouped
from online_psp.cli._tables import Append, BlockRows, Form, Job, TableOutput, order_for, write_table

_ALPHA = 0.01


class Scoring(NamedTuple):
    """Scores rows: T², SPE, their limits, and whether one of them is exceeded."""

    model: Any
    seen: Any
    """The model's snapshot, by which all rows are scored."""
    t2_limit: float
    spe_limit: float
    order: Any
    """The column of the source for each feature; None if they are in order."""

    @property
    def names(self) -> list[str]:
        return ["t2", "spe", "t2_limit", "spe_limit", "outlier"]

    def __call__(self, rows: Any) -> Any:
        import numpy as np

        from online_psp.io.names import ordered
        from online_psp.monitoring.scores import score as scores_of
        from online_psp.pca.checks import check_rows

        with np.errstate(over="ignore", invalid="ignore"):
            scores = scores_of(self.seen, check_rows(self.model, ordered(rows, self.order), None, reset=False))
        # A complete row is finite: if a score is NaN, it was too far away for floating point. Others may have too few values to tell.
        full = ~np.isnan(rows.sum(axis=1))
        t2, spe = (np.where(np.isnan(each) & full, np.inf, each) for each in scores)
        limits = np.broadcast_to([self.t2_limit, self.spe_limit], (len(t2), 2))
        return np.column_stack([t2, spe, limits, (t2 > self.t2_limit) | (spe > self.spe_limit)])


@grouped(reading=READING)
def score(
    model: Annotated[Path, typer.Argument(help="Model file.")],
    sources: Annotated[list[str], typer.Argument(help="Rows to score, as in psp fit.")],
    output: TableOutput,
    reading: dict[str, Any],
    alpha: Annotated[
        float | None,
        typer.Option(help="Fraction of normal rows above each limit; 0.01 by default, or that of a model fitted with --monitor."),
    ] = None,
    form: Form = None,
    append: Append = False,
    block: BlockRows = None,
    on_bad_row: OnBadRow = "stop",
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Score rows with a model: T² and SPE, their limits, and whether a row is an outlier.

    The output has a row for each row of the source, with its number from 1. With --on-bad-row skip, scores of bad rows are NaN.

    Limits are NaN if the model has learned fewer than 20 rows, or fewer than 5 per component.
    """
    from online_psp.io.runs import take_names

    if alpha is not None:
        check_alpha(alpha)
    model, sources = model_first(model, sources)
    job = Job(model, sources, output, form, append, block, on_bad_row, force, quiet, as_json).checked()
    stored = read_fitted(model)
    known = take_names(stored.model)  # columns are matched here, and go to the model as plain arrays
    reading = {**remembered_columns(stored.header, known, reading), **reading}
    source = open_rows(sources, {**reading, **holes_for(stored.model.missing)}, quiet)
    order = order_for(stored.model, known, source, model, quiet)
    write_table(job, source, _scoring(stored, alpha, order, job), reading, whole=("outlier",), numbered=True)


def _scoring(stored: Any, alpha: float | None, order: Any, job: Job) -> Scoring:
    """How to score rows; the limit of the SPE is that of the monitor, if there is one that has seen enough rows."""
    from online_psp.monitoring.limits import enough, limits_of, rows_needed
    from online_psp.monitoring.scores import snapshot

    monitor = stored.monitor
    level = alpha if alpha is not None else _ALPHA if monitor is None else monitor.alpha
    seen = snapshot(stored.model)
    t2_limit, spe_limit = limits_of(seen, None if monitor is None else monitor.moments, level)
    if not enough(seen):
        t2_limit = spe_limit = math.nan
        known = f"learned {plural(int(seen.samples), 'row')} of equal weight, and limits need {rows_needed(len(seen.variances))}"
        say(f"{job.model} has {known if len(seen.variances) else 'seen no variance'}: there are none, and no row is an outlier.")
    elif monitor is None or math.isnan(spe_limit):
        spe_limit = limits_of(seen, None, level)[1]
        if not job.quiet and len(seen.variances) < len(seen.mean):
            say(
                f"{job.model} was fitted without --monitor, or to few rows: the limit of the SPE takes the variance outside the subspace "
                "to be equal along all directions, and is too low where it is not."
            )
    return Scoring(stored.model, seen, t2_limit, spe_limit, order)
