"""Evaluation of your own algorithm on your own data, beside the built-in ones.

>>> import numpy as np
>>> from sklearn.decomposition import IncrementalPCA
>>> from online_psp.experiments import Plan, evaluate
>>> X = np.random.default_rng(0).standard_normal((300, 20)) * np.r_[5.0, 4.0, np.full(18, 0.1)]
>>> result = evaluate(X, K=2, algorithms={"IncrementalPCA": IncrementalPCA}, plan=Plan(trials=1, isolate=False))
>>> sorted(result.errors())[:3]
['CCIPCA', 'FSM γ=0.6', 'FSM γ=1.5']
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from online_psp.datasets import DataSet, load
from online_psp.experiments import plots, tables
from online_psp.experiments.figures import FIVE, ONLINE_PCA
from online_psp.experiments.isolation import Isolation
from online_psp.experiments.learners import ALGORITHMS, check_curve
from online_psp.experiments.measure import SCORE, Workbench
from online_psp.experiments.records import Curve, Experiment, RealData, SpikedData, Track, moments, parse_spiked, told_apart
from online_psp.experiments.report import Section, write_report
from online_psp.experiments.resources import installed_bytes
from online_psp.experiments.rows import Row, distinct, read_rows, select, write_rows
from online_psp.experiments.runner import run
from online_psp.experiments.statistics import INTERVALS
from online_psp.experiments.tracks import TRACKS
from online_psp.metrics import check_directions

_MOMENTS = 30
_KEPT_BYTES = 1e9
_LARGEST = 1e150

Algorithms = Mapping[str, str | Callable[..., Any]]


@dataclass(frozen=True)
class Plan:
    """The parameters of an evaluation.

    Attributes
    ----------
    trials, epochs, seed : int
        Number of orders of the samples (or of draws of generated ones), passes over them, and the seed of the first order.
    tracks : tuple of str
        Keys of `online_psp.experiments.tracks.TRACKS`; if empty, the data is used as it is.
    builtin : bool
        Whether to run the paper's algorithms and OnlinePCA beside the given ones.
    family : bool
        Whether to run every other registered algorithm too.
    batch : int or None
        Rows per call of ``partial_fit``; 5 K by default.
    isolate : bool
        Whether to run every algorithm in a process of its own, so that its memory can be measured. Classes that a new process cannot
        import, such as those of a notebook, run in this process, without a figure for memory.
    timeout : float or None
        Most seconds that a pass over the data may take, with `isolate`.
    jobs : int
        Number of processes at a time. With more than one, they disturb each other's times.
    resume : bool
        Whether to keep results that the folder already has, of the same code. Not by default, because an algorithm under development
        changes while its name stays.
    """

    trials: int = 3
    epochs: int = 1
    seed: int = 0
    tracks: tuple[str, ...] = ()
    builtin: bool = True
    family: bool = False
    batch: int | None = None
    isolate: bool = True
    timeout: float | None = None
    jobs: int = 1
    resume: bool = False

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"The seed must be at least 0; got {self.seed}.")
        for name in ("trials", "epochs", "jobs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")


@dataclass(frozen=True)
class Evaluation:
    """The results of an evaluation."""

    rows: list[Row]
    command: str = ""

    def errors(self) -> dict[str, float]:
        """The median score by algorithm, on the first track: the error after the last sample, or its mean over time if the truth drifts."""
        track = self.rows[0].track
        return {label: found.value for label, found in tables.scores(select(self.rows, track=track)).items()}

    def table(self) -> str:
        """Error, time and memory of every algorithm, best first, as Markdown."""
        return tables.to_markdown(tables.comparison(self.rows))

    def save(self, folder: str | Path) -> Path:
        """Write a picture for every track, and report.html, into a folder; returns the path of the report."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        sections = [self._section(str(track), folder) for track in distinct(self.rows, "track")]
        first = self.rows[0]
        seeds = sorted({row.seed for row in self.rows})
        facts = {
            "data": f"{first.data}, {first.N} × {first.D}, checksum {first.origin.checksum or 'none'}",
            "seeds": ", ".join(map(str, seeds)),
        }
        return write_report(folder / "report.html", "Evaluation of streaming PCA", "", sections, [], facts, self.command)

    def _section(self, track: str, folder: Path) -> Section:
        mine = select(self.rows, track=track)
        picture = None
        if select(mine, metric=SCORE):
            figure = plots.evaluation(mine)
            name = f"evaluation{'_' + track.replace(' ', '').replace('%', '') if track else ''}"
            plots.save(figure, folder / f"{name}.png")
            picture = plots.save(figure, folder / f"{name}.svg")
        return Section(track or "Error against samples seen", _TEXT if not track else _TRACK_TEXT, picture, tuple(tables.comparison(mine)))


