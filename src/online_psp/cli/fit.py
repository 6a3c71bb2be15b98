"""``psp fit`` and ``psp update``."""

from __future__ import annotations

import contextlib
import shlex
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from online_psp.cli._common import (
    check_is_model,
    check_not_source,
    echo,
    holes_for,
    known_reading,
    open_rows,
    plural,
    print_json,
    remembered_columns,
    say_warnings,
)
from online_psp.cli._errors import DATA, INTERRUPTED, USAGE, CommandError, explain, fail, say, usage
from online_psp.cli._monitoring import check_drift, check_monitoring, monitored, say_monitored, watch
from online_psp.cli._options import (
    FEEDING,
    MONITORING,
    READING,
    SETTINGS,
    WATCHING,
    AsJson,
    OnBadRow,
    Quiet,
    Threads,
    check_on_bad_row,
    grouped,
)
from online_psp.cli._page import check_image, check_watching, shown

Sources = Annotated[
    list[str], typer.Argument(help="Files, folders or quoted globs, read one after the other; file.h5::/dataset; - for standard input.")
]
Every = Annotated[str, typer.Option(help="Time between checkpoints (30s, 5m, 1h), or a number of samples.")]

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Task(NamedTuple):
    """What the command line asks for."""

    sources: list[str]
    output: Path
    settings: dict[str, Any]
    reading: dict[str, Any]
    feeding: dict[str, Any]
    mode: str
    """"new", "resume" or "update"."""
    force: bool = False
    at_end: bool = False
    on_bad_row: str = "stop"
    every: str = "60s"
    quiet: bool = False
    as_json: bool = False
    monitoring: dict[str, Any] = {}  # noqa: RUF012
    watching: dict[str, Any] = {}  # noqa: RUF012

    @property
    def alarms(self) -> Path | None:
        """The file for scores and alarms."""
        return self.monitoring.get("monitor")


