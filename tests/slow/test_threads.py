"""Threads of BLAS, which learning a small basis does not wake; and forks while a thread learns."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from online_psp import FSM, OnlinePCA
from tests.command import data
from tests.contract.test_sharing import in_threads

_WORK = """
import json, os, time
import numpy as np
from online_psp import OnlinePCA
from online_psp.io.runs import fit_stream
from online_psp.monitoring import Monitor

def ticks():
    found = 0
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            fields = open(f"/proc/self/task/{task}/stat").read().rpartition(")")[2].split()
            found += int(fields[11]) + int(fields[12])
    return found

def next_rows():
    model = OnlinePCA(16)
    for x in X:
        model.fit_next(x)
    return model.components_

def single_rows():
    monitor = Monitor(OnlinePCA(16))
    for x in X[:600]:
        monitor.update_one(x)

X = np.random.default_rng(0).standard_normal((3000, 784))
np.save("rows.npy", X)
ways = {
    "fit": lambda: OnlinePCA(16).fit(X),
    "partial_fit": lambda: OnlinePCA(16).partial_fit(X[:1500]).partial_fit(X[1500:]).components_,
    "fit_next": next_rows,
    "fit_stream": lambda: fit_stream("rows.npy", "m.psp", OnlinePCA(16)),
    "monitor": lambda: Monitor(OnlinePCA(16)).update(X),
    "monitor, single rows": single_rows,
    "merge": lambda: OnlinePCA(16).fit(X).merge(OnlinePCA(16).fit(X)).components_,
}
np.ones((900, 900)) @ np.ones((900, 900))  # whatever the libraries do once
before = -1
while before != ticks():  # until the threads that this woke are asleep again
    before = ticks()
    time.sleep(0.3)
found = {}
for name, way in ways.items():
    before = ticks()
    way()
    found[name] = ticks() - before
print(json.dumps(found))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task") or (os.cpu_count() or 1) < 2, reason="needs /proc and two cores")
def test_small_products_wake_no_threads(tmp_path: Path) -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", _WORK], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    awake = {name: ticks for name, ticks in found.items() if ticks > 3}  # a thread that spins takes ten times as many
    assert not awake, f"threads of BLAS worked in {awake} (ticks of processor time); none should"


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

    in_threads([learn, learn, fork])
