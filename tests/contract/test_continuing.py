"""However a stream is cut, read, saved and copied on its way, OnlinePCA ends with the same model, for every pair of options.

To the last bit; where sparse rows are cut, to rounding.
"""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from online_psp import OnlinePCA
from online_psp.engine.types import Array
from tests.oracle import check_same
from tests.pairs import Row, pairs, title

K, N = 3, 700


def allowed(row: Row) -> bool:
    return (row["center"] or not row["standardize"]) and (row["window"] is None or row["half_life"] is None)


TABLE = pairs(
    {
        "D": (9, 60, 300),
        "sparse": (False, True),
        "missing": ("error", "impute"),
        "robust": (False, True),
        "standardize": (False, True),
        "center": (True, False),
        "half_life": (None, 150.0, "20min"),
        "window": (None, 45, 340),
        "axes": ("principal", "stable"),
        "dtype": (None, "float32"),
        "oversample": (None, 2),
        "whiten": (False, True),
        "weighted": (False, True),
        "stop": (0, 2, 20, 131, 613),
    },
    allowed,
)
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning"),
    pytest.mark.parametrize("row", TABLE, ids=title),
]


class Stream:
    """Rows of a table's options, and what is said with them."""

    def __init__(self, row: Row) -> None:
        rng = np.random.default_rng(8)
        X = rng.standard_normal((N, row["D"])) * 3.0 / np.arange(1, row["D"] + 1) + 1.0
        X[::19] *= 30.0
        if row["sparse"]:
            X[rng.random(X.shape) < 0.8] = 0.0
        if row["missing"] == "impute":
            X[rng.random(X.shape) < 0.05] = np.nan
        self.X: Array = X.astype(row["dtype"] or np.float64)
        self.sparse, self.options = row["sparse"], {name: row[name] for name in row if name not in ("D", "sparse", "weighted", "stop")}
        self.weights = rng.random(N) + 0.5 if row["weighted"] else None
        self.times = np.cumsum(rng.exponential(5.0, N)) if isinstance(row["half_life"], str) else None

    @property
    def single(self) -> bool:
        """Whether fit_next takes its rows."""
        return self.weights is None and not self.sparse

    def new(self) -> OnlinePCA:
        return OnlinePCA(K, **self.options)

    def rows(self, start: int, stop: int) -> Any:
        return csr_array(self.X[start:stop]) if self.sparse else self.X[start:stop]

    def learn(self, model: OnlinePCA, start: int, stop: int) -> None:
        said: dict[str, Any] = {"sample_weight": self.weights, "times": self.times}
        model.partial_fit(self.rows(start, stop), **{name: every[start:stop] for name, every in said.items() if every is not None})

    def learn_one_by_one(self, model: OnlinePCA, start: int, stop: int) -> list[Array]:
        return [model.fit_next(self.X[i], None if self.times is None else self.times[i]) for i in range(start, stop)]


def test_any_cut_gives_the_same_model(row: Row, tmp_path: Path) -> None:
    stream = Stream(row)
    whole, cut = stream.new(), stream.new()
    stream.learn(whole, 0, N)
    rng, done = np.random.default_rng(5), 0
    while done < N:
        stop = min(N, done + int(rng.choice([1, 2, 7, 40, 150])))
        if stream.single and rng.random() < 0.5:
            stream.learn_one_by_one(cut, done, stop)
        else:
            stream.learn(cut, done, stop)
        use, done = rng.integers(6), stop
        if use == 0:
            _ = cut.components_
        elif use == 1:
            cut = copy.deepcopy(cut)
        elif use == 2:
            cut = pickle.loads(pickle.dumps(cut))
        elif use == 3:
            cut.save(tmp_path / "m.psp")
            cut = OnlinePCA.load(tmp_path / "m.psp")
    single = row["dtype"] is not None
    check_same(cut, whole, "a stream in pieces", (1e-4 if single else 1e-9) if row["sparse"] else 0.0)


def test_a_copy_goes_on_bit_for_bit(row: Row, tmp_path: Path) -> None:
    stream, stop = Stream(row), row["stop"]
    model, path, end = stream.new(), tmp_path / "m.psp", stop + 60
    if stop:
        stream.learn(model, 0, stop // 2)
        stream.learn(model, stop // 2, stop)
    model.save(path)
    before = path.read_bytes()
    others = {"file": OnlinePCA.load(path), "pickle": pickle.loads(pickle.dumps(model)), "deep copy": copy.deepcopy(model)}
    model.save(path)
    assert path.read_bytes() == before, "saving changes nothing, and is repeatable"
    outputs = {}
    for name, each in {"model": model, **others}.items():
        if stream.single:
            outputs[name] = np.array(stream.learn_one_by_one(each, stop, stop + 45)).tobytes()
        else:
            stream.learn(each, stop, stop + 45)
        stream.learn(each, stop + 45, end)
    for name, other in others.items():
        assert outputs.get(name) == outputs.get("model"), f"the {name} gives other coordinates"
        check_same(other, model, f"a {name}")
        assert other.transform(stream.rows(0, 9)).tobytes() == model.transform(stream.rows(0, 9)).tobytes()
