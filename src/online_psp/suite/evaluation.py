"""Evaluation of your own algorithm on your own data, beside the built-in ones.

>>> import numpy as np
>>> from sklearn.decomposition import IncrementalPCA
>>> from online_psp.suite import Plan, evaluate
>>> X = np.random.default_rng(0).standard_normal((300, 20)) * np.r_[5.0, 4.0, np.full(18, 0.1)]
>>> result = evaluate(X, K=2, algorithms={"IncrementalPCA": IncrementalPCA}, plan=Plan(trials=1, jobs=0))
>>> sorted(result.errors())[:3]
['CCIPCA', 'FSM γ=0.6', 'FSM γ=1.5']
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from online_psp.metrics import check_directions
from online_psp.suite import pictures, tables
from online_psp.suite.data import TRACKS, Data, Track, find, problem
from online_psp.suite.measure import Trial, moments
from online_psp.suite.methods import FAMILY, PAPER, Method, check, told_apart, yours
from online_psp.suite.pages import Section, write_page
from online_psp.suite.rows import INTERVALS, SCORE, Row, by, distinct, read_rows, select
from online_psp.suite.runner import How, run

_MOMENTS = 30


@dataclass(frozen=True)
class Plan:
    """The parameters of an evaluation.

    Attributes
    ----------
    trials, epochs, seed : int
        Number of orders of the samples (or of draws of generated ones), passes over them, and the seed of the first order.
    tracks : tuple of str
        Keys of `online_psp.suite.data.TRACKS`; if empty, the data is used as it is.
    builtin, family : bool
        Whether to run the paper's algorithms and OnlinePCA beside the given ones, and every rival too.
    timeout : float or None
        Most seconds that a trial of a method may take.
    jobs : int
        Number of processes at a time; with more than one, they disturb each other's times. Every method has one of its own. 0 runs
        everything in this process, without figures for memory.
    """

    trials: int = 3
    epochs: int = 1
    seed: int = 0
    tracks: tuple[str, ...] = ()
    builtin: bool = True
    family: bool = False
    timeout: float | None = None
    jobs: int = 1

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"The seed must be at least 0; got {self.seed}.")
        for name in ("trials", "epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        unknown = [name for name in self.tracks if name not in TRACKS]
        if unknown:
            raise ValueError(f"There is no track {unknown[0]!r}; there are {', '.join(TRACKS)}.")
        if self.tracks and self.epochs > 1:
            raise ValueError("A track is a single pass: leave epochs at 1.")


@dataclass(frozen=True)
class Evaluation:
    """The results of an evaluation."""

    rows: list[Row]
    command: str = ""

    def errors(self) -> dict[str, float]:
        """The median score by method, on the first track: the error after the last sample, or its mean over time if the truth drifts."""
        return {label: found.value for label, found in tables.scores(select(self.rows, track=self.rows[0].track)).items()}

    def table(self) -> str:
        """Error, time and memory of every method, best first, as Markdown."""
        return tables.to_markdown(self.tables())

    def tables(self) -> list[tables.Table]:
        """The same as tables; of several tracks, all errors in one table first."""
        return [*tables.across(self.rows), *tables.comparison(self.rows)]

    def save(self, folder: str | Path) -> Path:
        """Write a picture for every track, and report.html, into a folder; returns the path of the report."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        sections = [Section("All tracks", "", None, tuple(found))] if (found := tables.across(self.rows)) else []
        for (track,), mine in by(self.rows, "track").items():
            picture = None
            if select(mine, metric=SCORE):
                name = "_".join(["evaluation", *track.replace(" %", "").split()])
                picture = pictures.save(pictures.evaluation(mine), folder / f"{name}.png")
            text = _TRACK_TEXT if track else _TEXT
            sections.append(Section(track or "Error against samples seen", text, picture, tuple(tables.comparison(mine))))
        first = self.rows[0]
        facts = {
            "data": f"{first.data}, {first.N} × {first.D}, checksum {first.checksum or 'none'}",
            "seeds": ", ".join(map(str, distinct(self.rows, "seed"))),
        }
        return write_page(folder / "report.html", "Evaluation of streaming PCA", sections, facts=facts, command=self.command)


_TEXT = (
    "Rows are standardised (mean subtracted, divided by the mean norm). Err_batch is the distance of the subspace found to that of "
    "batch PCA, Err_pop to that of the generator, from 0 (equal) to 1.41 (orthogonal). Lines are medians over the orders of the samples, "
    "bands the range between the quartiles. Times are processor time of one thread, of a pass in which the components are asked for once, "
    "at the end. Memory is the peak resident size of the method's own process, and what of it came after the first row; the table's title "
    "has the size of all rows to compare with. " + INTERVALS
)
_TRACK_TEXT = (
    "The error is the distance to the subspace that is right at the moment, from 0 (equal) to 1.41 (orthogonal). The ranking is by the "
    "last error, where the truth drifts by the mean over time. Times and memory as for the plain stream. " + INTERVALS
)


