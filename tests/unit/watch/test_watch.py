"""The live page without a browser: what is handed over and kept, who can see it, and that learning never depends on it."""

from __future__ import annotations

import io
import itertools
import json
import queue
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from online_psp.io.model_file import ModelFileError
from online_psp.monitoring import Monitor, Update
from online_psp.pca.files import pca_state
from online_psp.watch import Dashboard, PageSettings, frames
from online_psp.watch.__main__ import _NOTHING, _next
from online_psp.watch.cloud import Axes
from online_psp.watch.feed import Feed
from online_psp.watch.follow import Follower
from online_psp.watch.frames import Facts, Frame, Piece, Scored, packed
from online_psp.watch.history import Newest, Stretches, Trace
from online_psp.watch.settings import image_shape, suited_image
from online_psp.watch.story import Story
from online_psp.watch.tables import TableError, TableTail
from online_psp.watch.waiting import WaitingScores
from tests.command import psp

D, K = 12, 3


def data(n: int, changed: bool = False, seed: int = 0) -> Floats:
    rng = np.random.default_rng([seed, changed])
    base = np.random.default_rng(1 + changed).standard_normal((K, D)) * np.array([[6.0], [4.0], [3.0]])
    return np.asarray(rng.standard_normal((n, K)) @ base + rng.standard_normal((n, D)))


