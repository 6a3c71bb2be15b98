"""Who learns: one registry of methods, and one interface to all of them, whoever wrote them.

A method names an algorithm: one of this package ("fsm", "rows:onlinepca"), a rival ("rival:adaoja"), another package ("peer:prosvd"), batch
PCA ("batch:randomized"), or a class of yours ("module:Class"): anything with

- ``fit_next(x)`` and ``get_components() -> (D, K)``, made as ``Class(K, D, …)``; ``fit_block(X)`` is used if there is one; or
- ``partial_fit(X)`` and ``components_ (K, D)``, made as ``Class(n_components=K, …)``, as in scikit-learn; or
- ``learn_one(x)`` and ``transform_one(x)`` of dictionaries, as in river.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from online_psp.algorithms import ALGORITHMS
from online_psp.engine.types import Array, Floats
from online_psp.pca import OnlinePCA
from online_psp.suite.rivals import RIVALS, Held, RivalModel

OURS, PEER, MEMORY, YOURS = "online-psp", "peer", "in memory", "yours"


@dataclass(frozen=True)
class Method:
    """An algorithm with its parameters: one line of a table, one curve of a picture.

    Attributes
    ----------
    label : str
    algorithm : str
        See the module's text.
    options : tuple of (name, value)
        Keyword arguments of the constructor; of a peer, "5K" and "5D" stand for numbers of rows.
    kind : str
        OURS, PEER, MEMORY or YOURS.
    batch : str
        Rows per call of ``partial_fit``, as "5K" or "5D"; as they come if empty.
    times : int
        Directions kept, as a multiple of K, of which the leading K are read.
    made : class or callable or None
        A class of the caller, in place of the algorithm's name.
    """

    label: str
    algorithm: str
    options: tuple[tuple[str, Any], ...] = ()
    kind: str = OURS
    batch: str = ""
    times: int = 1
    made: Callable[..., Any] | None = None

    @property
    def text(self) -> str:
        """The algorithm with its options, as the command line takes it."""
        return ",".join([self.algorithm, *(f"{name}={value}" for name, value in self.options if not callable(value))])


class Learner:
    """Learns from rows, and gives a basis: here, of anything with ``fit_next`` or ``fit_block``, and ``get_components``."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def feed(self, X: Floats) -> None:
        """Learn from rows, (n, D)."""
        if hasattr(self.model, "fit_block"):
            self.model.fit_block(X)
            return
        for x in X:
            self.model.fit_next(x)

    def flush(self) -> None:
        """Learn from rows that are held back: called after the last row."""

    def basis(self) -> Array:
        """The subspace so far, (D, K)."""
        return np.asarray(self.model.get_components())

    @property
    def takes_missing(self) -> bool:
        """Whether NaN counts as a missing value: ``handles_missing = True``, or scikit-learn's tag ``allow_nan``."""
        if hasattr(self.model, "handles_missing"):
            return bool(self.model.handles_missing)
        try:
            return bool(self.model.__sklearn_tags__().input_tags.allow_nan)
        except AttributeError:
            return False


class EstimatorLearner(Learner):
    """A scikit-learn estimator with ``partial_fit`` and ``components_``.

    The result of IncrementalPCA depends on its batches, so these must not depend on when it is read: it gets `batch` rows at a time.
    """

    def __init__(self, model: Any, batch: int | None) -> None:
        super().__init__(model)
        self.batch, self.held, self.fitted = batch, Held(), False

    def feed(self, X: Floats) -> None:
        """Learn from rows, (n, D), as soon as they fill a batch."""
        for rows in self.held.whole(X, self.batch or len(X)):
            self.model.partial_fit(rows)
            self.fitted = True

    def flush(self) -> None:
        """Learn from the rows that did not fill a batch."""
        if len(self.held.rows):
            self.model.partial_fit(self.held.rows)
            self.held, self.fitted = Held(), True

    def basis(self) -> Array:
        """The subspace as of the last full batch, (D, K); before the first, that of a copy that has seen the rows held back."""
        model = self.model if self.fitted else copy.deepcopy(self.model).partial_fit(self.held.rows)
        return np.asarray(model.components_).T


