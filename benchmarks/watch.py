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
from online_psp.watch.frames import Facts, Frame, Piece, Scored, packed

BLOCK = 256
_SIZES = (
    ("OnlinePCA", 10, 4),
    ("OnlinePCA", 784, 16),
    ("OnlinePCA", 784, 64),
    ("OnlinePCA", 10_000, 16),
    ("Monitor", 10, 4),
    ("Monitor", 784, 16),
)
_SECONDS = 4.0  # of learning, each time
_ROUNDS = 3
_FRAMES, _SCORES = 1000, 4096
_ROWS = 10**9


class Timed(NamedTuple):
    """How fast a learner was."""

    clock: float
    """Seconds a row."""
    work: float
    """Seconds of the learner's processor time a row."""
    share: float = 0.0
    """Of the page in that."""
    own: float = 0.0
    """Seconds of processor time of a call that hands over."""
    other: float = 0.0
    """Of a call that does not."""


def main() -> None:
    """Both tables."""
    with threadpool_limits(1):
        print("The learner's time, one thread; with the page a browser looks at it on the same machine")
        print("| model | hand-over, µs | other calls, µs | their share | processor time with page / without | clock time |")
        print("|---|---|---|---|---|---|")
        for name, D, K in _SIZES:
            _learner(name, D, K)
    _browser_memory()


def _learner(name: str, D: int, K: int) -> None:
    X = _rows(D, K)
    blocks = np.array_split(X, len(X) // BLOCK)
    pairs = []
    for _ in range(_ROUNDS):
        plain = _timed(blocks, _learning(K, name), None)
        learner = _learning(K, name)
        with Dashboard(learner, PageSettings(title=f"{name}, D={D}, K={K}", port=0)) as page, _looking(page.url):
            pairs.append((plain, _timed(blocks, learner, page)))
    work, clock = (statistics.median(getattr(after, each) / getattr(before, each) for before, after in pairs) for each in ("work", "clock"))
    share, own, other = (statistics.median(getattr(after, each) for _, after in pairs) for each in ("share", "own", "other"))
    print(f"| {name}, D={D:,}, K={K} | {1e6 * own:,.0f} | {1e6 * other:.1f} | {100 * share:.2f} % | {work:.3f} | {clock:.2f} |", flush=True)


def _timed(blocks: list[Floats], learner: Any, page: Dashboard | None) -> Timed:
    learn: Callable[[Floats], Any] = learner.update if isinstance(learner, Monitor) else learner.partial_fit
    own: list[float] = []
    other: list[float] = []
    timer = _timer()
    for block in blocks:  # the exact phase, and compilation, come before
        learn(block)
    rows, began, worked = 0, time.perf_counter(), time.thread_time()
    while time.thread_time() - worked < _SECONDS:
        for block in blocks:
            found = learn(block)
            if page is not None:
                before, handed = time.thread_time(), page.feed.handed_over
                page.update(block, found if isinstance(learner, Monitor) else None)
                (own if page.feed.handed_over > handed else other).append(time.thread_time() - before - timer)
            rows += len(block)
    work, clock = time.thread_time() - worked - 2 * timer * (len(own) + len(other)), time.perf_counter() - began
    if not (own and other):
        return Timed(clock / rows, work / rows)
    return Timed(clock / rows, work / rows, (sum(own) + sum(other)) / work, statistics.median(own), statistics.median(other))


def _timer() -> float:
    """Seconds that looking at the processor's time takes, which is more than a call of the page where it is a system call."""
    began = time.thread_time()
    for _ in range(1000):
        time.thread_time()
    return (time.thread_time() - began) / 1000


def _learning(K: int, name: str) -> Any:
    return Monitor(OnlinePCA(K)) if name == "Monitor" else OnlinePCA(K)


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
        for i, data in enumerate(_frames(model, step)):
            page._frames.put(data)
            if i + 1 in (1, _FRAMES // 10, _FRAMES // 2, _FRAMES):
                _drawn(browser, (i + 1) * step)
                print(f"| {(i + 1) * step:,} | {_heap(browser) / 1e6:.1f} |", flush=True)


def _frames(model: OnlinePCA, step: int) -> Iterator[bytes]:
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
        yield packed(Frame(float(i), last, facts, arrays, state, [piece], [Scored(numbers, found)], []))


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
