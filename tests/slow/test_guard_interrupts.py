"""Ctrl-C and errors in the middle of a call: the model is as before it, or as after it, or it says that it is neither."""

from __future__ import annotations

import contextlib
import copy
import linecache
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from online_psp import ALGORITHMS, OnlinePCA
from online_psp.engine.locks import InterruptsWait
from online_psp.monitoring import Monitor
from online_psp.pca.files import pca_state
from tests.command import data

pytestmark = pytest.mark.filterwarnings("ignore:The standard deviations of the features have changed")


class At:
    """Does something in the package's own code, at the line of this number."""

    def __init__(self, number: int, act: Callable[[], Any]) -> None:
        self.left, self.act, self.lines = number, act, 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self.line if "online_psp" in frame.f_code.co_filename else None

    def line(self, frame: FrameType, event: str, argument: Any) -> Any:
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
        if event == "line" and not line.startswith("with "):  # which is also where it ends: an error there would keep a lock
            self.lines += 1
            if self.lines == self.left:
                sys.settrace(None)
                self.act()
        return self.line

    def during(self, call: Callable[[], Any]) -> None:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            call()
        finally:
            sys.settrace(before)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def twice() -> None:
    interrupt()
    interrupt()


def no_memory() -> None:
    raise MemoryError


def state_of(model: Any) -> list[Any]:
    """What a model has learned."""
    arrays, values = pca_state(model) if isinstance(model, OnlinePCA) else (model.state(), model.options())
    return [sorted((name, array.tobytes()) for name, array in arrays.items()), repr(values)]


def holes(X: Any) -> Any:
    return np.where(np.random.default_rng(3).random(X.shape) < 0.2, np.nan, X)


def begun(options: dict[str, Any]) -> OnlinePCA:
    X = data(300, 60)
    return OnlinePCA(3, oversample=2, **options).partial_fit(holes(X) if options.get("missing") else X)


CALLS: dict[str, Callable[[Any], Any]] = {
    "partial_fit": lambda model: model.partial_fit(data(70, 60, seed=2)),
    "fit_next": lambda model: model.fit_next(data(1, 60, seed=2)[0]),
}
OPTIONS: list[dict[str, Any]] = [{"half_life": 50}, {"missing": "impute"}, {"standardize": True}, {"robust": True}]


def lines_of(model: Any, call: Callable[[Any], Any], count: int) -> list[int]:
    """Numbers of lines at which a call is to be disturbed, from its first to its last."""
    trial = At(0, interrupt)
    trial.during(lambda: call(copy.deepcopy(model)))
    return [int(number) for number in np.linspace(1, trial.lines, count)]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_interrupt_leaves_the_model_as_before_the_call_or_as_after_it(options: dict[str, Any], name: str) -> None:
    model, call = begun(options), CALLS[name]
    before, whole = state_of(model), copy.deepcopy(model)
    call(whole)
    after = state_of(whole)
    for number in lines_of(model, call, 10):
        found = copy.deepcopy(model)
        with contextlib.suppress(KeyboardInterrupt):
            At(number, interrupt).during(partial(call, found))
        assert state_of(found) in (before, after), f"Ctrl-C at line {number} of the call has left a model that is half of it"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_interrupt_does_not_come_between_the_steps_of_an_algorithm(name: str) -> None:
    model = ALGORITHMS[name](3, 8)
    model.fit_block(data(40, 8))
    X = data(30, 8, seed=2)
    before, whole = state_of(model), copy.deepcopy(model)
    whole.fit_block(X)
    for number in lines_of(model, lambda found: found.fit_block(X), 6):
        found = copy.deepcopy(model)
        with contextlib.suppress(KeyboardInterrupt):
            At(number, interrupt).during(partial(found.fit_block, X))
        assert state_of(found) in (before, state_of(whole)), f"Ctrl-C at line {number} of fit_block has left half of it"


def test_an_interrupt_does_not_tear_a_monitor_from_its_model(tmp_path: Path) -> None:
    monitor, X = Monitor(OnlinePCA(2)), data(90, 6, seed=4)
    monitor.update(data(120, 6))

    def saved(found: Monitor) -> bytes:
        found.save(tmp_path / "m.psp")
        return (tmp_path / "m.psp").read_bytes()

    whole, before = copy.deepcopy(monitor), saved(monitor)
    whole.update(X)
    after = saved(whole)
    for number in lines_of(monitor, lambda found: found.update(X), 8):
        found = copy.deepcopy(monitor)
        with contextlib.suppress(KeyboardInterrupt):
            At(number, interrupt).during(partial(found.update, X))
        assert saved(found) in (before, after), f"Ctrl-C at line {number} of update has left half of it"


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_error_in_the_middle_of_a_call_leaves_the_model_as_it_was(options: dict[str, Any], name: str) -> None:
    """Lack of memory, say."""
    model, call = begun(options), CALLS[name]
    whole = copy.deepcopy(model)
    call(whole)
    known = (state_of(model), state_of(whole))
    for number in [*lines_of(model, call, 8), *range(12, 160, 6)]:  # one row is learned in few lines
        found = copy.deepcopy(model)
        with contextlib.suppress(MemoryError):
            At(number, no_memory).during(partial(call, found))
        assert state_of(found) in known, f"an error at line {number} of the call has left half of it, without a word"


def test_interrupts_wait_once_and_nothing_else_changes() -> None:
    """Handlers of others are put back, and called; outside the main thread nothing happens; a second Ctrl-C does not wait."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        with InterruptsWait(), InterruptsWait():
            interrupt()
            assert not came, "an interrupt did not wait"
        assert came == [signal.SIGINT], "an interrupt was lost, or came twice"
        with pytest.raises(KeyboardInterrupt), InterruptsWait():
            twice()
        thread = threading.Thread(target=lambda: InterruptsWait().__enter__())
        handler = signal.getsignal(signal.SIGINT)
        thread.start()
        thread.join()
        assert signal.getsignal(signal.SIGINT) is handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with InterruptsWait():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
