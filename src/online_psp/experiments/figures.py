"""The paper's four figures, each a list of records."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from online_psp.datasets import KNOWN
from online_psp.experiments.baselines import BASELINES
from online_psp.experiments.records import Curve, Experiment, RealData, Record, SpikedData, Timing, moments
from online_psp.experiments.tables import FROM_DATA, SPREAD
from online_psp.experiments.timing import WAYS

IPCA = Curve("IPCA", "ipca")
CCIPCA = Curve("CCIPCA", "ccipca")
ONLINE_PCA = Curve("OnlinePCA", "online_psp.pca:OnlinePCA", batch=0)


def fsm(gamma: float) -> Curve:
    """FSM with step sizes ``2/(gamma t + 5)``."""
    return Curve(f"FSM γ={gamma}", "fsm", (("gamma", gamma),))


def sm(gamma: float) -> Curve:
    """SM with the same step sizes; FSM must equal it."""
    return Curve(f"SM γ={gamma}", "sm", (("gamma", gamma),))


STEADY = Curve("CCIPCA" + FROM_DATA, "ccipca", (("sigma2_0", "data"),))
"""CCIPCA from variances of the data, which does not amplify rounding; run on the same perturbations, to show that."""

SENSITIVE: Mapping[Curve, int] = MappingProxyType({CCIPCA: 64, STEADY: 64})
"""Curves to run again on data perturbed by 1e-15, and from which K: there, rounding decides the published curve."""

FIVE = (IPCA, CCIPCA, fsm(0.6), fsm(1.5), fsm(2.0))
EPOCHS = {"yale": 10, "orl": 30, "mnist": 1}
_MOMENTS = 40
_QUICK_MOMENTS = 16
_JITTERS = {False: 5, True: 2}
_TRIALS = {False: 10, True: 2}


def _spread(record: Experiment, runs: int) -> list[Record]:
    """The same experiment on data perturbed by 1e-15, several times, if it should show the effect of rounding."""
    least = SENSITIVE.get(record.curve)
    if least is None or record.K < least:
        return []
    curve = replace(record.curve, label=record.curve.label + SPREAD)
    return [replace(record, curve=curve, jitter=number) for number in range(1, runs + 1)]


def real(name: str, rows: int | None = None) -> RealData:
    """A data set known by name."""
    return RealData(name, KNOWN[name].N, KNOWN[name].D, rows)


def fig1(quick: bool = False, seed: int = 0, trials: int | None = None) -> list[Record]:
    """Time per sample against K, as published, one at a time and in blocks; timings are repeated runs, so `trials` has no effect.

    Ten runs, or as many as fit into the budget. A single run that takes longer, such as one sample of IPCA as published at K = 4096, is
    the measurement: so the whole figure takes about half an hour on one core (`online_psp.experiments.records.Timing.cost`).
    """
    if quick:
        sizes = {8192: (64, 128, 256, 512, 1024), 32768: (64, 256)}
        runs, budget = 5, 0.4
    else:
        every = (64, 128, 256, 512, 1024, 2048, 4096)
        sizes = {8192: every, 32768: every}
        runs, budget = 10, 5.0
    records: list[Record] = []
    for D, several in sizes.items():
        for K, algorithm, way in product(several, BASELINES, WAYS):
            records.append(Timing("fig1", algorithm, way, D, K, rho=2e-3, gamma=2.0, runs=runs, samples=10, seed=seed, budget=budget))
    return records


def fig2(quick: bool = False, seed: int = 0, trials: int | None = None) -> list[Record]:
    """Errors against noise on synthetic data."""
    noise = np.logspace(-4, -0.3, 10)
    sizes = [(256, 16), (256, 128), (2048, 16), (2048, 128)]
    N = 6000
    if quick:
        noise, sizes = noise[::3], [(256, 16), (256, 128), (2048, 16)]
    records: list[Record] = []
    for (D, K), trial, rho in product(sizes, range(trials or _TRIALS[quick]), noise):
        check = (sm(0.6), sm(2.0)) if (D, K) == (256, 16) and trial == 0 else ()
        data = SpikedData(D, K, float(rho), N)
        for curve in (*FIVE, *check):
            made = Experiment("fig2", data, curve, K, seed + trial, 1, ("err_batch", "err_pop"), (N,))
            records += [made, *(_spread(made, _JITTERS[quick]) if trial == 0 else [])]
    return records


def fig3(quick: bool = False, seed: int = 0, trials: int | None = None) -> list[Record]:
    """Error against samples seen on real data."""
    sets = ("yale", "orl", "mnist")
    several = [16, 64] if quick else [16, 64, 128]
    curves = (*FIVE, ONLINE_PCA) if importlib.util.find_spec("online_psp.pca") else FIVE
    records: list[Record] = []
    for name, K, trial in product(sets, several, range(trials or _TRIALS[quick])):
        data = real(name)
        epochs = min(EPOCHS[name], 10) if quick else EPOCHS[name]
        when = moments(data.used * epochs, 2 * K, _QUICK_MOMENTS if quick else _MOMENTS)
        check = (sm(0.6),) if (name, K, trial) == ("yale", 16, 0) else (STEADY,) if trial == 0 and K >= SENSITIVE[STEADY] else ()
        for curve in (*curves, *check):
            made = Experiment("fig3", data, curve, K, seed + trial, epochs, ("err_batch",), when)
            records += [made, *(_spread(made, _JITTERS[quick]) if trial == 0 else [])]
    return records


PICTURED = {"yale": 0, "orl": 0, "mnist": 0}


def fig4(quick: bool = False, seed: int = 0, trials: int | None = None) -> list[Record]:
    """The error of FSM while a face and a digit come into view, in one trial."""
    K = 64
    records: list[Record] = []
    for name in ("yale", "mnist") if quick else ("yale", "orl", "mnist"):
        data = real(name)
        when = moments(data.used * EPOCHS[name], K, _MOMENTS)
        metrics = ("err_batch", "explained", "psnr")
        records.append(Experiment("fig4", data, fsm(0.6), K, seed, EPOCHS[name], metrics, when, PICTURED[name]))
    return records


FIGURES: Mapping[str, Callable[[bool, int, int | None], list[Record]]] = MappingProxyType(
    {"fig1": fig1, "fig2": fig2, "fig3": fig3, "fig4": fig4}
)

RECORDED = {
    "FSM_gamma0.6": Curve("FSM γ=0.6", "fsm", (("gamma", 0.6),), lead=1),
    "FSM_gamma1.5": Curve("FSM γ=1.5", "fsm", (("gamma", 1.5),), lead=1),
    "FSM_gamma2.0": Curve("FSM γ=2.0", "fsm", (("gamma", 2.0),), lead=1),
    "SM_gamma0.6": Curve("SM γ=0.6", "sm", (("gamma", 0.6),), lead=1),
    "IPCA": IPCA,
    "CCIPCA": CCIPCA,
}
"""Recorded runs of the authors' package, and the curve that must reproduce each."""


