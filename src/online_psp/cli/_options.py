"""Tables of the options that commands share, by the keyword of `open_source`, `OnlinePCA` or others that each becomes.

What people look for has a flag. Everything else is set by ``--set name=value``. What was not given is not passed on: defaults are those of
the library, or of the resumed checkpoint. To add an option, add a line.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from online_psp.cli._errors import usage


class Option(NamedTuple):
    """An option of the command line."""

    kind: Any
    help: str
    flags: tuple[str, ...] = ()
    """None: it is set by ``--set``."""
    least: int | None = None
    convert: Callable[[Any], Any] | None = None
    """Converts what the user typed to what the keyword takes; a ValueError says what is wrong with it."""


def _columns(texts: list[str]) -> list[str]:
    """Parse names, numbers, ranges and globs, comma-separated; names with commas are quoted. The option may be repeated."""
    from online_psp.io.sources import column_list

    return [column for text in texts for column in column_list(text) or []]


def _bytes(text: str) -> int:
    """Parse ``500M``, ``2G``, or a number of bytes."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)i?b?", text.strip().lower(), re.ASCII)
    if not found or float(found[1]) <= 0:
        raise ValueError(f"it is a number of bytes, such as 500M or 2G; got {text}")
    return int(float(found[1]) * 1000 ** " kmgt".index(found[2] or " "))


def _half_life(text: str) -> float | str:
    """A number of rows, or a time."""
    from online_psp.pca.forgetting import check_half_life

    value: float | str = text
    with contextlib.suppress(ValueError):
        value = float(text)
    check_half_life(value)
    return value


def _components(text: str) -> int | float | str:
    """A whole number, a share of the variance between 0 and 1, or a rule."""
    from online_psp.pca.signals import RULES

    if text in RULES:
        return text
    found: int | float = 0
    with contextlib.suppress(ValueError):
        found = int(text) if text.strip().isdecimal() else float(text)
    if 0.0 < found < 1.0 or (isinstance(found, int) and found >= 1):
        return found
    raise ValueError(f"it is a number of components, at least 1, a share of the variance between 0 and 1, auto or filter; got {text}")


def _alpha(value: float) -> float:
    if not 0.0 < value < 1.0:
        raise ValueError(f"it is a probability between 0 and 1, such as 0.01; got {value}")
    return value


