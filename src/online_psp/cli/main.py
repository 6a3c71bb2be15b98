"""The ``psp`` command: arguments in, calls out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from online_psp.cli._errors import DEBUG, Commands
from online_psp.cli.datasets import datasets
from online_psp.cli.fit import fit, update
from online_psp.cli.info import info
from online_psp.cli.merge import merge
from online_psp.cli.plot import plot
from online_psp.cli.suite import bench, evaluate, leaderboard, reproduce
from online_psp.cli.tables import impute, score, transform
from online_psp.cli.watch import watch

_NEXT = """
Next:
  ten lines of your own        README.md
  your own file                psp fit rows.csv -k 8 -o model.psp
  a race against the others    psp bench --quick
  the documentation            make docs, then open docs/_build/html/index.html
"""

_MEASURE = "Measure and reproduce"
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


_COMMANDS: dict[str, Callable[..., None]] = {
    "fit": fit,
    "update": update,
    "transform": transform,
    "score": score,
    "impute": impute,
    "info": info,
    "merge": merge,
    "plot": plot,
    "watch": watch,
}
for name, command in _COMMANDS.items():
    app.command(name, rich_help_panel="Rows and models")(command)


@app.command(rich_help_panel=_MEASURE)
def demo(out: Annotated[Path, typer.Option(help="Where to save the picture.")] = Path("psp-demo.png")) -> None:
    """Components form, a stream drifts, missing values are filled: ten seconds, one picture."""
    from online_psp.engine.extras import need_matplotlib

    need_matplotlib("psp demo")
    from rich.console import Console

    console = Console(highlight=False)
    with console.status("loading") as status:
        from online_psp.suite import demo as show

        sentences = show.run(out, status.update)
    for sentence in sentences:
        console.print(sentence, markup=False)
    console.print(f"picture     {out}", markup=False)
    console.print(_NEXT, markup=False)


for command in (bench, evaluate, reproduce, leaderboard, datasets):
    app.command(rich_help_panel=_MEASURE)(command)


if __name__ == "__main__":
    app()
