"""``psp transform``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from online_psp.cli._common import check_not_source, echo, load_fitted, open_rows, plural, print_json, remembered_columns, writing
from online_psp.cli._errors import usage
from online_psp.cli._options import READING, AsJson, Force, OnBadRow, Quiet, check_on_bad_row, grouped
from online_psp.cli._writers import FORMATS, Table, append_to

_PROMPT = 0.25  # seconds after which rows that have come through a pipe are written


class Way(NamedTuple):
    """From rows to scores, or back."""

    model: Any
    inverse: bool
    order: Any
    """Which column of the source each feature is; None where they are in order."""

    @property
    def width(self) -> int:
        return int(self.model.n_features_in_ if self.inverse else self.model.n_components_)

    def __call__(self, rows: Any) -> Any:
        from online_psp.io.names import ordered

        if self.inverse:  # scores are few numbers a row: what is sparse may become dense
            return self.model.inverse_transform(rows.toarray() if hasattr(rows, "toarray") else rows)
        return self.model.transform(ordered(rows, self.order))


@grouped(reading=READING)
def transform(
    model: Annotated[Path, typer.Argument(help="Model file.")],
    sources: Annotated[list[str], typer.Argument(help="Rows to project, as in psp fit; with --inverse, scores.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File for the scores: .npy, .csv or .parquet; - writes CSV to standard output.")
    ],
    reading: dict[str, Any],
    inverse: Annotated[bool, typer.Option("--inverse", help="Map scores back to rows.")] = False,
    form: Annotated[
        str | None, typer.Option("--format", help="Output format: npy, csv or parquet; by default, the output's extension decides.")
    ] = None,
    append: Annotated[bool, typer.Option("--append", help="Append to the output file.")] = False,
    block: Annotated[int | None, typer.Option(min=1, help="Number of rows to read at a time.")] = None,
    on_bad_row: OnBadRow = "stop",
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Project rows onto the components of a model, or map scores back to rows.

    The output has a row for each row of the source. With --on-bad-row skip, bad rows become NaN.
    """
    from online_psp.io.runs import take_names

    form = _format(output, form)
    check_on_bad_row(on_bad_row)
    check_not_source(output, [str(model), *sources])
    if append and force:
        usage("--append keeps the output, and --force overwrites it; give one of them.")
    fitted, header = load_fitted(model)
    known = take_names(fitted)  # columns are matched here, and go to the model as plain arrays
    if not inverse:
        reading = {**remembered_columns(header, known, reading), **reading}
    source = open_rows(sources, reading, quiet)
    way = _way(fitted, known, source, inverse, model)
    names = (known or [f"x{i + 1}" for i in range(way.width)]) if inverse else [f"pc{i + 1}" for i in range(way.width)]
    ids = [*(reading.get("ids") or []), *([reading["time_column"]] if "time_column" in reading else [])]
    if ids and form == "npy":
        usage("A .npy file holds numbers only: write scores with --ids or --time-column to .csv or .parquet.")
    table = Table(names, ids)
    counts = {"rows": 0, "bad": 0}
    parts = _converted(way, source, block, on_bad_row, counts)
    if str(output) == "-":
        FORMATS[form].write(sys.stdout.buffer, parts, table)
        sys.stdout.buffer.flush()
        return
    _write(output, form, parts, table, append=append, force=force)
    if as_json:
        print_json({"output": str(output), **counts, "columns": way.width})
    elif not quiet:
        bad = f", of which {counts['bad']} bad ({'is' if counts['bad'] == 1 else 'are'} NaN)" if counts["bad"] else ""
        echo(f"{output}: {plural(counts['rows'], 'row')} of {plural(way.width, 'column')}{bad}")


def _write(output: Path, form: str, parts: Iterator[Any], table: Table, *, append: bool, force: bool) -> None:
    from online_psp.io.files import replacing

    with writing(output, force or append, "add --append to add to it, or ") as target:
        try:
            if append and target.exists():
                append_to(target, form, parts, table)
            else:
                with replacing(target) as file:
                    FORMATS[form].write(file, parts, table)
        except OSError as error:
            error.filename = error.filename or str(output)
            raise


def _format(output: Path, form: str | None) -> str:
    if form is not None and form not in FORMATS:
        usage(f"--format must be one of {', '.join(FORMATS)}; got {form}.")
    found = form or ("csv" if str(output) == "-" else output.suffix.lower().removeprefix("."))
    if found not in FORMATS:
        usage(f"The output must end in {', '.join('.' + each for each in FORMATS)}, or have --format; got {output}.")
    if str(output) == "-" and found == "npy":
        usage("A .npy file says at its beginning how many rows it has, so it cannot go to standard output; use --format csv or parquet.")
    return found


def _way(model: Any, known: list[str] | None, source: Any, inverse: bool, path: Path) -> Way:
    from online_psp.io.names import order_of
    from online_psp.io.sources import SourceError

    order = None if inverse else order_of(known, source.feature_names, source.name, str(path))
    wanted = model.n_components_ if inverse else model.n_features_in_
    if source.features != wanted:
        what = "components" if inverse else "features"
        raise SourceError(f"{source.name} has {source.features} columns, and {path} has {wanted} {what}.")
    return Way(model, inverse, order)


def _converted(way: Way, source: Any, size: int | None, on_bad_row: str, counts: dict[str, int]) -> Iterator[tuple[Any, Any]]:
    """Scores and ids, block by block; NaN where a row was bad."""
    import numpy as np

    from online_psp.io.sources import SourceError

    looked = [time.monotonic()]
    for block in source.blocks(size, deadline=lambda: time.monotonic() - looked[0] > _PROMPT):
        looked[0] = time.monotonic()
        if block.bad and on_bad_row == "stop":
            raise SourceError(f"{source.where(block.bad[0].row)}: it {block.bad[0].problem}.")
        if not block.length:
            continue
        counts["rows"] += block.length
        counts["bad"] += len(block.bad)
        good = way(block.rows) if block.rows.shape[0] else np.empty((0, way.width), source.dtype)
        if block.bad:
            scores = np.full((block.length, way.width), np.nan, dtype=good.dtype)
            kept = np.ones(block.length, dtype=bool)
            kept[[bad.row - 1 - block.start for bad in block.bad]] = False
            scores[kept] = good
            good = scores
        yield good, _carried(block)


def _carried(block: Any) -> Any:
    """Ids and times of a block as text, (length, number of them); None where there are none."""
    import numpy as np

    parts = [] if block.ids is None else [block.ids]
    if block.times is not None:
        parts.append(block.times.astype(str)[:, np.newaxis])
    return np.concatenate([np.asarray(part, dtype=object) for part in parts], axis=1) if parts else None
