"""Anybody's algorithm on anybody's data, beside the built-in ones.

>>> import numpy as np
>>> from sklearn.decomposition import IncrementalPCA
>>> from online_psp.experiments import evaluate
>>> X = np.random.default_rng(0).standard_normal((300, 20)) * np.r_[5.0, 4.0, np.full(18, 0.1)]
>>> result = evaluate(X, K=2, algorithms={"IncrementalPCA": IncrementalPCA}, trials=1)
>>> sorted(result.errors())[:3]
['CCIPCA', 'FSM γ=0.6', 'FSM γ=1.5']
"""

from __future__ import annotations

import ast
import hashlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from online_psp.datasets import DataSet, load
from online_psp.experiments import plots, tables
from online_psp.experiments.figures import FIVE, ONLINE_PCA
from online_psp.experiments.learners import build
from online_psp.experiments.measure import Workbench
from online_psp.experiments.records import Curve, Experiment, RealData, moments
from online_psp.experiments.report import Section, write_report
from online_psp.experiments.rows import Row, select
from online_psp.experiments.runner import run

_MOMENTS = 30


@dataclass(frozen=True)
class Evaluation:
    """Rows of an evaluation, with what can be made of them."""

    rows: list[Row]
    command: str = ""

    def errors(self) -> dict[str, float]:
        """The median error after the last sample, by algorithm; those that failed are not in it."""
        return next(iter(tables.last_errors(self.rows).values()), {})

    def table(self) -> str:
        """Error and time of every algorithm, best first, as Markdown."""
        return tables.to_markdown(tables.comparison(self.rows))

    def save(self, folder: str | Path) -> Path:
        """Write the picture and report.html into a folder; returns the report."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        picture = None
        if select(self.rows, metric="err_batch"):
            figure = plots.evaluation(self.rows)
            plots.save(figure, folder / "evaluation.png")
            picture = plots.save(figure, folder / "evaluation.svg")
        text = (
            "Rows are standardised (mean subtracted, divided by the mean norm). Err_batch is the distance of the subspace found to that of "
            "batch PCA, from 0 (equal) to 1.41 (orthogonal). Lines are medians over the orders of the samples, bands the range between the "
            "quartiles."
        )
        section = Section("Error against samples seen", text, picture, tuple(tables.comparison(self.rows)))
        first = self.rows[0]
        seeds = sorted({row.seed for row in self.rows})
        facts = {"data": f"{first.data}, {first.N} × {first.D}", "seeds": ", ".join(map(str, seeds))}
        return write_report(folder / "report.html", "Evaluation of streaming PCA", "", [section], [], facts, self.command)


def parse_curve(text: str) -> Curve:
    """A curve from ``name`` or ``module:Class``, with options after commas: ``fsm,gamma=0.6``."""
    algorithm, *settings = (part.strip() for part in text.split(","))
    options = []
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"{setting!r} in {text!r} is not an option: write name=value.")
        options.append((name, _literal(value)))
    label = ", ".join([algorithm.rpartition(":")[2], *settings])
    return Curve(label, algorithm, tuple(options))


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _curves(algorithms: Mapping[str, str | Callable[..., Any]], batch: int | None) -> tuple[list[Curve], dict[str, Callable[..., Any]]]:
    curves, builders = [], {}
    for label, given in algorithms.items():
        if isinstance(given, str):
            parsed = parse_curve(given)
            curves.append(Curve(label, parsed.algorithm, parsed.options, batch=batch))
        else:
            curves.append(Curve(label, f"given:{label}", batch=batch))
            builders[f"given:{label}"] = given
    return curves, builders


def _source(data: ArrayLike | str | Path, key: str | None, data_home: str | Path | None) -> tuple[RealData, dict[str, DataSet]]:
    if isinstance(data, str | Path):
        found, name, sources = load(data, data_home, key=key), str(data), {}
    else:
        X = np.asarray(data)
        if X.ndim != 2 or X.dtype.kind not in "fiub" or X.size == 0:
            raise ValueError(f"The data must be real numbers with samples as rows, shape (N, D); got shape {X.shape} of {X.dtype}.")
        if not np.isfinite(X).all():
            raise ValueError(f"Row {int(np.argmin(np.isfinite(X).all(axis=1)))} of the data has a value that is not finite.")
        name = "data"
        found = DataSet(name, X)
        sources = {name: found}
    fingerprint = hashlib.sha256(np.ascontiguousarray(found.X).tobytes()).hexdigest()[:12]
    return RealData(name, found.N, found.D, key=key, fingerprint=fingerprint), sources


def evaluate(
    data: ArrayLike | str | Path,
    K: int,
    algorithms: Mapping[str, str | Callable[..., Any]] | None = None,
    *,
    builtin: bool = True,
    trials: int = 3,
    epochs: int = 1,
    seed: int = 0,
    batch: int | None = None,
    out: str | Path | None = None,
    key: str | None = None,
    data_home: str | Path | None = None,
    jobs: int = 1,
    resume: bool = False,
    progress: bool = False,
    command: str = "",
) -> Evaluation:
    """Run algorithms over data and measure how far each is from batch PCA along the way.

    Parameters
    ----------
    data : (N, D) or str or Path
        Rows, or what `online_psp.datasets.load` takes.
    K : int
        Directions sought.
    algorithms : mapping of label to class, function or "module:Class"
        Anything whose instances have ``fit_next(x)`` and ``get_components() -> (D, K)``, made as ``Class(K, D)``; or ``partial_fit(X)`` and
        ``components_ (K, D)``, made as ``Class(n_components=K)``.
    builtin : bool
        Run the built-in algorithms beside them.
    trials, epochs, seed : int
        Orders of the samples, passes over them, and the seed of the first order.
    batch : int, optional
        Rows a time for ``partial_fit``; 5 K by default.
    out : str or Path, optional
        Folder for rows, picture and report.
    key : str, optional
        Which array of a .npz or .mat file.
    jobs : int
        Processes; those with algorithms or data given as objects run in this one.
    resume : bool
        Keep rows that `out` has already. Not by default: an algorithm under development changes under the same name.
    """
    source, sources = _source(data, key, data_home)
    if not 1 <= K <= min(source.N, source.D):
        raise ValueError(f"K must be between 1 and {min(source.N, source.D)} for data of shape ({source.N}, {source.D}); got {K}.")
    given, builders = _curves(algorithms or {}, batch)
    for curve in given:
        build(curve, K, source.D, builders)  # so that what is missing is said before anything runs
    known = [*FIVE, ONLINE_PCA] if builtin else []
    curves = [*given, *(curve for curve in known if curve.label not in {mine.label for mine in given})]
    if not curves:
        raise ValueError("There is nothing to evaluate: name an algorithm, or leave the built-in ones in.")
    when = moments(source.used * epochs, min(2 * K, source.used * epochs), _MOMENTS)
    records = [
        Experiment("evaluation", source, curve, K, seed + trial, epochs, ("err_batch",), when)
        for trial in range(trials)
        for curve in curves
    ]
    bench = Workbench(data_home, sources, builders) if sources or builders else None
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(out if out is not None else scratch) / "rows.csv"
        rows = run(records, path, jobs=jobs, data_home=data_home, resume=resume, bench=bench, progress=progress)
    result = Evaluation(rows, command)
    if out is not None:
        result.save(out)
    return result
