"""One model in many threads: one learns at a time, others see it between two calls."""

from __future__ import annotations

import functools
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from online_psp import ALGORITHMS, OnlinePCA
from tests.oracle import NAMES, check_same, spiked, wide
from tests.torture.sharing import serialised


def in_threads(tasks: list[Callable[[], Any]]) -> None:
    """Run all at once, with threads that change places every microsecond; the first error is raised here."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(tasks)) as pool:
            for done in [pool.submit(task) for task in tasks]:
                done.result()
    finally:
        sys.setswitchinterval(before)


def test_many_calls_from_eight_threads_are_those_of_one() -> None:
    """``make torture`` makes 100,000 of them."""
    assert serialised(4_000) is None


@pytest.mark.parametrize("name", NAMES)
def test_eight_threads_that_learn_lose_no_sample(name: str) -> None:
    """All rows are alike, so that their order does not matter: the model is that of one thread."""
    each = 200
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
        try:
            for x in X[10:600]:
                model.fit_next(x)
            for part in np.array_split(X[600:], 40):
                model.partial_fit(part)
        finally:
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
    check_same(model, alone, "a model that others read")


def test_two_threads_begin_one_model() -> None:
    X = wide(400)
    model = OnlinePCA(3)
    in_threads([functools.partial(model.partial_fit, part) for part in np.array_split(X, 8)])
    assert model.n_samples_seen_ == 400
    assert np.allclose(model.mean_, X.mean(axis=0))


def test_rows_that_come_while_models_are_merged_are_not_lost() -> None:
    """A merge puts another state in the place of the one that other threads wait for."""
    X = wide(200, D=8)
    model, other = OnlinePCA(2).fit(X[:7]), OnlinePCA(2).fit(X[:10])

    def merge() -> None:
        for _ in range(25):
            model.merge(other)

    def one_by_one() -> None:
        for x in X:
            model.fit_next(x)

    def in_blocks() -> None:
        for x in X:
            model.partial_fit(x[np.newaxis])

    in_threads([merge, merge, one_by_one, in_blocks])
    assert model.n_samples_seen_ == 7 + 50 * 10 + 400
    everything = np.concatenate([X[:7], np.tile(X[:10], (50, 1)), X, X])
    np.testing.assert_allclose(model.mean_, everything.mean(axis=0), atol=1e-9)


def test_two_models_are_merged_into_each_other() -> None:
    one, two = OnlinePCA(2).fit(wide(30, D=8)), OnlinePCA(2).fit(wide(20, D=8, seed=1))

    def merge(mine: OnlinePCA, theirs: OnlinePCA) -> None:
        for _ in range(5):
            mine.merge(theirs)

    in_threads([functools.partial(merge, *pair) for pair in ((one, two), (two, one), (one, two), (two, one))])
    for model in (one, two):
        assert np.isfinite(model.components_).all()
        assert model.n_samples_seen_ > 50


class Meeting:
    """Rows that are handed over only when another thread asks for its rows as well."""

    def __init__(self, X: Any, barrier: threading.Barrier) -> None:
        self.X, self.barrier = X, barrier

    def __array__(self, *given: Any, **options: Any) -> Any:
        self.barrier.wait(20)
        return np.asarray(self.X, *given)


@pytest.mark.parametrize("call", ["fit", "partial_fit"])
def test_different_models_begin_at_the_same_time(call: str) -> None:
    """With one lock for all models, threads that fit a model each take turns, and these never meet."""
    X, models, barrier = wide(300, D=8), [OnlinePCA(2) for _ in range(3)], threading.Barrier(3)
    in_threads([functools.partial(getattr(model, call), Meeting(X, barrier)) for model in models])
    alone = getattr(OnlinePCA(2), call)(X)
    for model in models:
        check_same(model, alone, "a model that began beside others")