def frames_of(watched: OnlinePCA | Monitor, blocks: list[Floats], monkeypatch: pytest.MonkeyPatch, **more: Any) -> list[Frame]:
    """What is handed over of a loop, a second a block."""
    clock = [0.0]
    monkeypatch.setattr("online_psp.watch.feed.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("online_psp.watch.feed.time.thread_time", lambda: 0.0)  # a busy machine must not leave a model out
    found: list[Frame] = []

    def offer(make: Any) -> bool:
        found.append(make())
        return True

    taker = Feed(offer)
    if isinstance(watched, Monitor):
        watched.witness = taker.witness
    for block in blocks:
        clock[0] += 1.0
        if isinstance(watched, Monitor):
            taker.take(watched.model, block, found=watched.update(block), **more)
        else:
            taker.take(watched.partial_fit(block), block, **more)
    return [sent(frame) for frame in found]


def sent(value: Any) -> Any:
    """What comes out at the other end of the pipe."""
    pipe = io.BytesIO()
    frames.write(pipe, value)
    pipe.seek(0)
    found = frames.read(pipe)
    assert frames.read(pipe) is None, "something is left in the pipe"
    return found


# Histories


def scored(n: int, seed: int = 0) -> tuple[Any, Update]:
    rng = np.random.default_rng(seed)
    t2, spe = rng.gamma(2.0, 2.0, (2, n))
    limits = np.full(n, 12.0), np.full(n, 10.0)
    return np.arange(1, n + 1), Update(t2, spe, *limits, (t2 > 12.0) | (spe > 10.0), np.full(n, ""))


def test_stretches_lose_no_large_value_however_long_the_run() -> None:
    numbers, found = scored(50_000)
    found.spe[[77, 31_234]] = 1e6, np.inf
    kept = Stretches(100)
    for start in range(0, 50_000, 777):
        part = slice(start, start + 777)
        kept.add(numbers[part], Update(*(field[part] for field in found)))
    table = kept.table()
    assert len(table.row) <= 100
    width = kept.width
    assert width & (width - 1) == 0
    expected = [np.nanmax(found.t2[at : at + width]) for at in range(0, 50_000, width)]
    np.testing.assert_array_equal(table.t2_most, expected)
    logs = [np.exp(np.log(found.t2[at : at + width]).mean()) for at in range(0, 50_000, width)]
    np.testing.assert_allclose(table.t2, logs, rtol=1e-10)
    assert table.spe_most[77 // width] == 1e6
    assert table.spe_over[31_234 // width] == 1e300, "a row at infinity is at the top of the chart"
    np.testing.assert_array_equal(table.row, [min(at + width, 50_000) for at in range(0, 50_000, width)])


def test_stretches_pass_over_rows_without_scores() -> None:
    numbers, found = scored(100)
    found.t2[:40] = found.spe[:40] = np.nan
    kept, newest = Stretches(64), Newest(50)
    kept.add(numbers, found)
    newest.add(numbers, found)
    assert kept.count == 60
    assert kept.table().row[-1] == 100
    np.testing.assert_array_equal(newest.table().row, np.arange(51, 101))


def test_a_trace_is_thinned_evenly_and_ends_with_the_newest() -> None:
    trace = Trace(64, 2)
    for row in range(1, 10_001):
        trace.add(row, np.array([row, -row, 5.0]))
    table = trace.table()
    assert 32 <= len(table) <= 65
    assert table[-1].tolist() == [10_000, 10_000, -10_000]
    assert len(set(np.diff(table[:-1, 0]))) == 1, "gaps are not equal"
    trace.add(10_000, np.array([1.0]))
    assert trace.table()[-1, 1] == 1.0, "the same row again replaces the point"
    assert np.isnan(trace.table()[-1, 2])


def test_a_story_of_any_length_has_a_fixed_size() -> None:
    """Twice as many hand-overs are not more to send to a browser."""
    X = data(600)
    model = OnlinePCA(K).fit(X)
    story = Story(PageSettings())
    sizes = []
    numbers, found = scored(2000)
    for i in range(800):
        at = numbers + 2000 * i
        arrays, state = pca_state(model) if i % 10 == 0 else ({}, None)
        pieces = [Piece(at[:500], X[:500])] if i % 10 == 0 else []
        story.take(Frame(float(i), int(at[-1]), Facts(monitored=True), arrays, state, pieces, [Scored(at, found)], []))
        if i in (399, 799):
            parts = {name: sum(np.asarray(each).nbytes for each in part.columns.values()) for name, part in story.parts.items()}
            rows = parts.pop("rows")  # built anew by the clock, from at most 3,000 rows
            sizes.append(sum(parts.values()))
    assert sizes[1] <= 1.05 * sizes[0], f"{sizes[0]} bytes became {sizes[1]}"
    assert sizes[1] + rows < 2e6
    assert all(len(each) <= 3000 for each in story.parts["rows"].columns.values())


# Handing over


def test_at_most_four_hand_overs_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, times = [0.0], []
    monkeypatch.setattr("online_psp.watch.feed.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("online_psp.watch.feed.time.thread_time", lambda: 0.0)

    def offer(make: Any) -> bool:
        times.append(clock[0])
        return bool(make())

    taker = Feed(offer)
    model = OnlinePCA(K)
    for _ in range(400):
        clock[0] += 0.01
        block = data(5, seed=len(times))
        taker.take(model.partial_fit(block), block)
    assert len(times) >= 2
    assert np.diff(times).min() >= 0.25 - 1e-9, "two hand-overs within a quarter of a second"
    assert taker.row == 2000


class Timed:
    """A feed whose clock and processor times are set by hand; each copy of a model takes a given time, as does sending it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, copying: float = 0.0, sending: float = 0.0) -> None:
        self.now, self.worked = 0.0, 0.0
        self.frames: list[Any] = []
        monkeypatch.setattr("online_psp.watch.feed.time.monotonic", lambda: self.now)
        monkeypatch.setattr("online_psp.watch.feed.time.thread_time", lambda: self.worked)
        self.copying, self.sending = copying, sending
        self.feed = Feed(self._offer)
        self.page: Any = object.__new__(Dashboard)  # all but its process
        self.page.feed, self.page._monitor, self.page.settings, self.page._follows = self.feed, None, PageSettings(), False
        self.model = self.page._model = OnlinePCA(K).fit(data(50))

    def _offer(self, make: Any) -> bool:
        self.frames.append(make())
        if self.frames[-1].state is not None:
            self.worked += self.copying
        return True

    def update(self, calls: int, work: float, clock: float, block: Any = None) -> int:
        """Show block after block, each after so much processor's and clock's time; returns the number of models that were copied."""
        before, block = self.models, data(1) if block is None else block
        for _ in range(calls):
            self.now += clock
            self.worked += work
            count = len(self.frames)
            self.page.update(block)
            if len(self.frames) > count:
                self.feed.sent(self.frames[-1], self.sending if self.frames[-1].state is not None else 0.0)
        return self.models - before

    @property
    def models(self) -> int:
        return sum(frame.state is not None for frame in self.frames)


def test_a_costly_copy_is_made_seldom_and_the_numbers_come_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner's processor time goes by at the rate of the clock, and then stands still."""
    timed = Timed(monkeypatch, copying=0.01, sending=0.01)
    assert timed.update(1500, 0.01, 0.01) == 3, "20 ms of copying and sending are 0.4 % of the time every five seconds"
    assert len(timed.frames) >= 50, "the rows and their number are handed over four times a second"
    assert timed.frames[-1].facts.every == pytest.approx(5.0, abs=0.1), "the page is not told how often the model is copied"
    assert timed.update(1500, 0.0, 0.2) == 3, "a learner that waits hands over within a share of the clock's time: every 100 seconds"
    assert timed.feed.row == 3000


@pytest.mark.parametrize(("copying", "sending", "block"), [(1e-4, 2e-4, 0.002), (1e-3, 2e-3, 0.01), (0.02, 0.02, 0.1)])
def test_the_page_takes_less_than_a_hundredth_of_the_time(
    copying: float, sending: float, block: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copying, sending, and copying rows, in 20 seconds of a learner that works all the time."""
    timed = Timed(monkeypatch, copying, sending)
    timed.update(round(20.0 / block), block, block)
    assert timed.models >= 2
    most = 0.01 * 20.0 + copying + sending  # the newest copy is paid for later
    assert timed.feed.spent == pytest.approx((copying + sending) * timed.models)
    assert timed.feed.spent < most, f"{timed.feed.spent:.3f} s of 20 were spent on the page"


def test_most_calls_only_count_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(monkeypatch)
    worked: list[int] = []
    work = timed.feed._work

    def counted(model: Any, rows: Any, *more: Any) -> None:
        worked.append(len(rows))
        work(model, rows, *more)

    monkeypatch.setattr(timed.feed, "_work", counted)
    for block in (data(100), data(7), data(1)[0]):
        for _ in range(1000):
            timed.now += 0.0001
            timed.page.update(block)
    assert timed.feed.row == 1000 * (100 + 7 + 1), "rows were miscounted"
    assert len(worked) <= 200, "more than 20 times a second, and for the rows of a slot, something was done"


def test_what_a_burst_leaves_behind_is_shown_while_the_stream_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(monkeypatch, copying=1e-4)
    model = timed.model
    for block in data(600).reshape(20, 30, -1):
        model.partial_fit(block)
        timed.update(1, 0.001, 0.001, block)
    assert timed.frames[-1].row < 600, "the test needs rows that came after the last hand-over"
    timed.now += 0.2
    timed.feed.late(model)
    timed.now += 0.2
    timed.feed.late(model)
    assert timed.frames[-1].row == timed.frames[-1].facts.samples - 50 == 600, "the last rows of a burst wait for the next burst"
    assert timed.frames[-1].state is not None, "the model is not shown as it is"
    count = len(timed.frames)
    timed.now += 10.0
    timed.feed.late(model)
    assert len(timed.frames) == count, "nothing has changed, and it was handed over again"
    for _ in range(2):
        model.partial_fit(data(1))
        timed.update(1, 0.001, 0.001)
    model.partial_fit(data(40))  # and `update` is still to come
    for _ in range(3):
        timed.now += 0.3
        timed.feed.late(model)
    assert timed.frames[-1].row == 602
    assert timed.frames[-1].state is None, "a model was handed over that has learned rows which it is to score"
    with model._fitted().lock:

        def late() -> None:
            for _ in range(3):
                timed.feed.late(model)

        thread = threading.Thread(target=late)
        thread.start()
        thread.join(30.0)
        assert not thread.is_alive(), "the sending thread waits for a learner"


def test_what_waits_for_a_page_that_does_not_listen_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 0.1)  # more than a slot of time from one call to the next
    monkeypatch.setattr("online_psp.watch.feed.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("online_psp.watch.feed.time.thread_time", lambda: 0.0)
    taker = Feed(lambda make: False)
    monitor = Monitor(OnlinePCA(K))
    block = data(2000)
    found = monitor.update(block)
    for _ in range(300):
        taker.take(monitor.model, block, found=found)
    frame = taker.finish(monitor.model)
    scores, rows = (sum(len(each.numbers) for each in kept) for kept in (frame.scores, frame.pieces))
    assert 0 < scores <= 1 << 18
    assert 0 < rows <= 512
    assert frame.facts.uncharted == 300 * 2000 - scores, "rows were left out and not counted"


def test_waiting_scores_are_the_newest_however_they_come() -> None:
    """Rows one by one, in blocks, and in a block that is larger than what is kept."""
    numbers, found = scored(5000)
    waiting = WaitingScores(3000)
    at = 0
    for n in (1, 1, 700, 1, 1500, 1, 900, 1, 1800):
        part = Update(*(field[at : at + n] for field in found))
        if n == 1:
            waiting.add_one(int(numbers[at]), Update(*(field[at] for field in found)))
        else:
            waiting.add(numbers[at : at + n], part)
        at += n
        assert waiting.dropped + len(waiting) == at, "rows are lost and not counted"
    [kept] = waiting.take()
    assert 1800 <= len(kept.numbers) <= 3000
    np.testing.assert_array_equal(kept.numbers, np.arange(at - len(kept.numbers) + 1, at + 1))
    for name in ("t2", "spe", "t2_limit", "spe_limit", "outlier"):
        np.testing.assert_array_equal(getattr(kept.found, name), getattr(found, name)[kept.numbers - 1])
    assert waiting.take() == []
    waiting.add(numbers, found)
    np.testing.assert_array_equal(waiting.take()[0].numbers, numbers[-3000:])


def test_rows_one_by_one_are_shown_as_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.concatenate([data(600), data(100, changed=True)])
    together = frames_of(Monitor(OnlinePCA(K)), np.array_split(X, 7), monkeypatch)
    again = Monitor(OnlinePCA(K))
    kept: list[Frame] = []

    def offer(make: Any) -> bool:
        kept.append(make())
        return True

    taker = Feed(offer)
    again.witness = taker.witness
    clock = [0.0]
    monkeypatch.setattr("online_psp.watch.feed.time.monotonic", lambda: clock[0])
    page: Any = object.__new__(Dashboard)  # all but its process
    page.feed, page._model, page._monitor, page.settings, page._follows = taker, again.model, again, PageSettings(), False
    for row in X:
        clock[0] += 0.01
        page.update(row, again.update_one(row))
    kept.append(taker.finish(again.model))
    numbers = np.concatenate([each.numbers for frame in kept for each in frame.scores])
    np.testing.assert_array_equal(numbers, np.arange(1, 701))
    spe = np.concatenate([each.found.spe for frame in kept for each in frame.scores])
    expected = Monitor(OnlinePCA(K))
    np.testing.assert_allclose(spe, [expected.update_one(row).spe for row in X], rtol=1e-9)
    alarms = [witness.number for frame in kept for witness in frame.witnesses]
    assert alarms == [alarm.row + 1 for alarm in again.alarms]
    assert alarms
    assert sum(len(frame.witnesses) for frame in together), "the planted drift raises an alarm in blocks too"
    with pytest.raises(TypeError, match=r"page\.update\(rows, monitor\.update\(rows\)\)"):
        page.update(X)


def test_several_threads_may_hand_over() -> None:
    taker, model = Feed(lambda make: bool(make())), OnlinePCA(K).fit(data(50))
    block = data(3)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(300):
                taker.take(model, block)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed
    assert taker.row == 4 * 300 * 3, "rows of one thread were lost to another"


def test_ids_are_of_the_rows_and_get_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("online_psp.watch.feed.time.monotonic", lambda: 1.0)
    page: Any = object.__new__(Dashboard)
    page.feed, page._model, page._monitor = Feed(lambda make: False), OnlinePCA(K).fit(data(50)), None
    page.settings, page._follows = PageSettings(), False
    page.update(data(4), ids=["a", "b", "c", "d"])
    assert page.settings.id_names == ["ID 1"]
    page.update(data(1), ids=[["a", "b"]])
    assert page.settings.id_names == ["ID 1", "ID 2"]
    with pytest.raises(ValueError, match="there are 60 rows, and 59 entries"):
        page.update(data(60), ids=[["a"]] * 59)
    assert page.feed.row == 5


def test_rows_with_holes_lie_in_the_plane_and_are_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [data(100, seed=i) for i in range(6)]
    for block in blocks:
        block[::2, 3] = np.nan
    model, story = OnlinePCA(K, missing="impute"), Story(PageSettings())
    for frame in frames_of(model, blocks, monkeypatch):
        story.take(frame)
    story.facts = story.facts._replace(status="finished")
    story.refresh()
    points = story.parts["rows"].columns
    holes = np.isnan(np.concatenate(blocks)[points["row"].astype(int) - 1, 3])
    assert holes.any(), "rows with holes are left out"
    assert np.isfinite(points["s1"]).all()
    assert np.isnan(points["spe"][holes]).all()
    assert np.isfinite(points["spe"][~holes][-50:]).all()
    assert json.loads(story.parts["facts"].columns["json"][0])["holes"] == holes.sum()


def test_a_stream_that_pauses_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and components are drawn at most once a second; after the last hand-over they must catch up with the numbers."""
    clock = [100.0]
    monkeypatch.setattr("online_psp.watch.story.time.monotonic", lambda: clock[0])
    model, story = OnlinePCA(K), Story(PageSettings())
    made = frames_of(model, [data(100), data(100, changed=True)], monkeypatch)
    monkeypatch.setattr("online_psp.watch.story.time.monotonic", lambda: clock[0])

    def drawn() -> float:
        return float(story.parts["rows"].columns["row"].max())

    clock[0] = 200.0
    story.take(made[0])
    assert drawn() == 100
    assert story.late() is None
    clock[0] = 200.3
    story.take(made[1])
    assert drawn() == 100, "the rows are drawn too often, and this test shows nothing"
    assert story.late() == pytest.approx(0.7)
    clock[0] = 201.1
    assert story.late() == 0.0
    story.refresh()
    assert drawn() == 200
    assert story.late() is None
    shown = json.loads(story.parts["components"].columns["json"][0])["components"]
    assert shown[0]["share"] == pytest.approx(100 * model.explained_variance_ratio_[0])


def test_the_process_draws_what_it_left_out_when_no_more_comes() -> None:
    arrived: queue.Queue[Any] = queue.Queue()
    assert _next(arrived, 0.0) is _NOTHING
    arrived.put("frame")
    assert _next(arrived, 0.0) == "frame"
    arrived.put(None)
    assert _next(arrived, None) is None


def test_scores_far_below_their_limit_do_not_stretch_the_axis() -> None:
    story = Story(PageSettings())
    numbers, found = scored(1000)
    found.t2[::7], found.spe[::5] = 0.0, 1e-280
    story.take_scores(Scored(numbers, found))
    story.refresh()
    for name in ("whole", "newest"):
        columns = story.parts[name].columns
        assert np.nanmin(columns["t2"]) >= 1e-4 * 12.0 * (1 - 1e-9), name
        assert np.nanmin(columns["spe"]) >= 1e-4 * 10.0 * (1 - 1e-9), name
        assert np.nanmax(columns["t2_most"]) == found.t2.max()
    told = json.loads(story.parts["facts"].columns["json"][0])["newest"]
    assert told["spe"] == found.spe[-1], "the number beside the chart is not the row's own"


def test_copies_are_copies() -> None:
    taker = Feed(lambda make: False)
    block = data(20)
    before, model = block.copy(), OnlinePCA(K).fit(block)
    taker.take(model, block)
    block[:] = 0.0
    (piece,) = taker.finish(model).pieces
    np.testing.assert_array_equal(piece.rows, before[piece.numbers - 1])


def test_a_frame_that_breaks_off_is_the_end() -> None:
    """The learner was killed while it wrote."""
    pipe = io.BytesIO()
    frames.write(pipe, {"row": np.arange(1000.0), "text": "a"})
    whole = pipe.getvalue()
    for length in (0, 3, 8, 20, 40, len(whole) // 2, len(whole) - 1):
        assert frames.read(io.BytesIO(whole[:length])) is None
    found = frames.read(io.BytesIO(whole))
    np.testing.assert_array_equal(found["row"], np.arange(1000.0))


@pytest.mark.filterwarnings("ignore:robust=True has taken")
@pytest.mark.parametrize("n", [2, 40, 1000], ids=lambda n: f"{n} rows")
@pytest.mark.parametrize(
    "settings",
    [{}, {"standardize": True}, {"axes": "stable"}, {"missing": "impute"},
     {"robust": True}, {"half_life": 200}, {"missing": "impute", "robust": True, "standardize": True}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_hand_over_does_not_change_while_learning_goes_on(settings: dict[str, Any], n: int, sparse: bool) -> None:
    """It is sent away by another thread, some time later, in one of the exact phases or after them."""
    form: Any = csr_array if sparse else np.asarray
    model = OnlinePCA(K, **settings)
    block = form(data(n))
    model.partial_fit(block)
    model.partial_fit(form(data(5, seed=3)))  # an open block
    taker = Feed(lambda make: False)
    taker.take(model, block)
    frame = taker.finish(model)
    before = sent(frame)
    assert before.arrays
    rows = block.data if sparse else block
    rows[:] = -1.0
    for i in range(4):
        model.partial_fit(form(data(300, changed=True, seed=i)))
    after = sent(frame)
    assert before.state == after.state
    for name, array in before.arrays.items():
        np.testing.assert_array_equal(array, after.arrays[name], err_msg=name)
    for one, other in zip(before.pieces, after.pieces, strict=True):
        np.testing.assert_array_equal(*(each.rows.toarray() if sparse else each.rows for each in (one, other)))


@pytest.mark.parametrize("kind", ["dense", "sparse", "float32", "frame", "standardize", "stable", "share"])
def test_every_kind_of_model_and_rows_is_shown(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = OnlinePCA(0.9 if kind == "share" else K, standardize=kind == "standardize", axes="stable" if kind == "stable" else "principal")
    blocks: list[Any] = [data(100, seed=i) for i in range(6)]
    if kind == "sparse":
        blocks = [csr_array(np.where(np.abs(X) > 3, X, 0.0)) for X in blocks]
    if kind == "float32":
        blocks = [X.astype(np.float32) for X in blocks]
    if kind == "frame":
        pandas = pytest.importorskip("pandas")
        blocks = [pandas.DataFrame(X, columns=[f"c{i}" for i in range(D)]) for X in blocks]
    story = Story(PageSettings(id_names=["who"]))
    for frame in frames_of(model, blocks, monkeypatch, ids=[["a"]] * 100):
        story.take(frame)
    story.facts = story.facts._replace(status="finished")
    story.refresh()
    told = json.loads(story.parts["facts"].columns["json"][0])
    assert told["samples"] == model.n_samples_seen_ == 600
    assert told["explained"] == pytest.approx(float(model.explained_variance_ratio_.sum()), rel=1e-12)
    points = story.parts["rows"].columns
    assert np.isfinite(points["s1"]).all()
    assert len(points["s1"]) == len(points["id0"]) == len(points["row"]) > 100
    chosen = points["row"].astype(int) - 1
    rows = np.concatenate([X.toarray() if kind == "sparse" else np.asarray(X) for X in blocks])[chosen]
    first = OnlinePCA.transform(model, rows)[:, 0] if kind != "frame" else None
    if first is not None and kind != "stable":
        np.testing.assert_allclose(points["p1"], first, rtol=1e-3, atol=1e-3)
    scores = story.parts["newest"].columns["spe"]
    assert np.isfinite(scores).any()


def test_the_scores_of_a_monitor_reach_the_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = Monitor(OnlinePCA(K))
    X = np.concatenate([data(800), data(300, changed=True)])
    frames = frames_of(monitor, np.array_split(X, 11), monkeypatch)
    story = Story(PageSettings(feature_names=[f"f{i}" for i in range(D)]))
    for frame in frames:
        story.take(frame)
    again = Monitor(OnlinePCA(K)).update(X)
    newest = story.parts["newest"].columns
    np.testing.assert_array_equal(newest["row"], np.arange(1, 1101))
    np.testing.assert_allclose(newest["t2"], again.t2, rtol=1e-9)
    np.testing.assert_allclose(newest["spe"], again.spe, rtol=1e-9)
    told = json.loads(story.parts["facts"].columns["json"][0])
    assert told["outliers"] == int(again.outlier.sum())
    alarms = json.loads(story.parts["alarms"].columns["json"][0])
    rows = np.flatnonzero(again.drift != "") + 1
    assert [alarm["number"] for alarm in alarms] == rows.tolist()
    assert len(rows)
    first = alarms[0]
    place = rows[0] - 1
    assert first["scores"]["spe"] == pytest.approx(again.spe[place], rel=1e-9), "contributions do not add up to the SPE of the row"
    assert first["scores"]["t2"] == pytest.approx(again.t2[place], rel=1e-9)
    assert first["scores"]["spe_limit"] == pytest.approx(again.spe_limit[place])
    shown = {one["name"]: one["value"] for one in first["features"]}
    np.testing.assert_allclose([shown[f"f{i}"] for i in range(D)], X[place])


def test_sampled_scores_are_of_rows_that_the_model_has_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that a model has learned fit too well: of many components and few rows that is plain to see."""
    rng = np.random.default_rng(0)
    blocks = [rng.standard_normal((30, 40)) for _ in range(20)]
    story = Story(PageSettings())
    for frame in frames_of(OnlinePCA(5), blocks, monkeypatch):
        story.take(frame)
    newest = story.parts["newest"].columns
    judged = np.isfinite(newest["spe"])
    learned = OnlinePCA(5).fit(np.concatenate(blocks))
    from online_psp.monitoring import spe

    rows = np.concatenate(blocks)[newest["row"].astype(int) - 1][judged]
    assert newest["spe"][judged].mean() > 1.02 * spe(learned, rows).mean()


def test_watching_changes_nothing_of_what_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ctrl_c(_: float) -> None:
        raise KeyboardInterrupt

    X = data(3000)
    monkeypatch.setattr("online_psp.cli._page.time", SimpleNamespace(sleep=ctrl_c, monotonic=time.monotonic))  # the page stays until then
    np.save(tmp_path / "x.npy", X)
    psp("fit", tmp_path / "x.npy", "-k", K, "-o", tmp_path / "plain.psp", "-q", "--block", 50)
    done = psp("fit", tmp_path / "x.npy", "-k", K, "-o", tmp_path / "watched.psp", "-q", "--block", 50, "--watch", "--port", 0)
    assert "until Ctrl-C" in done.stderr, "the page of a fit that is soon over should stay"
    plain, watched = (OnlinePCA.load(tmp_path / f"{name}.psp") for name in ("plain", "watched"))
    np.testing.assert_array_equal(plain.components_, watched.components_)
    assert (tmp_path / "plain.psp").read_bytes() == (tmp_path / "watched.psp").read_bytes(), "the model files differ"


@pytest.mark.parametrize("unit", [1e-30, 1e30, 1e60])
def test_rows_in_any_units_are_shown(unit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [unit * data(100, seed=i) for i in range(4)]
    blocks[-1][7] *= 1e6  # one gross row
    model, story = OnlinePCA(K), Story(PageSettings())
    for frame in frames_of(model, blocks, monkeypatch):
        story.take(frame)
    story.facts = story.facts._replace(status="finished")
    story.refresh()
    with np.errstate(over="ignore"):
        expected = model.transform(np.concatenate(blocks))[:, 0]
    points = story.parts["rows"].columns
    np.testing.assert_allclose(
        points["p1"] / unit, expected[points["row"].astype(int) - 1] / unit, rtol=1e-3, atol=1e-3 * abs(expected).max() / unit
    )


def test_more_alarms_than_are_handed_over_are_counted() -> None:
    taker, monitor = Feed(lambda make: False), Monitor(OnlinePCA(K))
    X = np.concatenate([data(500), data(100, changed=True)])

    def often(*told: Any) -> None:
        for _ in range(40):
            taker.witness(*told)

    monitor.witness = often
    found = monitor.update(X)
    assert len(monitor.alarms) == 1
    taker.take(monitor.model, X, found=found)
    frame = taker.finish(monitor.model)
    assert (frame.facts.alarms, len(frame.witnesses)) == (40, 16)


def test_a_hand_over_that_cannot_be_shown_is_said_on_the_page() -> None:
    from online_psp.watch.__main__ import _take

    story = Story(PageSettings())
    X = data(60)
    arrays, state = pca_state(OnlinePCA(K).fit(X))
    _take(story, Frame(0.0, 60, Facts(), arrays, state, [], [], []))
    damaged = {name: array[:0] for name, array in arrays.items()}
    _take(story, Frame(1.0, 70, Facts(), damaged, state, [], [], []))
    told = json.loads(story.parts["facts"].columns["json"][0])
    assert "cannot be shown" in told["note"]
    assert told["samples"] == 60
    _take(story, Frame(2.0, 80, Facts(), arrays, state, [], [], []))
    assert json.loads(story.parts["facts"].columns["json"][0])["note"] == ""


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb\tc", "a b c"),
        ("\x1b[31mred\x00", "\ufffd[31mred\ufffd"),
        ("\u202etxt.exe", "\ufffdtxt.exe"),
        ("حرارة", "حرارة"),
        ("<b>", "<b>"),
    ],
)
def test_names_are_one_line_that_reads_as_it_is(name: str, shown: str) -> None:
    assert PageSettings(title=name).title == shown
    assert PageSettings(feature_names=[name]).feature_names == [shown]
    long = PageSettings(title="x" * 500 + "end").title
    assert len(long) <= 201
    assert long.endswith("end")


def test_names_that_are_no_text_are_replaced() -> None:
    settings = PageSettings(title="a\udcff", feature_names=["b\ud800"], id_names=["c\udc00"])
    assert [settings.title, *(settings.feature_names or []), *settings.id_names] == ["a?", "b?", "c?"]


def test_where_the_page_is_and_that_a_port_was_busy_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from online_psp.cli._page import Shown

    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: not opened.append(url))  # type: ignore[func-returns-value]
    monkeypatch.setattr("online_psp.watch.Dashboard", lambda *_, on_served, **__: SimpleNamespace(served=on_served))
    run: Any = SimpleNamespace(source={"name": "x.npy", "features": D}, reading={}, model=OnlinePCA(K), monitor=None)
    task: Any = SimpleNamespace(watching={"watch": True, "open": True}, output="m.psp")
    served = Shown(task, run, None).page.served  # type: ignore[attr-defined]
    served({"url": "http://127.0.0.1:5007/", "port": 5007, "wanted": 5006})
    assert capsys.readouterr().err.splitlines() == [
        "psp: Port 5006 is busy; the page is at port 5007.",
        "psp: The page is at http://127.0.0.1:5007/",
    ]
    assert opened == ["http://127.0.0.1:5007/"]
    served({"error": "No."})
    assert capsys.readouterr().err == "psp: No. The fit goes on without it.\n"


def test_stable_axes_do_not_swap_where_principal_ones_do() -> None:
    rng = np.random.default_rng(0)
    axes, first = Axes(), np.linalg.qr(rng.standard_normal((D, 3)))[0].T
    np.testing.assert_array_equal(axes.turn(first, 1000), np.eye(3))
    swapped = first[[1, 0, 2]] * np.array([[1.0], [-1.0], [1.0]])
    turn = axes.turn(swapped, 1100)
    np.testing.assert_allclose(turn @ swapped, first, atol=1e-12)
    np.testing.assert_array_equal(axes.turn(swapped, 2000), np.eye(3))


# The serving process


# Options and settings


def test_without_bokeh_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "bokeh" else real(name, *more))
    np.save(tmp_path / "x.npy", data(50))
    for words in (("fit", tmp_path / "x.npy", "-k", 2, "-o", tmp_path / "m.psp", "--watch"), ("watch", tmp_path / "m.psp")):
        done = psp(*words, code=2)
        assert done.stderr.strip() == "psp: Watching needs Bokeh: pip install 'online-psp[watch]'."
    assert not (tmp_path / "m.psp").exists()
    with pytest.raises(ImportError, match=r"pip install 'online-psp\[watch\]'"):
        Dashboard(OnlinePCA(2))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--open",), "--open is an option of the live page: it needs --watch."),
        (("--watch", "--image", "3x3"), "--image 3x3 is 9 values a row, and rows have 12."),
        (("--watch", "--image", "large"), "--image: The size of pictures is height x width"),
        (("--watch", "--port", 70000), "port must be between 0 and 65535; got 70000."),
    ],
)
def test_options_that_mean_nothing_are_refused(words: tuple[Any, ...], said: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", data(50))
    done = psp("fit", tmp_path / "x.npy", "-k", 2, "-o", tmp_path / "m.psp", *words, code=2)
    assert said in done.stderr
    assert not (tmp_path / "m.psp").exists(), "something was written all the same"


def test_sizes_of_pictures() -> None:
    assert image_shape("28x28") == (28, 28)
    assert image_shape("32×16x3") == (32, 16, 3)
    for text in ("28", "28x", "axb", "28x28x28x3", "-1x4"):
        with pytest.raises(ValueError, match="height x width"):
            image_shape(text)
    assert suited_image([4, 3], 12) == (4, 3)
    assert suited_image([4, 4], 12) is None
    assert suited_image(None, 12) is None
    with pytest.raises(ValueError, match="1 or 3 channels"):
        PageSettings(image=(4, 3, 2))
    with pytest.raises(TypeError, match="OnlinePCA or a Monitor"):
        Dashboard(object())  # type: ignore[arg-type]


# Following a file


def test_a_monitored_file_is_followed_with_its_rows_and_alarms(tmp_path: Path) -> None:
    X = np.concatenate([data(700), data(60, changed=True)])
    np.save(tmp_path / "x.npy", X)
    model, table = tmp_path / "m.psp", tmp_path / "a.csv"
    psp("fit", tmp_path / "x.npy", "-k", K, "-o", model, "--monitor", table, "-q")
    again = Monitor(OnlinePCA(K)).update(X)
    story = Story(PageSettings())
    follower = Follower(model, story)
    assert follower.look()
    assert not follower.look(), "a file that has not changed has nothing to tell"
    alarms = json.loads(story.parts["alarms"].columns["json"][0])
    assert [alarm["number"] for alarm in alarms] == (np.flatnonzero(again.drift != "") + 1).tolist()
    assert alarms[0]["features"], "the row of an alarm is among those kept, and is not shown"
    newest = story.parts["newest"].columns
    np.testing.assert_array_equal(newest["row"], np.arange(760 - 256 + 1, 761))
    told = json.loads(story.parts["facts"].columns["json"][0])
    assert told["outliers"] == int(again.outlier.sum())
    assert told["samples"] == told["total"] == 760
    whole = Story(PageSettings())
    Follower(model, whole, table).look()
    newest = whole.parts["newest"].columns
    np.testing.assert_array_equal(newest["row"], np.arange(1, 761))
    np.testing.assert_allclose(newest["spe"], again.spe, rtol=1e-12)


def test_a_damaged_file_is_said_and_the_last_good_one_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "m.psp"
    model = OnlinePCA(K).fit(data(100))
    with pytest.raises(FileNotFoundError):
        Follower(path, Story(PageSettings())).look()
    path.write_bytes(b"no model")
    with pytest.raises(ModelFileError):
        Follower(path, Story(PageSettings())).look()
    model.save(path)
    story = Story(PageSettings())
    follower = Follower(path, story)
    assert follower.look()
    good = path.read_bytes()
    for damaged in (good[:100], b"", good[:-1]):
        path.write_bytes(damaged)
        assert follower.look()
        told = json.loads(story.parts["facts"].columns["json"][0])
        assert "m.psp" in told["note"]
        assert told["samples"] == 100
        assert not follower.look(), "the same sentence is told once"
        path.write_bytes(good)
        follower.look()
    path.unlink()
    follower.look()
    assert "m.psp" in json.loads(story.parts["facts"].columns["json"][0])["note"]
    model.partial_fit(data(50)).save(path)
    follower.look()
    told = json.loads(story.parts["facts"].columns["json"][0])
    assert (told["note"], told["samples"]) == ("", 150)


@pytest.mark.parametrize("other", ["features", "rows"])
def test_a_file_that_is_replaced_by_another_model_begins_anew(other: str, tmp_path: Path) -> None:
    path, story = tmp_path / "m.psp", Story(PageSettings())
    follower = Follower(path, story)
    OnlinePCA(K).fit(data(300)).save(path)
    follower.look()
    (OnlinePCA(2).fit(data(500)[:, :5]) if other == "features" else OnlinePCA(K).fit(data(100))).save(path)
    for _ in range(2):
        follower.look()
        told = json.loads(story.parts["facts"].columns["json"][0])
        assert "another model" in told["note"]
    rows = 500 if other == "features" else 100
    assert (told["samples"], list(story.parts["explained"].columns["row"])) == (rows, [rows]), "two histories are mixed"


def test_what_cannot_be_shown_of_a_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, story = tmp_path / "m.psp", Story(PageSettings())
    OnlinePCA(K).fit(data(100)).save(path)
    follower = Follower(path, story)
    follower.look()

    def fail() -> bool:
        raise RuntimeError("no idea")

    monkeypatch.setattr(follower, "look", fail)
    monkeypatch.setattr("online_psp.watch.follow._EVERY", 0.01)
    stop = threading.Event()
    follower.run(stop.set, stop)
    assert "no idea" in json.loads(story.parts["facts"].columns["json"][0])["note"]


def test_a_table_that_is_cut_and_written_again_gives_each_row_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    head = "row,source,t2,spe,t2_limit,spe_limit,missing,outlier,drift,features"
    lines = [head, *(f'{i},"a,b.csv",{i}.5,1,9,9,0,0,,' for i in range(1, 9))]
    path.write_text("\n".join(lines[:7]) + "\n7,7.")
    tail = TableTail(path)

    def read() -> list[int]:
        return [int(number) for scored in tail.read() for number in scored.numbers]

    assert read() == [1, 2, 3, 4, 5, 6]
    path.write_text("\n".join(lines[:4]) + "\n")
    assert read() == []
    path.write_text("\n".join(lines) + "\n")
    assert read() == [7, 8]
    for damage in ("9,s,x,1,9,9,0,0,,\n", "9,1\n"):
        path.write_text("\n".join(lines) + "\n" + damage)
        with pytest.raises(TableError, match=r"a\.csv is no table"):
            tail.read()


def test_psp_watch_of_what_is_no_model_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "m.psp").write_bytes(b"no model")
    for name, code in (("m.psp", 1), ("absent.psp", 2)):
        done = psp("watch", tmp_path / name, code=code)
        assert name in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    OnlinePCA(K).fit(data(30)).save(tmp_path / "n.psp")
    done = psp("watch", tmp_path / "n.psp", "--image", "5x5", code=2)
    assert "25 values a row, and rows have 12" in done.stderr


def test_frames_are_small_beside_the_model() -> None:
    """A hand-over is the model's state and at most a few hundred rows."""

    def size(value: Any) -> int:
        return sum(len(piece) for piece in packed(value))

    model = OnlinePCA(8).fit(np.random.default_rng(0).standard_normal((2000, 400)))
    state = size(pca_state(model))
    made: list[Frame] = []

    def offer(make: Any) -> bool:
        made.append(make())
        return True

    Feed(offer).take(model, np.zeros((100_000, 400)))
    assert size(made[0]) < state + 64 * 400 * 8 + 50_000