def golden(folder: Path) -> tuple[list[Record], dict[tuple[str, int, str, int], float]]:
    """Records that repeat the recordings in a folder, and the recorded errors by (data set, K, label, samples seen)."""
    records: list[Record] = []
    errors: dict[tuple[str, int, str, int], float] = {}
    for file in sorted(folder.glob("*_K*.npz")):
        name = file.stem.partition("_K")[0]
        if name not in KNOWN:
            raise ValueError(f"{file} is not a recording of a data set known here ({', '.join(KNOWN)}).")
        recording = _recording(file)
        K, N = int(recording["K"]), int(recording["N"])
        for run, curve in RECORDED.items():
            recorded = recording[f"{run}_err"]
            when = tuple(100 * (i + 1) for i in range(len(recorded)))
            records.append(Experiment("golden", real(name, N), curve, K, 1, 1, ("err_batch",), when))
            errors |= {(name, K, curve.label, t): float(error) for t, error in zip(when, recorded, strict=True)}
    if not records:
        raise FileNotFoundError(f"There are no recordings, named like yale_K16.npz, in {folder}.")
    return records, errors


def _recording(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a recording; raises an error that says what is missing."""
    needed = ("K", "N", *(f"{run}_err" for run in RECORDED))
    try:
        with file.open("rb") as stream, np.load(stream) as arrays:
            found = {name: arrays[name] for name in needed if name in arrays.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} is not a whole .npz file: {error}.") from error
    missing = [name for name in needed if name not in found]
    if missing:
        raise ValueError(f"{file} is not a recording: it has no {', '.join(missing)}.")
    return found
