"""One row a method and setting; what is shown of them; and the CSV file."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path


@dataclass(frozen=True)
class Result:
    """What one method did at one setting on one data set.

    Attributes
    ----------
    microseconds, fastest : float
        Per sample: the median of the runs, and the least.
    runs : int
    err_batch : float
        Distance to the subspace of batch PCA on the same rows.
    peak_mib : float
        Memory allocated at most during a fit, beyond the rows themselves.
    memory_rows : int
        Rows of the fit that memory was measured on.
    shown : bool
        Whether it is in the table: the most accurate setting of a method, the fastest, and all those of IncrementalPCA.
    note : str
        Why there are no figures, where there are none.
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
        """The most accurate first, and of equal errors, up to rounding, the fastest."""
        return float(f"{self.err_batch:.2e}"), self.microseconds


COLUMNS = tuple(field.name for field in fields(Result))


def write_csv(results: Iterable[Result], path: Path) -> Path:
    """All of them, shown or not."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        writer.writerows(astuple(result) for result in results)
    return path


def choose_shown(tried: Sequence[Result], every: bool) -> list[Result]:
    """Of the settings of one method: the most accurate, and the fastest where it is another one; failures are always shown."""
    good = [result for result in tried if not result.failed]
    picked = good if every else [pick(good) for pick in (_most_accurate, _fastest) if good]
    return [replace(result, shown=result.failed or result in picked) for result in tried]


def _most_accurate(results: Sequence[Result]) -> Result:
    return min(results, key=lambda result: result.rank)


def _fastest(results: Sequence[Result]) -> Result:
    return min(results, key=lambda result: (result.microseconds, result.err_batch))
