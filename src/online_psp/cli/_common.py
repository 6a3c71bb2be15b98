"""What the commands share: errors as one sentence with the right exit code, and numbers for people."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

USAGE, DATA, INTERRUPTED = 2, 1, 130

# Options that say how a source is read, and what comes out.
BlockRows = Annotated[int | None, typer.Option(min=1, help="Rows read at a time.")]
Precision = Annotated[str | None, typer.Option(help="float32 or float64; with --features, what the raw binary holds.")]
Features = Annotated[int | None, typer.Option(min=1, help="Values in a row of raw binary.")]
Columns = Annotated[str | None, typer.Option(help="Columns to read: names or numbers from 0, with commas.")]
Header = Annotated[bool | None, typer.Option("--header/--no-header", help="Whether text begins with names; found out by default.")]
OnBadRow = Annotated[str, typer.Option(help="stop or skip.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output at the end.")]


def fail(message: str, code: int) -> typer.Exit:
    """Say it on standard error; raise what this returns."""
    typer.echo(f"psp: {' '.join(str(message).split())}", err=True)
    return typer.Exit(code)


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """Errors that people can do something about, without a traceback: 2 where the call is wrong, 1 where the data is."""
    from online_psp.io.model_file import ModelFileError
    from online_psp.io.sources import MissingExtraError, SourceError, UnknownSourceError

    try:
        yield
    except (UnknownSourceError, MissingExtraError) as error:
        raise fail(str(error), USAGE) from None
    except (SourceError, ModelFileError) as error:
        raise fail(str(error), DATA) from None
    except FileNotFoundError as error:
        raise fail(f"{error.filename} does not exist.", USAGE) from None
    except OSError as error:
        raise fail(f"{error.filename or 'Writing or reading'}: {error.strerror or error}.", DATA) from None
    except MemoryError:
        raise fail("There is not enough memory; a smaller --block, or fewer components, needs less.", DATA) from None
    except ValueError as error:
        raise fail(str(error), DATA) from None


def check_output(output: Path, force: bool, hint: str = "") -> None:
    """Nothing is overwritten by accident, and a missing folder shows before the work, not after it."""
    if output.exists() and not force:
        raise fail(f"{output} exists; {hint}add --force to overwrite it.", USAGE)
    if not output.absolute().parent.is_dir():
        raise fail(f"The folder {output.absolute().parent} does not exist.", USAGE)


def columns_of(text: str | None) -> list[str | int] | None:
    """``a,b,c``"""
    return None if text is None else [name.strip() for name in text.split(",")]


def print_json(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value))