_TEXT = (
    "Rows are standardised (mean subtracted, divided by the mean norm). Err_batch is the distance of the subspace found to that of "
    "batch PCA, Err_pop to that of the generator, from 0 (equal) to 1.41 (orthogonal). Lines are medians over the orders of the samples, "
    "bands the range between the quartiles. Times are of one thread, of a pass in which the components are asked for once, at the end. "
    "Memory is the peak resident size of the algorithm's own process, and what of it came after the first row; the table's title has the "
    "size of all rows to compare with. " + INTERVALS
)
_TRACK_TEXT = (
    "The error is the distance to the subspace that is right at the moment, from 0 (equal) to 1.41 (orthogonal). The ranking is by the "
    "last error, where the truth drifts by the mean over time. Times and memory as for the plain stream. " + INTERVALS
)


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


def _curves(algorithms: Algorithms, batch: int | None) -> tuple[list[Curve], dict[str, Callable[..., Any]]]:
    """The curves, and the classes and functions that only this process knows."""
    curves, builders = [], {}
    for label, given in algorithms.items():
        if isinstance(given, str):
            parsed = parse_curve(given)
            curves.append(Curve(label, parsed.algorithm, parsed.options, batch=batch))
            continue
        name = _importable(given)
        curves.append(Curve(label, name or f"given:{label}", batch=batch))
        if name is None:
            builders[f"given:{label}"] = given
    return curves, builders


def labelled(texts: Sequence[str]) -> dict[str, str]:
    """Unique labels for algorithms as named on the command line, none of them that of a built-in one."""
    curves = told_apart([parse_curve(text) for text in texts], _known(Plan(family=True)))
    return {curve.label: curve.text for curve in curves}


def _known(plan: Plan) -> list[Curve]:
    """The curves of this package's algorithms."""
    curves = [*FIVE, ONLINE_PCA] if plan.builtin else []
    if plan.family:
        drawn = {curve.algorithm for curve in curves}
        curves += [Curve(name, name) for name in ALGORITHMS if name not in drawn]
    return curves


def _importable(given: Callable[..., Any]) -> str | None:
    """``module:name`` of a class or function that another process can import, or None."""
    module, name = getattr(given, "__module__", ""), getattr(given, "__qualname__", "")
    if not module or module == "__main__" or not name or "<" in name:
        return None
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return f"{module}:{name}" if found is given else None


def _source(
    data: ArrayLike | str | Path, key: str | None, data_home: str | Path | None
) -> tuple[RealData | SpikedData, dict[str, DataSet]]:
    if isinstance(data, str) and data.partition(":")[0] == "spiked":
        return parse_spiked(data), {}
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
    _check_range(found.X)
    fingerprint = hashlib.sha256(np.ascontiguousarray(found.X).tobytes()).hexdigest()[:12]
    return RealData(name, found.N, found.D, key=key, fingerprint=fingerprint), sources


def _check_memory(data: RealData | SpikedData) -> None:
    """Raise an error if two copies of the rows and their Gram matrix do not fit into the memory of the machine."""
    needed, there = 8.0 * (2.0 * data.used * data.D + min(data.used, data.D) ** 2), installed_bytes()
    if needed > there:
        raise ValueError(
            f"{data.used:,} × {data.D:,} rows need about {needed / 1e9:,.0f} GB of memory, but this machine has {there / 1e9:.0f} GB."
        )


def _check_range(X: NDArray[Any]) -> None:
    """Raise a ValueError if squares of values overflow or vanish: measurements would be meaningless."""
    with np.errstate(over="ignore"):
        sizes = np.abs(X.astype(np.float64, copy=False)).max(axis=1)
    if not sizes.max() < _LARGEST:
        worst = int(np.argmax(sizes))
        raise ValueError(f"Row {worst} of the data has a value of {sizes[worst]:.3g}, whose square overflows: scale the data down.")
    if 0 < sizes.max() < 1 / _LARGEST:
        raise ValueError(f"No value of the data is larger than {sizes.max():.3g}, and the squares vanish: scale the data up.")


def _checkpoints(data: RealData | SpikedData, K: int, epochs: int, track: Track | None) -> tuple[int, ...]:
    """Checkpoints evenly spaced on a logarithmic axis; on a track evenly in time, because a change may come at any time."""
    total = data.used * epochs
    if track is None:
        return moments(total, min(2 * K, total), _MOMENTS)
    return tuple(int(t) for t in np.unique(np.linspace(0, total, _MOMENTS + 1)[1:].round()) if t >= 1)