class DictLearner(Learner):
    """A river-style transformer of dictionaries from the number of a feature to its value.

    Its basis comes from D calls: ``transform_one`` of each unit vector, minus ``transform_one`` of zero.
    """

    def __init__(self, model: Any, D: int) -> None:
        super().__init__(model)
        self.D = D

    def feed(self, X: Floats) -> None:
        """Learn from rows, (n, D), one by one."""
        for x in X.tolist():
            self.model.learn_one(dict(enumerate(x)))

    def basis(self) -> Array:
        """The subspace so far, (D, K)."""
        zero = self._transform(np.zeros(self.D))
        return np.array([self._transform(unit) - zero for unit in np.eye(self.D)])

    def _transform(self, x: Floats) -> Floats:
        return np.array(list(self.model.transform_one(dict(enumerate(x.tolist()))).values()), dtype=np.float64)


# What has no class of its own elsewhere: each is made as Class(K, D, …) and has fit_next or fit_block, and get_components


class RowByRow:
    """OnlinePCA by `fit_next`."""

    def __init__(self, K: int) -> None:
        self.model = OnlinePCA(K)

    def fit_next(self, x: Floats) -> None:
        self.model.fit_next(x)

    def get_components(self) -> Array:
        return np.asarray(self.model.components_.T)


class ProSVD:
    """proSVD (Draelos et al., "Bubblewrap", 2021): incremental SVD whose basis turns as little as possible.

    It takes samples as columns, does not centre, and starts from the QR of its first rows.
    """

    def __init__(self, K: int, D: int, block: int, half_life: float | None = None) -> None:
        from proSVD import proSVD

        decay = {} if half_life is None else {"decay_alpha": 2.0 ** (-block / half_life / 2.0)}
        self.model, self.K, self.block = proSVD(k=K, w_len=block, track_prev=False, **decay), K, block
        self.held, self.begun = Held(), False

    def fit_block(self, X: Floats) -> None:
        for rows in self.held.whole(X, max(self.K, self.block)):
            self._learn(rows)

    def _learn(self, rows: Floats) -> None:
        if not self.begun:
            self.model.initialize(rows[: self.K].T)
            rows, self.begun = rows[self.K :], True
        if len(rows):
            self.model.updateSVD(rows.T)

    def get_components(self) -> Array:
        if len(self.held.rows):
            self._learn(self.held.rows)
            self.held = Held()
        return np.asarray(self.model.Q @ np.linalg.svd(self.model.B)[0])


class Batch:
    """scikit-learn's PCA of all rows in memory: what no stream can beat."""

    def __init__(self, solver: str, K: int) -> None:
        self.solver, self.K, self.rows = solver, K, list[Floats]()

    def fit_block(self, X: Floats) -> None:
        self.rows.append(X)

    def get_components(self) -> Array:
        from sklearn.decomposition import PCA

        self.rows = [np.concatenate(self.rows)]
        return np.asarray(PCA(self.K, svd_solver=self.solver, random_state=0).fit(self.rows[0]).components_.T)


# From a method to a learner


def _rival(name: str, K: int, D: int, **options: Any) -> RivalModel:
    if name not in RIVALS:
        raise ValueError(f"There is no rival {name!r}: there are {', '.join(RIVALS)}.")
    return RivalModel(RIVALS[name], K, D, **options)


_FAMILIES: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "rows": lambda name, K, D: {"onlinepca": RowByRow}[name](K),
        "rival": _rival,
        "peer": lambda name, K, D, **options: {"prosvd": ProSVD}[name](K, D, **options),
        "batch": lambda name, K, D: Batch(name, K),
    }
)


