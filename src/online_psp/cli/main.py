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
  a race against the others    psp bench --quick
  the documentation            make docs, then open docs/_build/html/index.html
"""

_HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    name="psp", cls=Commands, help="Streaming principal subspace projection and online PCA.", no_args_is_help=True, context_settings=_HELP
)


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
def demo(out: Annotated[Path, typer.Option(help="Where to save the picture.")] = Path("psp-demo.png")) -> None:
    """Components form from a stream of pictures, a stream drifts, holes are filled: ten seconds, one picture, no download."""
    from online_psp.engine.extras import need_matplotlib

    need_matplotlib("psp demo")
    from rich.console import Console

    console = Console(highlight=False)
    with console.status("loading") as status:
        from online_psp.suite import demo as show

        found = show.run(status.update)
        show.draw(found, out)
    for sentence in show.sentences(found):
        console.print(sentence, markup=False)
    console.print(f"picture     {out}", markup=False)
    console.print(_NEXT, markup=False)


app.command()(reproduce)
app.command()(evaluate)
app.command()(leaderboard)
app.add_typer(datasets, name="datasets")
app.command()(bench)


if __name__ == "__main__":
    app()
