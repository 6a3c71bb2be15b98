"""``psp fit``."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from online_psp.cli._common import (
    DATA,
    INTERRUPTED,
    USAGE,
    AsJson,
    BlockRows,
    Columns,
    Features,
    Header,
    OnBadRow,
    Precision,
    check_output,
    columns_of,
    fail,
    one_sentence,
    print_json,
)


def fit(
    source: Annotated[str, typer.Argument(help="A file or folder, file.h5::/dataset, or - for standard input.")],
    components: Annotated[int, typer.Option("--components", "-k", min=1, help="How many components.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file; checkpoints go there too.")],
    algorithm: Annotated[str, typer.Option(help="fsm, sm, ipca or ccipca.")] = "fsm",
    oversample: Annotated[int | None, typer.Option(min=0, help="Directions kept beyond the components.")] = None,
    center: Annotated[bool, typer.Option("--center/--no-center", help="Subtract the mean.")] = True,
    whiten: Annotated[bool, typer.Option("--whiten", help="Scale scores to unit variance.")] = False,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the source.")] = 1,
    shuffle_buffer: Annotated[int, typer.Option(min=0, help="Mix the rows within stretches of so many; 0 keeps their order.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="For the mixing.")] = 0,
    block: BlockRows = None,
    dtype: Precision = None,
    features: Features = None,
    columns: Columns = None,
    header: Header = None,
    checkpoint_every: Annotated[str, typer.Option(help="Time (30s, 5m, 1h) or a number of samples.")] = "60s",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the model file, if it is there.")] = False,
    resume_at_end: Annotated[bool, typer.Option("--resume-at-end", help="The same, for a feed that goes on where it stopped.")] = False,
    on_bad_row: OnBadRow = "stop",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the model file.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a file, a folder or a pipe, with checkpoints."""
    from online_psp import ALGORITHMS

    if algorithm not in ALGORITHMS:
        raise fail(f"--algorithm must be one of {', '.join(ALGORITHMS)}; got {algorithm}.", USAGE)
    if on_bad_row not in ("stop", "skip"):
        raise fail(f"--on-bad-row must be stop or skip; got {on_bad_row}.", USAGE)
    if dtype is not None and features is None and dtype not in ("float32", "float64"):
        raise fail(f"--dtype must be float32 or float64, unless --features says that the data is raw binary; got {dtype}.", USAGE)
    if output.suffix == ".mat":
        raise fail("A .mat file cannot hold a run; fit to a .psp file, and save that as .mat from Python.", USAGE)
    resume = resume or resume_at_end
    check_output(output, force or (resume and output.exists()), "add --resume to go on with the run in it, or ")
    model = {
        "n_components": components,
        "algorithm": algorithm,
        "oversample": oversample,
        "center": center,
        "whiten": whiten,
    }
    feeding = {"block": block, "epochs": epochs, "shuffle_buffer": shuffle_buffer, "seed": seed}
    with one_sentence():
        _run(
            {"source": source, "dtype": dtype, "features": features, "columns": columns_of(columns), "header": header},
            output,
            model,
            feeding,
            (resume, resume_at_end),
            checkpoint_every,
            on_bad_row,
            quiet,
            as_json,
        )


def _run(
    where: dict[str, Any],
    output: Path,
    model: dict[str, Any],
    feeding: dict[str, Any],
    resuming: tuple[bool, bool],
    every: str,
    on_bad_row: str,
    quiet: bool,
    as_json: bool,
) -> None:
    from online_psp.cli._progress import Progress
    from online_psp.io import runs as streams
    from online_psp.io.sources import open_source

    try:
        timer = streams.Timer(every)
    except ValueError as error:
        raise fail(str(error), USAGE) from None
    try:
        source = open_source(where.pop("source"), **where)
    except TypeError as error:  # a dtype that NumPy does not know
        raise fail(f"--dtype: {error}.", USAGE) from None
    run, again = _prepare(source, output, model, feeding, *resuming)
    before_us = signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is asked to end, ends as with Ctrl-C
    began, first, before = time.monotonic(), run.done, run.row
    try:
        with Progress(run, shown=not quiet) as progress:
            for _ in streams.steps(run, source, on_bad_row=on_bad_row, at_end=again and resuming[1]):
                done = run.row - before if run.row > before else run.row
                before = run.row
                if timer.due(done):
                    with streams.unbroken():
                        streams.checkpoint(run, output)
                progress.update()
    except KeyboardInterrupt:
        raise _interrupted(run, output) from None
    except (ValueError, OSError) as error:
        what = f"{error.filename or output}: {error.strerror or error}." if isinstance(error, OSError) else str(error)
        raise fail(f"{what}{_what_is_left(output)}", DATA) from None
    finally:
        signal.signal(signal.SIGTERM, before_us)
    with streams.unbroken():
        streams.checkpoint(run, output)
    _report(run, output, time.monotonic() - began, run.done - first, quiet, as_json)


