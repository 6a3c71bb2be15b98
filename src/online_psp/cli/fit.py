"""``psp fit`` and ``psp update``: arguments in, a run driven to its end, what it has found out."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from online_psp.cli._common import check_is_model, check_not_source, echo, open_rows, plural, print_json, say_warnings
from online_psp.cli._errors import DATA, INTERRUPTED, SIGNALS, CommandError, explain, say, usage
from online_psp.cli._options import FEEDING, MONITORING, READING, SETTINGS, WATCHING, AsJson, Quiet, Threads, grouped
from online_psp.cli._page import announce, served, until_interrupted

DRIFTED = 3
"""Exit code of --fail-on-drift."""
_MONITOR = [name for name in MONITORING if name not in ("monitor", "fail_on_drift")]

Sources = Annotated[
    list[str], typer.Argument(help="Files, folders or quoted globs, read one after the other; file.h5::/dataset; - for standard input.")
]
Every = Annotated[str, typer.Option(help="Time between checkpoints (30s, 5m, 1h), or number of samples.")]


class _Asked(NamedTuple):
    """What the command line asks for."""

    sources: list[str]
    output: Path
    mode: str
    force: bool
    every: str
    quiet: bool
    as_json: bool
    threads: int | None
    reading: dict[str, Any]
    feeding: dict[str, Any]
    monitoring: dict[str, Any]
    watching: dict[str, Any]
    settings: dict[str, Any] = {}  # noqa: RUF012


@grouped(settings=SETTINGS, reading=READING, monitoring=MONITORING, watching=WATCHING, feeding=FEEDING)
def fit(
    *,
    sources: Sources,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file; checkpoints go there too.")],
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint in the model file, if there is one.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the model file.")] = False,
    checkpoint_every: Every = "60s",
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **groups: Any,
) -> None:
    """Fit a model to files, folders or a pipe, with checkpoints.

    Example: psp fit rows.csv -k 8 -o model.psp

    Reads CSV and other text, JSON lines, Excel, NumPy, Parquet, Arrow, HDF5, Zarr, AnnData, 10x, MATLAB, Matrix Market and images.

    Files may be compressed, zipped, or at a URL. The dialect of a text file is detected and announced.
    """
    if resume and force:
        usage("--resume continues a run; it cannot be given together with --force.")
    mode = "resume" if resume else "new"
    _run(_Asked(sources, output, mode, force, checkpoint_every, quiet, as_json, threads, **groups))


@grouped(reading=READING, monitoring=MONITORING, watching=WATCHING, feeding=FEEDING)
def update(
    model: Annotated[Path, typer.Argument(help="Model file.")],
    sources: Sources,
    force: Annotated[bool, typer.Option("--force", help="Update even if an earlier run over another source was not finished.")] = False,
    checkpoint_every: Every = "60s",
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **groups: Any,
) -> None:
    """Learn more rows on top of a model, and update its file in place."""
    _run(_Asked(sources, model, "update", force, checkpoint_every, quiet, as_json, threads, **groups))


def _task(asked: _Asked) -> Any:
    """What is to be run; ends with a usage error before anything is read."""
    from online_psp.io.runs import Task

    check_not_source(asked.output, asked.sources)
    check_is_model(asked.output)
    alarms, watched = asked.monitoring.get("monitor"), asked.watching.get("watch")
    if alarms is not None:
        check_not_source(alarms, asked.sources)
    elif asked.monitoring:
        usage(f"{next(iter(asked.monitoring))} is of monitoring: it needs --monitor FILE.")
    idle = [name for name in asked.watching if name not in ("watch", "image")]
    if idle and not watched:
        usage(f"{idle[0]} is of the live page: it needs --watch.")
    if "algorithm" in asked.settings:
        _check_algorithm(asked.settings, {"monitor": alarms, "watch": watched})
    return Task(
        asked.output,
        lambda reading: open_rows(asked.sources, reading, asked.quiet),
        lambda source: _made(asked.settings, source),
        asked.settings,
        {name: value for name, value in asked.reading.items() if name != "on_bad_row"},
        asked.feeding.get("block"),
        asked.feeding.get("epochs"),
        None if alarms is None else {name: asked.monitoring[name] for name in _MONITOR if name in asked.monitoring},
        alarms,
        asked.watching.get("image"),
        asked.mode,
        asked.force,
        asked.every,
        say,
    )


def _check_algorithm(settings: dict[str, Any], others: dict[str, Any]) -> None:
    """Refuse what only goes with OnlinePCA."""
    from online_psp.algorithms import ALGORITHMS

    algorithm = settings["algorithm"]
    if algorithm not in ALGORITHMS:
        usage(f"--algorithm must be one of {', '.join(ALGORITHMS)}; got {algorithm}. Without it, psp fit fits an OnlinePCA.")
    idle = [name for name in settings if name not in ("algorithm", "n_components")] + [name for name, value in others.items() if value]
    if idle:
        usage(f"--algorithm {algorithm} fits the paper's algorithm as it is; leave {idle[0]} out, or --algorithm.")
    if not isinstance(settings.get("n_components", 1), int):
        usage(f"--algorithm {algorithm} needs a whole number of components: -k 16.")


def _made(settings: dict[str, Any], source: Any) -> Any:
    """A new model."""
    from online_psp.algorithms import ALGORITHMS
    from online_psp.pca import OnlinePCA

    wanted = settings.get("n_components")
    if wanted is None:
        usage("Give the number of components: -k 16, or -k 0.95 for as many as explain 95 % of the variance.")
    if not isinstance(wanted, str) and wanted > source.features:
        usage(f"{source.name} has {plural(source.features, 'feature')}, fewer than the {wanted} components asked for.")
    if "algorithm" in settings:
        say(f"{settings['algorithm'].upper()} learns rows as they are given: nothing is centred.")
        return ALGORITHMS[settings["algorithm"]](wanted, source.features, dtype=source.dtype)
    return OnlinePCA(dtype=source.dtype.name, **settings)


def _run(asked: _Asked) -> None:
    with contextlib.ExitStack() as held:
        try:
            if asked.threads is not None:
                import scipy.linalg.blas  # noqa: F401, loads its threads
                from threadpoolctl import threadpool_limits

                held.enter_context(threadpool_limits(asked.threads, "blas"))
            from online_psp.io import runs

            task = _task(asked)
            begun = held.enter_context(runs.begin(task))
        except KeyboardInterrupt:
            raise CommandError("Stopped before the first row was learned; nothing was written.", INTERRUPTED) from None
        run = begun.run
        began, rows = time.monotonic(), 0 if run.monitor is None else run.monitor.n_rows
        try:
            with _page(asked, begun) as page:
                _drive(asked, task, begun)
        except KeyboardInterrupt:
            raise _stopped(asked, begun) from None
        except runs.DifferentSourceError as error:
            ways = f"To learn it on top of the model, use psp update {asked.output} …; to begin anew, --force."
            raise CommandError(f"{str(error).rstrip('.')}. {ways}{_left(asked, begun)}", DATA) from None
        except (ValueError, OSError) as error:
            sentence, code = explain(error)
            if isinstance(error, OSError) and error.filename is None:
                sentence = f"{asked.output}: {error.strerror or error}."
            raise CommandError(f"{sentence}{_left(asked, begun)}", DATA if isinstance(error, OSError) else code) from None
        finally:
            say_warnings(begun.source)
        _report(asked, run, time.monotonic() - began)
    if page is not None:
        say(f"The page stays at {page.url} until Ctrl-C.")
        until_interrupted(1.0)
        page.close()
    if asked.monitoring.get("fail_on_drift") and _drifted(run, rows):
        raise typer.Exit(DRIFTED)


def _drifted(run: Any, rows: int) -> bool:
    """Whether there has been an alarm after this number of rows."""
    return any(alarm.row >= rows for alarm in run.monitor.alarms)


@contextlib.contextmanager
def _page(asked: _Asked, begun: Any) -> Iterator[Any]:
    """The live page during a run, if it is asked for."""
    from online_psp.io.runs import RunPage

    if not asked.watching.get("watch"):
        yield None
        return
    with served(lambda port: RunPage(begun.run, begun.saving, port), asked.watching) as shown:
        announce(shown.page.url, shown.page.port, asked.watching)
        yield shown.page


def _drive(asked: _Asked, task: Any, begun: Any) -> None:
    from online_psp.cli._progress import Progress
    from online_psp.io import runs

    bad = asked.reading.get("on_bad_row", "stop")
    with Progress(begun.run, begun.saving, shown=not asked.quiet) as progress:
        runs.drive(begun.run, begun.source, begun.saving, on_bad_row=bad, signals=SIGNALS, report=progress.update)


def _stopped(asked: _Asked, begun: Any) -> CommandError:
    if begun.saving.last is None:
        return CommandError("Stopped before the first row was learned; nothing was written.", INTERRUPTED)
    monitor = ["--monitor", str(asked.monitoring["monitor"])] if asked.monitoring else []
    command = shlex.join(["psp", "fit", *asked.sources, "-o", str(asked.output), *monitor, "--resume"])
    place = f"epoch {begun.run.epoch + 1}, row {begun.run.row}"
    return CommandError(f"Stopped at {place}; the checkpoint is in {asked.output}. To continue: {command}", INTERRUPTED)


def _left(asked: _Asked, begun: Any) -> str:
    """What the output holds after bad data or a full disk, for the error message."""
    place = begun.saving.place
    if place is None:
        return f" {asked.output} is what it was before this run." if asked.output.exists() else ""
    return f" The last checkpoint, {asked.output}, holds the run up to epoch {place[0] + 1}, row {place[1]}."


def _report(asked: _Asked, run: Any, seconds: float) -> None:
    model, rows = run.model, run.passed
    explained = getattr(model, "explained_variance_ratio_", None)  # the paper's algorithms have none
    ratio = None if explained is None else float(explained.sum())
    seen, K = (model.t, model.K) if explained is None else (model.n_samples_seen_, model.n_components_)
    found = None if run.alarms is None else run.alarms.written
    left_out = 0 if run.monitor is None else run.monitor.n_left_out
    if asked.as_json:
        facts = {
            "model": str(asked.output),
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
        }
        if found is not None:
            counts = {"rows": found.rows, "outliers": found.outliers, "left_out": left_out, "drift_alarms": found.drifts}
            facts["monitor"] = {"output": str(run.alarms.path), **counts}
        print_json(facts)
        return
    if run.skipped:
        named = ", ".join(str(row) for row in run.skipped_rows)
        were = "row was" if run.skipped == 1 else "rows were"
        say(f"{run.skipped} bad {were} skipped: {named}{', …' if run.skipped > len(run.skipped_rows) else ''}.")
    if asked.quiet:
        return
    echo(
        f"{asked.output}: {plural(K, 'component')} of {plural(int(model.n_features_in_), 'feature')} from {plural(seen, 'sample')}, "
        f"{'' if ratio is None else f'{100 * ratio:.2f} % of the variance, '}{rows / max(seconds, 1e-9):,.0f} rows/s"
    )
    if found is not None:
        kept = "" if run.monitor.learn_outliers else f" ({left_out:,} not learned)"
        outliers, alarms = plural(found.outliers, "outlier"), plural(found.drifts, "drift alarm")
        echo(f"{run.alarms.path}: {plural(found.rows, 'row')}, {outliers}{kept}, {alarms}")
