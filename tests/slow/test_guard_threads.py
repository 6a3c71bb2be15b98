"""Several threads and forked processes on one model: nothing is lost, and nobody waits for ever."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from online_psp import FSM, OnlinePCA
from online_psp.engine import locks
from tests.command import data


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(*works: Callable[[], Any]) -> None:
    """Run functions in threads; the first error is raised here, and a thread that does not end is one."""
    wrong: list[BaseException] = []

    def guarded(work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread waits for ever"
    if wrong:
        raise wrong[0]


def test_rows_that_come_while_models_are_merged_are_not_lost() -> None:
    """A merge puts another state in the place of the one that other threads wait for."""
    X = data(200, 5)
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

    at_once(merge, merge, one_by_one, in_blocks)
    assert model.n_samples_seen_ == 7 + 50 * 10 + 400
    everything = np.concatenate([X[:7], np.tile(X[:10], (50, 1)), X, X])
    np.testing.assert_allclose(model.mean_, everything.mean(axis=0), atol=1e-9)


def test_two_models_are_merged_into_each_other() -> None:
    one, two = OnlinePCA(2).fit(data(30, 5)), OnlinePCA(2).fit(data(20, 5, seed=1))
    at_once(*(lambda a=a, b=b: [a.merge(b) for _ in range(5)] for a, b in ((one, two), (two, one), (one, two), (two, one))))
    for model in (one, two):
        assert np.isfinite(model.components_).all()
        assert model.n_samples_seen_ > 50


def test_copies_made_while_others_learn_are_whole(tmp_path: Any) -> None:
    X = data(405, 6)
    model = OnlinePCA(2, oversample=2).partial_fit(X[:5])

    def learn(start: int) -> None:
        for at in range(start, start + 200, 2):
            model.fit_next(X[at])
            model.partial_fit(X[at + 1 : at + 2])

    def copied() -> None:
        for _ in range(10):
            for found in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                seen = found.n_samples_seen_
                assert found.components_.shape == (2, 6)
                found.partial_fit(X[:3])
                assert found.n_samples_seen_ == seen + 3
            model.save(tmp_path / f"{threading.get_ident()}.psp")
            assert OnlinePCA.load(tmp_path / f"{threading.get_ident()}.psp").n_samples_seen_ >= 5

    at_once(lambda: learn(5), lambda: learn(205), copied, copied)
    assert model.n_samples_seen_ == 405
    np.testing.assert_allclose(model.mean_, X.mean(axis=0), atol=1e-9)


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
    X, models, barrier = data(300, 6), [OnlinePCA(2) for _ in range(3)], threading.Barrier(3)
    at_once(*(lambda model=model: getattr(model, call)(Meeting(X, barrier)) for model in models))
    alone = pickle.dumps(getattr(OnlinePCA(2), call)(X))
    for model in models:
        assert pickle.dumps(model) == alone, "a model that began beside others is another one"


def test_one_model_is_begun_once() -> None:
    """By whichever thread is first; the rows of the others are added, and none are lost."""
    X = data(40, 6)
    for seed in range(20):
        model = OnlinePCA(2)
        at_once(*(lambda at=at, model=model: model.partial_fit(X[at : at + 5]) for at in range(0, 40, 5)))
        assert model.n_samples_seen_ == 40, f"rows were lost in round {seed}"
        np.testing.assert_allclose(model.mean_, X.mean(axis=0), atol=1e-12)


def test_a_model_that_could_not_begin_is_copied_as_one_that_was_never_used() -> None:
    model = OnlinePCA(2)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((3, 4), np.nan))
    for found in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert vars(found) == vars(OnlinePCA(2)), "a copy has something that a new model does not have"
        assert found.fit(data(9, 4)).n_samples_seen_ == 9


# Forks


def _use(model: OnlinePCA, fsm: FSM, seen: Any) -> None:
    before = model.n_samples_seen_
    model.partial_fit(data(3, 6))
    model.transform(data(3, 6))
    fsm.fit_next(data(1, 6)[0])
    seen.value = model.n_samples_seen_ - before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_model_can_be_used_after_a_fork_while_another_thread_learns() -> None:
    """A lock that is held at the fork has nobody in the child who gives it back."""
    context, X = multiprocessing.get_context("fork"), data(50, 6)
    model, fsm, stop = OnlinePCA(2).fit(X), FSM(2, 6), threading.Event()
    fsm.fit_block(X)

    def learn() -> None:
        while not stop.is_set():
            model.partial_fit(X)
            fsm.fit_block(X)

    def fork() -> None:
        try:
            for _ in range(5):
                seen = context.Value("i", 0, lock=False)
                child = context.Process(target=_use, args=(model, fsm, seen))
                child.start()
                child.join(30)
                stuck = child.is_alive()
                child.kill()
                child.join()
                assert not stuck, "the child waits for a lock for ever"
                assert seen.value == 3
        finally:
            stop.set()

    at_once(learn, learn, fork)


def _fork() -> int:
    """A child that ends at once."""
    child = os.fork()
    if not child:
        os._exit(0)
    return child


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_fork_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that takes long delays it for a while, and then there is a warning."""
    monkeypatch.setattr(locks, "_PATIENCE", 0.05)
    lock, held, done = locks.model_lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    with pytest.warns(UserWarning, match="while a thread uses a model"):
        child = _fork()
    os.waitpid(child, 0)
    done.set()
    holder.join()
    assert lock.acquire(blocking=False)
    lock.release()


def test_locks_end_with_their_models() -> None:
    before = len(locks._ALL)
    models = [OnlinePCA(2).fit(data(9, 4)) for _ in range(5)]
    assert len(locks._ALL) >= before + 5
    del models
    assert len(locks._ALL) <= before
