"""What the live page costs: the learner's time, and the browser's memory after 10⁹ rows.

``python -m benchmarks watch``. The browser is headless Chromium with its driver; where that is absent the page is served all the same.
"""

from __future__ import annotations

import contextlib
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
    ("OnlinePCA", 10, 4),
    ("OnlinePCA", 784, 16),
    ("OnlinePCA", 784, 64),
    ("OnlinePCA", 10_000, 16),
    ("Monitor", 10, 4),
    ("Monitor", 784, 16),
)
_TURN = 0.5  # seconds of the learner's processor time
_TURNS = 9  # without the page, and with it
_WATCHED_TURNS = 3  # in which every call of the page is timed
_FRAMES, _SCORES = 1000, 4096
_ROWS = 10**9


class Turn(NamedTuple):
    """Seconds a row."""

    thread: float
    """Processor time of the thread that learns."""
    process: float
    """Processor time of its process, and so of the thread that sends copies away."""
    clock: float


class Calls(NamedTuple):
    """Processor time of the calls of the page, in seconds."""

    handing_over: list[float]
    other: list[float]
    share: float
    """Of the learner's processor time."""


def main() -> None:
    """Both tables."""
    with threadpool_limits(1):
        print("The learner's time, one thread; a browser looks at the page on the same machine")
        print("| model | hand-over, µs | other calls, µs | their share | learning thread, with page / without | process | clock |")
        print("|---|---|---|---|---|---|---|")
        for name, D, K in _SIZES:
            _learner(name, D, K)
    _browser_memory()


def _learner(name: str, D: int, K: int) -> None:
    """Two equal learners take turns, one of them on a page: what slows the machine slows both."""
    X = _rows(D, K)
    blocks = np.array_split(X, len(X) // BLOCK)
    plain, watched = (Monitor(OnlinePCA(K)) if name == "Monitor" else OnlinePCA(K) for _ in range(2))
    with Dashboard(watched, PageSettings(title=f"{name}, D={D}, K={K}", port=0)) as page, _looking(page.url):
        for learner in (plain, watched):  # the exact phase, and compilation, come before
            _turn(blocks, _step(learner, page if learner is watched else None))
        pairs = [(_turn(blocks, _step(plain)), _turn(blocks, _step(watched, page))) for _ in range(_TURNS)]
        calls = _calls(blocks, watched, page)
    ratios = {each: [getattr(after, each) / getattr(before, each) for before, after in pairs] for each in Turn._fields}
    first, _, third = statistics.quantiles(ratios["thread"], n=4)
    own, other = (f"{1e6 * statistics.median(each):,.1f}" if each else "–" for each in (calls.handing_over, calls.other))
    print(
        f"| {name}, D={D:,}, K={K} | {own} | {other} "
        f"| {100 * calls.share:.2f} % | {statistics.median(ratios['thread']):.3f} ({first:.3f} to {third:.3f}) "
        f"| {statistics.median(ratios['process']):.3f} | {statistics.median(ratios['clock']):.2f} |",
        flush=True,
    )


def _step(learner: Any, page: Dashboard | None = None) -> Callable[[Floats], None]:
    """Learn a block, and show it where there is a page."""

    def monitored(block: Floats) -> None:
        found = learner.update(block)
        if page is not None:
            page.update(block, found)

    def plain(block: Floats) -> None:
        learner.partial_fit(block)
        if page is not None:
            page.update(block)

    return monitored if isinstance(learner, Monitor) else plain


def _turn(blocks: list[Floats], step: Callable[[Floats], None]) -> Turn:
    rows, began = 0, (time.thread_time(), time.process_time(), time.perf_counter())
    while time.thread_time() - began[0] < _TURN:
        for block in blocks:
            step(block)
            rows += len(block)
    ended = time.thread_time(), time.process_time(), time.perf_counter()
    return Turn(*((after - before) / rows for before, after in zip(began, ended, strict=True)))


def _calls(blocks: list[Floats], learner: Any, page: Dashboard) -> Calls:
    """Time calls of the page by themselves. Every second time nothing is timed at the same place: looking at the processor's time is a
    system call, which takes longer than most calls of the page, and longest after a block has emptied the caches.
    """
    own: list[float] = []
    other: list[float] = []
    nothing: list[float] = []
    began = time.thread_time()
    while time.thread_time() - began < _WATCHED_TURNS * _TURN:
        for i, block in enumerate(blocks):
            found = learner.update(block) if isinstance(learner, Monitor) else learner.partial_fit(block) and None
            handed = page.feed.handed_over
            if i % 2:
                before = time.thread_time()
                page.update(block, found)
                spent = time.thread_time() - before
                (own if page.feed.handed_over > handed else other).append(spent)
            else:
                before = time.thread_time()
                nothing.append(time.thread_time() - before)
                page.update(block, found)
    looking = statistics.median(nothing)
    work = time.thread_time() - began - 2 * looking * len(nothing)
    own, other = ([spent - looking for spent in each] for each in (own, other))
    return Calls(own, other, 2 * (sum(own) + sum(other)) / work)


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
    with Dashboard(model, PageSettings(title="10⁹ rows", port=0, image=(28, 28))) as page, _looking(page.url) as browser:
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
