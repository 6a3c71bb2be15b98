"""A page follows the model, or the monitor, that it shows: nobody has to hand rows over."""

from __future__ import annotations

import copy
import pickle
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from online_psp.monitoring import Monitor
from online_psp.watch import Dashboard, PageSettings
from online_psp.watch.feed import Feed

pytest.importorskip("bokeh")

D, K = 12, 3


def data(n: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.standard_normal((n, D)) * np.linspace(3.0, 0.3, D) + 4.0)


def following(watched: OnlinePCA | Monitor) -> Dashboard:
    return Dashboard(watched, PageSettings(port=0))


def test_rows_are_counted_however_they_are_learned() -> None:
    X, model = data(1000), OnlinePCA(K)
    with following(model) as page:
        model.partial_fit(X[:10])
        assert page.feed.row == 10
        for x in X[10:400]:
            model.fit_next(x)
        _ = model.components_
        assert page.feed.row == 400, "rows of fit_next are not seen when the model is read"
        model.partial_fit(X[400:500], sample_weight=np.arange(100) % 2)
        assert page.feed.row == 450, "rows without weight are not learned"
        model.merge(OnlinePCA(K).fit(X[500:600]))
        model.partial_fit(X[600:700])
        assert page.feed.row == 550, "after a merge the page no longer follows"
        model.fit(X[:20])
        model.fit_next(X[20])
        _ = model.mean_
        assert page.feed.row == 571, "after a fit the page no longer follows"
    model.partial_fit(X)
    assert page.feed.row == 571, "a page that is closed still follows"


def test_the_model_is_the_same_with_and_without_a_page() -> None:
    X, watched, alone = data(700), OnlinePCA(K), OnlinePCA(K)
    with following(watched):
        for x in X:
            watched.fit_next(x)
            alone.fit_next(x)
    assert np.array_equal(watched.components_, alone.components_)
    assert watched.n_samples_seen_ == 700


def test_a_model_that_is_fitted_already_is_shown_at_once() -> None:
    handed: list[Any] = []

    def offer(make: Any) -> bool:
        handed.append(make())
        return True

    feed = Feed(offer, row=300)
    feed.begin(OnlinePCA(K).fit(data(300)))
    assert len(handed) == 1
    assert handed[0].state is not None, "the model was not handed over"
    assert handed[0].facts.samples == 300


def test_a_monitor_is_followed_with_its_scores() -> None:
    monitor = Monitor(OnlinePCA(K))
    with following(monitor) as page:
        monitor.update(data(400))
        monitor.update_one(data(1)[0])
        assert page.feed.row == 401
        assert page.feed._monitored
    monitor.update(data(10))
    assert page.feed.row == 401
    assert pickle.loads(pickle.dumps(monitor)).onlooker is None


def test_one_page_follows_and_others_are_given_rows() -> None:
    model = OnlinePCA(K).fit(data(100))
    with following(model) as page:
        with pytest.raises(ValueError, match="is shown on another page: close that one"):
            following(model)
        with pytest.raises(ValueError, match="follow=False"):
            page.update(data(10))
        with Dashboard(model, PageSettings(port=0), follow=False) as other:
            other.update(data(10))
            assert (other.feed.row, page.feed.row) == (110, 100)
    following(model).close()


def test_copies_of_a_model_are_not_followed() -> None:
    model = OnlinePCA(K).fit(data(100))
    with following(model) as page:
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            twin.partial_fit(data(10))
            twin.fit(data(20))
        assert page.feed.row == 100


def test_learning_and_ending_at_once_do_not_wait_for_each_other() -> None:
    """A model that learns holds its lock and then that of the feed; whoever reads for the page must take them in the same order."""
    model, X, stop = OnlinePCA(K).fit(data(200)), data(64), threading.Event()
    feed = Feed(lambda make: bool(make()))
    model._be_watched(lambda rows: feed.take(model, rows.dense(np.dtype(np.float64))))

    def learn() -> None:
        while not stop.is_set():
            model.partial_fit(X)
            for x in X:
                model.fit_next(x)

    def read() -> None:
        while not stop.is_set():
            feed.late(model)
            feed.finish(model)

    threads = [threading.Thread(target=work, daemon=True) for work in (learn, learn, read, read)]
    for each in threads:
        each.start()
    time.sleep(1.5)
    stop.set()
    for each in threads:
        each.join(20.0)
    assert not any(each.is_alive() for each in threads), "two threads wait for each other"
    seen = model.n_samples_seen_
    assert feed.row == seen - 200


@pytest.mark.filterwarnings("ignore:The standard deviations")
def test_a_warning_that_comes_up_in_a_thread_of_the_page_is_given_to_the_learner() -> None:
    X = np.random.default_rng(0).standard_normal((400, 60))
    model = OnlinePCA(K, oversample=4, standardize=True).fit(X[:300])
    feed = Feed(lambda make: False)
    model._be_watched(lambda rows: feed.take(model, rows.dense(np.dtype(np.float64))))
    model.fit_next(X[300])
    model.fit_next(X[301])
    row = X[302].copy()
    row[3] += 1e6
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit_next(row)
        if len(model._stream.waiting):
            feed.late(model)
            assert not said, f"the warning was given in the thread of the page: {said[0].message} {said[0].filename}:{said[0].lineno}"
        model.partial_fit(X[303:310])
    assert any("deviation" in str(each.message) for each in said), [str(each.message) for each in said]


def test_what_goes_wrong_on_the_side_of_the_page_does_not_touch_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    model, alone = OnlinePCA(K).fit(data(200)), OnlinePCA(K).fit(data(200))
    with following(model) as page:
        monkeypatch.setattr(page.feed, "take", lambda *_, **__: 1 // 0)
        with pytest.warns(RuntimeWarning, match=r"told no more \(ZeroDivisionError.*Learning goes on"):
            model.partial_fit(data(10))
        model.partial_fit(data(10))
        alone.partial_fit(data(10)).partial_fit(data(10))
        assert np.array_equal(model.components_, alone.components_)
        assert model.n_samples_seen_ == 220
