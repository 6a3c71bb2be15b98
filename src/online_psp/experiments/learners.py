"""A common interface to anything that learns a subspace, whoever wrote it."""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from online_psp.algorithms import ALGORITHMS as _PAPERS
from online_psp.engine.types import Array
from online_psp.experiments.records import Curve
from online_psp.suite.rivals import RIVALS, RivalModel

ALGORITHMS: dict[str, Any] = {**_PAPERS, **{name: partial(RivalModel, rival) for name, rival in RIVALS.items()}}

Builders: TypeAlias = Mapping[str, Callable[..., Any]]


class Learner(Protocol):
    """Learns from rows, and gives a basis."""

    def feed(self, X: Array) -> None:
        """Learn from rows, (n, D)."""

    def finish(self) -> None:
        """Called after the last row."""

    def basis(self) -> Array:
        """The subspace so far, (D, K)."""


def _as_basis(given: Any) -> Array:
    """An array, (D, K); one with masked values has holes."""
    return np.ma.filled(given.astype(np.float64), np.nan) if isinstance(given, np.ma.MaskedArray) else np.asarray(given)


@dataclass
class RowLearner:
    """Anything with ``fit_next`` and ``get_components``; ``fit_block`` is used if it exists."""

    model: Any

    def feed(self, X: Array) -> None:
        """Learn from rows, (n, D)."""
        if hasattr(self.model, "fit_block"):
            self.model.fit_block(X)
            return
        for x in X:
            self.model.fit_next(x)

    def finish(self) -> None:
        """Nothing is held back."""

    def basis(self) -> Array:
        """The subspace so far, (D, K)."""
        return _as_basis(self.model.get_components())


@dataclass
class EstimatorLearner:
    """A scikit-learn estimator with ``partial_fit`` and ``components_``.

    The result of IncrementalPCA depends on its batches, so these must not depend on when it is read: it gets `batch` rows at a time,
    whatever the blocks that come in. With ``batch=0``, blocks are passed on as they come.
    """

    model: Any
    batch: int
    waiting: list[Array] = field(default_factory=list)
    started: bool = False

    def feed(self, X: Array) -> None:
        """Learn from rows, (n, D), as soon as they fill a batch."""
        if not self.batch:
            self._fit(X)
            return
        rows = np.concatenate([*self.waiting, X])
        whole = len(rows) - len(rows) % self.batch
        for start in range(0, whole, self.batch):
            self._fit(rows[start : start + self.batch])
        self.waiting = [rows[whole:]] if whole < len(rows) else []

    def _fit(self, rows: Array) -> None:
        self.model.partial_fit(rows)
        self.started = True

    def finish(self) -> None:
        """Learn from the rows that did not fill a batch."""
        if self.waiting:
            self._fit(np.concatenate(self.waiting))
            self.waiting = []

    def basis(self) -> Array:
        """The subspace as of the last full batch, (D, K); before the first, that of a copy that has seen the waiting rows."""
        model = self.model
        if not self.started and self.waiting:
            model = copy.deepcopy(model)
            model.partial_fit(np.concatenate(self.waiting))
        return _as_basis(model.components_).T


@dataclass
class DictLearner:
    """A river-style transformer: ``learn_one(x)`` and ``transform_one(x)`` of dictionaries from the number of a feature to its value.

    The basis is ``get_components()`` or ``components_`` if it has one of these. Otherwise it comes from D calls: ``transform_one`` of each
    unit vector, minus ``transform_one`` of zero.
    """

    model: Any
    K: int
    D: int

    def feed(self, X: Array) -> None:
        """Learn from rows, (n, D), one by one."""
        for x in X.tolist():
            self.model.learn_one(dict(enumerate(x)))

    def finish(self) -> None:
        """Nothing is held back."""

    def basis(self) -> Array:
        """The subspace so far, (D, K)."""
        if hasattr(self.model, "get_components"):
            return _as_basis(self.model.get_components())
        if hasattr(self.model, "components_"):
            return _as_basis(self.model.components_).T
        zero = self._transform(np.zeros(self.D))
        return np.array([self._transform(unit) - zero for unit in np.eye(self.D)])

    def _transform(self, x: Array) -> Array:
        found = self.model.transform_one(dict(enumerate(x.tolist())))
        if not isinstance(found, Mapping):
            raise TypeError(f"transform_one gave {type(found).__name__}; it must be a dictionary of {self.K} numbers.")
        return np.array(list(found.values()), dtype=np.float64)


def resolve(algorithm: str, builders: Builders | None = None) -> Callable[..., Any]:
    """The class, or the function that makes a model, that a name stands for."""
    if builders is not None and algorithm in builders:
        return builders[algorithm]
    if algorithm in ALGORITHMS:
        known: Callable[..., Any] = ALGORITHMS[algorithm]
        return known
    module_name, colon, attribute = algorithm.partition(":")
    if not (module_name and colon and attribute):
        raise ValueError(f"There is no algorithm {algorithm!r}: name one of {', '.join(ALGORITHMS)}, or module:Class for your own.")
    try:
        target: Any = importlib.import_module(module_name)
    except ImportError as error:
        hint = f" Write {Path(module_name).stem}:{attribute} in the folder of that file." if module_name.endswith(".py") else ""
        raise ValueError(f"The module {module_name!r} of {algorithm!r} cannot be imported: {error}.{hint}") from error
    except (Exception, SystemExit) as error:  # the import may raise anything
        raise ValueError(f"The module {module_name!r} of {algorithm!r} cannot be imported: {type(error).__name__}: {error}.") from error
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise ValueError(f"The module {module_name!r} has no {attribute!r}.")
        target = getattr(target, part)
    if not callable(target):
        raise ValueError(f"{algorithm!r} is not a class or a function that makes a model.")
    made: Callable[..., Any] = target
    return made


