"""What others have published, checked or repeated: Frequent Directions' bound, implicit Krasulina on MNIST."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.datasets.registry import locate
from online_psp.engine.types import Floats
from online_psp.suite.data import FAMILIES, find, images, problem
from online_psp.suite.methods import PAPER, Method, build
from online_psp.suite.rivals import RIVALS
from online_psp.suite.tables import Table


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """All of them."""
    yield bounds(quick)
    yield implicit_krasulina(quick)


def _sets(quick: bool) -> list[str]:
    """All generated families with the parameters of their paper, and the paper's sets where they are found."""
    size = "N=500,D=100,K=10" if quick else "N=2000,D=1000,K=10"
    levels = {
        "spiked": (0.01,),
        "power-law": (0.0,),
        "low-rank": (1e-4, 1e-2, 1e-1),
        "poly-decay": (0.5, 1.0, 2.0),
        "exp-decay": (0.01, 0.1, 0.5),
    }
    generated = [f"{family}:{size},rho={rho}" for family in FAMILIES for rho in levels[family]]
    return [*generated, *(name for name in ("yale", "orl", "mnist") if not quick and locate(name) is not None), "digits"]


# Frequent Directions: 0 ≤ ‖A v‖² − ‖B v‖² ≤ ‖A − A_k‖_F²/(ℓ − k) for every unit v and k < ℓ


def bound_used(A: Floats, B: Floats, size: int) -> tuple[float, float]:
    """The smallest ‖A v‖² − ‖B v‖² over unit v, as a share of ‖A‖², and the largest as a share of the tightest bound."""
    if len(A) < A.shape[1]:  # the sketch lies in the span of the rows
        Q = np.linalg.qr(A.T)[0]
        A, B = A @ Q, B @ Q
    values = np.linalg.eigvalsh(A.T @ A - B.T @ B)
    squares, whole = np.linalg.eigvalsh(A.T @ A)[::-1], float(np.sum(A**2))
    k = np.arange(size)
    tails = np.maximum(whole - np.r_[0.0, np.cumsum(squares)][:size], 0.0)  # ‖A − A_k‖², k = 0 … ℓ − 1
    return float(values[0]) / whole, float(values[-1]) / max(float(np.min(tails / (size - k))), 1e-12 * whole)


def bounds(quick: bool) -> Table:
    """The bound on every set; a RuntimeError if it does not hold, because then the implementation is wrong."""
    lines = []
    for name in _sets(quick):
        source = find(name, most=5000)
        K, rival = min(10, source.D // 4), RIVALS["frequent_directions"]
        A = np.concatenate(list(problem(source, K, 0).blocks(0, source.used)))
        for size in (2 * K, 4 * K):
            state = rival.step(rival.start(A, K), A, sketch=size)
            low, share = bound_used(A, state.B, size)
            if low < -1e-9 or share > 1.0 + 1e-9:
                raise RuntimeError(
                    f"Frequent Directions breaks its bound on {name} with ℓ = {size}: {low:.2g} below, {share:.3g} of it above."
                )
            lines.append((name, f"{len(A):,} × {A.shape[1]}", str(size), f"{share:.3f}"))
    return Table("Frequent Directions: the largest error as a share of its bound", ("data", "size", "ℓ", "share"), tuple(lines))


# Amid and Warmuth, "An implicit form of Krasulina's k-PCA update without the orthonormality constraint", AAAI 2020


@dataclass
class ImplicitKrasulina:
    """``y = (UᵀU)⁻¹ Uᵀ x;  r = x − U y;  U ← U + η r yᵀ/(1 + η ‖y‖²)``, with steps ``scale/t`` in units of the mean ``‖x‖²/K``.

    Departures: it starts from the thin QR basis of the first K rows, not from a Gaussian matrix; the inverse is solved for, not tracked.
    """

    K: int
    D: int
    scale: float = 1.0
    t: int = 0
    U: Any = None

    def fit_block(self, X: Floats) -> None:
        if self.U is None:
            self.U = np.linalg.qr(X[: self.K].T)[0]
        for x in X:
            self.t += 1
            y = np.linalg.solve(self.U.T @ self.U, self.U.T @ x)
            eta = self.scale * self.K / self.t / max(float(x @ x), 1e-300)
            self.U += eta / (1.0 + eta * float(y @ y)) * np.outer(x - self.U @ y, y)

    def get_components(self) -> Floats:
        return np.asarray(np.linalg.qr(self.U)[0])


def implicit_krasulina(quick: bool) -> Table:
    """Compression loss after one pass over MNIST, as a multiple of batch PCA's; the step of each method is the best on the first rows."""
    scales = (1.0, 10.0, 100.0) if quick else (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
    source = find(images(1)[0], most=3000 if quick else None)
    tuned = {
        "implicit Krasulina": [Method("", "", (("scale", scale),), made=ImplicitKrasulina) for scale in scales],
        "Krasulina": [Method("", "rival:krasulina", (("scale", scale / 3),)) for scale in scales],
        "Oja": [Method("", "rival:oja", (("scale", scale / 3),)) for scale in scales],
        "IPCA": [PAPER[0]],
        "FSM γ=2.0": [PAPER[4]],
        "OnlinePCA": [PAPER[-1]],
    }
    lines = []
    for K in (5, 10) if quick else (5, 10, 20, 50):
        X = np.concatenate(list(problem(source, K, 0).blocks(0, source.used)))
        least = float(np.sum(X**2) - np.sum((X @ problem(source, K, 0).V) ** 2))
        best = [min(several, key=lambda method: _loss(method, K, X[:5000])) if several[1:] else several[0] for several in tuned.values()]
        losses = [_loss(method, K, X) / least for method in best]
        lines.append((str(K), *(f"{loss:.4f}" for loss in losses)))
    title = f"Implicit Krasulina's protocol on {source.source}: compression loss after one pass / batch PCA's"
    return Table(f"{title}, best of {len(scales)} steps on the first 5,000 rows", ("K", *tuned), tuple(lines))


def _loss(method: Method, K: int, X: Floats) -> float:
    learner = build(method, K, X.shape[1])
    for at in range(0, len(X), 500):
        learner.feed(X[at : at + 500])
    learner.flush()
    return float(np.sum(X**2) - np.sum((X @ np.linalg.qr(learner.basis())[0]) ** 2))
