"""``psp merge``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from online_psp.cli._common import check_is_model, echo, image_shape, names_of, plural, print_json, read_fitted, writing
from online_psp.cli._errors import say, usage
from online_psp.cli._options import AsJson, Force, Quiet


def merge(
    models: Annotated[list[Path], typer.Argument(help="Model files, fitted to different rows with the same features.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the merged model.")],
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Merge models fitted to different rows into one."""
    if len(models) < 2:
        usage("There must be at least two models to merge.")
    check_is_model(output)
    for path in dict.fromkeys(path for at, path in enumerate(models) if path in models[:at]):
        say(f"{path} is given more than once; its rows count as often.")
    with writing(output, force) as target:
        from online_psp.io.runs import give_names, take_names, write_model
        from online_psp.io.sources import SourceError

        merged, header = read_fitted(models[0])[:2]
        names = names_of(merged)
        take_names(merged)
        for path in models[1:]:
            other = read_fitted(path).model
            own = names_of(other)
            take_names(other)
            _check_names(names, own, path, models[0])
            names = names or own
            try:
                merged.merge(other)
            except ValueError as error:
                raise SourceError(f"{path} cannot be merged with {models[0]}: {error}") from None
        give_names(merged, names)
        write_model(merged, target, {"merged": [_text(path) for path in models], "image_shape": image_shape(header)})
    if as_json:
        print_json({"model": str(output), "samples": merged.n_samples_seen_, "merged": [_text(path) for path in models]})
    elif not quiet:
        echo(f"{output}: {plural(merged.n_samples_seen_, 'sample')} of {len(models)} models")


def _text(path: Path) -> str:
    return str(path).encode("utf-8", "replace").decode()


def _check_names(known: list[str] | None, found: list[str] | None, path: Path, first: Path) -> Any:
    """The order of the columns of one model in another, by name; fails if they cannot be matched."""
    from online_psp.io.sources import SourceError
    from online_psp.io.sources.names import order_of

    if order_of(known, found, str(path), str(first)) is not None:
        assert known is not None
        assert found is not None
        at = next(i for i, (one, two) in enumerate(zip(known, found, strict=True)) if one != two)
        raise SourceError(
            f"{path} has its columns in another order than {first} (column {at} is {found[at]!r}, and there {known[at]!r}), so the two "
            f"cannot be merged; fit it with its columns in that order (--columns)."
        )