def build(curve: Curve, K: int, D: int, builders: Builders | None = None) -> Learner:
    """Make a learner for K directions of D features.

    A class with ``partial_fit``, or with ``learn_one`` and an argument ``n_components``, and without ``get_components``, is called as
    ``Class(n_components=K, …)``; anything else as ``Class(K, D, …)``.
    """
    make: Callable[..., Any] = resolve(curve.algorithm, builders)
    options = dict(curve.options)
    if curve.lead:
        gamma, lead = float(options.pop("gamma")), curve.lead
        options["learning_rate"] = lambda t: 2.0 / (gamma * (t - lead) + 5.0)
    model = make(n_components=K, **options) if _by_keyword(make) else make(K, D, **options)
    return _wrap(model, curve, K, D)


_CONTRACTS = (("fit_next", "get_components"), ("partial_fit",), ("learn_one", "transform_one"))
"""The methods that a model must have: all those of one line."""


def check_curve(curve: Curve, K: int, D: int, builders: Builders | None, construct: bool) -> None:
    """Raise an error that says what is wrong with a user's algorithm, before anything runs.

    With ``construct=False`` the class is only inspected: an isolated process constructs it, so that a crash affects nothing else.
    """
    make = resolve(curve.algorithm, builders)
    if construct:
        build(curve, K, D, builders)
    elif inspect.isclass(make) and not any(all(hasattr(make, name) for name in names) for names in _CONTRACTS):
        raise _lacking(make, curve)


def _lacking(model: Any, curve: Curve) -> TypeError:
    missing = [name for name in ("fit_next", "get_components", "partial_fit", "learn_one") if not hasattr(model, name)]
    return TypeError(
        f"{curve.algorithm} must implement fit_next(x) and get_components(), or partial_fit(X) and components_, or learn_one(x) and "
        f"transform_one(x). Missing: {', '.join(missing)}."
    )


def _by_keyword(make: Callable[..., Any]) -> bool:
    """Whether a class is constructed like those of scikit-learn and river."""
    if not inspect.isclass(make) or hasattr(make, "get_components"):
        return False
    return hasattr(make, "partial_fit") or (hasattr(make, "learn_one") and "n_components" in inspect.signature(make).parameters)


def _wrap(model: Any, curve: Curve, K: int, D: int) -> Learner:
    for name in ("fit_next", "fit_block", "partial_fit", "learn_one"):
        method = getattr(model, name, None)
        if any(kind(method) for kind in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)):
            raise TypeError(f"{name} of {curve.label} does nothing when it is called: it is a generator or a coroutine.")
    if hasattr(model, "fit_next") and hasattr(model, "get_components"):
        return RowLearner(model)
    if hasattr(model, "partial_fit"):
        return EstimatorLearner(model, 5 * K if curve.batch is None else curve.batch)
    if hasattr(model, "learn_one") and hasattr(model, "transform_one"):
        return DictLearner(model, K, D)
    raise _lacking(model, curve)


def takes_missing(curve: Curve, K: int, D: int, builders: Builders | None = None) -> bool:
    """Whether an algorithm learns from rows with NaN: it says so by ``handles_missing = True``, or by scikit-learn's tag ``allow_nan``."""
    model: Any = getattr(build(curve, K, D, builders), "model", None)
    if hasattr(model, "handles_missing"):
        return bool(model.handles_missing)
    try:
        return bool(model.__sklearn_tags__().input_tags.allow_nan)
    except AttributeError:
        return False


def check_basis(basis: Array, curve: Curve, K: int, D: int) -> Array:
    """The basis of a learner, checked; raises an error that says what is wrong with it."""
    if basis.shape != (D, K):
        raise ValueError(f"{curve.label} gave a basis of shape {basis.shape}; it must be (D, K) = ({D}, {K}).")
    if basis.dtype.kind not in "fiub":
        raise ValueError(f"{curve.label} gave a basis of {basis.dtype}; it must be real numbers.")
    if not np.isfinite(basis).all():
        raise ValueError(f"{curve.label} gave a basis that is not finite.")
    return basis


@cache
def warm_up(algorithm: str) -> None:
    """Compile the kernels of one of this package's algorithms, before anything is timed."""
    if ":" in algorithm and not algorithm.startswith("online_psp."):
        return
    X = np.random.default_rng(0).standard_normal((64, 32))
    learner = build(Curve(algorithm, algorithm, batch=0), 4, 32)
    learner.feed(X)
    learner.feed(X)
    learner.basis()
    if isinstance(learner, RowLearner):
        for x in X:
            learner.model.fit_next(x)
