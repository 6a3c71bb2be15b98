"""Model files of every kind, how they are read again, and how whoever reads one uses it."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import pickle
import random
import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from online_psp import OnlinePCA
from online_psp.algorithms import ALGORITHMS
from online_psp.cli import info
from online_psp.io import runs
from online_psp.io.sources import open_source
from online_psp.monitoring import Monitor
from tests.torture._common import rows


class Saved(NamedTuple):
    """A model file, and what to do with it."""

    words: str
    load: Callable[[Path], Any]
    use: Callable[[Any], None]
    """Raises an AssertionError where what comes out is silently wrong."""


def _times(n: int) -> Any:
    return np.arange(n) * 2.0 + 1000.0


def _holes(X: Any, seed: int) -> Any:
    return np.where(np.random.default_rng(seed).random(X.shape) < 0.2, np.nan, X)


def _options(chance: random.Random) -> dict[str, Any]:
    """Parameters of an OnlinePCA that go together."""
    found: dict[str, Any] = {"whiten": chance.random() < 0.3}
    found |= {"missing": "impute"} if chance.random() < 0.3 else {}
    found |= {"robust": True} if chance.random() < 0.3 else {}
    found |= {"standardize": True} if chance.random() < 0.25 else {"center": False} if chance.random() < 0.1 else {}
    found |= {"half_life": chance.choice([50, "3min"])} if chance.random() < 0.4 else {}
    found |= {"axes": "stable"} if chance.random() < 0.2 else {}
    found |= {"dtype": "float32"} if chance.random() < 0.2 else {}
    found |= {"block_size": 7} if chance.random() < 0.1 else {}
    return found


def _data(chance: random.Random, D: int, options: dict[str, Any]) -> tuple[Any, Any]:
    """Rows that such a model learns, and their times."""
    X = rows(chance.choice([3, 30, 200]), D, chance.randrange(1000))
    if options.get("missing") and chance.random() < 0.8:
        X = _holes(X, 4)
    elif not options.get("robust") and not options.get("standardize") and chance.random() < 0.2:
        X = sparse.csr_array(np.where(np.abs(X) > 1.5, X, 0.0))
    return X, _times(X.shape[0]) if options.get("half_life") == "3min" else None


def save_pca(path: Path, chance: random.Random) -> Saved:
    """An OnlinePCA with some of its options, a run among them sometimes."""
    options, D = _options(chance), chance.choice([6, 60])
    X, times = _data(chance, D, options)
    if X.shape[0] > 3 and chance.random() < 0.15 and options.get("axes") is None:
        model = OnlinePCA(0.9, **options)
    else:
        model = OnlinePCA(3 if X.shape[0] > 3 else 2, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, times=times)
    model.save(path)
    return Saved(f"OnlinePCA {options}, {X.shape}", OnlinePCA.load, use_pca)


def save_mat(path: Path, chance: random.Random) -> Saved:
    X = rows(chance.choice([3, 30, 200]), chance.choice([6, 60]), 1)
    model = OnlinePCA(2, whiten=chance.random() < 0.3).fit(X)
    model.save(path)
    return Saved(f"MAT {X.shape}", OnlinePCA.load, use_pca)


def save_algorithm(path: Path, chance: random.Random) -> Saved:
    """One of the algorithms by itself."""
    name, D = chance.choice(list(ALGORITHMS)), chance.choice([6, 60])
    cls = ALGORITHMS[name]
    model = cls(3, D, dtype=chance.choice([np.float64, np.float32]))
    n = chance.choice([2, 30, 200])
    model.fit_block(rows(n, D, 1))
    if chance.random() < 0.5:
        for x in rows(3, D, 2):
            model.fit_next(x)
    model.save(path)
    return Saved(f"{name} by itself, D={D}, {n} rows", cls.load, use_algorithm)


def save_monitor(path: Path, chance: random.Random) -> Saved:
    options = {name: value for name, value in _options(chance).items() if name != "missing"}
    options.setdefault("half_life", 300)
    monitor = Monitor(
        OnlinePCA(2, **options),
        learn_outliers=chance.random() < 0.8,
        run_length=chance.choice([1e5, 1e3, None]),
        on_drift=chance.choice(["flag", "reset"]),
    )
    n, D = chance.choice([3, 100, 450]), chance.choice([6, 60])
    X = rows(n, D, 2)
    monitor.update(X, _times(n) if options["half_life"] == "3min" else None)
    monitor.save(path)
    return Saved(f"Monitor of {options}, {X.shape}", Monitor.load, use_monitor)


def save_run(path: Path, chance: random.Random) -> Saved:
    """The checkpoint of a run."""
    options, D = _options(chance), 6
    options["half_life"] = None
    X = rows(200, D, 3)
    runs.fit_stream(X, path, OnlinePCA(2, **options), block=50)
    return Saved(f"checkpoint, {options}", runs.reopen, use_run)


KINDS: dict[str, tuple[float, Callable[[Path, random.Random], Saved]]] = {
    "OnlinePCA": (5.0, save_pca),
    "algorithm": (2.0, save_algorithm),
    "Monitor": (3.0, save_monitor),
    "run": (1.0, save_run),
    "mat": (1.0, save_mat),
}
"""Kinds of files, each with its share of the attacks."""


_STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def use_pca(model: Any) -> None:
    """Read, learn, merge, save and load."""
    if not hasattr(model, "n_features_in_"):
        model.fit(rows(40, 6, 0), times=_times(40) if isinstance(model.half_life, str) else None)
        return
    D = model.n_features_in_
    X, timed = rows(3, D, 0).astype(model.components_.dtype), isinstance(model.half_life, str)
    K = model.n_components_
    assert model.components_.shape == (K, D), "components of another shape"
    _check_numbers(model, "")
    Z = model.transform(X)
    assert Z.shape == (3, K), "coordinates of another shape"
    assert np.isfinite(Z).all(), "coordinates that are not finite"
    assert np.isfinite(model.inverse_transform(Z)).all(), "points that are not finite"
    if model.missing == "impute":
        assert np.isfinite(model.impute(np.where(np.arange(D) % 2, X, np.nan))).all(), "values filled in that are not finite"
        assert np.isfinite(model.transform(np.where(np.arange(D) % 2, X, np.nan))).all(), "coordinates of rows with holes are not finite"
    _check_told(model)
    copied = copy.deepcopy(model)
    pickle.loads(pickle.dumps(model))
    last = 1e6  # later than any time that was learned
    model.partial_fit(X, times=last + np.arange(3.0) if timed else None)
    projected = model.fit_next(X[0], *([last + 3.0] if timed else []))
    assert np.isfinite(projected).all(), "coordinates of fit_next that are not finite"
    _check_numbers(model, ", after learning")
    assert np.isfinite(model.transform(X)).all(), "coordinates that are not finite, after learning"
    copied.merge(model)
    _check_numbers(copied, ", after merging")
    _check_kept(model, OnlinePCA.load)


def _check_numbers(model: Any, when: str) -> None:
    """What everybody reads of a model is finite, and can be true."""
    components, variances = model.components_, model.explained_variance_
    for name in ("components_", "explained_variance_ratio_", "singular_values_", "mean_", "var_", "noise_variance_"):
        assert np.isfinite(getattr(model, name)).all(), f"{name} that is not finite{when}"
    assert np.isfinite(variances).all(), f"explained_variance_ that is not finite{when}"
    assert (variances >= 0).all(), f"variances that are negative{when}"
    assert (np.diff(variances) <= 1e-6 * variances[:1]).all() or model.axes == "stable", f"variances that are not in order{when}"
    assert model.explained_variance_ratio_.sum() <= 1 + 1e-6, f"more than all of the variance{when}"
    assert (model.var_ >= 0).all(), f"var_ that is negative{when}"
    assert model.noise_variance_ >= 0, f"noise_variance_ that is negative{when}"
    lengths = np.abs(components.astype(float) @ components.T.astype(float) - np.eye(len(components))).max()
    assert lengths < 1e-2, f"components that are not orthonormal ({lengths:.1e}){when}"


def _check_told(model: Any) -> None:
    """What `psp info` says of it does not steer a terminal."""
    facts = info._facts(model, None, {})
    names = getattr(model, "feature_names_in_", None)
    facts |= {} if names is None else {"feature_names": list(names)}
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        info._show(Path("m.psp"), facts, None)
    assert not _STEERS.search(text.getvalue()), "psp info prints control characters"
    json.dumps(facts, allow_nan=False, default=str)


def _check_kept(model: Any, load: Callable[[Path], Any]) -> None:
    """What was loaded can be saved, and loaded again."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "m.psp")
        load(Path(folder) / "m.psp")