def _prepare(source: Any, output: Path, model: dict[str, Any], feeding: dict[str, Any], resume: bool, at_end: bool) -> tuple[Any, bool]:
    """A run to go on with, and whether it had begun."""
    from online_psp.io import runs as streams
    from online_psp.pca import OnlinePCA

    if at_end and not source.once:
        raise fail(f"--resume-at-end is for standard input; {source.name} is read from the row where the run stopped.", USAGE)
    if resume and output.exists():
        run = streams.reopen(output)
        known = {**{name: getattr(run.model, name) for name in model}, **{name: getattr(run, name) for name in feeding}}
        for name, value in {**model, **feeding}.items():
            if value is not None and value != known[name] and name != "epochs":
                raise fail(f"{output} was begun with {name} = {known[name]}, not {value}; resume with the same options.", USAGE)
        run.epochs = max(feeding["epochs"], run.epoch + 1)
        return run, True
    if model["n_components"] > source.features:
        raise fail(f"{source.name} has {source.features} features, fewer than the {model['n_components']} components asked for.", USAGE)
    try:
        return streams.start(source, OnlinePCA(dtype=source.dtype.name, **model), **feeding), False
    except ValueError as error:
        raise fail(str(error), USAGE) from None


def _interrupted(run: Any, output: Path) -> typer.Exit:
    from online_psp.io import runs as streams

    if not hasattr(run.model, "_stream"):
        return fail("Stopped before the first row was learned; nothing was written.", INTERRUPTED)
    streams.checkpoint(run, output)
    return fail(
        f"Stopped at epoch {run.epoch + 1}, row {run.row}; the checkpoint is in {output}. "
        f"To go on: {_command(add='--resume', drop=('--force',))}",
        INTERRUPTED,
    )


def _command(add: str, drop: tuple[str, ...]) -> str:
    arguments = [each for each in sys.argv[1:] if each not in drop and each != add]
    return shlex.join(["psp", *arguments, add])


def _what_is_left(output: Path) -> str:
    """After bad data, or a disk that is full: where the last checkpoint stands."""
    from online_psp.io import runs as streams
    from online_psp.io.model_file import ModelFileError

    try:
        kept = streams.reopen(output)
    except (ModelFileError, OSError):
        return ""
    return f" The last checkpoint, {output}, holds the run up to epoch {kept.epoch + 1}, row {kept.row}."


def _report(run: Any, output: Path, seconds: float, rows: int, quiet: bool, as_json: bool) -> None:
    model = run.model
    ratio = float(model.explained_variance_ratio_.sum())
    if as_json:
        print_json(
            {
                "model": str(output),
                "source": run.source["name"],
                "samples": model.n_samples_seen_,
                "features": int(model.n_features_in_),
                "components": model.n_components_,
                "explained_variance_ratio": ratio,
                "epochs": run.epochs,
                "row": run.row,
                "skipped": run.skipped,
                "skipped_rows": run.skipped_rows,
                "seconds": seconds,
                "rows_per_second": rows / seconds if seconds > 0 else None,
            }
        )
    if run.skipped and not as_json:
        named = ", ".join(str(row) for row in run.skipped_rows)
        rows_were = "row was" if run.skipped == 1 else "rows were"
        typer.echo(f"psp: {run.skipped} bad {rows_were} skipped: {named}{', …' if run.skipped > len(run.skipped_rows) else ''}.", err=True)
    if not quiet and not as_json:
        typer.echo(
            f"{output}: {model.n_components_} components of {model.n_features_in_} features from {model.n_samples_seen_} samples, "
            f"{100 * ratio:.2f} % of the variance, {rows / max(seconds, 1e-9):,.0f} rows/s"
        )
