"""A page follows the model, or the monitor, that it shows: nobody has to hand rows over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from online_psp import OnlinePCA
from tests.unit.watch.test_watch_follow import K, data, following


def eventually(found: Callable[[], Any], expected: Any, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while found() != expected and time.monotonic() < end:
        time.sleep(0.02)
    assert found() == expected


def test_single_rows_of_a_slow_stream_are_shown_in_the_pause() -> None:
    model = OnlinePCA(K).fit(data(300))
    with following(model) as page:
        page.wait()
        for x in data(5, 1):
            model.fit_next(x)
        eventually(lambda: page.feed.row, 305)