def use_algorithm(model: Any) -> None:
    D = model.D or 6
    X = rows(3, D, 0)
    model.fit_block(X)
    model.fit_next(X[0])
    found = model.get_components()
    assert found.shape == (D, model.K), "components of another shape"
    assert np.isfinite(found).all(), "components that are not finite"
    pickle.loads(pickle.dumps(model))
    _check_kept(model, type(model).load)


def use_monitor(monitor: Any) -> None:
    model = monitor.model
    if not hasattr(model, "n_features_in_"):
        return
    X = rows(3, model.n_features_in_, 0)
    last = 1e6  # later than any time that was learned
    info._monitor_facts(monitor)
    pickle.loads(pickle.dumps(monitor))
    found = monitor.update(X, last + np.arange(3.0) if isinstance(model.half_life, str) else None)
    assert len(found.t2) == 3, "scores of other rows"
    for name in ("t2", "spe", "t2_limit", "spe_limit"):
        values = np.asarray(getattr(found, name))
        assert not np.isinf(values).any(), f"{name} that is infinite"
        assert not (values < 0).any(), f"{name} that is negative"
    use_pca(model)
    _check_kept(monitor, Monitor.load)


def use_run(run: Any) -> None:
    """Look at it, then continue it."""
    facts = info._facts(run.model, run, {})
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        info._show(Path("m.psp"), facts, None)
    assert not _STEERS.search(text.getvalue()), "psp info prints control characters"
    learned = hasattr(run.model, "n_features_in_")
    use_pca(run.model)
    if learned and run.epochs - run.epoch < 5:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "m.psp"
            source = open_source(rows(200, 6, 3))
            runs.drive(run, source, runs.Saving(path))
            runs.reopen(path)
