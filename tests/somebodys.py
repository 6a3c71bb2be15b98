"""Algorithms of somebody else's, good and bad, light to import: `psp evaluate` runs them in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from online_psp import FSM

Floats = NDArray[np.float64]


class Mine:
    """A good one."""

    def __init__(self, K: int, D: int, gamma: float = 2.0) -> None:
        self.inner = FSM(K, D, gamma=gamma)

    def fit_next(self, x: Floats) -> None:
        self.inner.fit_next(x)

    def get_components(self) -> Floats:
        return np.asarray(self.inner.get_components())


class KeepsAll:
    """Batch PCA in disguise: exact, and as large as the data."""

    def __init__(self, K: int, D: int) -> None:
        self.K, self.rows = K, list[Floats]()

    def fit_next(self, x: Floats) -> None:
        self.rows.append(np.array(x))

    def get_components(self) -> Floats:
        X = np.array(self.rows)
        return np.asarray(np.linalg.eigh(X.T @ X)[1][:, -self.K :])


class Dies(KeepsAll):
    """Takes its process down."""

    def fit_next(self, x: Floats) -> None:
        if len(self.rows) == 150:
            os.abort()
        super().fit_next(x)


class DiesAtOnce(KeepsAll):
    """Before it has seen anything."""

    def __init__(self, K: int, D: int) -> None:
        os._exit(3)


class Sleeps(KeepsAll):
    """Puts its work off until somebody asks."""

    def get_components(self) -> Floats:
        time.sleep(0.02)
        return super().get_components()


class ReadsSlowly(KeepsAll):
    """Takes a quarter of a second whenever it is asked."""

    def get_components(self) -> Floats:
        time.sleep(0.25)
        return super().get_components()


class Hangs(KeepsAll):
    """Never comes back."""

    def fit_next(self, x: Floats) -> None:
        time.sleep(3600)


class Prints(Mine):
    """Says a lot."""

    def fit_next(self, x: Floats) -> None:
        print("{" * 100, "event", flush=True)
        super().fit_next(x)


class RiverStyle:
    """Dictionaries in, dictionaries out; its transform is centred, as river's may be."""

    def __init__(self, n_components: int = 2) -> None:
        self.n_components, self.mean, self.scatter, self.n = n_components, np.zeros(0), np.zeros((0, 0)), 0

    def learn_one(self, x: dict[int, float]) -> None:
        row = np.array(list(x.values()))
        if not self.n:
            self.mean, self.scatter = np.zeros(len(row)), np.zeros((len(row), len(row)))
        self.n += 1
        gap = row - self.mean
        self.mean = self.mean + gap / self.n
        self.scatter += np.outer(gap, row - self.mean)

    def transform_one(self, x: dict[int, float]) -> dict[str, float]:
        top = np.linalg.eigh(self.scatter)[1][:, ::-1][:, : self.n_components]
        return {f"pc{k}": value for k, value in enumerate(top.T @ (np.array(list(x.values())) - self.mean))}


class TakesHoles(Mine):
    """Learns from whole rows only, and needs nobody to fill the others."""

    handles_missing = True

    def fit_next(self, x: Floats) -> None:
        if np.isfinite(x).all():
            super().fit_next(x)


class Zeros(Mine):
    """Gives no direction at all: rounding must not choose some for it."""

    def get_components(self) -> Floats:
        return np.zeros_like(super().get_components())


class Repeats(Mine):
    """Gives its first direction K times."""

    def get_components(self) -> Floats:
        basis = super().get_components()
        return np.repeat(basis[:, :1], basis.shape[1], axis=1)


class Complex(Mine):
    """Gives numbers that are not real."""

    def get_components(self) -> Floats:
        return np.asarray(super().get_components() * 1j)


class Forks(KeepsAll):
    """Runs on in two processes from its tenth row."""

    def fit_next(self, x: Floats) -> None:
        super().fit_next(x)
        if len(self.rows) == 10:
            os.fork()


class Hides(Mine):
    """Keeps 64 MB where nobody looks: in another process, which outlives it."""

    def __init__(self, K: int, D: int) -> None:
        super().__init__(K, D)
        code = "import time; junk = b'1' * 64_000_000; print(flush=True); time.sleep(3600)"
        self.other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert self.other.stdout is not None
        self.other.stdout.readline()


class Lazy(KeepsAll):
    """Learns only when it is not timed: every third one is watched."""

    made: ClassVar[int] = 0

    def __init__(self, K: int, D: int) -> None:
        super().__init__(K, D)
        type(self).made += 1
        self.limit = 10**9 if self.made % 3 == 0 else K

    def fit_next(self, x: Floats) -> None:
        if len(self.rows) < self.limit:
            super().fit_next(x)


class HolesKill(KeepsAll):
    """Says that it takes missing values, and is killed by them."""

    handles_missing = True

    def fit_next(self, x: Floats) -> None:
        if np.isnan(x).any():
            os._exit(4)
        super().fit_next(x)


class Exits(Mine):
    """Thinks that it is a program."""

    def fit_next(self, x: Floats) -> None:
        raise SystemExit(0)


class IPCA(Mine):
    """Has the name of another."""


class Huge(Mine):
    """Gives directions as long as float64 allows."""

    def get_components(self) -> Floats:
        return np.asarray(super().get_components() * 1e307)


class Minute(Mine):
    """Gives directions whose squares vanish."""

    def get_components(self) -> Floats:
        return np.asarray(super().get_components() * 1e-250)


class Masked(Mine):
    """Hides its directions behind a mask."""

    def get_components(self) -> Floats:
        return np.ma.masked_array(super().get_components(), mask=True)


class NeverRuns(Mine):
    """Its fit_next does nothing until somebody awaits it, and nobody does."""

    async def fit_next(self, x: Floats) -> None:  # type: ignore[override]
        super().fit_next(x)


class StopsTheClock(Mine):
    """Takes no time at all, by a clock of its own."""

    def __init__(self, K: int, D: int) -> None:
        super().__init__(K, D)
        time.perf_counter = lambda: 0.0


class Overwrites(KeepsAll):
    """Clears every row that it has seen."""

    def fit_next(self, x: Floats) -> None:
        super().fit_next(x)
        x[:] = 0.0


class LooksAhead(KeepsAll):
    """Takes all that it can reach through the rows that it is given."""

    def fit_next(self, x: Floats) -> None:
        whole = x.base if x.base is not None else x[None]
        if not any(whole is other for other in self.rows):
            self.rows.append(whole)

    def get_components(self) -> Floats:
        X = np.concatenate(self.rows)
        return np.asarray(np.linalg.eigh(X.T @ X)[1][:, -self.K :])
