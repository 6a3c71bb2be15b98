"""Tables of results, one row for each row of a source: what `psp transform`, `psp impute` and `psp score` share."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import typer

from online_psp.cli._common import check_not_source, echo, plural, print_json, say_warnings, writing
from online_psp.cli._errors import say, usage
from online_psp.cli._options import check_on_bad_row
from online_psp.cli._writers import FORMATS, Table, append_to
from online_psp.io.files import OutputError

_PROMPT = 0.25  # seconds after which rows from a pipe are written

TableOutput = Annotated[Path, typer.Option("--output", "-o", help="Output file: .npy, .csv or .parquet; - writes CSV to standard output.")]
Form = Annotated[
    str | None, typer.Option("--format", help="Output format: npy, csv or parquet; by default, the output's extension decides.")
]
Append = Annotated[bool, typer.Option("--append", help="Append to the output file.")]
BlockRows = Annotated[int | None, typer.Option(min=1, help="Number of rows to read at a time.")]


class Job(NamedTuple):
    """What the command line asks for."""

    model: Path
    sources: list[str]
    output: Path
    form: str | None = None
    append: bool = False
    block: int | None = None
    on_bad_row: str = "stop"
    force: bool = False
    quiet: bool = False
    as_json: bool = False

    def checked(self) -> Job:
        """The job with its format; ends with a usage error before anything is read."""
        form = _format(self.output, self.form)
        check_on_bad_row(self.on_bad_row)
        check_not_source(self.output, [str(self.model), *self.sources])
        if self.append and self.force:
            usage("--append keeps the output, and --force overwrites it; give one of them.")
        return self._replace(form=form)


class Way(Protocol):
    """A function from rows to results."""

    @property
    def names(self) -> list[str]:
        """Names of the columns of results."""

    def __call__(self, rows: Any) -> Any:
        """Results (n, number of names) of good rows (n, D)."""


def write_table(job: Job, source: Any, way: Way, reading: dict[str, Any], *, whole: tuple[str, ...] = (), numbered: bool = False) -> None:
    """Write the results for each row of a source, and report; with `numbered`, the row's number from 1 comes first."""
    assert job.form is not None
    ids = [*(reading.get("ids") or []), *([reading["time_column"]] if "time_column" in reading else [])]
    if ids and job.form == "npy":
        usage("A .npy file holds numbers only: write scores with --ids or --time-column to .csv or .parquet.")
    table = Table([*(["row"] if numbered else []), *way.names], ids, (*(["row"] if numbered else []), *whole))
    counts = {"rows": 0, "bad": 0}
    parts = _converted(job, source, way, numbered, counts)
    if str(job.output) == "-":
        if sys.stdout is None:
            raise OutputError("Standard output is closed, so nothing can be written to it; name a file (-o).")
        FORMATS[job.form].write(sys.stdout.buffer, parts, table)
        sys.stdout.buffer.flush()
    else:
        _write(job, parts, table)
    say_warnings(source)
    if str(job.output) == "-":
        if counts["bad"] and not job.quiet:
            say(
                f"{plural(counts['bad'], 'row')} of {counts['rows']:,} {'is' if counts['bad'] == 1 else 'are'} bad, and empty in the output"
            )
        return
    if job.as_json:
        print_json({"output": str(job.output), **counts, "columns": len(table.names)})
    elif not job.quiet:
        bad = f", of which {counts['bad']} bad ({'is' if counts['bad'] == 1 else 'are'} NaN)" if counts["bad"] else ""
        echo(f"{job.output}: {plural(counts['rows'], 'row')} of {plural(len(table.names), 'column')}{bad}")


def order_for(model: Any, known: list[str] | None, source: Any, path: Path, quiet: bool) -> Any:
    """The column of the source for each feature of a model; None if they are in order, as columns without names are said to be."""
    from online_psp.io.names import order_of

    order = order_of(known, source.feature_names, source.name, str(path))
    check_width(source, model.n_features_in_, "features", path)
    if known and source.feature_names is None and not quiet:
        say(f"{source.name} has no column names; its columns are taken in the order of {path}.")
    return order


def order_for_scores(names: list[str], source: Any, path: Path) -> Any:
    """The column of the source for each component, by the names that `psp transform` writes; other names stand in order."""
    from online_psp.io.names import order_of

    given = source.feature_names
    return order_of(names, given, source.name, str(path)) if given is not None and set(given) & set(names) else None


def check_width(source: Any, wanted: int, what: str, path: Path) -> None:
    from online_psp.io.sources import SourceError

    if source.features != wanted:
        raise SourceError(f"{source.name} has {source.features} columns, and {path} has {wanted} {what}.")


def _write(job: Job, parts: Iterator[Any], table: Table) -> None:
    from online_psp.io.files import replacing

    assert job.form is not None
    with writing(job.output, job.force or job.append, "add --append to add to it, or ") as target:
        try:
            if job.append and target.exists:
                append_to(target, job.form, parts, table)
            else:
                with replacing(target) as file:
                    FORMATS[job.form].write(file, parts, table)
        except OSError as error:
            error.filename = error.filename or str(job.output)
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


def _converted(job: Job, source: Any, way: Way, numbered: bool, counts: dict[str, int]) -> Iterator[tuple[Any, Any]]:
    """Results and ids, block by block; NaN for bad rows."""
    import numpy as np

    looked, width = [time.monotonic()], len(way.names)
    for block in source.blocks(job.block, deadline=lambda: time.monotonic() - looked[0] > _PROMPT):
        looked[0] = time.monotonic()
        if block.bad and job.on_bad_row == "stop":
            raise source.refused(block.bad[0])
        if not block.length:
            continue
        counts["rows"] += block.length
        counts["bad"] += len(block.bad)
        found = way(block.rows) if block.rows.shape[0] else np.empty((0, width), source.dtype)
        if block.bad:
            good, found = found, np.full((block.length, width), np.nan, dtype=found.dtype)
            kept = np.ones(block.length, dtype=bool)
            kept[[bad.row - 1 - block.start for bad in block.bad]] = False
            found[kept] = good
        if numbered:
            found = np.column_stack([np.arange(block.start + 1.0, block.start + block.length + 1.0), found])
        yield found, _carried(block)


def _carried(block: Any) -> Any:
    """IDs and times of a block as text, (length, number of them); None if there are none."""
    import numpy as np

    parts = [] if block.ids is None else [block.ids]
    if block.times is not None:
        parts.append(block.times.astype(str)[:, np.newaxis])
    return np.concatenate([np.asarray(part, dtype=object) for part in parts], axis=1) if parts else None