def evaluate(
    data: ArrayLike | str | Path,
    K: int | None = None,
    algorithms: Mapping[str, str | Callable[..., Any]] | Sequence[str] | None = None,
    *,
    plan: Plan | None = None,
    out: str | Path | None = None,
    data_home: str | Path | None = None,
    progress: bool = False,
    command: str = "",
) -> Evaluation:
    """Run algorithms on data, and measure their distance from batch PCA along the way, their time and their memory.

    Parameters
    ----------
    data : (N, D) or str or Path
        Rows, a name or file for `online_psp.datasets.registry.load`, or a generated family such as ``spiked:D=1024,K=16,rho=0.01``, whose
        population is known, so that there is Err_pop as well.
    K : int, optional
        Number of directions to find; for generated data, that of the data by default.
    algorithms : mapping of label to class, function or "module:Class", or sequence of "module:Class"
        Anything that `online_psp.suite.methods` describes.
    plan : Plan, optional
        Trials, tracks, processes and time limit.
    out : str or Path, optional
        Folder for rows, pictures and report.
    data_home : str or Path, optional
        Folder of the data sets.
    progress : bool
        Whether to show what is running.
    command : str
        Command that repeats this, for the report.
    """
    plan, source = plan or Plan(), find(data, data_home)
    named = algorithms if isinstance(algorithms, Mapping) else {text: text for text in algorithms or ()}
    own = [_method(given, "" if label == given else label) for label, given in named.items()]
    builtin = [*(PAPER if plan.builtin else ()), *(FAMILY if plan.family else ())]
    methods = list(dict.fromkeys([*told_apart(own, builtin), *builtin]))
    if not methods:
        raise ValueError("There is nothing to evaluate: name an algorithm, or keep the built-in ones.")
    tracks: list[Track | None] = [track for name in plan.tracks for track in TRACKS[name]] or [None]
    seeds = range(plan.seed, plan.seed + plan.trials)
    records = trials("evaluation", source, methods, K, tracks, seeds, plan.epochs, count=_MOMENTS, data_home=data_home)
    how = How(plan.jobs, True, plan.timeout, data_home, progress)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch if out is None else out) / "rows.csv"
        read_rows(path)  # raises an error in place of overwriting some other file
        result = Evaluation(run(records, path, how), command)
    if out is not None:
        result.save(out)
    return result


def trials(
    study: str,
    source: Data,
    methods: Sequence[Method],
    K: int | None = None,
    tracks: Sequence[Track | None] = (None,),
    seeds: Sequence[int] = (0,),
    epochs: int = 1,
    *,
    count: int = 1,
    repeats: int = 1,
    data_home: str | Path | None = None,
) -> list[Trial]:
    """Scored trials of methods on a set: on each track, with each seed. What is wrong is said here, before anything runs.

    Parameters
    ----------
    K : int, optional
        That of generated data by default.
    count : int
        About so many moments at which the error is measured; the last row alone by default.
    repeats : int
        Most timed passes of a trial.
    """
    K = source.K or None if K is None else K
    if K is None:
        raise ValueError("Pass K, the number of directions to find: it is known for generated data only.")
    if not 1 <= K <= min(source.used, source.D):
        raise ValueError(f"K must be between 1 and {min(source.used, source.D)} for data of shape ({source.used}, {source.D}); got {K}.")
    for method in methods:
        check(method, K, source.D)
    first, total = problem(source, K, seeds[0], None, data_home), source.used * epochs
    check_directions(np.asarray(first.X), first.V)
    plain = ("err_batch", "err_pop") if first.truth is not None and source.K == K else ("err_batch",)
    return [
        Trial(
            study,
            source,
            method,
            K,
            seed,
            epochs,
            ("err_present",) if track else plain,
            (total,) if count == 1 else _when(total, K, track, count),
            track,
            scored=True,
            repeats=repeats,
        )
        for track in tracks
        for seed in seeds
        for method in methods
    ]


def _when(total: int, K: int, track: Track | None, count: int) -> tuple[int, ...]:
    """Moments evenly spaced on a logarithmic axis; on a track evenly in time, because a change may come at any time."""
    if track is None:
        return moments(total, min(2 * K, total), count)
    return tuple(int(t) for t in np.unique(np.linspace(0, total, count + 1)[1:].round()) if t >= 1)


def _method(given: str | Callable[..., Any], label: str) -> Method:
    if isinstance(given, str):
        method = yours(given)
    else:
        method = replace(yours(f"{given.__module__}:{getattr(given, '__qualname__', type(given).__name__)}"), made=given)
    return replace(method, label=label or method.label)
