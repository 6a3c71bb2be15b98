"""``psp reproduce`` and ``psp evaluate``: arguments in, calls out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from online_psp.cli._errors import DATA, INTERRUPTED, fail, say


class Which(StrEnum):
    """A figure of the paper, or all of them."""

    fig1 = "fig1"
    fig2 = "fig2"
    fig3 = "fig3"
    fig4 = "fig4"
    all = "all"


@contextmanager
def _stoppable() -> Iterator[None]:
    """Ctrl-C says how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        raise fail("Stopped. What was done is saved: the same command continues from there.", INTERRUPTED) from None


def _default_jobs() -> int:
    return min(os.cpu_count() or 1, 8)  # every process holds its data


DataHome = Annotated[Path | None, typer.Option(help="Folder of the data sets; before ONLINE_PSP_DATA and the user's cache.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes.", default_factory=_default_jobs, show_default="one a core, 8 at most")]


def reproduce(
    figure: Annotated[Which, typer.Argument(help="Which figure of the paper.")],
    jobs: Jobs,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer trials and sizes: all four in minutes.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for rows, pictures and the report.")] = Path("psp-results"),
    seed: Annotated[int, typer.Option(help="Seed of the first trial; the others follow.")] = 0,
    trials: Annotated[int | None, typer.Option(min=1, help="At most so many trials; more can be asked for later.")] = None,
    data_home: DataHome = None,
    recordings: Annotated[Path | None, typer.Option(help="Folder of recorded runs of the authors' package to compare with.")] = None,
) -> None:
    """Reproduce the paper's figures, with a report and verdicts. A run that was stopped goes on where it was."""
    from rich.console import Console

    from online_psp.experiments.figures import FIGURES
    from online_psp.experiments.reproduction import reproduce as run_figures
    from online_psp.experiments.verdicts import to_table

    names = list(FIGURES) if figure is Which.all else [figure.value]
    with _stoppable():
        result = run_figures(
            names, out, quick=quick, seed=seed, trials=trials, jobs=jobs, data_home=data_home, recordings=recordings, progress=True
        )
    console = Console()
    table = to_table(result.verdicts)
    for statement, outcome, evidence, _ in table.lines:
        console.print(f"[bold]{outcome:>14}[/bold]  {statement}", highlight=False)
        console.print(f"{'':14}  [dim]{evidence}[/dim]", highlight=False)
    console.print(f"report: {result.report}")
    for name, reason in result.left_out.items():
        say(f"{name} was left out. {reason}")
    if result.left_out:
        raise typer.Exit(DATA)


def evaluate(
    data: Annotated[str, typer.Option("--data", "-d", help="A file or folder, or a data set known by name.")],
    components: Annotated[int, typer.Option("-k", "--components", min=1, help="Directions sought.")],
    jobs: Jobs,
    algorithm: Annotated[
        list[str] | None,
        typer.Option("--algorithm", "-a", help="module:Class, with options after commas (m:C,gamma=0.6); may be given several times."),
    ] = None,
    builtin: Annotated[bool, typer.Option(help="Run the built-in algorithms beside it.")] = True,
    trials: Annotated[int, typer.Option(min=1, help="Orders of the samples.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the first order.")] = 0,
    batch: Annotated[int | None, typer.Option(min=1, help="Rows a time for partial_fit; 5 K by default.")] = None,
    key: Annotated[str | None, typer.Option(help="Which array of a .npz or .mat file.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for rows, picture and report.")] = Path("psp-evaluation"),
    resume: Annotated[bool, typer.Option("--resume", help="Keep the rows that the folder has already.")] = False,
    data_home: DataHome = None,
) -> None:
    """Compare your algorithm with the built-in ones on your data: anything with fit_next/get_components or partial_fit/components_."""
    from rich.console import Console

    from online_psp.experiments.evaluation import evaluate as run_evaluation
    from online_psp.experiments.evaluation import parse_curve
    from online_psp.experiments.tables import comparison

    if any(":" in text for text in algorithm or []):  # people keep the algorithm that they are working on in the folder where they are
        sys.path.append(os.getcwd())  # last, so that nothing there takes the place of a library
        say(f"Modules of --algorithm are also looked for in {os.getcwd()}, and what is found there is run.")
    command = f"psp evaluate --data {data} -k {components}" + "".join(f" --algorithm {text}" for text in algorithm or [])
    with _stoppable():
        chosen: dict[str, str] = {parse_curve(text).label: text for text in algorithm or []}
        result = run_evaluation(
            data,
            components,
            dict(chosen),
            builtin=builtin,
            trials=trials,
            epochs=epochs,
            seed=seed,
            batch=batch,
            out=out,
            key=key,
            data_home=data_home,
            jobs=jobs,
            resume=resume,
            progress=True,
            command=command,
        )
    console = Console()
    for table in comparison(result.rows):
        console.print(table.to_rich())
    console.print(f"report: {out / 'report.html'}")