@grouped(settings=SETTINGS, reading=READING, feeding=FEEDING, monitoring=MONITORING, watching=WATCHING)
def fit(
    *,
    sources: Sources,
    components: Annotated[
        str | None,
        typer.Option("--n-components", "--components", "-k", help="Number of components, or the fraction of variance to explain (0.95)."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write; checkpoints go there too.")],
    on_bad_row: OnBadRow = "stop",
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint in the model file, if there is one.")] = False,
    resume_at_end: Annotated[
        bool, typer.Option("--resume-at-end", help="Like --resume, for a pipe that starts where the last one ended.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Learn the source on top of the existing model, whatever it was fitted to.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the model file.")] = False,
    checkpoint_every: Every = "60s",
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    settings: dict[str, Any],
    feeding: dict[str, Any],
    monitoring: dict[str, Any],
    watching: dict[str, Any],
    reading: dict[str, Any],
) -> None:
    """Fit a model to files, folders or a pipe, with checkpoints.

    Example: psp fit rows.csv -k 8 -o model.psp

    Reads CSV and other text, JSON lines, Excel, NumPy, Parquet, Arrow, HDF5, Zarr, AnnData, 10x, MATLAB, Matrix Market and images.

    Files may be compressed, zipped, or at a URL. The dialect of a text file is detected and announced.
    """
    resume = resume or resume_at_end
    if resume and (force or update):
        usage(f"--resume continues a run; it cannot be given together with {'--force' if force else '--update'}.")
    if components is not None:
        settings = {"n_components": _components(components), **settings}
    mode = "resume" if resume else "update" if update else "new"
    every, at_end = checkpoint_every, resume_at_end
    task = Task(sources, output, settings, reading, feeding, mode, force, at_end, on_bad_row, every, quiet, as_json, monitoring, watching)
    _run(task, threads)


@grouped(reading=READING, feeding=FEEDING, monitoring=MONITORING, watching=WATCHING)
def update(
    model: Annotated[Path, typer.Argument(help="Model file.")],
    sources: Sources,
    feeding: dict[str, Any],
    monitoring: dict[str, Any],
    watching: dict[str, Any],
    reading: dict[str, Any],
    checkpoint_every: Every = "60s",
    on_bad_row: OnBadRow = "stop",
    force: Annotated[bool, typer.Option("--force", help="Update even if an earlier run over another source was not finished.")] = False,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Learn more rows on top of a model, and update its file in place."""
    every = checkpoint_every
    task = Task(sources, model, {}, reading, feeding, "update", force, False, on_bad_row, every, quiet, as_json, monitoring, watching)
    _run(task, threads)


def _components(text: str) -> int | float:
    """A whole number, or a share of the variance between 0 and 1."""
    found: int | float = 0
    with contextlib.suppress(ValueError):
        found = int(text) if text.strip().isdecimal() else float(text)
    if 0.0 < found < 1.0 or (isinstance(found, int) and found >= 1):
        return found
    raise fail(f"-k is a number of components, at least 1, or a share of the variance between 0 and 1; got {text}.", USAGE)


def _check(task: Task) -> None:
    if "algorithm" in task.settings:
        _check_algorithm(task)
    check_on_bad_row(task.on_bad_row)
    check_is_model(task.output)
    if task.output.suffix == ".mat":
        usage("A .mat file cannot hold a run; fit to a .psp file, and save that as .mat from Python.")
    check_monitoring(task)
    check_watching(task.watching)


def _check_algorithm(task: Task) -> None:
    """Refuse what only goes with OnlinePCA."""
    from online_psp.algorithms import ALGORITHMS

    algorithm = task.settings["algorithm"]
    if algorithm not in ALGORITHMS:
        usage(f"--algorithm must be one of {', '.join(ALGORITHMS)}; got {algorithm}. Without it, psp fit fits an OnlinePCA.")
    others = [name for name in task.settings if name not in ("algorithm", "n_components")]
    others += ["monitor"] if task.alarms is not None else []
    others += ["watch"] if task.watching.get("watch") else []
    if others:
        usage(f"--algorithm {algorithm} fits the paper's algorithm as it is; leave --{others[0].replace('_', '-')} out, or --algorithm.")
    if not isinstance(task.settings.get("n_components", 1), int):
        usage(f"--algorithm {algorithm} needs a whole number of components: -k 16.")


class _Begun(NamedTuple):
    """What a run needs before the first row is read."""

    run: Any
    source: Any
    saving: Any
    earlier: Any
    """The run in the existing model file, unless it is overwritten."""


def _run(task: Task, threads: int | None) -> None:
    with contextlib.ExitStack() as held:
        try:
            if threads is not None:
                import scipy.linalg.blas  # noqa: F401, loads its threads
                from threadpoolctl import threadpool_limits

                held.enter_context(threadpool_limits(threads, "blas"))
            run, source, saving, earlier = _begun(task, held)
        except KeyboardInterrupt:
            raise fail("Stopped before the first row was learned; nothing was written.", INTERRUPTED) from None
        from online_psp.io.runs import DifferentSourceError

        began, rows = time.monotonic(), 0 if run.monitor is None else run.monitor.n_rows
        try:
            with shown(task, run, saving) as page:
                _drive(task, run, source, saving)
        except KeyboardInterrupt:
            raise _stopped(task, run, saving) from None
        except DifferentSourceError as error:
            ways = f"To learn it on top of the model, use psp update {task.output} …; to begin anew, --force."
            raise fail(f"{str(error).rstrip('.')}. {ways}{_left(task, run, saving, earlier)}", DATA) from None
        except (ValueError, OSError) as error:
            sentence, code = explain(error)
            if isinstance(error, OSError) and error.filename is None:
                sentence = f"{task.output}: {error.strerror or error}."
            raise fail(f"{sentence}{_left(task, run, saving, earlier)}", DATA if isinstance(error, OSError) else code) from None
        finally:
            say_warnings(source)
    seconds = time.monotonic() - began
    _report(task, run, seconds)
    if page is not None:
        page.stay()
    check_drift(task, run, rows)


def _begun(task: Task, held: contextlib.ExitStack) -> _Begun:
    """Hold the outputs, open the source, and find or create the run."""
    from online_psp.io import runs
    from online_psp.io.files import claimed

    check_not_source(task.output, task.sources)
    _check(task)
    present = held.enter_context(claimed(task.output)).exists
    try:
        saving = runs.Saving(task.output, task.every)
    except ValueError as error:
        raise fail(str(error), USAGE) from None
    if task.alarms is not None:
        held.enter_context(claimed(task.alarms))
    if task.mode == "update" and not present:
        usage(f"{task.output} does not exist; there is no model to update.")
    if task.mode == "new" and present and not task.force:
        usage(
            f"{task.output} exists; add --resume to continue the run in it, --update to learn this source on top of it, "
            "or --force to overwrite it."
        )
    reopen = runs.reopen_any if task.mode == "update" else runs.reopen
    earlier = reopen(task.output) if present and task.mode != "new" else None
    missing = task.settings.get("missing") if earlier is None else getattr(earlier.model, "missing", None)
    source = open_rows(task.sources, {**_reading(task, earlier), **holes_for(missing)}, task.quiet)
    check_image(task.watching.get("image"), source.features)
    known = None if earlier is None else earlier.source.get("image_shape")
    source = replace(source, image_shape=task.watching.get("image") or source.image_shape or known)
    run = _prepare(task, source, earlier)
    watch(task, run, earlier)
    return _Begun(run, source, saving, earlier)


def _reading(task: Task, earlier: Any) -> dict[str, Any]:
    """Reading options: those of the resumed run, or the columns that the model and its table know, unless other options are given."""
    if earlier is None:
        return task.reading
    if task.mode == "resume":
        return {**known_reading(earlier.reading), **task.reading}
    names = earlier.source.get("feature_names")
    known = known_reading(earlier.reading) if task.alarms is not None else {}  # a table continues with the same columns
    kept: dict[str, Any] = {name: known[name] for name in ("ids", "time_column") if name in known}
    return {**kept, **remembered_columns({"reading": earlier.reading}, names, task.reading), **task.reading}


def _prepare(task: Task, source: Any, earlier: Any) -> Any:
    """The run to start or to continue."""
    from online_psp.io import runs

    if task.at_end and not source.once:
        usage(f"--resume-at-end is for standard input; {source.name} is read from the row where the run stopped.")
    if earlier is None:
        run = _begin(task, source)
    elif task.mode == "resume":
        run = earlier
        _check_options(task, run)
        run.epochs = max(task.feeding.get("epochs", run.epochs), run.epoch + 1)
    else:
        _check_options(task, earlier, feeding=False)
        learn = runs.anew if task.force else runs.updating
        run = learn(earlier, source, runs.RunOptions(**task.feeding))  # type: ignore[typeddict-item]
        if run is earlier:
            say(f"{task.output} has learned {source.name} up to row {run.row}; continuing from there.")
        elif any(entry["name"] == source.name for entry in run.before):
            say(f"{task.output} has learned {source.name} before; its rows count once more.")
        if not source.feature_names and run.source.get("feature_names"):
            say(f"{source.name} has no column names; its columns are taken in the order of the model.")
    run.reading = _reading(task, earlier)
    return run


def _begin(task: Task, source: Any) -> Any:
    from online_psp.algorithms import ALGORITHMS
    from online_psp.io import runs
    from online_psp.pca import OnlinePCA

    wanted = task.settings.get("n_components")
    if wanted is None:
        usage("Give the number of components: -k 16, or -k 0.95 for as many as explain 95 % of the variance.")
    if wanted > source.features:
        features = f"{source.features} feature{'s' if source.features != 1 else ''}"
        usage(f"{source.name} has {features}, fewer than the {wanted} components asked for.")
    try:
        if "algorithm" in task.settings:
            say(f"{task.settings['algorithm'].upper()} learns rows as they are given: nothing is centred.")
            make = ALGORITHMS[task.settings["algorithm"]]
            return runs.start(source, make(wanted, source.features, dtype=source.dtype), **task.feeding)
        return runs.start(source, OnlinePCA(dtype=source.dtype.name, **task.settings), **task.feeding)
    except ValueError as error:
        raise fail(str(error), USAGE) from None


def _check_options(task: Task, run: Any, feeding: bool = True) -> None:
    """Refuse options with --resume or --update that differ from those that the model was begun with."""
    known = {name: _setting(run.model, name) for name in task.settings}
    known |= {name: getattr(run, name) for name in task.feeding if feeding and name != "epochs"}
    for name, value in known.items():
        given = task.settings.get(name, task.feeding.get(name))
        if given != value:
            option = "-k" if name == "n_components" else "--" + name.replace("_", "-")
            usage(f"{task.output} was begun with {name} = {value}, not {given}; leave {option} out, or begin anew with --force.")


def _setting(model: Any, name: str) -> Any:
    """A setting of the model of a run."""
    from online_psp.algorithms import ALGORITHMS

    if name == "algorithm":
        return next((key for key, cls in ALGORITHMS.items() if type(model) is cls), None)
    return getattr(model, name, getattr(model, "K", None) if name == "n_components" else None)


def _drive(task: Task, run: Any, source: Any, saving: Any) -> None:
    from online_psp.cli._progress import Progress
    from online_psp.io import runs

    with Progress(run, saving, shown=not task.quiet) as progress:
        runs.drive(run, source, saving, on_bad_row=task.on_bad_row, at_end=task.at_end, signals=_SIGNALS, report=progress.update)


def _stopped(task: Task, run: Any, saving: Any) -> CommandError:
    if saving.last is None:
        return fail("Stopped before the first row was learned; nothing was written.", INTERRUPTED)
    monitor = [] if task.alarms is None else ["--monitor", str(task.alarms)]
    command = shlex.join(["psp", "fit", *task.sources, "-o", str(task.output), *monitor, "--resume"])
    return fail(f"Stopped at epoch {run.epoch + 1}, row {run.row}; the checkpoint is in {task.output}. To continue: {command}", INTERRUPTED)


def _left(task: Task, run: Any, saving: Any, earlier: Any) -> str:
    """What the output holds after bad data or a full disk, for the error message."""
    if saving.path != task.output:  # another process has written it
        return ""
    if saving.last is None and earlier is None:
        return f" {task.output} is what it was before this run." if task.output.exists() else ""
    from online_psp.io import runs

    try:
        kept = runs.reopen(task.output)
    except (ValueError, OSError):
        return ""
    return f" The last checkpoint, {task.output}, holds the run up to epoch {kept.epoch + 1}, row {kept.row}."


def _report(task: Task, run: Any, seconds: float) -> None:
    model, rows = run.model, run.passed
    explained = getattr(model, "explained_variance_ratio_", None)  # the paper's algorithms have none
    ratio = None if explained is None else float(explained.sum())
    seen, K = (model.t, model.K) if explained is None else (model.n_samples_seen_, model.n_components_)
    if task.as_json:
        print_json(
            {
                "model": str(task.output),
                "source": run.source["name"],
                "samples": seen,
                "features": int(model.n_features_in_),
                "components": K,
                "explained_variance_ratio": ratio,
                "epochs": run.epochs,
                "row": run.row,
                "skipped": run.skipped,
                "skipped_rows": run.skipped_rows,
                "seconds": seconds,
                "rows_per_second": rows / seconds if seconds > 0 else None,
                **monitored(task, run),
            }
        )
        return
    if run.skipped:
        named = ", ".join(str(row) for row in run.skipped_rows)
        were = "row was" if run.skipped == 1 else "rows were"
        say(f"{run.skipped} bad {were} skipped: {named}{', …' if run.skipped > len(run.skipped_rows) else ''}.")
    if not task.quiet:
        echo(
            f"{task.output}: {plural(K, 'component')} of {plural(int(model.n_features_in_), 'feature')} from {plural(seen, 'sample')}, "
            f"{'' if ratio is None else f'{100 * ratio:.2f} % of the variance, '}{rows / max(seconds, 1e-9):,.0f} rows/s"
        )
        if run.alarms is not None:
            say_monitored(task, run)
