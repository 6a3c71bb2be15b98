"""What the commands share: holding outputs while they are written, opening sources, and formatting."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from online_psp.cli._errors import plain, say, usage


@contextlib.contextmanager
def writing(output: Path, force: bool) -> Iterator[Path]:
    """Hold an output while a command writes it; refuses an existing or unwritable output before the work begins."""
    from online_psp.io.files import claimed

    with claimed(output) as target:
        if target.exists() and not force:
            usage(f"{output} exists; add --force to overwrite it.")
        yield target


def open_rows(names: Sequence[str], reading: Mapping[str, Any], quiet: bool) -> Any:
    """Open the source that a command line names; notes about it go to standard error."""
    from online_psp.io.sources import open_source

    try:
        source = open_source(names[0] if len(names) == 1 else list(names), **reading)
    except TypeError as error:  # an unknown dtype
        usage(f"dtype: {error}." if "dtype" in reading else f"{', '.join(names)}: {error}.")
    for sentence in [] if quiet else getattr(source, "notes", []):
        say(sentence)
    say_warnings(source)
    return source


def say_warnings(source: Any) -> None:
    """Print warnings about the data of a source that were not printed before."""
    found: list[str] = getattr(source, "warnings", [])
    while found:
        say(found.pop(0))


def read_fitted(path: Path) -> Any:
    """A fitted model, the header of its file, and the monitor of the model if it has one: a `runs.Stored`."""
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


def check_is_model(output: Path) -> None:
    """Refuse names of other files for a model."""
    if output.suffix != ".psp":
        usage(f"The name of a model file ends in .psp; got {output}. psp transform writes projected rows, and save() in Python .mat files.")


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


def plural(count: int, one: str) -> str:
    """``1 row``, ``2 rows``"""
    return f"{count:,} {one if count == 1 else one + 's'}"
