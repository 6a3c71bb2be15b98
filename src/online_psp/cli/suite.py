"""``psp reproduce``, ``psp evaluate``, ``psp leaderboard`` and ``psp bench``: arguments in, calls out."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from online_psp.cli._errors import DATA, INTERRUPTED, CommandError, say, usage

Which = StrEnum("Which", ["fig1", "fig2", "fig3", "fig4", "all"])
TrackName = StrEnum("TrackName", ["drift", "missing", "outliers", "sorted", "all"])
Study = StrEnum("Study", ["others", "speed", "tracking", "missing", "merging", "published"])


@contextmanager
def _stoppable(stopped: str = "Stopped. What was done is saved: the same command continues from there.") -> Iterator[None]:
    """Turn Ctrl-C into a sentence that says how to continue; errors about classes and files are sentences already."""
    try:
        yield
    except KeyboardInterrupt:
        raise CommandError(stopped, INTERRUPTED) from None
    except (TypeError, FileNotFoundError) as error:
        if getattr(error, "filename", None) is not None:
            raise
        raise CommandError(str(error), DATA) from error


def _default_jobs() -> int:
    return min(os.cpu_count() or 1, 8)  # every process has its data in memory


DataHome = Annotated[Path | None, typer.Option(help="Folder with the data sets, searched before ONLINE_PSP_DATA and the user's cache.")]
Jobs = Annotated[
    int, typer.Option(min=1, help="Number of parallel processes.", default_factory=_default_jobs, show_default="one per core, at most 8")
]
Out = Annotated[Path, typer.Option(help="Output folder for results, plots and the report.")]


def _command() -> str:
    return shlex.join(["psp", *sys.argv[1:]])


def _find_modules_here(algorithms: Sequence[str]) -> None:
    """If an algorithm is named by its module, search the working folder too, after everything else, and say so."""
    here = os.getcwd()
    if any(":" in text.partition(",")[0] for text in algorithms) and here not in sys.path:
        sys.path.append(here)
        say(f"Modules of --algorithm are also searched for in {here}, after all other places; what is found there is run.")


def reproduce(
    figure: Annotated[Which, typer.Argument(help="Figure of the paper to reproduce.")],
    jobs: Jobs,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer trials and sizes: all four figures in minutes.")] = False,
    out: Out = Path("psp-results"),
    seed: Annotated[int, typer.Option(help="Random seed of the first trial; later trials count up from it.")] = 0,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Trials of figures 2 and 3, 10 by default (2 with --quick); a later run can add more.")
    ] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option("--algorithm", "-a", help="module:Class to add as a curve to figures 2 and 3; repeatable."),
    ] = None,
    data_home: DataHome = None,
) -> None:
    """Reproduce the paper's figures, with a report and verdicts.

    An interrupted run continues where it stopped."""
    from rich.console import Console

    from online_psp.engine.extras import need_pages

    need_pages("psp reproduce")
    from online_psp.suite.methods import yours
    from online_psp.suite.paper import FIGURES, Scope
    from online_psp.suite.paper import reproduce as run_figures
    from online_psp.suite.runner import How

    _find_modules_here(algorithm or [])
    names = list(FIGURES) if figure is Which.all else [figure.value]
    with _stoppable():
        scope = Scope(quick, seed, trials, tuple(map(yours, algorithm or [])))
        how = How(jobs, data_home=data_home, progress=True)
        result = run_figures(names, out, scope=scope, how=how, command=_command())
    console = Console()
    for verdict in result.verdicts:
        console.print(f"[bold]{verdict.outcome:>14}[/bold]  {verdict.statement}", highlight=False)
        console.print(f"{'':14}  [dim]{verdict.evidence}[/dim]", highlight=False)
    console.print(f"report: {result.report}", markup=False)
    for name, reason in result.left_out.items():
        say(f"{name} was left out. {reason}")
    if result.left_out:
        raise typer.Exit(DATA)


def evaluate(
    data: Annotated[
        str,
        typer.Option(
            "--data", "-d", help="A file or folder, a registered data set, or a generated family: spiked:D=1024,K=16,rho=0.01,N=6000."
        ),
    ],
    components: Annotated[
        int | None, typer.Option("-k", "--n-components", "--components", min=1, help="Number of components; generated data sets its own.")
    ] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            "--algorithm", "-a", help="module:Class or built-in name to evaluate, with options after commas (m:C,gamma=0.6); repeatable."
        ),
    ] = None,
    track: Annotated[
        list[TrackName] | None,
        typer.Option(help="Make the stream harder: drift, missing, outliers, sorted or all; repeatable."),
    ] = None,
    builtin: Annotated[bool, typer.Option(help="Also run the paper's algorithms and OnlinePCA.")] = True,
    family: Annotated[bool, typer.Option("--family", help="Also run every rival: algorithms of other papers.")] = False,
    trials: Annotated[int, typer.Option(min=1, help="Number of trials, each with another order (or draw) of the samples.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Number of passes over the data.")] = 1,
    seed: Annotated[int, typer.Option(help="Random seed of the first trial.")] = 0,
    timeout: Annotated[float | None, typer.Option(help="Time limit in seconds for one trial of a method; none by default.")] = None,
    out: Out = Path("psp-evaluation"),
    jobs: Annotated[int, typer.Option(min=1, help="Number of parallel processes; more than one makes timings less reliable.")] = 1,
    data_home: DataHome = None,
) -> None:
    """Compare your algorithm with the built-in ones on your data.

    Error, time and memory of each, in a process of its own. An interrupted run continues where it stopped; your own is measured anew.

    An algorithm is anything with fit_next and get_components, with partial_fit and components_, or with learn_one and transform_one.
    """
    from rich.console import Console

    from online_psp.engine.extras import need_pages

    need_pages("psp evaluate")
    from online_psp.suite.evaluation import Plan
    from online_psp.suite.evaluation import evaluate as run_evaluation

    _find_modules_here(algorithm or [])
    wanted = [name for name in TrackName if name != "all"] if "all" in (track or []) else dict.fromkeys(track or [])
    with _stoppable():
        plan = Plan(trials, epochs, seed, tuple(map(str, wanted)), builtin, family, timeout, jobs)
        result = run_evaluation(data, components, algorithm, plan=plan, out=out, data_home=data_home, progress=True, command=_command())
    console = Console()
    for table in result.tables():
        console.print(table.to_rich())
    console.print(f"report: {out / 'report.html'}", markup=False)


def leaderboard(
    rows: Annotated[list[Path], typer.Argument(help="Result files written by psp evaluate.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")] = Path("leaderboard.html"),
) -> None:
    """Combine evaluations into one ranked page.

    Every algorithm on every track, with bootstrap intervals."""
    from rich.console import Console

    from online_psp.engine.extras import need_pages

    need_pages("psp leaderboard")
    from online_psp.suite.leaderboard import write_leaderboard

    with _stoppable():
        page, overall, remarks = write_leaderboard(rows, output, _command())
    console = Console()
    console.print(overall.to_rich())
    for remark in remarks:
        console.print(remark, highlight=False, markup=False)
    console.print(f"page: {page}", markup=False)


def bench(
    study: Annotated[Study, typer.Argument(help="Other libraries and algorithms, or a study of this package.")] = Study.others,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", "-d", help="For others: a generated family, a registered data set, or a file; repeatable."),
    ] = None,
    components: Annotated[
        int | None,
        typer.Option("-k", "--n-components", "--components", min=1, help="Number of components; 16 by default, fewer for narrow data."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="For others: only methods whose name contains this; repeatable.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, one run each.")] = False,
    rows: Annotated[int | None, typer.Option(min=32, help="Maximum number of rows per data set; 20,000 by default.")] = None,
    out: Annotated[Path, typer.Option(help="Output folder for rows, pictures and tables.")] = Path("psp-bench"),
) -> None:
    """Benchmark other libraries on the same rows, or study this package.

    Other libraries: time, error, memory. Studies: speed, tracking, missing values, …"""
    from rich.console import Console

    from online_psp.engine.extras import need_pages

    need_pages("psp bench")
    from online_psp.suite.studies import run_study

    console, options = Console(), {}
    if study is Study.others:
        options = {"data": data or (), "K": components, "only": only or (), "most": rows}
    elif data or components or only or rows:
        usage("--data, --n-components, --only and --rows are for psp bench others.")
    with _stoppable("Stopped."):
        for table in run_study(study.value, out, _command(), quick=quick, **options):
            console.print(table.to_rich())
    console.print(f"written to {out}", markup=False)
