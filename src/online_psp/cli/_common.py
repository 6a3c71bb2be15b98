"""What the commands share: holding outputs while they are written, opening sources, and formatting."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from online_psp.cli._errors import plain, say, usage
from online_psp.cli._options import READING

if TYPE_CHECKING:
    from online_psp.io.files import Output


@contextlib.contextmanager
def writing(output: Path, force: bool, hint: str = "") -> Iterator[Output]:
    """Hold an output while a command writes it; refuses an existing or unwritable output before the work begins."""
    from online_psp.io.files import claimed

    with claimed(output) as target:
        if target.exists and not force:
            usage(f"{output} exists; {hint}add --force to overwrite it.")
        yield target


def open_rows(names: Sequence[str], reading: Mapping[str, Any], quiet: bool) -> Any:
    """Open the source that a command line names; notes about it go to standard error."""
    from online_psp.io.sources import open_source

    dtype = reading.get("dtype")
    if dtype is not None and "features" not in reading and dtype not in ("float32", "float64"):
        usage(f"--dtype must be float32 or float64, unless --features says that the data is raw binary; got {dtype}.")
    try:
        source = open_source(names[0] if len(names) == 1 else list(names), **reading)
    except TypeError as error:  # an unknown dtype
        usage(f"--dtype: {error}." if dtype is not None else f"{', '.join(names)}: {error}.")
    for sentence in [] if quiet else getattr(source, "notes", []):
        say(sentence)
    say_warnings(source)
    return source


def say_warnings(source: Any) -> None:
    """Print warnings about the data of a source that were not printed before."""
    found: list[str] = getattr(source, "warnings", [])
    while found:
        say(found.pop(0))


def holes_for(missing: Any) -> dict[str, str]:
    """Options to read rows for a model that takes missing values, or does not."""
    return {"missing": "keep"} if missing == "impute" else {}


def load_fitted(path: Path) -> tuple[Any, dict[str, Any]]:
    """A fitted model, and the header of its file."""
    found = read_fitted(path)
    return found.model, found.header


def read_fitted(path: Path) -> Any:
    """As `load_fitted`, with the monitor of the model if it has one: a `runs.Stored`."""
    from online_psp.io.model_file import ModelFileError
    from online_psp.io.runs import read_stored

    found = read_stored(path)
    if not hasattr(found.model, "n_features_in_"):
        raise ModelFileError(f"{path} has learned nothing yet.")
    return found


def names_of(model: Any) -> list[str] | None:
    """The names of a model's features."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def remembered_columns(header: Mapping[str, Any], names: Sequence[str] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options that choose the columns that a model was fitted to, unless other columns are chosen now."""
    reading = known_reading(header.get("reading"))
    chosen = {key: reading[key] for key in ("columns", "exclude", "ids", "time_column") if reading.get(key)}
    if not chosen or any(key in given for key in ("columns", "exclude")):
        return {}
    return {key: chosen[key] for key in ("columns", "exclude") if key in chosen} if names is None else {"columns": list(names)}


def known_reading(stored: Any) -> dict[str, Any]:
    """Reading options stored in a model file, which may come from anybody: only known ones of the right type, and no memory limit."""
    kinds = {name: list if option.several else option.kind for name, option in READING.items() if name != "max_memory"}
    found = stored if isinstance(stored, dict) else {}
    return {
        name: value
        for name, value in found.items()
        if name in kinds and type(value) is kinds[name] and (type(value) is not list or all(type(each) is str for each in value))
    }


_TABLES = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".npy", ".npz", ".parquet", ".feather", ".arrow", ".h5", ".hdf5", ".xlsx")


def check_is_model(output: Path) -> None:
    """Refuse standard output for a model, which is written again and again, and names of tables, which a model is not."""
    if str(output) == "-":
        usage("A model cannot be written to standard output; name a file (-o model.psp).")
    if output.suffix.lower() in _TABLES:
        other = output.with_suffix(".psp")
        usage(
            f"{output} is named as a table, and what is written is a model; name it {other}, and write rows projected by it with psp "
            f"transform {other} … -o {output}."
        )


def model_first(model: Path, sources: list[str]) -> tuple[Path, list[str]]:
    """The model and the rows, if they were given the other way round."""
    if len(sources) == 1 and not _is_model(model) and _is_model(sources[0]):
        say(f"{sources[0]} is the model and {model} the rows; they are taken so.")
        return Path(sources[0]), [str(model)]
    return model, sources


def _is_model(path: str | Path) -> bool:
    from online_psp.io.model_file import ModelFileError, kind_of

    try:
        return bool(kind_of(path))
    except (ModelFileError, OSError):
        return False


def check_not_source(output: Path, sources: Sequence[str]) -> None:
    """Refuse an output that is also a source, even with --force."""
    for name in sources:
        with contextlib.suppress(OSError, ValueError):
            if os.path.samefile(output, name.partition("::")[0]):
                usage(f"{output} is the source as well as the output; choose another output.")


def image_shape(header: Mapping[str, Any]) -> Any:
    """The shape of the pictures, if the rows were pictures."""
    source = header.get("source")
    return source.get("image_shape") if isinstance(source, dict) else header.get("image_shape")


def echo(text: object) -> None:
    """A line on standard output."""
    typer.echo(plain(text))


def print_json(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value))


def plural(count: int, one: str, several: str | None = None) -> str:
    """``1 row``, ``2 rows``"""
    return f"{count:,} {one if count == 1 else several or one + 's'}"
