"""Tables of the options that commands share, by the keyword of `open_source`, `OnlinePCA` or others that each becomes.

An option that was not given is None, and is not passed on: defaults are those of the library, or of the resumed checkpoint.
To add one, add a line.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from online_psp.cli._errors import usage


class Option(NamedTuple):
    """An option of the command line."""

    kind: Any
    flags: tuple[str, ...]
    help: str
    least: int | None = None
    convert: Callable[[Any], Any] | None = None
    """Converts what the user typed to what the keyword takes."""

    @property
    def several(self) -> bool:
        """Whether it may be repeated."""
        return bool(self.kind == list[str])


def _columns(texts: list[str]) -> list[str]:
    """Parse names, numbers, ranges and globs, comma-separated; names with commas are quoted. The option may be repeated."""
    from online_psp.io.sources import column_list

    return [column for text in texts for column in column_list(text) or []]


def _bytes(text: str) -> int:
    """Parse ``500M``, ``2G``, or a number of bytes."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)i?b?", text.strip().lower(), re.ASCII)
    if not found or float(found[1]) <= 0:
        usage(f"--max-memory must be a number of bytes, such as 500M or 2G; got {text}.")
    return int(float(found[1]) * 1000 ** " kmgt".index(found[2] or " "))


def _half_life(text: str) -> float | str:
    """A number of rows, or a time."""
    from online_psp.pca.forgetting import check_half_life

    value: float | str = text
    with contextlib.suppress(ValueError):
        value = float(text)
    try:
        check_half_life(value)
    except ValueError as error:
        usage(f"--half-life: {error}")
    return value


def _missing(value: str) -> str:
    if value not in ("error", "impute"):
        usage(f"--missing must be error or impute; got {value}.")
    return value


def check_alpha(value: float) -> float:
    """A level for limits."""
    if not 0.0 < value < 1.0:
        usage(f"--alpha must be a probability between 0 and 1, such as 0.01; got {value}.")
    return value


def _on_drift(value: str) -> str:
    if value not in ("flag", "reset"):
        usage(f"--on-drift must be flag or reset; got {value}.")
    return value


#: Keywords of `open_source`.
READING: dict[str, Option] = {
    "dtype": Option(str, ("--dtype",), "Working precision, float32 or float64; with --features, the dtype of the raw binary file."),
    "features": Option(int, ("--features",), "Number of values per row of a raw binary file.", 1),
    "columns": Option(
        list[str], ("--columns",), "Columns to read: names, numbers from 0, ranges (2-5) or globs, comma-separated.", convert=_columns
    ),
    "exclude": Option(list[str], ("--exclude",), "Columns to leave out, written the same way.", convert=_columns),
    "ids": Option(list[str], ("--ids",), "ID columns: not learned, copied to the output.", convert=_columns),
    "time_column": Option(str, ("--time-column",), "Column with the time of each row; it is not learned."),
    "header": Option(bool, ("--header/--no-header",), "Whether the first line of text has column names; detected by default."),
    "delimiter": Option(str, ("--delimiter",), "Delimiter between values in text files; detected by default."),
    "decimal": Option(str, ("--decimal",), "Decimal separator in text files, . or , (detected by default)."),
    "thousands": Option(str, ("--thousands",), "Sign between thousands in text files, as in 1,234.5 (detected by default)."),
    "na_values": Option(
        list[str], ("--na-values",), "Strings to read as missing values, comma-separated, besides the usual ones.", convert=_columns
    ),
    "comment": Option(str, ("--comment",), "Skip lines that begin with this."),
    "skip_rows": Option(int, ("--skip-rows",), "Number of lines to skip at the beginning of a text file.", 0),
    "encoding": Option(str, ("--encoding",), "Encoding of text files; detected by default."),
    "keep_index": Option(bool, ("--keep-index",), "Keep an unnamed first column of row numbers as a feature."),
    "final": Option(
        bool, ("--final/--growing",), "Take a last line without a newline as complete, or (--growing) wait for the rest of it."
    ),
    "max_memory": Option(
        str, ("--max-memory",), "Memory limit for a block of rows (500M, 2G); a quarter of RAM by default.", convert=_bytes
    ),
}

