"""What the live page costs: the learner's time, and the browser's memory after 10⁹ rows.

``python -m benchmarks watch``. The browser is headless Chromium with its driver; where that is absent the page is served all the same.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from online_psp.monitoring import Monitor, Update
from online_psp.pca.files import pca_state
from online_psp.watch import Dashboard, PageSettings
from online_psp.watch.frames import Facts, Frame, Piece, Scored

BLOCK = 256
_SIZES = (
    ("OnlinePCA", 10, 4, BLOCK),
    ("OnlinePCA", 784, 16, BLOCK),
    ("OnlinePCA", 8192, 64, BLOCK),
    ("OnlinePCA", 10, 4, 1),
    ("OnlinePCA", 784, 16, 1),
    ("Monitor", 10, 4, BLOCK),
    ("Monitor", 784, 16, BLOCK),
)
_SECONDS = 3.0  # of the learner's processor time
_SLOW, _SLOW_SECONDS = 0.1, 10.0  # a slow stream: seconds between two blocks, and seconds of the clock
_FRAMES, _SCORES = 1000, 4096
_ROWS = 10**9


class Cost(NamedTuple):
    """What a page has cost the process that learns."""

    calls: dict[str, list[float]]
    """Seconds of processor time of single calls, by what they did: hand over with the model, without it, or nothing of the kind."""
    learning: float
    """Seconds of processor time, without the page's calls."""
    calling: float
    """All calls together."""
    sending: float
    """Processor time of all other threads of the process, which are the page's."""
    serving: float
    """Processor time of the process that serves the page."""
    clock: float
    rows: int