def _one_of(*names: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in names:
            raise ValueError(f"it is one of {', '.join(names)}; got {value}")
        return value

    return check


def _image(text: str) -> tuple[int, ...]:
    """The shape of pictures: ``28x28``, height first, or ``32x32x3``."""
    found = re.fullmatch(r"(\d{1,6})[x×](\d{1,6})(?:[x×]([13]))?", text.strip().lower())
    shape = tuple(int(part) for part in found.groups() if part is not None) if found else ()
    if not shape or min(shape) < 1:
        raise ValueError(f"it is height x width, such as 28x28, or 32x32x3 for colours; got {text!r}")
    return shape


_K = ("--n-components", "-k")
ON_BAD_ROW = Option(str, "Row that cannot be used: stop (default) or skip.", ("--on-bad-row",), convert=_one_of("stop", "skip"))
IMAGE = Option(str, "Size of the pictures that rows are: 28x28, height first.", ("--image",), convert=_image)
ALPHA = Option(float, "Share of ordinary rows above each limit (0.01).", (), convert=_alpha)

#: Keywords of `open_source`.
READING: dict[str, Option] = {
    "columns": Option(list[str], "Columns to read: names, numbers from 0, ranges (2-5) or globs.", ("--columns",), convert=_columns),
    "exclude": Option(list[str], "Columns to leave out.", ("--exclude",), convert=_columns),
    "ids": Option(list[str], "ID columns: not learned, copied to the output.", ("--ids",), convert=_columns),
    "time_column": Option(str, "Column with the time of each row; it is not learned.", ("--time-column",)),
    "header": Option(bool, "Whether text begins with names (detected).", ("--header/--no-header",)),
    "delimiter": Option(str, "Delimiter of text (detected).", ("--delimiter",)),
    "na_values": Option(list[str], "More texts that stand for missing values.", ("--na-values",), convert=_columns),
    "on_bad_row": ON_BAD_ROW,
    "comment": Option(str, "Skip lines of text that begin with this."),
    "decimal": Option(str, "Decimal sign in text, . or , (detected)."),
    "dtype": Option(str, "Working precision, float32 or float64; of raw binary data, its type."),
    "encoding": Option(str, "Encoding of text (detected)."),
    "features": Option(int, "Number of values per row of raw binary data.", least=1),
    "keep_index": Option(bool, "Keep an unnamed first column of row numbers as a feature."),
    "max_memory": Option(str, "Memory for a block of rows (500M, 2G); a quarter of RAM by default.", convert=_bytes),
    "skip_rows": Option(int, "Number of lines to skip at the beginning of text.", least=0),
    "time_axis": Option(int, "Axis of rows in a 3-D array: 0, or 2 for a movie H×W×T.", least=0),
    "thousands": Option(str, "Sign between thousands in text, as in 1,234.5."),
}

#: Parameters of `OnlinePCA`.
SETTINGS: dict[str, Option] = {
    "n_components": Option(str, "Number of components, share of variance to explain (0.95), or auto.", _K, convert=_components),
    "standardize": Option(bool, "Divide every feature by its standard deviation.", ("--standardize",)),
    "half_life": Option(str, "Forget: rows (10000) or time (1h) after which a row counts half.", ("--half-life",), convert=_half_life),
    "missing": Option(str, "Missing values: error, or impute: learn from the others.", ("--missing",), convert=_one_of("error", "impute")),
    "robust": Option(bool, "Give less weight to rows that are far from all others.", ("--robust",)),
    "algorithm": Option(str, "The paper's algorithm as it is, nothing centred: fsm, sm, ipca, ccipca.", ("--algorithm",)),
    "axes": Option(str, "principal, or stable for axes that change smoothly over time.", convert=_one_of("principal", "stable")),
    "center": Option(bool, "Subtract the mean, which is learned along the way."),
    "oversample": Option(int, "Directions to keep beyond the components; K + 32 by default.", least=0),
    "window": Option(int, "Forget: number of rows, the newest ones, that count.", least=2),
    "whiten": Option(bool, "Scale scores to unit variance."),
}

#: Of a run over a source.
FEEDING: dict[str, Option] = {
    "block": Option(int, "Number of rows to read at a time.", least=1),
    "epochs": Option(int, "Number of passes over the source.", least=1),
}

#: Of `Monitor`, and the table that it writes.
MONITORING: dict[str, Option] = {
    "monitor": Option(Path, "Score each row before it is learned, look for drift; write both to this CSV.", ("--monitor",)),
    "fail_on_drift": Option(bool, "Exit with code 3 if the stream has drifted.", ("--fail-on-drift",)),
    "alpha": ALPHA,
    "learn_outliers": Option(bool, "Whether to learn rows above a limit; they are by default."),
    "on_drift": Option(str, "flag, or reset to begin anew from the rows since the change.", convert=_one_of("flag", "reset")),
    "run_length": Option(float, "Ordinary rows per false alarm of drift (100000)."),
}

#: Of a live page.
SERVING: dict[str, Option] = {
    "open": Option(bool, "Open the page in a browser.", ("--open",)),
    "port": Option(int, "Port of the page, 5006 by default; the next one that is free.", ("--port",), 0),
    "image": IMAGE,
}

#: Of the live page of a fit.
WATCHING: dict[str, Option] = {
    "watch": Option(bool, "Serve a live page of the fit on this machine.", ("--watch",)),
    **{name: option if name == "image" else option._replace(flags=()) for name, option in SERVING.items()},
}

# Options with one meaning everywhere.
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Most threads for matrix products.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")]

_PANELS = {
    "settings": "Model",
    "monitoring": "Monitoring",
    "reading": "Reading files",
    "watching": "Live page",
    "serving": "Live page",
}
_WORDS = {**dict.fromkeys(("yes", "true", "on", "1"), True), **dict.fromkeys(("no", "false", "off", "0"), False)}


def grouped(**tables: Mapping[str, Option]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command all options of some tables; the given ones are passed as one dictionary per table, under its name."""
    flagged = {name: option for table in tables.values() for name, option in table.items() if option.flags}
    others = {name: option for table in tables.values() for name, option in table.items() if not option.flags}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            given = {name: value for name in flagged if (value := arguments.pop(name)) not in (None, [])}
            given = {name: _converted(flagged[name], flagged[name].flags[-1], value) for name, value in given.items()}
            given |= dict(_settings(arguments.pop("set_") or [], others, flagged)) if others else {}
            for group, table in tables.items():
                arguments[group] = {name: given[name] for name in table if name in given}
            command(**arguments)

        own = inspect.signature(command, eval_str=True)
        named = (each for each in own.parameters.values() if each.name not in tables and each.kind is not inspect.Parameter.VAR_KEYWORD)
        kept = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in named]
        added = [
            _parameter(name, option, _PANELS.get(group, "Options"))
            for group, table in tables.items()
            for name, option in table.items()
            if option.flags
        ]
        added += [_set_parameter(others)] if others else []
        run.__signature__ = inspect.Signature([*kept, *added])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in (*kept, *added)}
        return run

    return decorate


def _parameter(name: str, option: Option, panel: str) -> inspect.Parameter:
    found = typer.Option(*option.flags, min=option.least, help=option.help, show_default=False, rich_help_panel=panel)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[option.kind | None, found])


def _set_parameter(others: Mapping[str, Option]) -> inspect.Parameter:
    def complete(incomplete: str) -> list[tuple[str, str]]:
        return [(f"{name}=", option.help) for name, option in sorted(others.items()) if f"{name}=".startswith(incomplete)]

    names = f"Any other setting: {', '.join(sorted(others))}. May be repeated."
    found = typer.Option("--set", metavar="name=value", help=names, autocompletion=complete, show_default=False)
    return inspect.Parameter("set_", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, found])


def _settings(texts: list[str], others: Mapping[str, Option], flagged: Mapping[str, Option]) -> Iterator[tuple[str, Any]]:
    """The names and values of ``--set``."""
    for text in texts:
        name, sign, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if name in flagged:
            usage(f"{name} has an option of its own: {flagged[name].flags[-1]}.")
        if name not in others or not sign:
            what = f"{name} needs a value" if name in others else f"there is no setting {name}"
            usage(f"--set {text}: {what}; write --set name=value with one of {', '.join(sorted(others))}.")
        option, shown = others[name], f"--set {name}"
        if option.kind is bool:
            if value.lower() not in _WORDS:
                usage(f"{shown}: it is yes or no; got {value}.")
            yield name, _WORDS[value.lower()]
            continue
        try:
            found = option.kind(value)
        except ValueError:
            usage(f"{shown}: it is a {'whole number' if option.kind is int else 'number'}; got {value!r}.")
        if option.least is not None and found < option.least:
            usage(f"{shown}: it is at least {option.least}; got {value}.")
        yield name, _converted(option, shown, found)


def _converted(option: Option, shown: str, value: Any) -> Any:
    if option.convert is None:
        return value
    try:
        return option.convert(value)
    except ValueError as error:
        usage(f"{shown}: {str(error).rstrip('.')}.")
