"""The ``psp`` command: arguments in, calls out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from online_psp.cli._errors import DEBUG, Commands
from online_psp.cli.datasets import datasets
from online_psp.cli.fit import fit, update
from online_psp.cli.impute import impute
from online_psp.cli.info import info
from online_psp.cli.merge import merge
from online_psp.cli.plot import plot
from online_psp.cli.score import score
from online_psp.cli.suite import bench, evaluate, leaderboard, reproduce
from online_psp.cli.transform import transform
from online_psp.cli.watch import watch

_NEXT = """
Next:
  ten lines of your own        README.md
  your own file                psp fit rows.csv -k 8 -o model.psp
  compare on your own file     psp bench -d rows.csv -k 8 --quick
  the documentation            make docs, then open docs/_build/html/index.html
"""

app = typer.Typer(name="psp", cls=Commands, help="Streaming principal subspace projection and online PCA.", no_args_is_help=True)


def _version(wanted: bool) -> None:
    if wanted:
        from online_psp import __version__

        typer.echo(f"psp {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", "-v", callback=_version, is_eager=True, help="Show the version and exit.")] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error.")] = False,
) -> None:
    """Streaming principal subspace projection and online PCA."""


app.command()(fit)
app.command()(update)
app.command()(transform)
app.command()(score)
app.command()(impute)
app.command()(info)
app.command()(merge)
app.command()(plot)
app.command()(watch)


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Where to save the plot.")] = Path("psp-demo.png")) -> None:
    """Compare FSM, IPCA, CCIPCA, OnlinePCA and IncrementalPCA on data that needs no download: time, accuracy, a plot."""
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from online_psp.engine.extras import need_matplotlib
    from online_psp.experiments.demo_kernels import compiling_beside

    need_matplotlib("psp demo")

    console = Console()
    results = []
    with compiling_beside() as compile_all, Progress(console=console) as progress:
        task = progress.add_task("compiling, once after installing", total=None)
        from online_psp.experiments import demo as show  # takes seconds, in which the other process compiles

        chosen = show.problems()
        progress.update(task, total=show.steps(chosen))
        compile_all()
        for result in show.run(chosen):
            results.append(result)
            progress.update(task, advance=1, description=f"{result.problem}: {result.method}")
    for name in dict.fromkeys(result.problem for result in results):
        table = Table(
            title=name, caption="µs per sample, one thread; in place: the published update, a sample at a time; faster: blocks against that"
        )
        for column in ("method", "fit_next", "block", "in place", "faster", "Err_batch", "Err_pop"):
            table.add_column(column, justify="left" if column == "method" else "right", no_wrap=True)
        for result in results:
            if result.problem == name:
                table.add_row(
                    result.method,
                    "" if result.single is None else f"{result.single:.1f}",
                    f"{result.block:.1f}",
                    "" if result.in_place is None else f"{result.in_place:.1f}",
                    "" if result.in_place is None else f"{result.in_place / result.block:.1f}×",
                    f"{result.err_batch:.4f}",
                    "" if result.err_pop is None else f"{result.err_pop:.4f}",
                )
        console.print(table)
    show.draw(results, out)
    console.print(f"picture: {out}")
    console.print(_NEXT, highlight=False, markup=False)


app.command()(reproduce)
app.command()(evaluate)
app.command()(leaderboard)
app.add_typer(datasets, name="datasets")
app.command()(bench)


if __name__ == "__main__":
    app()
