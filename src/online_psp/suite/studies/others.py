"""Everybody on the same rows: time, error and memory of this package's methods, others at several settings, and batch PCA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from online_psp.engine.blas import matmul
from online_psp.suite import pictures
from online_psp.suite.data import find, images, problem
from online_psp.suite.evaluation import trials
from online_psp.suite.measure import Stopwatch
from online_psp.suite.methods import ONLINE_PCA, PEER, contest
from online_psp.suite.rows import SCORE, Row, select, version, write_rows
from online_psp.suite.studies import measured
from online_psp.suite.tables import Table, comparison, micro, number, scores, spent

_INCREMENTAL, _DEFAULT = "IncrementalPCA", "IncrementalPCA (batch 5D)"


def tables(
    out: Path,
    quick: bool = False,
    data: Sequence[str] = (),
    K: int | None = None,
    only: Sequence[str] = (),
    most: int | None = None,
) -> Iterator[Table]:
    """A table a set, and OnlinePCA beside the others there; by default two generated sets, and MNIST or the digits.

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
        found = measured(trials("bench", source, methods, k, repeats=1 if quick else 3), out / "bench.csv")
        X, watch = np.asarray(problem(source, k, 0).X), Stopwatch()
        with watch:
            matmul(X.T, X)
        yield from comparison(found)
        yield from beside(found, watch.seconds / len(X))
        rows += found
    write_rows(out / "bench.csv", rows)
    if absent:
        yield Table("Not installed: pip install 'online-psp[peers]'", ("method",), tuple((label,) for label in absent))
    if select(found, metric=SCORE):
        pictures.save(pictures.error_against_time(found), out / "comparison.png")


def beside(rows: Sequence[Row], once: float) -> Iterator[Table]:
    """OnlinePCA beside the others, whatever the outcome: default against default, at equal error, at equal time, and beside forming XᵀX.

    Parameters
    ----------
    once : float
        Seconds per sample of forming XᵀX once: it depends on no package.
    """
    figures = {label: (spent(rows, label), score.value) for label, score in scores(rows).items()}
    peers = {label: figures[label] for label in figures if select(rows, label=label)[0].kind == PEER}
    if ONLINE_PCA.label not in figures or not peers:
        return
    time, error = figures[ONLINE_PCA.label]
    incremental = {label: found for label, found in peers.items() if label.startswith(_INCREMENTAL)}
    fast = {label: found for label, found in peers.items() if found[0] <= time}

    def good(those: Mapping[str, tuple[float, float]]) -> str:
        """The quickest that is as accurate."""
        return min((label for label, found in those.items() if found[1] <= error), key=lambda label: those[label][0], default="")

    asked = {
        "default against default": _DEFAULT if _DEFAULT in peers else "",
        "equal error, IncrementalPCA": good(incremental),
        "the most accurate IncrementalPCA": min(incremental, key=lambda label: incremental[label][1], default=""),
        "equal error, any peer": good(peers),
        "equal time, any peer": min(fast, key=lambda label: fast[label][1], default=""),
        "the most accurate peer": min(peers, key=lambda label: peers[label][1]),
    }
    lines = []
    for what, label in asked.items():
        t, e = peers.get(label, (np.nan, np.nan))
        share = (f"{t / time:.2g}×", number(e), f"{e / error:.2g}×" if error else "–") if label else ("–", "–", "–")
        lines.append((what, label or "none of the settings tried", micro(t), *share))
    lines.append(("the anchor", "forming XᵀX once", micro(once), f"{once / time:.2g}×", "–", "–"))
    header = ("", "method", "µs per sample", "of OnlinePCA's time", "error", "of OnlinePCA's error")
    yield Table(f"Beside OnlinePCA ({micro(time)} µs, error {number(error)})", header, tuple(lines))