def main() -> None:
    """All tables."""
    with threadpool_limits(1):
        print("Processor time that the page costs the learner's process, while a browser looks at it on the same machine")
        print(
            "| model | learning, µs a row | hand-over with the model, µs | without | other calls | calls | sending | together | serving |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for name, D, K, n in _SIZES:
            _learner(name, D, K, n)
        print("\nA slow stream: shares of the clock's time")
        print("| model | learning | calls | sending | together |")
        print("|---|---|---|---|---|")
        for D, K in ((10, 4), (784, 16), (8192, 64)):
            _slow_stream(D, K)
    _browser_memory()


def _learner(name: str, D: int, K: int, n: int) -> None:
    with _watched(name, D, K) as (learner, page):
        cost = _cost(_blocks(D, K, n), learner, page, lambda passed: passed.thread >= _SECONDS)
    medians = [f"{1e6 * statistics.median(each):,.1f}" if each else "–" for each in cost.calls.values()]
    shares = [100 * each / cost.learning for each in (cost.calling, cost.sending, cost.calling + cost.sending)]
    print(
        f"| {name}, D={D:,}, K={K}, {'blocks of ' + str(n) if n > 1 else 'row by row'} | {1e6 * cost.learning / cost.rows:.1f} "
        f"| {' | '.join(medians)} | {' | '.join(f'{each:.2f} %' for each in shares)} | {100 * cost.serving / cost.clock:.0f} % of a core |",
        flush=True,
    )


def _slow_stream(D: int, K: int) -> None:
    with _watched("OnlinePCA", D, K) as (learner, page):
        cost = _cost(_blocks(D, K, 16), learner, page, lambda passed: passed.clock >= _SLOW_SECONDS, _SLOW)
    shares = [100 * each / cost.clock for each in (cost.learning, cost.calling, cost.sending, cost.calling + cost.sending)]
    print(f"| D={D:,}, K={K}, 16 rows every {_SLOW} s | {' | '.join(f'{each:.2f} %' for each in shares)} |", flush=True)


@contextlib.contextmanager
def _watched(name: str, D: int, K: int) -> Iterator[tuple[Any, Dashboard]]:
    """A learner that is past its exact phase and compilation, on a page that a browser shows."""
    learner: Any = Monitor(OnlinePCA(K)) if name == "Monitor" else OnlinePCA(K)
    with Dashboard(learner, PageSettings(title=f"{name}, D={D}, K={K}", port=0)) as page, _looking(page.wait(600.0)):
        for block in _blocks(D, K, BLOCK):
            _learn(learner, block)
        yield learner, page


def _learn(learner: Any, block: Floats) -> None:
    """Learn a block, or a row."""
    if isinstance(learner, Monitor):
        learner.update(block)
    elif block.ndim == 1:
        learner.fit_next(block)
    else:
        learner.partial_fit(block)


class _Times(NamedTuple):
    thread: float
    process: float
    clock: float
    serving: float

    @classmethod
    def now(cls, page: Dashboard) -> _Times:
        return cls(time.thread_time(), time.process_time(), time.perf_counter(), _processor_time(page.address["process"]))

    def since(self, then: _Times) -> _Times:
        return _Times(*(after - before for after, before in zip(self, then, strict=True)))


class _Onlooker:
    """The page's own, with the processor time of its calls.

    Every second time nothing is timed at the same place: looking at the processor's time is a system call, which takes longer than most
    calls of the page, and longest after a block has emptied the caches.
    """

    def __init__(self, page: Dashboard) -> None:
        self.calls: dict[str, list[float]] = {"whole": [], "light": [], "other": []}
        self.nothing: list[float] = []
        self._page = page

    def __call__(self, *learned: Any) -> None:
        feed = self._page.feed
        handed, copied = feed.handed_over, feed.models
        before = time.thread_time()
        if sum(map(len, self.calls.values())) < len(self.nothing):
            self._page._look(*learned)
            spent = time.thread_time() - before
            self.calls["whole" if feed.models > copied else "light" if feed.handed_over > handed else "other"].append(spent)
        else:
            self.nothing.append(time.thread_time() - before)
            self._page._look(*learned)


def _cost(blocks: list[Floats], learner: Any, page: Dashboard, enough: Callable[[_Times], bool], pause: float = 0.0) -> Cost:
    """What the page costs while a learner goes over blocks, or rows, again and again."""
    onlooker, rows = _Onlooker(page), 0
    page._set_onlooker(onlooker)
    began = _Times.now(page)
    while not enough(passed := _Times.now(page).since(began)):
        for block in blocks:
            if pause:
                time.sleep(pause)
            _learn(learner, block)
        rows += sum(1 if block.ndim == 1 else len(block) for block in blocks)
    page._set_onlooker(page._look)
    looking = statistics.fmean(onlooker.nothing)  # what disturbs a call disturbs this as well: sums are compared with sums
    calls = {name: [spent - looking for spent in each] for name, each in onlooker.calls.items()}
    calling = 2 * sum(sum(each) for each in calls.values())
    learning = passed.thread - 2 * looking * len(onlooker.nothing) - calling
    return Cost(calls, learning, calling, passed.process - passed.thread, passed.serving, passed.clock, rows)


def _processor_time(process: int) -> float:
    """Seconds of processor time that a process has had; NaN where that is not easy to tell."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            user, system = file.read().rpartition(b")")[2].split()[11:13]
    except OSError:
        return math.nan
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _blocks(D: int, K: int, n: int) -> list[Floats]:
    X = _rows(D, K)
    return list(X) if n == 1 else np.array_split(X, len(X) // n)


def _rows(D: int, K: int) -> Floats:
    rng = np.random.default_rng(0)
    scales = np.linspace(3.0, 1.5, K)[:, np.newaxis]
    return np.asarray(rng.standard_normal((8 * BLOCK, K)) @ (scales * rng.standard_normal((K, D))) + rng.standard_normal((8 * BLOCK, D)))


@contextlib.contextmanager
def _looking(address: str) -> Iterator[Any]:
    """A browser at a page, or None where there is none."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        yield None
        return
    from selenium.webdriver import Chrome
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1600,1200"):
        options.add_argument(word)
    options.binary_location = chromium
    browser = Chrome(options=options, service=Service(driver))
    try:
        browser.get(address)
        while not browser.execute_script("return document.body.dataset.ready"):
            time.sleep(0.1)
        yield browser
    finally:
        browser.quit()


def _browser_memory() -> None:
    """A page that stays open while a monitored stream of 10⁹ rows goes by, a million rows a hand-over."""
    model = OnlinePCA(16).fit(_rows(784, 16))
    with Dashboard(model, PageSettings(title="10⁹ rows", port=0, image=(28, 28))) as page, _looking(page.wait(600.0)) as browser:
        if browser is None:
            print("\nThe browser's memory was not measured: chromium and chromedriver are not installed.")
            return
        print("\nThe browser's memory, after its garbage was collected")
        print("| rows seen | MB |")
        print("|---|---|")
        step = _ROWS // _FRAMES
        for i, frame in enumerate(_frames(model, step)):
            page._frames.put(frame)
            if i + 1 in (1, _FRAMES // 10, _FRAMES // 2, _FRAMES):
                _drawn(browser, (i + 1) * step)
                print(f"| {(i + 1) * step:,} | {_heap(browser) / 1e6:.1f} |", flush=True)


def _frames(model: OnlinePCA, step: int) -> Iterator[Frame]:
    rng = np.random.default_rng(1)
    rows = _rows(784, 16)
    for i in range(_FRAMES):
        last = (i + 1) * step
        numbers = np.linspace(last - step + 1, last, _SCORES).astype(np.int64)
        t2, spe = rng.chisquare(16, _SCORES), rng.chisquare(768, _SCORES)
        limits = np.full(_SCORES, 32.0), np.full(_SCORES, 862.0)
        found = Update(t2, spe, *limits, (t2 > 32.0) | (spe > 862.0), np.full(_SCORES, "", dtype="<U9"))
        arrays, state = pca_state(model) if i % 4 == 0 else ({}, None)
        piece = Piece(numbers[-64:], rows[64 * (i % 32) :][:64])
        facts = Facts(memory=10**8, monitored=True, outliers=40 * (i + 1))
        yield Frame(float(i), last, facts, arrays, state, [piece], [Scored(numbers, found)], [])


def _drawn(browser: Any, row: int) -> None:
    """Wait until the browser shows a row."""
    code = "return Bokeh.documents[0].get_model_by_name('data-whole').data.row.slice(-1)[0]"
    while browser.execute_script(code) != row:
        time.sleep(0.2)


def _heap(browser: Any) -> float:
    """Bytes of JavaScript: objects, and the arrays behind them."""
    browser.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
    found = browser.execute_cdp_cmd("Runtime.getHeapUsage", {})
    return float(found["usedSize"]) + float(found.get("backingStorageSize", 0.0)) + float(found.get("embedderHeapUsedSize", 0.0))
