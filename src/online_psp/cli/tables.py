"""``psp transform``, ``psp score`` and ``psp impute``: results for each row of a source, as a table."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from online_psp.cli._common import check_not_source, echo, open_rows, plural, print_json, read_fitted, say_warnings, writing
from online_psp.cli._errors import say, usage
from online_psp.cli._options import ALPHA, FEEDING, READING, AsJson, Force, Option, Quiet, grouped
from online_psp.cli._writers import WRITERS, Table

_PROMPT = 0.25  # seconds after which rows from a pipe are written
_ALPHA = 0.01


class _Way(NamedTuple):
    """A function from rows to results."""

    names: list[str]
    """Names of the columns of results."""
    results: Callable[[Any], Any]
    """Results (n, number of names) of good rows (n, D)."""
    numbered: bool = False
    """Whether the row's number from 1 comes first."""


_Sources = Annotated[list[str], typer.Argument(help="Rows, as in psp fit.")]
_Model = Annotated[Path, typer.Argument(help="Model file.")]
_Output = Annotated[Path, typer.Option("--output", "-o", help="Output file: .npy, .csv or .parquet; - writes CSV to standard output.")]


def _command(doc: str, extra: dict[str, Option], make: Callable[..., _Way]) -> Callable[..., None]:
    """A command that writes the results which `make` finds for a model, the options `extra` and what the command line asks for."""

    @grouped(way=extra, reading=READING, feeding={"block": FEEDING["block"]})
    def results(
        model: _Model,
        sources: _Sources,
        output: _Output,
        way: dict[str, Any],
        reading: dict[str, Any],
        feeding: dict[str, Any],
        force: Force = False,
        quiet: Quiet = False,
        as_json: AsJson = False,
    ) -> None:
        from online_psp.io.runs import holes_for, remembered_columns, take_names

        form = _format(output)
        check_not_source(output, [str(model), *sources])
        stored = read_fitted(model)
        known = take_names(stored.model)  # columns are matched here, and go to the model as plain arrays
        bad, inverse = reading.pop("on_bad_row", "stop"), bool(way.get("inverse"))
        if not inverse:
            holes = {"missing": "keep"} if make is _filling else holes_for(stored.model.missing)
            reading = {**remembered_columns(stored.header.get("reading"), known, reading), **reading, **holes}
        source = open_rows(sources, reading, quiet)
        wanted = [f"pc{i + 1}" for i in range(stored.model.n_components_)] if inverse and stored.model.whiten != "zca" else known
        order = _order(wanted, source, model, stored.model, inverse, quiet)
        found = make(stored, known, path=model, quiet=quiet, **way)
        ids = [*(reading.get("ids") or []), *([reading["time_column"]] if "time_column" in reading else [])]
        if ids and form == "npy":
            usage("A .npy file holds numbers only: write scores with --ids or --time-column to .csv or .parquet.")
        counts = {"rows": 0, "bad": 0}
        number = ["row"] if found.numbered else []
        table = Table([*number, *found.names], ids, ("row", "outlier") if found.numbered else ())
        _write(output, form, force, _converted(source, found, order, feeding.get("block"), bad == "skip", counts), table)
        say_warnings(source)
        were = "is" if counts["bad"] == 1 else "are"
        if str(output) == "-":
            if counts["bad"] and not quiet:
                say(f"{plural(counts['bad'], 'row')} of {counts['rows']:,} {were} bad, and empty in the output")
        elif as_json:
            print_json({"output": str(output), **counts, "columns": len(table.names)})
        elif not quiet:
            named = f", of which {counts['bad']} bad ({were} NaN)" if counts["bad"] else ""
            echo(f"{output}: {plural(counts['rows'], 'row')} of {plural(len(table.names), 'column')}{named}")

    results.__doc__ = doc
    return results


# What is found


def _projection(stored: Any, known: list[str] | None, inverse: bool = False, **_: Any) -> _Way:
    model = stored.model
    if inverse:
        return _Way(_features(model, known), lambda rows: model.inverse_transform(_dense(rows)))
    names = _features(model, known) if model.whiten == "zca" else [f"pc{i + 1}" for i in range(model.n_components_)]
    return _Way(names, model.transform)


def _filling(stored: Any, known: list[str] | None, **_: Any) -> _Way:
    return _Way(_features(stored.model, known), lambda rows: _dense(stored.model.impute(rows)))


