"""Everybody on the same rows: time, error and memory of this package's methods, others at several settings, and batch PCA."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from online_psp.metrics import check_directions
from online_psp.suite import pictures
from online_psp.suite.data import find, images, problem
from online_psp.suite.measure import Trial
from online_psp.suite.methods import PEER, contest
from online_psp.suite.rows import SCORE, Row, select, version, write_rows
from online_psp.suite.runner import How, run
from online_psp.suite.tables import Table, comparison, number, scores, spent

_OURS, _DEFAULT = "OnlinePCA fit", "IncrementalPCA (batch 5D)"


def tables(
    out: Path,
    quick: bool = False,
    data: Sequence[str] = (),
    K: int | None = None,
    only: Sequence[str] = (),
    most: int | None = None,
) -> Iterator[Table]:
    """A table a set with what it says at equal time, equal error and defaults; by default two generated sets, and MNIST or the digits.

    Parameters
    ----------
    data : sequence of str
        Names, files or generated families, as `online_psp.suite.evaluate` takes them.
    only : sequence of str
        Parts of the names of methods; all of them by default.
    most : int, optional
        Most rows of a set; 20,000 by default, 1,500 with `quick`.
    """
    size = "N=1500,D=256,K=8" if quick else "N=6000,D=1024,K=16"
    methods = [method for method in contest() if not only or any(part.lower() in method.label.lower() for part in only)]
    if not methods:
        raise ValueError(f"No method has {' or '.join(only)} in its name; there are: {', '.join(method.label for method in contest())}.")
    absent = [method.label for method in methods if "proSVD" in method.label and version("proSVD") is None]
    methods = [method for method in methods if method.label not in absent]
    rows = list[Row]()
    for name in data or (f"spiked:{size}", f"power-law:{size}", images(1)[0]):
        source = find(name, most=most or (1500 if quick else 20_000))
        k = K or source.K or min(8 if quick else 16, max(1, source.D // 8))
        if not 1 <= 2 * k <= min(source.used, source.D):
            raise ValueError(f"K must be between 1 and {min(source.used, source.D) // 2} for {name}, with 2K directions kept; got {k}.")
        first = problem(source, k, 0)
        check_directions(np.asarray(first.X), first.V)
        trials = [
            Trial("bench", source, method, k, 0, 1, ("err_batch",), (source.used,), scored=True, repeats=1 if quick else 3)
            for method in methods
        ]
        found = run(trials, out / "bench.csv", How(1, apart=True, resume=False, progress=True))
        rows += found
        write_rows(out / "bench.csv", rows)
        yield from comparison(found)
        yield from statements(found)
    if absent:
        yield Table("Not installed: pip install 'online-psp[peers]'", ("method",), tuple((label,) for label in absent))
    if select(rows, metric=SCORE):
        pictures.save(pictures.error_against_time(rows), out / "comparison.png")


def statements(rows: Sequence[Row]) -> Iterator[Table]:
    """OnlinePCA beside all other streaming methods, whatever the outcome: at equal time, at equal error, and default against default."""
    figures = {label: (1e6 * spent(rows, label), score.value) for label, score in scores(rows).items()}
    peers = {label: figures[label] for label in figures if select(rows, label=label)[0].kind == PEER}
    if _OURS not in figures or not peers:
        return
    time, error = figures[_OURS]
    fast = {label: found for label, found in peers.items() if found[0] <= time}
    good = {label: found for label, found in peers.items() if found[1] <= error}
    asked = {
        "equal time": (min(fast, key=lambda label: fast[label][1]) if fast else "", "no peer is as fast at any setting tried"),
        "equal error": (min(good, key=lambda label: good[label][0]) if good else "", "no peer is as accurate at any setting tried"),
        "the most accurate peer": (min(peers, key=lambda label: peers[label][1]), ""),
        "default against default": (_DEFAULT if _DEFAULT in peers else "", "IncrementalPCA was not run"),
    }
    lines = []
    for what, (label, none) in asked.items():
        if not label:
            lines.append((what, none, "–", "–", "–", "–"))
            continue
        t, e = peers[label]
        lines.append((what, label, f"{t:.1f}", f"{t / time:.2g}×", number(e), f"{e / error:.2g}×" if error else "–"))
    header = ("", "peer", "µs per sample", "of OnlinePCA's time", "error", "of OnlinePCA's error")
    yield Table(f"Beside OnlinePCA ({time:.1f} µs, error {number(error)})", header, tuple(lines))