def build(method: Method, K: int, D: int) -> Learner:
    """A learner for K directions of D features; raises an error that says what is wrong with a class."""
    k = method.times * K
    options = {name: _rows(value, K, D) if isinstance(value, str) and method.kind == PEER else value for name, value in method.options}
    family, _, name = method.algorithm.partition(":")
    if method.made is None and family in _FAMILIES:
        model = _FAMILIES[family](name, k, D, **options)
    else:
        make: Callable[..., Any] = method.made or ALGORITHMS.get(method.algorithm) or resolve(method.algorithm)
        model = make(n_components=k, **options) if _by_keyword(make) else make(k, D, **options)
    if hasattr(model, "get_components") and (hasattr(model, "fit_next") or hasattr(model, "fit_block")):
        return Learner(model)
    if hasattr(model, "partial_fit"):
        return EstimatorLearner(model, _rows(method.batch, K, D) if method.batch else None)
    if hasattr(model, "learn_one") and hasattr(model, "transform_one"):
        return DictLearner(model, D)
    missing = [name for name in ("fit_next", "get_components", "partial_fit", "learn_one", "transform_one") if not hasattr(model, name)]
    raise TypeError(
        f"{type(model).__name__} must implement fit_next(x) and get_components(), or partial_fit(X) and components_, or learn_one(x) and "
        f"transform_one(x). Missing: {', '.join(missing)}."
    )


def _rows(text: str, K: int, D: int) -> int:
    """The number that "5K" or "5D" stands for."""
    return int(text[:-1] or 1) * {"K": K, "D": D}[text[-1]]


def _by_keyword(make: Callable[..., Any]) -> bool:
    """Whether a class is constructed like those of scikit-learn and river."""
    if not inspect.isclass(make) or hasattr(make, "get_components"):
        return False
    return hasattr(make, "partial_fit") or (hasattr(make, "learn_one") and "n_components" in inspect.signature(make).parameters)


def resolve(algorithm: str) -> Callable[..., Any]:
    """The class, or the function that makes a model, that ``module:Class`` names."""
    module, _, attribute = algorithm.partition(":")
    if not attribute:
        known = ", ".join([*ALGORITHMS, *(f"rival:{name}" for name in RIVALS)])
        raise ValueError(f"There is no algorithm {algorithm!r}: name one of {known}, or module:Class for your own.")
    try:
        target: Any = importlib.import_module(module)
        for part in attribute.split("."):
            target = getattr(target, part)
    except (Exception, SystemExit) as error:  # the import may raise anything
        hint = f" Write {module.removesuffix('.py')}:{attribute}." if module.endswith(".py") else ""
        raise ValueError(f"{algorithm!r} cannot be imported: {type(error).__name__}: {error}.{hint}") from error
    if not callable(target):
        raise ValueError(f"{algorithm!r} is not a class or a function that makes a model.")
    found: Callable[..., Any] = target
    return found


def check(method: Method, K: int, D: int) -> None:
    """Raise an error that says what is wrong with a method, before anything runs."""
    try:
        build(method, K, D)
    except ValueError:
        raise
    except Exception as error:
        raise TypeError(f"{method.label} cannot be made: {error}") from error


def check_basis(basis: Array, K: int, D: int) -> Floats:
    """The basis of a learner with its leading K columns; raises an error that says what is wrong with it."""
    if basis.ndim != 2 or basis.shape[0] != D or basis.shape[1] < K:
        raise ValueError(f"the basis has shape {basis.shape}; it must be (D, K) = ({D}, {K}).")
    if basis.dtype.kind not in "fiub":
        raise ValueError(f"the basis is of {basis.dtype}; it must be real numbers.")
    found = np.asarray(basis[:, :K], dtype=np.float64)
    if not np.isfinite(found).all():
        raise ValueError("the basis is not finite.")
    return found


# Names


def yours(text: str) -> Method:
    """A method from ``name`` or ``module:Class``, with options after commas: ``fsm,gamma=0.6``."""
    algorithm, *settings = (part.strip() for part in text.split(","))
    options = []
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"{setting!r} in {text!r} is not an option: write name=value.")
        try:
            options.append((name, ast.literal_eval(value)))
        except (ValueError, SyntaxError):
            options.append((name, value))
    kind = OURS if algorithm in ALGORITHMS else PEER if algorithm.startswith("rival:") else YOURS
    return Method(", ".join([algorithm.rpartition(":")[2], *settings]), algorithm, tuple(options), kind, batch="5K")