def _records(data: RealData | SpikedData, K: int, curves: Sequence[Curve], plan: Plan) -> list[Experiment]:
    unknown = [name for name in plan.tracks if name not in TRACKS]
    if unknown:
        raise ValueError(f"There is no track {unknown[0]!r}; there are {', '.join(TRACKS)}.")
    if plan.tracks and plan.epochs > 1:
        raise ValueError("A track is a single pass: leave epochs at 1.")
    tracks: list[Track | None] = [track for name in plan.tracks for track in TRACKS[name]] or [None]
    metrics = ("err_batch", "err_pop") if isinstance(data, SpikedData) and data.K == K else ("err_batch",)
    return [
        Experiment(
            "evaluation",
            data,
            curve,
            K,
            plan.seed + trial,
            plan.epochs,
            metrics,
            _checkpoints(data, K, plan.epochs, track),
            track=track,
            scored=True,
        )
        for track in tracks
        for trial in range(plan.trials)
        for curve in curves
    ]


def evaluate(
    data: ArrayLike | str | Path,
    K: int | None = None,
    algorithms: Algorithms | None = None,
    *,
    plan: Plan | None = None,
    out: str | Path | None = None,
    key: str | None = None,
    data_home: str | Path | None = None,
    progress: bool = False,
    command: str = "",
) -> Evaluation:
    """Run algorithms on data, and measure their distance from batch PCA along the way, their time and their memory.

    Parameters
    ----------
    data : (N, D) or str or Path
        Rows, a name or file for `online_psp.datasets.load`, or ``spiked:D=1024,K=16,rho=0.01`` for generated rows, with Err_pop as well.
    K : int, optional
        Number of directions to find; for spiked data, that of the data by default.
    algorithms : mapping of label to class, function or "module:Class"
        Anything whose instances have ``fit_next(x)`` and ``get_components() -> (D, K)``, made as ``Class(K, D)``; or ``partial_fit(X)`` and
        ``components_ (K, D)``, made as ``Class(n_components=K)``; or river's ``learn_one(x)`` and ``transform_one(x)``.
    plan : Plan, optional
        Trials, tracks, processes and time limit.
    out : str or Path, optional
        Folder for rows, pictures and report.
    key : str, optional
        Array to read from a .npz or .mat file.
    data_home : str or Path, optional
        Folder of the data sets.
    progress : bool
        Whether to show what is running.
    command : str
        Command that repeats this, for the report.
    """
    plan = plan or Plan()
    source, sources = _source(data, key, data_home)
    K = source.K if K is None and isinstance(source, SpikedData) else K
    if K is None:
        raise ValueError("Pass K, the number of directions to find: it is known for spiked data only.")
    if not 1 <= K <= min(source.used, source.D):
        raise ValueError(f"K must be between 1 and {min(source.used, source.D)} for data of shape ({source.used}, {source.D}); got {K}.")
    _check_memory(source)
    known = _known(plan)
    mine, builders = _curves(algorithms or {}, plan.batch)
    given = told_apart(mine, known)
    for curve in given:  # report what is missing before anything runs
        check_curve(curve, K, source.D, builders, construct=not (plan.isolate and curve.foreign) or curve.algorithm in builders)
    curves = [*given, *(curve for curve in known if curve.label not in {other.label for other in given})]
    if not curves:
        raise ValueError("There is nothing to evaluate: name an algorithm, or keep the built-in ones.")
    records = _records(source, K, curves, plan)
    several = max(1, min(len({(record.track, record.seed) for record in records}), int(_KEPT_BYTES / (8.0 * source.used * source.D))))
    bench = Workbench(data_home, sources, builders, keep=several)
    prepared = bench.prepare(source, K, plan.seed)
    check_directions(prepared.X, prepared.batch)
    with tempfile.TemporaryDirectory(prefix="psp-evaluate-") as scratch:
        path = Path(out if out is not None else scratch) / "rows.csv"
        rows = _run(records, path, bench, builders, plan, Path(scratch), progress)
    result = Evaluation(rows, command)
    if out is not None:
        result.save(out)
    return result


def _run(
    records: Sequence[Experiment], path: Path, bench: Workbench, builders: Mapping[str, Any], plan: Plan, scratch: Path, progress: bool
) -> list[Row]:
    """Run algorithms that another process can import in their own processes, the others here; results in the order of the records."""
    how = Isolation(scratch, plan.timeout, plan.jobs)
    apart = [record for record in records if plan.isolate and record.curve.algorithm not in builders]
    here = [record for record in records if record not in apart]
    before = read_rows(path)  # raises an error instead of overwriting some other file
    if not plan.resume:
        write_rows(path, ())
    try:
        found = run(apart, path, bench=bench, isolation=how, progress=progress) if apart else []
        found += run(here, path, bench=bench, progress=progress) if here else []
    except BaseException:
        if not read_rows(path):  # nothing came of it: the rows of the last evaluation stay
            write_rows(path, before)
        raise
    order = {record.key: number for number, record in enumerate(records)}
    return sorted(found, key=lambda row: order[row.key])
