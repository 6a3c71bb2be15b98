"""``psp transform``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from online_psp.cli._common import holes_for, load_fitted, model_first, open_rows, remembered_columns
from online_psp.cli._options import READING, AsJson, Force, OnBadRow, Quiet, grouped
from online_psp.cli._tables import (
    Append,
    BlockRows,
    Form,
    Job,
    TableOutput,
    check_width,
    order_for,
    order_for_scores,
    write_table,
)


class Projection(NamedTuple):
    """Projects rows to scores, or maps them back."""

    model: Any
    names: list[str]
    inverse: bool = False
    order: Any = None
    """The column of the source for each feature; None if they are in order."""

    def __call__(self, rows: Any) -> Any:
        from online_psp.io.names import ordered

        if self.inverse:  # scores are few numbers per row: sparse ones may become dense
            dense = rows.toarray() if hasattr(rows, "toarray") else rows
            return self.model.inverse_transform(ordered(dense, self.order))
        return self.model.transform(ordered(rows, self.order))


@grouped(reading=READING)
def transform(
    model: Annotated[Path, typer.Argument(help="Model file.")],
    sources: Annotated[list[str], typer.Argument(help="Rows to project, as in psp fit; with --inverse, scores.")],
    output: TableOutput,
    reading: dict[str, Any],
    inverse: Annotated[bool, typer.Option("--inverse", help="Map scores back to rows.")] = False,
    form: Form = None,
    append: Append = False,
    block: BlockRows = None,
    on_bad_row: OnBadRow = "stop",
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Project rows onto the components of a model, or map scores back to rows.

    The output has a row for each row of the source. With --on-bad-row skip, bad rows become NaN.
    """
    from online_psp.io.runs import take_names

    model, sources = model_first(model, sources)
    job = Job(model, sources, output, form, append, block, on_bad_row, force, quiet, as_json).checked()
    fitted, header = load_fitted(model)
    known = take_names(fitted)  # columns are matched here, and go to the model as plain arrays
    if not inverse:
        reading = {**remembered_columns(header, known, reading), **reading}
    scores = [f"pc{i + 1}" for i in range(fitted.n_components_)]
    source = open_rows(sources, {**reading, **({} if inverse else holes_for(fitted.missing))}, quiet)
    if inverse:
        check_width(source, fitted.n_components_, "components", model)
        order = order_for_scores(scores, source, model)
        way = Projection(fitted, known or [f"x{i + 1}" for i in range(fitted.n_features_in_)], inverse=True, order=order)
    else:
        order = order_for(fitted, known, source, model, quiet)
        way = Projection(fitted, scores, order=order)
    write_table(job, source, way, reading)