def _scoring(stored: Any, known: list[str] | None, *, path: Path, quiet: bool, alpha: float | None = None) -> _Way:
    """T², SPE, their limits, and whether one is exceeded; the limit of the SPE is that of the monitor, if it has seen enough rows."""
    import numpy as np

    from online_psp.monitoring.limits import enough, limits_of, rows_needed
    from online_psp.monitoring.scores import score as scores_of
    from online_psp.monitoring.scores import snapshot
    from online_psp.pca.checks import check_rows

    monitor, seen = stored.monitor, snapshot(stored.model)
    level = alpha if alpha is not None else _ALPHA if monitor is None else monitor.alpha
    t2_limit, spe_limit = limits_of(seen, None if monitor is None else monitor.moments, level)
    if not enough(seen):
        t2_limit = spe_limit = math.nan
        few = f"learned {plural(int(seen.samples), 'row')} of equal weight, and limits need {rows_needed(len(seen.variances))}"
        say(f"{path} has {few if len(seen.variances) else 'seen no variance'}: there are none, and no row is an outlier.")
    elif monitor is None or math.isnan(spe_limit):
        spe_limit = limits_of(seen, None, level)[1]
        if not quiet and len(seen.variances) < len(seen.mean):
            say(
                f"{path} was fitted without --monitor, or to few rows: the limit of the SPE takes the variance outside the subspace "
                "to be equal along all directions, and is too low where it is not."
            )

    def results(rows: Any) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            scores = scores_of(seen, check_rows(stored.model, rows, None, reset=False))
        # A complete row is finite: if a score is NaN, it was too far away for floating point. Others may have too few values to tell.
        full = ~np.isnan(rows.sum(axis=1))
        t2, spe = (np.where(np.isnan(each) & full, np.inf, each) for each in scores)
        limits = np.broadcast_to([t2_limit, spe_limit], (len(t2), 2))
        return np.column_stack([t2, spe, limits, (t2 > t2_limit) | (spe > spe_limit)])

    return _Way(["t2", "spe", "t2_limit", "spe_limit", "outlier"], results, numbered=True)


def _features(model: Any, known: list[str] | None) -> list[str]:
    return known or [f"x{i + 1}" for i in range(model.n_features_in_)]


def _dense(rows: Any) -> Any:
    return rows.toarray() if hasattr(rows, "toarray") else rows


def _order(wanted: list[str] | None, source: Any, path: Path, model: Any, inverse: bool, quiet: bool) -> Any:
    """The column of the source for each feature of a model, or for each component; None if they are in order."""
    from online_psp.io.sources import SourceError
    from online_psp.io.sources.names import order_of

    given = source.feature_names
    named = given is not None and (not inverse or set(given) & set(wanted or []))  # scores of other names stand in order
    order = order_of(wanted, given, source.name, str(path)) if named else None
    width, what = (model.n_components_, "components") if inverse and model.whiten != "zca" else (model.n_features_in_, "features")
    if source.features != width:
        raise SourceError(f"{source.name} has {source.features} columns, and {path} has {width} {what}.")
    if wanted and given is None and not inverse and not quiet:
        say(f"{source.name} has no column names; its columns are taken in the order of {path}.")
    return order


# How it is written


def _format(output: Path) -> str:
    found = "csv" if str(output) == "-" else output.suffix.lower().removeprefix(".")
    if found not in WRITERS:
        usage(f"The output must end in {', '.join('.' + each for each in WRITERS)}; got {output}.")
    return found


def _write(output: Path, form: str, force: bool, parts: Iterator[Any], table: Table) -> None:
    from online_psp.io.files import replacing

    if str(output) == "-":
        WRITERS[form](sys.stdout.buffer, parts, table)
        sys.stdout.buffer.flush()
        return
    with writing(output, force) as target:
        try:
            with replacing(target) as file:
                WRITERS[form](file, parts, table)
        except OSError as error:
            error.filename = error.filename or str(output)
            raise


def _converted(source: Any, way: _Way, order: Any, size: int | None, skip: bool, counts: dict[str, int]) -> Iterator[tuple[Any, Any]]:
    """Results and ids, block by block; NaN for bad rows."""
    import numpy as np

    from online_psp.io.sources.names import ordered

    looked, width = [time.monotonic()], len(way.names)
    for block in source.blocks(size, deadline=lambda: time.monotonic() - looked[0] > _PROMPT):
        looked[0] = time.monotonic()
        if block.bad and not skip:
            raise source.refused(block.bad[0])
        if not block.length:
            continue
        counts["rows"] += block.length
        counts["bad"] += len(block.bad)
        found = way.results(ordered(block.rows, order)) if block.rows.shape[0] else np.empty((0, width), source.dtype)
        if block.bad:
            good, found = found, np.full((block.length, width), np.nan, dtype=found.dtype)
            kept = np.ones(block.length, dtype=bool)
            kept[[bad.row - 1 - block.start for bad in block.bad]] = False
            found[kept] = good
        if way.numbered:
            found = np.column_stack([np.arange(block.start + 1.0, block.start + block.length + 1.0), found])
        yield found, _carried(block)


def _carried(block: Any) -> Any:
    """IDs and times of a block as text, (length, number of them); None if there are none."""
    import numpy as np

    parts = [] if block.ids is None else [block.ids]
    if block.times is not None:
        parts.append(block.times.astype(str)[:, np.newaxis])
    return np.concatenate([np.asarray(part, dtype=object) for part in parts], axis=1) if parts else None


transform = _command(
    """Project rows onto the components of a model, or map scores back to rows.

    The output has a row for each row of the source. With --on-bad-row skip, bad rows become NaN.
    """,
    {"inverse": Option(bool, "Map scores back to rows.", ("--inverse",))},
    _projection,
)
score = _command(
    """Score rows with a model: T² and SPE, their limits, outliers.

    The output has a row for each row of the source, with its number from 1. With --on-bad-row skip, scores of bad rows are NaN.

    Limits are NaN if the model has learned fewer than 20 rows, or fewer than 5 per component.
    """,
    {"alpha": ALPHA._replace(flags=("--alpha",))},
    _scoring,
)
impute = _command(
    """Fill the missing values of rows with what a model expects there.

    The output has a row for each row of the source, with the features of the model as columns; values that are not missing are kept.
    """,
    {},
    _filling,
)