def told_apart(given: Sequence[Method], known: Sequence[Method]) -> list[Method]:
    """The given methods without repeats; a label that another method has too is extended by the algorithm."""
    meant: dict[str, set[str]] = {}
    for method in (*known, *given):
        meant.setdefault(method.label, set()).add(method.text)
    return [
        replace(method, label=f"{method.label} [{method.text}]") if len(meant[method.label]) > 1 else method
        for method in dict.fromkeys(given)
    ]


def fsm(gamma: float) -> Method:
    """FSM with step sizes ``2/(gamma t + 5)``."""
    return Method(f"FSM γ={gamma}", "fsm", (("gamma", gamma),))


def sm(gamma: float) -> Method:
    """SM with the same step sizes; FSM must equal it."""
    return Method(f"SM γ={gamma}", "sm", (("gamma", gamma),))


IPCA, CCIPCA = Method("IPCA", "ipca"), Method("CCIPCA", "ccipca")
FIVE = (IPCA, CCIPCA, fsm(0.6), fsm(1.5), fsm(2.0))
"""The curves of the paper."""
ONLINE_PCA = Method("OnlinePCA", "online_psp.pca:OnlinePCA")
PAPER = (*FIVE, ONLINE_PCA)
FAMILY = tuple(Method(rival.title, f"rival:{name}", kind=PEER) for name, rival in RIVALS.items())


_INCREMENTAL = "sklearn.decomposition:IncrementalPCA"
_SETTINGS: Sequence[tuple[str, str, str, str, int, dict[str, Any]]] = (
    ("IncrementalPCA", _INCREMENTAL, "batch", "K 5K 5D", 1, {}),
    ("IncrementalPCA", _INCREMENTAL, "batch", "2K 5K 5D", 2, {}),
    ("IncrementalPCA", _INCREMENTAL, "batch", "5D", 4, {}),
    ("proSVD", "peer:prosvd", "block", "K 5K 20K", 1, {}),
    ("proSVD", "peer:prosvd", "block", "K 2K 5K", 2, {}),
    ("AdaOja", "rival:adaoja", "block", "K 5K 20K", 1, {}),
    ("AdaOja", "rival:adaoja", "block", "5K", 2, {}),
    ("History PCA", "rival:history_pca", "block", "5K 20K", 1, {}),
    ("History PCA", "rival:history_pca", "block", "5K 20K", 1, {"iterations": 3}),
    ("History PCA", "rival:history_pca", "block", "5K 20K", 2, {"iterations": 3}),
    ("Frequent Directions", "rival:frequent_directions", "sketch", "4K 8K", 1, {}),
    ("Incremental SVD", "rival:isvd", "block", "K 5K", 1, {}),
    ("Incremental SVD", "rival:isvd", "block", "2K", 2, {}),
)
"""Others at several settings: name, algorithm, an option that is a number of rows, its values, directions kept as a multiple of K, more."""


def contest() -> list[Method]:
    """The methods of ``psp bench``: ours at their defaults, others at several settings each, named in brackets, and batch PCA."""
    found = [*PAPER, Method("OnlinePCA fit_next", "rows:onlinepca")]
    found += [replace(method, label=f"{method.label} (default)") for method in FAMILY if not RIVALS[method.algorithm[6:]].handles_missing]
    for name, algorithm, option, sizes, times, more in _SETTINGS:
        for size in sizes.split():
            told = [f"{option} {size}", *(f"{key} {value}" for key, value in more.items()), *[f"{times}K cut to K"] * (times > 1)]
            options = more if option == "batch" else {option: size, **more}
            batch = size if option == "batch" else ""
            found.append(Method(f"{name} ({', '.join(told)})", algorithm, tuple(options.items()), PEER, batch, times))
    return [*found, *(Method(f"PCA ({solver})", f"batch:{solver}", kind=MEMORY) for solver in ("randomized", "covariance_eigh"))]
