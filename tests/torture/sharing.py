"""What several do at once: threads on one model, runs on one output, and disks that are full."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from online_psp import FSM, OnlinePCA
from tests.torture._common import Tally, complaint, fork, psp, rows, run, wait


def threads(folder: Path, chance: random.Random) -> Tally:
    """Eight threads that learn, and two that look and save: every row counts once, and nothing crashes."""
    D, each = chance.choice([6, 40]), 150
    X = rows(8 * each, D, chance.randrange(1000))

    def work() -> int:
        sys.setswitchinterval(1e-6)
        model = OnlinePCA(3).partial_fit(X[:1])
        stop = threading.Event()
        wrong: list[BaseException] = []

        def learn(i: int) -> None:
            try:
                for x in X[each * i + (i == 0) : each * (i + 1)]:
                    if i % 2:
                        model.fit_next(x)
                    else:
                        model.partial_fit(x[np.newaxis])
            except BaseException as error:
                wrong.append(error)

        def look() -> None:
            try:
                while not stop.is_set():
                    assert np.isfinite(model.transform(X[:3])).all()
                    model.save(folder / f"{threading.get_ident()}.psp")
            except BaseException as error:
                wrong.append(error)

        learners = [threading.Thread(target=learn, args=(i,)) for i in range(8)]
        readers = [threading.Thread(target=look) for _ in range(2)]
        for thread in (*learners, *readers):
            thread.start()
        for thread in learners:
            thread.join()
        stop.set()
        for thread in readers:
            thread.join()
        if wrong:
            raise wrong[0]
        assert model.n_samples_seen_ == len(X), (model.n_samples_seen_, len(X))
        np.testing.assert_allclose(model.mean_, X.mean(axis=0), atol=1e-9)
        return 0

    ended = run(work, folder, 300.0)
    if ended.code == 0:
        return Tally(1, right=1)
    return Tally(1, lost=[f"threads, D={D}: code {ended.code}, signal {ended.signal}: {ended.said[-300:]}"])


def serialised(n: int) -> str | None:
    """What is wrong with a model that eight threads have taught n rows, beside one that was taught them in the same order; None if nothing.

    Every thread has rows of its own. The step size is asked for under the lock, and so knows whose turn it is.
    """
    D, local = 5, threading.local()
    X = np.random.default_rng(9).standard_normal((n, D)) * np.linspace(3.0, 0.3, D)
    first = rows(40, D, 2)
    taken = np.full(n + 41, -1)

    def step(t: int) -> float:
        taken[t] = local.row
        return 2.0 / (2.0 * t + 5.0)

    def learn(start: int) -> None:
        for row in range(start, n, 8):
            local.row = row
            model.fit_next(X[row])

    local.row = -1
    model, serial = (FSM(2, D, learning_rate=rate) for rate in (step, lambda t: 2.0 / (2.0 * t + 5.0)))
    for one in (model, serial):
        one.fit_block(first)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        learners = [threading.Thread(target=learn, args=(i,)) for i in range(8)]
        for thread in learners:
            thread.start()
        for thread in learners:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    order = taken[41:]
    if model.t != 40 + n or not (np.sort(order) == np.arange(n)).all():
        return f"t is {model.t}, not {40 + n}, or a row was learned twice"
    for row in order:
        serial.fit_next(X[row])
    return None if np.array_equal(model.get_components(), serial.get_components()) else "another model than that of one thread"


def many_calls(folder: Path, chance: random.Random) -> Tally:
    """A hundred thousand calls from eight threads."""

    def work() -> int:
        problem = serialised(100_000)
        print(problem or "")
        return 0 if problem is None else 3

    ended = run(work, folder, 900.0)
    problem = None if ended.code == 0 else f"many calls: code {ended.code}, signal {ended.signal}: {ended.said[-300:]}"
    return Tally(1, right=int(problem is None), lost=[problem] if problem else [])


def writers(folder: Path, chance: random.Random, count: int = 4) -> Tally:
    """Several runs on one output, at once: one writes, the others are refused, and the file is whole."""
    tally = Tally(tried=count)
    model = folder / "m.psp"
    sizes = [400 + 100 * i for i in range(count)]
    children = []
    for i, n in enumerate(sizes):
        np.save(folder / f"x{i}.npy", rows(n, 30, i))
        arguments = ["fit", folder / f"x{i}.npy", "-k", 2, "-o", model, "-q", "--force", "--set", "block=10", "--checkpoint-every", 10]
        children.append((fork(psp(*arguments), folder / f"said{i}.txt"), folder / f"said{i}.txt"))
    for child, said in children:
        ended = wait(child, said)
        problem = complaint(ended)
        if problem is None and ended.code and "is being written by process" not in ended.said:
            problem = ended.said
        if problem:
            tally.lost.append(f"writers: {problem}")
        elif ended.code:
            tally.refused += 1
        else:
            tally.right += 1
    if OnlinePCA.load(model).n_samples_seen_ not in sizes:
        tally.lost.append("writers: the model is of none of them")
    left = [name for name in os.listdir(folder) if name.endswith((".partial", ".lock"))]
    if left:
        tally.lost.append(f"writers: left behind: {left}")
    return tally


@contextlib.contextmanager
def _small_disk(folder: Path, kilobytes: int) -> Iterator[bool]:
    """A disk of its own on a folder; False where that is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False)


def full_disks(folder: Path, chance: random.Random) -> Tally:
    """A disk that fills up during a run: the last checkpoint stays whole, and with room again the run ends as if nothing had been."""
    tally = Tally(tried=1)
    source = folder / "x.npy"
    np.save(source, rows(2000, 200, 3))
    options = ["-k", 8, "-q", "--set", "block=100", "--checkpoint-every", 100]
    whole = folder / "whole.psp"
    problem = complaint(run(psp("fit", source, *options, "-o", whole), folder), (0,))
    size = whole.stat().st_size if whole.exists() else 0
    with _small_disk(folder / "disk", (size + 40_000) // 1000 + chance.randrange(60)) as mounted:
        model, filler = folder / "disk" / "m.psp", folder / "disk" / "filler"
        limit = None if mounted else chance.randrange(size // 4, size)
        tally.kinds["tmpfs" if mounted else "limit"] += 1

        def work() -> int:
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            return psp("fit", source, *options, "-o", model, "--resume")()

        filler.write_bytes(b"x" * chance.randrange(1, 30_000))
        ended = run(work, folder)
        problem = problem or complaint(ended)
        if problem is None and model.exists():
            OnlinePCA.load(model)  # or this is the loss
        filler.unlink()
        limit = None
        kept = (folder / "m.psp", model.read_bytes()) if model.exists() else None
    if kept:
        kept[0].write_bytes(kept[1])
    problem = problem or complaint(run(psp("fit", source, *options, "-o", folder / "m.psp", "--resume"), folder), (0,))
    if problem is None and (folder / "m.psp").read_bytes() != whole.read_bytes():
        problem = "other bytes than on a disk with room"
    if problem:
        tally.lost.append(f"full disk: {problem}")
    else:
        tally.right += 1
    return tally
