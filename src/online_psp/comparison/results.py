"""Results, one for each method and setting; which of them are shown; and the CSV file."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path


@dataclass(frozen=True)
class Result:
    """The result of one method at one setting on one data set.

    Attributes
    ----------
    microseconds, fastest : float
        Time per sample: the median and the minimum over the runs.
    runs : int
    err_batch : float
        Distance to the subspace of batch PCA on the same rows.
    peak_mib : float
        Peak memory allocated during a fit, not counting the rows themselves.
    memory_rows : int
        Rows of the fit in which memory was measured.
    shown : bool
        Whether it is in the table: the most accurate setting of a method, the fastest, and all those of IncrementalPCA.
    note : str
        Why there are no figures, if there are none.
    """

    data: str
    N: int
    D: int
    K: int
    method: str
    family: str
    kind: str
    setting: str
    microseconds: float = math.nan
    fastest: float = math.nan
    runs: int = 0
    err_batch: float = math.nan
    peak_mib: float = math.nan
    memory_rows: int = 0
    shown: bool = True
    note: str = ""

    @property
    def failed(self) -> bool:
        """Whether it has no figures."""
        return math.isnan(self.err_batch)

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key: the most accurate first; of equal errors, up to rounding, the fastest."""
        return float(f"{self.err_batch:.2e}"), self.microseconds


COLUMNS = tuple(field.name for field in fields(Result))


def write_csv(results: Iterable[Result], path: Path) -> Path:
    """Write all results, shown or not, to a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        writer.writerows(astuple(result) for result in results)
    return path


def choose_shown(tried: Sequence[Result], every: bool) -> list[Result]:
    """Choose which settings of a method to show: the most accurate and the fastest; failures are always shown."""
    good = [result for result in tried if not result.failed]
    picked = good if every else [pick(good) for pick in (_most_accurate, _fastest) if good]
    return [replace(result, shown=result.failed or result in picked) for result in tried]


def _most_accurate(results: Sequence[Result]) -> Result:
    return min(results, key=lambda result: result.rank)


def _fastest(results: Sequence[Result]) -> Result:
    return min(results, key=lambda result: (result.microseconds, result.err_batch))