#: Parameters of `OnlinePCA`.
SETTINGS: dict[str, Option] = {
    "algorithm": Option(str, ("--algorithm",), "Fit the paper's algorithm as it is, with nothing centred: fsm, sm, ipca or ccipca."),
    "oversample": Option(int, ("--oversample",), "Extra directions to keep beyond the components; K + 32 by default.", 0),
    "center": Option(bool, ("--center/--no-center",), "Subtract the mean, which is learned along the way."),
    "standardize": Option(bool, ("--standardize",), "Divide every feature by its standard deviation: PCA of the correlation matrix."),
    "whiten": Option(bool, ("--whiten",), "Scale scores to unit variance."),
    "half_life": Option(
        str,
        ("--half-life",),
        "Forget: the number of rows (10000), or the time (1h, with --time-column), after which a row counts half.",
        convert=_half_life,
    ),
    "missing": Option(
        str, ("--missing",), "What to do with missing values: error (the default), or impute to learn from the others.", convert=_missing
    ),
    "robust": Option(bool, ("--robust",), "Give less weight to rows that are far from all others."),
    "axes": Option(str, ("--axes",), "principal, or stable for axes that change smoothly over time."),
}

#: Keywords of `runs.start`.
FEEDING: dict[str, Option] = {
    "block": Option(int, ("--block",), "Number of rows to read at a time.", 1),
    "epochs": Option(int, ("--epochs",), "Number of passes over the source.", 1),
    "shuffle_buffer": Option(int, ("--shuffle-buffer",), "Shuffle rows within windows of N; 0 keeps their order.", 0),
    "seed": Option(int, ("--seed",), "Seed for shuffling.", 0),
}

#: Of `Monitor`, and the table that it writes.
MONITORING: dict[str, Option] = {
    "monitor": Option(Path, ("--monitor",), "Score each row before it is learned, detect drift, and write both to this CSV file."),
    "alpha": Option(float, ("--alpha",), "Fraction of normal rows above each limit; 0.01 by default.", convert=check_alpha),
    "learn_outliers": Option(
        bool, ("--learn-outliers/--skip-outliers",), "Whether to learn rows above a limit; by default they are learned."
    ),
    "on_drift": Option(
        str,
        ("--on-drift",),
        "What to do when the stream drifts: flag it, or reset the model to the rows since the change.",
        convert=_on_drift,
    ),
    "fail_on_drift": Option(bool, ("--fail-on-drift",), "Exit with code 3 if the stream has drifted; rows are learned all the same."),
}


def image_size(text: str) -> tuple[int, ...]:
    """The shape of pictures from what a user typed: ``28x28``, height first, or ``32x32x3``."""
    found = re.fullmatch(r"(\d{1,6})[x×](\d{1,6})(?:[x×]([13]))?", text.strip().lower())
    shape = tuple(int(part) for part in found.groups() if part is not None) if found else ()
    if not shape or min(shape) < 1:
        usage(f"--image: The size of pictures is height x width, such as 28x28, or 32x32x3 for colours; got {text!r}.")
    return shape


PICTURE = "Size of the images that rows are, height x width (28x28); known for image files, and remembered."

#: Of a live page.
SERVING: dict[str, Option] = {
    "open": Option(bool, ("--open",), "Open the page in a browser."),
    "port": Option(int, ("--port",), "Port to serve the page at, 5006 by default; if it is busy, the next free one.", 0),
    "image": Option(str, ("--image",), PICTURE, convert=image_size),
}

#: Of the live page of a fit.
WATCHING: dict[str, Option] = {"watch": Option(bool, ("--watch",), "Serve a live page of the fit on this machine."), **SERVING}

# Options with one meaning everywhere.
Output = Annotated[Path, typer.Option("--output", "-o", help="Output file.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Most threads for matrix products; as many as pay off by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output at the end.")]
OnBadRow = Annotated[str, typer.Option(help="What to do with a row that cannot be used: stop or skip.")]


def check_on_bad_row(value: str) -> None:
    if value not in ("stop", "skip"):
        usage(f"--on-bad-row must be stop or skip; got {value}.")


def grouped(**tables: Mapping[str, Option]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command all options of some tables; the given ones are passed as one dictionary per table, under its name."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            for group, table in tables.items():
                taken = {name: arguments.pop(name) or None if table[name].several else arguments.pop(name) for name in table}
                arguments[group] = {
                    name: value if table[name].convert is None else table[name].convert(value)  # type: ignore[misc]
                    for name, value in taken.items()
                    if value is not None
                }
            command(**arguments)

        own = inspect.signature(command, eval_str=True)
        kept = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own.parameters.values() if each.name not in tables]
        added = [_parameter(name, option, _PANELS[group]) for group, table in tables.items() for name, option in table.items()]
        run.__signature__ = inspect.Signature([*kept, *added])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in (*kept, *added)}
        return run

    return decorate


_PANELS = {
    "settings": "Model",
    "feeding": "Feeding rows",
    "monitoring": "Monitoring",
    "reading": "Reading files",
    "watching": "Live page",
    "serving": "Live page",
}


def _parameter(name: str, option: Option, panel: str) -> inspect.Parameter:
    found = typer.Option(*option.flags, min=option.least, help=option.help, show_default=False, rich_help_panel=panel)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[option.kind | None, found])
