"""Settings that are fixed, states that are explicit, files that outlive tuning, and faults that were found and must not come back."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from online_psp import ALGORITHMS, FSM, IPCA, OnlinePCA
from online_psp.metrics import subspace_error
from tests import DATA
from tests.oracle import NAMES, spiked, wide
from tests.torture.sharing import serialised

FROZEN = DATA / "models"


# Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [("center", False), ("oversample", 3), ("half_life", 10.0), ("dtype", "float32"), ("block_size", 7)],
)
def test_what_learning_depends_on_is_fixed_at_the_first_row(name: str, value: Any) -> None:
    X = wide(400)
    model = OnlinePCA(3).partial_fit(X[:50])
    before = model.components_
    model.set_params(**{name: value})
    refused = f"{name} was .*start anew"
    with pytest.raises(ValueError, match=refused):
        model.partial_fit(X[50:])
    with pytest.raises(ValueError, match=refused):
        model.fit_next(X[50])
    assert model.n_samples_seen_ == 50
    assert np.array_equal(model.components_, before)
    assert model.fit(X).n_samples_seen_ == 400


def test_what_is_only_read_may_change() -> None:
    X = wide(600)
    model = OnlinePCA(3).partial_fit(X[:300])
    model.set_params(whiten=True, n_components=5).partial_fit(X[300:])
    assert model.transform(X).shape == (600, 5)
    assert np.allclose(model.transform(X).std(axis=0, ddof=1), 1.0, rtol=0.01)
    assert model.fit_next(X[0]).shape == (5,)
    model.n_components, model.whiten = 2, False
    y = model.fit_next(X[1])
    assert y.shape == (2,), "a sample's coordinates should follow n_components at once"
    assert np.allclose(y, model.transform(X[1:2])[0]), "and they should no longer be whitened"
    model.set_params(n_components=200)
    with pytest.raises(ValueError, match=r"200.*start anew"):
        model.partial_fit(X)


@pytest.mark.parametrize(
    ("parameters", "error"),
    [({"center": "yes"}, TypeError), ({"whiten": 1}, TypeError), ({"oversample": 2.5}, TypeError), ({"block_size": "big"}, ValueError)],
)
def test_parameters_are_checked_before_anything_is_learned(parameters: dict[str, Any], error: type[Exception]) -> None:
    model = OnlinePCA(3, **parameters)
    with pytest.raises(error, match=f"{next(iter(parameters))} must be"):
        model.partial_fit(wide(5))
    assert not hasattr(model, "n_features_in_")


def test_the_parameters_of_incremental_pca_are_taken() -> None:
    X = wide(300)
    model = OnlinePCA(n_components=3, whiten=False, copy=True, batch_size=50)
    for start in range(0, 300, 100):
        model.partial_fit(X[start : start + 100], check_input=False)
    assert np.array_equal(model.components_, OnlinePCA(3).fit(X).components_)
    assert np.allclose(model.var_, X.var(axis=0, ddof=1), rtol=1e-12)


# States


@pytest.mark.parametrize("name", NAMES)
def test_subclasses_are_saved_and_loaded(name: str, tmp_path: Path) -> None:
    Mine: Any = type("Mine", (ALGORITHMS[name],), {"__doc__": "An algorithm of one's own."})
    X = spiked(80, 20, 3)
    model = Mine(3)
    model.fit_block(X[:50])
    model.save(tmp_path / "m.psp")
    loaded = Mine.load(tmp_path / "m.psp")
    assert type(loaded) is Mine
    assert np.array_equal(loaded.fit_block(X[50:]), model.fit_block(X[50:]))
    assert type(ALGORITHMS[name].load(tmp_path / "m.psp")) is ALGORITHMS[name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("D", [9, 60])
def test_reading_changes_nothing(name: str, D: int) -> None:
    X = spiked(90, D, 3)
    read, plain = ALGORITHMS[name](3, D), ALGORITHMS[name](3, D)
    for x in X:
        assert np.array_equal(read.fit_next(x), plain.fit_next(x))
        read.get_components()
    assert pickle.dumps(read) == pickle.dumps(plain)
    twin = copy.deepcopy(read)
    twin.fit_block(X)
    assert pickle.dumps(read) == pickle.dumps(plain), "a copy has arrays of its own"


@pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
@pytest.mark.parametrize("name", NAMES)
def test_a_copy_shares_nothing(name: str, kind: Any) -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((260, 60)) / np.arange(1, 61)
    model = ALGORITHMS[name](3, 60)
    model.fit_block(X[:100])
    model.fit_block(kind(X[100:150]))
    twin = copy.copy(model)
    before = model.get_components()
    twin.fit_block(kind(rng.standard_normal((90, 60))))
    assert np.array_equal(model.get_components(), before), "the model moved when its copy learned"
    alone = ALGORITHMS[name](3, 60)
    alone.fit_block(X[:100])
    alone.fit_block(kind(X[100:150]))
    for each in (model, alone):
        each.fit_block(kind(X[150:]))
    assert np.allclose(model.get_components(), alone.get_components(), atol=1e-9), "the copy had changed what the model goes on from"


@pytest.mark.parametrize("seen", [0, 2])
def test_a_start_that_is_not_needed_yet_is_kept(seen: int, tmp_path: Path) -> None:
    X = spiked(60, 20, 4)
    starts: list[tuple[Any, dict[str, Any]]] = [
        (ALGORITHMS["fsm"], {"Minv0": np.diag([9.0, 8.0, 7.0, 6.0])}),
        (ALGORITHMS["sm"], {"M0": np.diag([0.1, 0.2, 0.3, 0.4])}),
        (ALGORITHMS["ipca"], {"sigma2_0": [4.0, 3.0, 2.0, 1.0]}),
        (ALGORITHMS["ccipca"], {"sigma2_0": [4.0, 3.0, 2.0, 1.0]}),
        (ALGORITHMS["ccipca"], {"sigma2_0": "data"}),
    ]
    for cls, start in starts:
        model = cls(4, 20, **start)
        model.fit_block(X[:seen])
        model.save(tmp_path / "m.psp")
        others = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), cls.load(tmp_path / "m.psp")]
        expected = model.fit_block(X[seen:])
        for other in others:
            assert np.array_equal(other.fit_block(X[seen:]), expected), f"{cls.__name__} lost its start {start}"


def test_variances_from_data_do_not_amplify_rounding() -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((400, 300)) / np.arange(1, 301) ** 0.5
    near = X * (1 + 1e-15 * rng.standard_normal(X.shape))
    parted = {}
    for start in (None, "data"):
        models = [ALGORITHMS["ccipca"](64, sigma2_0=start) for _ in range(2)]
        for model, rows in zip(models, (X, near), strict=True):
            model.fit_block(rows)
        parted[start] = subspace_error(models[0].get_components(), models[1].get_components())
    assert parted["data"] < 1e-6, f"rows that differ by 1e-15 end {parted['data']:.1e} apart"
    assert parted[None] > 1e-3, f"the published start parts them by {parted[None]:.1e}; where it does not, the option has no use"


# Files


def model_of(kind: str) -> Any:
    """The models of the frozen files, made anew: `python -m tests.contract.test_core` writes them."""
    rng = np.random.default_rng(11)
    X = rng.standard_normal((400, 70)) * np.linspace(3, 0.1, 70) + 1.0
    if kind in ALGORITHMS:
        model = ALGORITHMS[kind](4, 70)
        model.fit_block(X[:60])
        for x in X[60:67]:
            model.fit_next(x)
        return model
    options: dict[str, Any] = {"scatter": {}, "kept": {"oversample": 4}, "streaming": {"oversample": 4}}[kind]
    rows = {"kept": 20}.get(kind, 333)
    return OnlinePCA(3, **options).fit(X[:rows])


KINDS = [*sorted(ALGORITHMS), "scatter", "kept", "streaming"]


def read_frozen(kind: str) -> Any:
    path = FROZEN / f"{kind}.psp"
    return ALGORITHMS[kind].load(path) if kind in ALGORITHMS else OnlinePCA.load(path)


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_files_are_read_for_ever(kind: str) -> None:
    """Files of this format, written once, still load, and go on."""
    frozen, fresh = read_frozen(kind), model_of(kind)
    X = np.random.default_rng(12).standard_normal((90, 70)) * np.linspace(3, 0.1, 70) + 1.0
    for model in (frozen, fresh):
        (model.fit_block if kind in ALGORITHMS else model.partial_fit)(X)
    one, two = (model.get_components() if kind in ALGORITHMS else model.components_.T for model in (frozen, fresh))
    assert np.abs(one.T @ one - np.eye(one.shape[1])).max() < 1e-10
    error = subspace_error(one, two)
    assert error < 1e-6, f"it went on {error:.1e} from a model made now"


# Faults that were found


@pytest.mark.parametrize("rate", [lambda t: 1.5, lambda t: -0.1, lambda t: None, lambda t: 1 / (t - 20)])
def test_rates_that_make_no_sense_leave_the_model_as_it_was(rate: Any) -> None:
    X = spiked(60, 20, 3)
    model = FSM(3, learning_rate=lambda t: 0.1 if t <= 10 else rate(t))
    model.fit_block(X[:10])
    before = pickle.dumps(model.state())
    with pytest.raises((ValueError, TypeError, ZeroDivisionError)):
        model.fit_block(X[10:])
    assert pickle.dumps(model.state()) == before
    while model.t < 19:  # the last of these rates is fine until then
        try:
            model.fit_next(X[model.t])
        except (ValueError, TypeError):
            break
        before = pickle.dumps(model.state())
    with pytest.raises((ValueError, TypeError, ZeroDivisionError)):
        model.fit_next(X[model.t])
    assert pickle.dumps(model.state()) == before


@pytest.mark.parametrize("steps", [np.full(9, 0.1), np.full((10, 1), 0.1), np.full(10, 1.5), np.full(10, np.nan)])
def test_steps_of_the_wrong_length_or_size(steps: Any) -> None:
    X = spiked(40, 20, 3)
    model = FSM(3)
    model.fit_block(X[:30])
    with pytest.raises(ValueError, match="steps"):
        model.fit_block(X[30:], steps=steps)
    assert model.t == 30


def test_the_papers_own_schedule_of_ipca_is_taken() -> None:
    X = spiked(300, 30, 4)
    model = IPCA(4, learning_rate=lambda t: 1 / t)
    model.fit_block(X)
    single = IPCA(4, learning_rate=lambda t: 1 / t)
    for x in X:
        single.fit_next(x)
    truth = np.linalg.svd(X)[2][:4].T
    assert subspace_error(model.get_components(), truth) < 0.05
    assert subspace_error(model.get_components(), single.get_components()) < 1e-8


def test_inverse_transform_names_a_wrong_width() -> None:
    X = wide(100)
    model = OnlinePCA(3).fit(X)
    with pytest.raises(ValueError, match=r"\(n, 3\).*\(5, 4\)"):
        model.inverse_transform(np.zeros((5, 4)))
    with pytest.raises(TypeError, match="sparse"):
        model.inverse_transform(sparse.csr_array((5, 3)))
    assert model.inverse_transform(np.zeros((2, 3), dtype=int)).shape == (2, 300)


# Threads


class Switching:
    """Threads change places every microsecond."""

    def __enter__(self) -> None:
        self.before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)

    def __exit__(self, *_: object) -> None:
        sys.setswitchinterval(self.before)


def in_threads(tasks: list[Any]) -> None:
    problems: list[BaseException] = []

    def run(task: Any) -> None:
        try:
            task()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    with Switching():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not problems, problems[0]


def test_many_calls_from_eight_threads_are_those_of_one() -> None:
    """``make torture`` makes 100,000 of them."""
    assert serialised(4_000) is None


@pytest.mark.parametrize("name", NAMES)
def test_eight_threads_that_learn_lose_no_sample(name: str) -> None:
    """All rows are alike, so that their order does not matter: the model is that of one thread."""
    each = 400
    X = np.tile(spiked(1, 24, 3), (each, 1)) + 0.0
    first = spiked(40, 24, 3)
    model, serial = ALGORITHMS[name](3, 24), ALGORITHMS[name](3, 24)
    for one in (model, serial):
        one.fit_block(first)
    in_threads([lambda: [model.fit_next(x) for x in X] for _ in range(8)])
    for _ in range(8):
        for x in X:
            serial.fit_next(x)
    assert model.t == serial.t == 40 + 8 * each
    assert np.array_equal(model.get_components(), serial.get_components())


def test_one_thread_learns_and_others_read() -> None:
    X = wide(1200)
    model, alone = OnlinePCA(3).partial_fit(X[:10]), OnlinePCA(3).partial_fit(X[:10])
    done = threading.Event()

    def learn() -> None:
        for x in X[10:600]:
            model.fit_next(x)
        for part in np.array_split(X[600:], 40):
            model.partial_fit(part)
        done.set()

    def read() -> None:
        while not done.is_set():
            C = model.components_
            assert np.abs(C @ C.T - np.eye(3)).max() < 1e-10, "half a state was read"
            assert model.transform(X[:5]).shape == (5, 3)
            assert model.explained_variance_ratio_.sum() <= 1.0 + 1e-12

    def save() -> None:
        while not done.is_set():
            assert pickle.loads(pickle.dumps(model)).n_samples_seen_ >= 10

    in_threads([learn, read, read, save])
    for x in X[10:600]:
        alone.fit_next(x)
    for part in np.array_split(X[600:], 40):
        alone.partial_fit(part)
    assert model.n_samples_seen_ == 1200
    assert np.array_equal(model.components_, alone.components_), "readers disturbed the learner"


def test_two_threads_begin_one_model() -> None:
    X = wide(400)
    model = OnlinePCA(3)
    in_threads([lambda start=start: model.partial_fit(X[start : start + 50]) for start in range(0, 400, 50)])
    assert model.n_samples_seen_ == 400
    assert np.allclose(model.mean_, X.mean(axis=0))


if __name__ == "__main__":  # writes the frozen files: only ever once for a format
    FROZEN.mkdir(parents=True, exist_ok=True)
    for each in KINDS:
        model_of(each).save(FROZEN / f"{each}.psp")
