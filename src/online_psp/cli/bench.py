"""``psp bench``: arguments in, calls out."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from online_psp.cli._errors import INTERRUPTED, fail, usage


def bench(
    data: Annotated[
        list[str] | None,
        typer.Option("--data", "-d", help="spiked, power-law, a registered data set, or a file; repeatable."),
    ] = None,
    components: Annotated[
        int | None,
        typer.Option("-k", "--n-components", "--components", min=1, help="Number of components; 16 by default, fewer for narrow data."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only run methods whose name contains this; repeatable.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small data sets, one run each: a minute at most.")] = False,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Timed fits per method; slow methods get fewer.", show_default="3, or 1 with --quick")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=32, help="Maximum number of rows per data set; 20,000 by default for stored ones.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Output folder for the CSV file, the plot and the report.")] = Path("psp-bench"),
) -> None:
    """Compare with other libraries: time, error and memory on the same rows, single-threaded, in one process."""
    from rich.console import Console
    from rich.progress import Progress

    from online_psp.comparison import plot, problems, runner, tables
    from online_psp.comparison.methods import methods
    from online_psp.comparison.results import write_csv
    from online_psp.engine.extras import need_matplotlib
    from online_psp.experiments.plots import save
    from online_psp.experiments.provenance import provenance

    need_matplotlib("psp bench")  # before minutes of work
    provenance()  # of the code that runs now: files may change before the end
    size = problems.QUICK if quick else problems.FULL
    times = repeats or (1 if quick else 3)
    chosen = [method for method in methods() if not only or any(part.lower() in method.name.lower() for part in only)]
    if not chosen:
        usage(f"No method has {' or '.join(only or [])} in its name; there are: {', '.join(method.name for method in methods())}.")
    console, runs = Console(), []
    names = data or list(problems.default_names())
    try:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("reading", total=len(names) * runner.steps(chosen, times))
            for name in names:
                progress.update(task, description=f"{name}: reading, and batch PCA")
                problem = problems.prepare(name, size, components, rows)
                found = runner.compare(problem, chosen, times, lambda words: progress.update(task, advance=1, description=words))
                runs.append((problem, found))
    except KeyboardInterrupt:
        raise fail("Stopped; nothing was written.", INTERRUPTED) from None
    for problem, found in runs:
        console.print(tables.to_rich(problem, found))
        for line in tables.statements(found):
            console.print(line, highlight=False)
    for line in tables.peers_note():
        console.print(line, highlight=False)
    results = [result for _, found in runs for result in found]
    out.mkdir(parents=True, exist_ok=True)
    write_csv(results, out / "comparison.csv")
    (out / "comparison.md").write_text(tables.page(runs, _command(sys.argv[1:]), times), encoding="utf-8")
    if any(not result.failed for result in results):
        save(plot.scatter(results), out / "comparison.png")
    console.print(f"written: {out / 'comparison.csv'}, comparison.md, comparison.png", highlight=False)


def _command(arguments: Sequence[str]) -> str:
    """The command that was given, without the output folder."""
    kept = [
        word
        for before, word in zip(["", *arguments], arguments, strict=False)
        if "--out" not in (before, word) and not word.startswith("--out=")
    ]
    return shlex.join(["psp", *kept])
