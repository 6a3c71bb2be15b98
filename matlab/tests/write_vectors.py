"""Test vectors for the MATLAB package: what Python's `reference_step` gives, sample by sample.

Usage: ``python write_vectors.py FOLDER`` writes ``FOLDER/vectors.mat``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import savemat

from online_psp.algorithms import ccipca, fsm, ipca
from online_psp.engine.types import Floats

Case = dict[str, Any]
Steps = Callable[[Floats], Floats]


def spiked(n: int, D: int, K: int, seed: int, rank: int | None = None) -> Floats:
    """Rows with K strong directions in noise; of a given rank, if one is given, without noise."""
    rng = np.random.default_rng(seed)
    k = K if rank is None else rank
    basis = np.linalg.qr(rng.standard_normal((D, k)))[0]
    signal = rng.standard_normal((n, k)) * np.linspace(1.0, 0.7, k)
    return np.asarray(signal @ basis.T + (0.1 * rng.standard_normal((n, D)) if rank is None else 0.0))


def thin_basis(X: Floats, K: int) -> Floats:
    """Q of the first K rows, as columns."""
    return np.asarray(np.linalg.qr(X[:K].T)[0])


def run(module: Any, state: Any, X: Floats, steps: list[Floats]) -> tuple[Floats, Floats]:
    """Outputs (n, K) and bases (D, K, n) after each sample."""
    outputs, bases = [], []
    for x, *rates in zip(X, *steps, strict=True):
        state, y = module.reference_step(state, x, *(float(rate) for rate in rates))
        outputs.append(y)
        bases.append(module.reference_basis(state))
    return np.array(outputs), np.stack(bases, axis=2)


def case(
    name: str,
    module: Any,
    X: Floats,
    K: int,
    alpha: Steps,
    beta: Steps | None = None,
    start: Case | None = None,
    own_rate: bool = False,
    **options: Any,
) -> Case:
    """One case. `options` go to the MATLAB constructor as they are; `start` too, and it replaces the start from the first K rows.

    With `own_rate` the constructor is given `alpha` as its learning rate.
    """
    t = np.arange(1.0, len(X) + 1.0)
    alphas = alpha(t)
    steps = [alphas] if module is not fsm else [alphas, alphas if beta is None else beta(t)]
    state = module.reference_start(thin_basis(X, K))
    if start is not None:
        given = {"W0": "W", "Minv0": "Minv", "Uhat0": "U", "sigma2_0": "sigma2"}
        state = state._replace(**{given[key]: value for key, value in start.items()})
    Y, bases = run(module, state, X, steps)
    return {
        "name": name,
        "algorithm": module.__name__.rsplit(".", 1)[1].upper(),
        "K": float(K),
        "X": X,
        "Y": Y,
        "bases": bases,
        "alphas": steps[0],
        "betas": steps[-1],
        "options": {**options, **(start or {})} or {"block_size": "auto"},
        "custom_rate": float(own_rate),
        "custom_beta": float(beta is not None),
        "from_first_samples": float(start is None),
    }


def fsm_rate(gamma: float) -> Steps:
    """The published step sizes."""
    return lambda t: 2.0 / (gamma * t + 5.0)


def ipca_rate(t: Floats) -> Floats:
    """The published step sizes."""
    return np.asarray(1.0 / (t + 1.0))


def ccipca_rate(ell: float) -> Steps:
    """The published step sizes."""
    return lambda t: np.asarray(np.minimum(1.0 + ell, t) / (t + 1.0))


def slow_rate(t: Floats) -> Floats:
    """A rate of the user's own."""
    return np.asarray(0.5 / np.sqrt(t + 3.0))


def slower_rate(t: Floats) -> Floats:
    """Another."""
    return np.asarray(1.0 / (t + 8.0))


def cases() -> list[Case]:
    """Every algorithm, several sizes, step sizes and starts."""
    found = []
    for D, K, n in ((12, 3, 60), (80, 4, 120), (200, 1, 60), (10, 10, 40)):
        X = spiked(n, D, K, seed=D)
        size = f"D={D} K={K}"
        found += [
            case(f"FSM {size}", fsm, X, K, fsm_rate(2.0)),
            case(f"FSM {size} gamma=0.6", fsm, X, K, fsm_rate(0.6), gamma=0.6),
            case(f"IPCA {size}", ipca, X, K, ipca_rate),
            case(f"CCIPCA {size}", ccipca, X, K, ccipca_rate(2.0)),
            case(f"CCIPCA {size} ell=0", ccipca, X, K, ccipca_rate(0.0), ell=0.0),
        ]
    rng = np.random.default_rng(7)
    D, K, n = 90, 5, 120
    X = spiked(n, D, K, seed=8)
    U, sigma2 = np.linalg.qr(rng.standard_normal((D, K)))[0], np.linspace(1.0, 0.2, K)
    root = rng.standard_normal((K, K))
    W, Minv = rng.standard_normal((K, D)) / 10.0, root @ root.T + np.eye(K)
    found += [
        case("FSM own rate", fsm, X, K, slow_rate, own_rate=True),
        case("FSM own rate and beta", fsm, X, K, slow_rate, slower_rate, own_rate=True),
        case("FSM W0", fsm, X, K, fsm_rate(2.0), start={"W0": W}),
        case("FSM W0 Minv0", fsm, X, K, fsm_rate(2.0), start={"W0": W, "Minv0": Minv}),
        case("IPCA own rate", ipca, X, K, slow_rate, own_rate=True),
        case("IPCA Uhat0 sigma2_0", ipca, X, K, ipca_rate, start={"Uhat0": U, "sigma2_0": sigma2}),
        case("CCIPCA own rate", ccipca, X, K, slow_rate, own_rate=True),
        case("CCIPCA Uhat0 sigma2_0", ccipca, X, K, ccipca_rate(2.0), start={"Uhat0": U, "sigma2_0": sigma2}),
    ]
    # Of rank above K, blocks have dependent rows; of rank below K, some directions are never excited. The basis of the first K rows
    # is rounding there, so it is given. Below K, CCIPCA takes small steps from variances of the right size: with the published ones it
    # amplifies rounding on such data (a relative change of 2e-16 in X moves an output of reference_step itself by 4e-4).
    K = 4
    for rank in (8, 2):
        X = spiked(60, 70, K, seed=rank, rank=rank)
        Q = thin_basis(X, K)
        found += [
            case(f"FSM rank {rank}", fsm, X, K, fsm_rate(2.0), start={"W0": Q.T / 100.0}),
            case(f"IPCA rank {rank}", ipca, X, K, ipca_rate, start={"Uhat0": Q}),
        ]
        if rank > K:
            found.append(case(f"CCIPCA rank {rank}", ccipca, X, K, ccipca_rate(2.0), start={"Uhat0": Q}))
        else:
            start = {"Uhat0": Q, "sigma2_0": np.ones(K)}
            found.append(case(f"CCIPCA rank {rank} own rate", ccipca, X, K, slower_rate, start=start, own_rate=True))
    return found


def write(folder: Path) -> Path:
    """Write vectors.mat; returns its path."""
    path = folder / "vectors.mat"
    column = np.empty((len(found := cases()), 1), dtype=object)
    column[:, 0] = found
    savemat(path, {"cases": column}, oned_as="column", do_compression=True)
    return path


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
