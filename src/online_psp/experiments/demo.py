"""``psp demo``: three of the paper's algorithms, OnlinePCA and IncrementalPCA on data that needs no download, timed and drawn."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from online_psp.algorithms import ALGORITHMS
from online_psp.datasets import spiked_covariance
from online_psp.engine.types import Floats
from online_psp.experiments.demo_kernels import SHAPES
from online_psp.metrics import batch_components, standardize, subspace_error
from online_psp.suite.baselines import BASELINES, started

_SHOWN = ("fsm", "ipca", "ccipca")  # the paper's, but for SM, which has FSM's curve: what is shown must be compiled while somebody waits
_IN_PLACE_SAMPLES = 500
_TIMES = 3
_SINGLE_SAMPLES = 1500


class Problem(NamedTuple):
    """Rows to learn from, with the truth if it is known."""

    name: str
    X: Floats
    K: int
    truth: Floats | None
    """(D, K) population subspace, if the data was drawn from a model."""


class Result(NamedTuple):
    """The result of one method on one problem. Times are in microseconds per sample; `in_place` is that of the in-place baseline."""

    problem: str
    method: str
    single: float | None
    block: float
    in_place: float | None
    err_batch: float
    err_pop: float | None
    samples: list[int]
    curve: list[float]


def problems() -> list[Problem]:
    """Spiked covariance, and the handwritten digits that ship inside scikit-learn (three passes)."""
    from sklearn.datasets import load_digits

    (D, K), (pixels, few) = SHAPES
    spiked = spiked_covariance(4000, D, K, rho=0.01, seed=1)
    digits = standardize(load_digits().data)
    passes = np.concatenate([np.random.default_rng(seed).permutation(digits) for seed in range(3)])
    return [Problem(f"spiked, D={D}, K={K}", spiked.X, K, spiked.U), Problem(f"digits, D={pixels}, K={few}", passes, few, None)]


def microseconds(function: Callable[[], Any], samples: int) -> float:
    start = time.perf_counter()
    function()
    return 1e6 * (time.perf_counter() - start) / samples


def in_place_microseconds(name: str, problem: Problem) -> float:
    """Time of the published update, one sample at a time, in place."""
    module: Any = importlib.import_module(ALGORITHMS[name].__module__)
    model = started(name, *module.reference_start(np.linalg.qr(problem.X[: problem.K].T)[0]))
    rates = BASELINES[name].rates(100, 2.0)
    rows = problem.X[:_IN_PLACE_SAMPLES]

    def run() -> None:
        for x in rows:
            model.step(x, *rates)

    run()
    return min(microseconds(run, len(rows)) for _ in range(_TIMES))


def learning_curve(fit: Callable[[Floats], Any], basis: Callable[[], Floats], X: Floats, target: Floats) -> tuple[list[int], list[float]]:
    """Err_batch at about thirty moments, evenly spaced on a logarithmic axis."""
    K = target.shape[1]
    marks = np.unique(np.geomspace(4 * K, len(X), 25).astype(int))
    marks = marks[np.append(np.diff(marks) >= K, True)]
    errors, done = [], 0
    for mark in marks:
        fit(X[done:mark])
        done = mark
        errors.append(subspace_error(basis(), target))
    return [int(mark) for mark in marks], errors


def run_algorithm(name: str, problem: Problem, target: Floats) -> Result:
    X, K = problem.X, problem.K
    D = X.shape[1]
    cls = ALGORITHMS[name]
    warm = cls(K, D)
    warm.fit_block(X[: 4 * K])
    blocks, singles = [], []
    for _ in range(_TIMES):  # the best of several, as for the baseline: other programs come and go
        model = cls(K, D)
        blocks.append(microseconds(lambda model=model: model.fit_block(X), len(X)))  # type: ignore[misc]
        singles.append(microseconds(lambda: [warm.fit_next(x) for x in X[:_SINGLE_SAMPLES]], _SINGLE_SAMPLES))
    block, single = min(blocks), min(singles)
    fresh = cls(K, D)
    samples, curve = learning_curve(fresh.fit_block, fresh.get_components, X, target)
    err_pop = None if problem.truth is None else subspace_error(model.get_components(), problem.truth)
    in_place = in_place_microseconds(name, problem) if name in BASELINES else None
    return Result(problem.name, name.upper(), single, block, in_place, curve[-1], err_pop, samples, curve)


def run_estimator(make: Callable[[], Any], label: str, problem: Problem, target: Floats) -> Result:
    """A scikit-learn estimator with `partial_fit`, in blocks of five times K."""
    X, K = problem.X, problem.K
    model = make()
    block = microseconds(lambda: _fit_estimator(model, X, K), len(X))
    fresh = make()
    samples, curve = learning_curve(lambda rows: _fit_estimator(fresh, rows, K), lambda: fresh.components_.T, X, target)
    components = model.components_.T
    err_pop = None if problem.truth is None else subspace_error(components, problem.truth)
    return Result(problem.name, label, None, block, None, subspace_error(components, target), err_pop, samples, curve)


def _fit_estimator(model: Any, rows: Floats, K: int) -> None:
    step = 5 * K
    for start in range(0, len(rows) - K + 1, step):
        stop = start + step if len(rows) - start - step >= K else len(rows)
        model.partial_fit(rows[start:stop])


def run(chosen: list[Problem]) -> Iterator[Result]:
    """Run everything in one thread, after everything is compiled (`demo_kernels`); yields one result at a time."""
    from sklearn.decomposition import IncrementalPCA
    from threadpoolctl import threadpool_limits

    from online_psp.pca import OnlinePCA

    with threadpool_limits(1):
        for problem in chosen:
            target = batch_components(problem.X, problem.K)
            for name in _SHOWN:
                yield run_algorithm(name, problem, target)
            yield run_estimator(lambda K=problem.K: IncrementalPCA(K), "IncrementalPCA", problem, target)  # type: ignore[misc]
            yield run_estimator(lambda K=problem.K: OnlinePCA(K), "OnlinePCA", problem, target)  # type: ignore[misc]


def steps(chosen: list[Problem]) -> int:
    """Number of results that :func:`run` yields."""
    return len(chosen) * (len(_SHOWN) + 2)


def draw(results: list[Result], path: Path) -> None:
    """Plot error against samples seen, with one panel per problem."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(result.problem for result in results))
    figure = Figure(figsize=(5.2 * len(names), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for result in results:
            if result.problem == name:
                style = "--" if result.method == "IncrementalPCA" else "-"
                axes.loglog(
                    result.samples, np.maximum(result.curve, 1e-6), style, label=f"{result.method}  {result.block:.1f} µs", linewidth=1.8
                )
        axes.set(title=name, xlabel="samples seen", ylabel="subspace error against batch PCA")
        axes.grid(True, which="both", alpha=0.25)
        axes.legend(title="time per sample", frameon=False)
    figure.savefig(path, dpi=130)
