"""``psp impute``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from online_psp.cli._common import load_fitted, model_first, open_rows, remembered_columns
from online_psp.cli._options import READING, AsJson, Force, OnBadRow, Quiet, grouped
from online_psp.cli._tables import Append, BlockRows, Form, Job, TableOutput, order_for, write_table


class Filling(NamedTuple):
    """Fills the missing values of rows."""

    model: Any
    names: list[str]
    order: Any
    """The column of the source for each feature; None if they are in order."""

    def __call__(self, rows: Any) -> Any:
        from online_psp.io.names import ordered

        full = self.model.impute(ordered(rows, self.order))
        return full.toarray() if hasattr(full, "toarray") else full


@grouped(reading=READING)
def impute(
    model: Annotated[Path, typer.Argument(help="Model file.")],
    sources: Annotated[list[str], typer.Argument(help="Rows with missing values, as in psp fit.")],
    output: TableOutput,
    reading: dict[str, Any],
    form: Form = None,
    append: Append = False,
    block: BlockRows = None,
    on_bad_row: OnBadRow = "stop",
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fill the missing values of rows with what a model expects there.

    The output has a row for each row of the source, with the features of the model as columns; values that are not missing are kept.
    """
    from online_psp.io.runs import take_names

    model, sources = model_first(model, sources)
    job = Job(model, sources, output, form, append, block, on_bad_row, force, quiet, as_json).checked()
    fitted, header = load_fitted(model)
    known = take_names(fitted)  # columns are matched here, and go to the model as plain arrays
    reading = {**remembered_columns(header, known, reading), **reading}
    source = open_rows(sources, {**reading, "missing": "keep"}, quiet)
    order = order_for(fitted, known, source, model, quiet)
    names = known or [f"x{i + 1}" for i in range(fitted.n_features_in_)]
    write_table(job, source, Filling(fitted, names, order), reading)
