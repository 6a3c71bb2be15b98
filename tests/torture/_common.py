"""What the attacks share: commands in forked processes, rows, and the count of what was tried and what was lost."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from online_psp.engine.types import Floats


@dataclass
class Tally:
    """What became of one kind of attack."""

    tried: int = 0
    refused: int = 0
    """Answered with a sentence, as they should be."""
    right: int = 0
    lost: list[str] = field(default_factory=list)
    """What went wrong, each with how to do it again."""
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.tried, self.refused, self.right = self.tried + other.tried, self.refused + other.refused, self.right + other.right
        self.lost += other.lost
        self.kinds += other.kinds


class Ended(NamedTuple):
    """How a command ended."""

    code: int | None
    """None where a signal ended it."""
    signal: int
    said: str


def rows(n: int, D: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, D)) * np.linspace(4, 0.2, D) + 1


def fork(work: Callable[[], int], said: Path) -> int:
    """A child process that does something, with its output in a file; returns its number."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        code = work()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def psp(*arguments: Any) -> Callable[[], int]:
    """A command of this package, to be run in a fork."""

    def work() -> int:
        from online_psp.cli.main import app

        return int(app([str(argument) for argument in arguments], standalone_mode=False) or 0)

    return work


def wait(child: int, said: Path, seconds: float = 120.0) -> Ended:
    """How a child ended; one that takes too long is killed, and that is signal 9."""
    end = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            break
        time.sleep(0.002)
    text = said.read_text(errors="replace") if said.exists() else ""
    return Ended(None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, text)


def run(work: Callable[[], int], folder: Path, seconds: float = 120.0) -> Ended:
    said = folder / "said.txt"
    return wait(fork(work, said), said, seconds)


def complaint(ended: Ended, allowed: tuple[int, ...] = (0, 1, 2)) -> str | None:
    """What is wrong with how a command ended, or None: exit codes, sentences, no tracebacks, no signals."""
    if ended.code is None:
        return f"ended by signal {ended.signal}"
    if ended.code not in allowed:
        return f"exit code {ended.code}: {ended.said[-300:]}"
    if "Traceback" in ended.said or "shows where it came from" in ended.said:
        return f"no sentence of ours: {ended.said[-300:]}"
    if ended.code and not any(line.startswith("psp: ") for line in ended.said.splitlines()):
        return f"failed without a word: {ended.said[-300:]}"
    return None
