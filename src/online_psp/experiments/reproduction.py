"""Reproduction of the paper's figures: runs them, draws them, judges them, and writes the report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from online_psp.datasets import KNOWN, load, locate
from online_psp.datasets.registry import checksum
from online_psp.experiments import plots, tables
from online_psp.experiments.deviations import DEVIATIONS_TEXT, deviations_table
from online_psp.experiments.figures import FIGURES, FIVE, golden
from online_psp.experiments.learners import check_curve
from online_psp.experiments.page import figure_results
from online_psp.experiments.records import Curve, Experiment, RealData, Record, told_apart
from online_psp.experiments.report import Section, write_report
from online_psp.experiments.rows import Row, finished, read_rows
from online_psp.experiments.runner import arrays_path, run, without_pictures
from online_psp.experiments.tables import Table
from online_psp.experiments.verdict import Verdict
from online_psp.experiments.verdicts import judge, to_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "fig1": (
            "Figure 1: time per sample",
            "Spiked data, ρ = 2e-3, γ = 2, one thread. On the left the published update, one sample at a time, in place by BLAS; then this "
            "package's fit_next and fit_block, which give the same iterates. One scale for all: the distance downwards is the speed-up. "
            "Every run has fresh samples; fit_next and fit_block are timed over whole blocks, so that work put off is counted. "
            "In the tables, runs × samples is what the medians of the three columns are of; a star marks one run without a warm-up, which "
            "took longer by itself than is allowed for all; a dash was not run.",
        ),
        "fig2": (
            "Figure 2: error against noise on spiked data",
            "One pass over N = 6000 standardised samples. Lines are medians of the trials, bands the range between the quartiles.",
        ),
        "fig3": (
            "Figure 3: error against samples seen on real data",
            "Data standardised offline, as in the paper; every trial is another order of the samples, the same in each of its passes. "
            "Lines are medians, bands the range between the quartiles. A line marked exact leaves the picture: it has come to batch "
            "PCA's own answer, up to rounding.",
        ),
        "fig4": (
            "Figure 4: what the errors look like",
            "An example from each set, rebuilt from its projection at the marked moments, beside batch PCA and the original. "
            "The dashed line is an error of 0.2.",
        ),
    }
)
_TABLES: Mapping[str, Callable[[Sequence[Row]], list[Table]]] = MappingProxyType(
    {"fig1": tables.timings, "fig2": tables.noise, "fig3": tables.learning, "fig4": tables.pictures}
)


@dataclass(frozen=True)
class Reproduction:
    """The results of a run, and the figures left out because data is missing, with what to do about it."""

    rows: list[Row]
    verdicts: list[Verdict]
    pictures: dict[str, Path]
    report: Path
    left_out: dict[str, str]


def needed_sets(records: Sequence[Record]) -> list[str]:
    """The data sets that records read."""
    return list(
        dict.fromkeys(record.data.source for record in records if isinstance(record, Experiment) and isinstance(record.data, RealData))
    )


def _without_data(names: Sequence[str], planned: Mapping[str, Sequence[Record]], data_home: str | Path | None) -> dict[str, str]:
    """Figures whose data is not available, found before anything runs; raises an error if that is all of them."""
    left_out: dict[str, str] = {}
    for name in names:
        try:
            for source in needed_sets(planned[name]):
                load(source, data_home)
        except FileNotFoundError as error:
            left_out[name] = str(error)
    if len(left_out) == len(names):
        raise FileNotFoundError(next(iter(left_out.values())))
    return left_out


def _albums(path: Path, records: Sequence[Record]) -> dict[str, dict[str, NDArray[Any]]]:
    albums = {}
    for record in records:
        if isinstance(record, Experiment) and record.pictured is not None:
            with np.load(arrays_path(path, record.key)) as arrays:
                albums[record.key] = {name: arrays[name] for name in arrays.files}
    return albums


def draw(name: str, rows: Sequence[Row], path: Path, records: Sequence[Record]) -> Figure:
    """Draw a figure."""
    if name == "fig4":
        layouts = {known: entry.layout for known, entry in KNOWN.items()}
        return plots.fig4(rows, _albums(path, records), layouts)
    drawings = {"fig1": plots.fig1, "fig2": plots.fig2, "fig3": plots.fig3}
    return drawings[name](rows)


def _times(out: Path) -> dict[str, float]:
    try:
        return {str(name): float(seconds) for name, seconds in json.loads((out / "times.json").read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError):  # no earlier run, or one that was ended while it wrote
        return {}


def _complete(path: Path, records: Sequence[Record]) -> list[Row] | None:
    """The rows of the records if all of them are in the file, otherwise None."""
    have = finished(read_rows(path))  # keys depend on the code: rows of other code are not among them
    if not all(record.key in have for record in records) or without_pictures(path, records):
        return None
    return [row for record in records for row in have[record.key]]


@dataclass(frozen=True)
class Scope:
    """How much of the paper to run.

    Attributes
    ----------
    quick : bool
        Whether to run fewer trials and sizes.
    seed : int
        Seed of the first trial; the others follow.
    trials : int or None
        Trials of figures 2 and 3: by default 10, or 2 with `quick`. A later run with more trials continues from there.
    algorithms : tuple of Curve
        Further algorithms, as curves of figures 2 and 3.
    recordings : str or Path or None
        Recorded runs of the authors' package to compare with.
    """

    quick: bool = False
    seed: int = 0
    trials: int | None = None
    algorithms: tuple[Curve, ...] = ()
    recordings: str | Path | None = None

    def __post_init__(self) -> None:
        if self.seed < 0 or (self.trials is not None and self.trials < 1):
            raise ValueError(f"The seed must be at least 0 and trials at least 1; got {self.seed} and {self.trials}.")

    @property
    def prefix(self) -> str:
        """Prefix of the files of a run."""
        return "quick_" if self.quick else ""


def plan(scope: Scope, data_home: str | Path | None = None) -> dict[str, list[Record]]:
    """The records of every figure: the paper's curves, and further ones wherever the first of these is drawn."""
    planned = {}
    for name, make in FIGURES.items():
        records = make(scope.quick, scope.seed, scope.trials)
        drawn = [record.curve for record in records if isinstance(record, Experiment)]
        more = [
            replace(record, curve=curve)
            for record in records
            if isinstance(record, Experiment) and record.curve == FIVE[0] and not record.jitter
            for curve in told_apart(scope.algorithms, drawn)
        ]
        planned[name] = [_fingerprinted(record, data_home) for record in (*records, *more)]
    return planned


def _fingerprinted(record: Record, data_home: str | Path | None) -> Record:
    """A record with the checksum of its file, so that rows of another file of the same name are not reused."""
    if not isinstance(record, Experiment) or not isinstance(record.data, RealData):
        return record
    return replace(record, data=replace(record.data, fingerprint=_content(record.data.source, data_home)))


def _content(source: str, data_home: str | Path | None) -> str:
    path = locate(source, data_home)
    if path is None or not path.is_file():
        return ""
    return _checksum_of(path, path.stat().st_mtime_ns, path.stat().st_size)


@lru_cache(maxsize=16)
def _checksum_of(path: Path, changed: int, size: int) -> str:
    return checksum(path)[:12]


def reproduce(
    names: Sequence[str],
    out: str | Path,
    *,
    scope: Scope | None = None,
    jobs: int = 1,
    data_home: str | Path | None = None,
    progress: bool = False,
    command: str = "",
) -> Reproduction:
    """Run figures and write rows, pictures, tables, verdicts and the report into a folder.

    Parameters
    ----------
    names : sequence of str
        Any of "fig1", "fig2", "fig3", "fig4". Figures that `out` has complete from earlier runs, with the same settings and the same
        code, are in the report too.
    out : str or Path
    scope : Scope, optional
        How much to run; everything by default.
    jobs : int
        Number of processes.
    data_home : str or Path, optional
        Folder of the data sets.
    progress : bool
        Whether to show what is running.
    command : str
        Command that repeats this, for the report.
    """
    out, scope = Path(out), scope or Scope()
    for curve in scope.algorithms:  # report what is missing before anything runs
        check_curve(curve, 2, 4, None, construct=not curve.foreign)
    if scope.recordings is not None:
        golden(Path(scope.recordings))  # likewise if there are no recordings
    out.mkdir(parents=True, exist_ok=True)
    planned = plan(scope, data_home)
    left_out = _without_data(names, planned, data_home)
    prefix = scope.prefix
    times, rows, sections, drawn = _times(out), list[Row](), list[Section](), dict[str, Path]()
    for name, records in planned.items():
        path = out / f"{prefix}{name}.csv"
        mine = _complete(path, records)
        if mine is None and (name not in names or name in left_out):
            continue
        if mine is None:
            began = time.monotonic()
            mine = run(records, path, jobs=jobs, data_home=data_home, progress=progress)
            times[prefix + name] = times.get(prefix + name, 0.0) + time.monotonic() - began
            (out / "times.json").write_text(json.dumps(times), encoding="utf-8")
        figure = draw(name, mine, path, records)
        plots.save(figure, out / f"{prefix}{name}.png")
        drawn[name] = out / f"{prefix}{name}.{'png' if name == 'fig4' else 'svg'}"
        plots.save(figure, drawn[name])
        title, text = _TITLES[name]
        sections.append(Section(title, text, drawn[name], (*_TABLES[name](mine), *tables.spreads(mine), *tables.skipped(mine))))
        asked = _command([name], scope, None, jobs)
        (out / f"{prefix}results_{name}.md").write_text(figure_results(name, mine, asked), encoding="utf-8")
        rows += mine
    recorded: dict[tuple[str, int, str, int], float] = {}
    if scope.recordings is not None:
        records, recorded = golden(Path(scope.recordings))
        rows += run(records, out / "golden.csv", jobs=jobs, data_home=data_home, progress=progress)
    verdicts = judge(rows, recorded)
    (out / f"{prefix}verdicts.md").write_text(to_table(verdicts).to_markdown(), encoding="utf-8")
    (out / f"{prefix}tables.md").write_text(tables.to_markdown(table for section in sections for table in section.tables), encoding="utf-8")
    deviations = Section("Deviations from the paper", DEVIATIONS_TEXT, None, (deviations_table(),))
    report = _write(out, scope, command or _command(names, scope, out, jobs), [*sections, deviations], verdicts, times)
    return Reproduction(rows, verdicts, drawn, report, left_out)


def _command(names: Sequence[str], scope: Scope, out: Path | None, jobs: int) -> str:
    """What to type for a run that was asked for from Python, or wherever its results are to be."""
    words = ["psp", "reproduce", "all" if len(names) == len(FIGURES) > 1 else " ".join(names)]
    words += ["--quick"] * scope.quick + ([] if scope.trials is None else ["--trials", str(scope.trials)])
    words += ["--seed", str(scope.seed), "--jobs", str(jobs)] + ([] if out is None else ["--out", str(out)])
    words += [word for curve in scope.algorithms for word in ("--algorithm", curve.text)]
    words += [] if scope.recordings is None else ["--recordings", str(scope.recordings)]
    return " ".join(words)


def _write(
    out: Path, scope: Scope, command: str, sections: Sequence[Section], verdicts: Sequence[Verdict], times: Mapping[str, float]
) -> Path:
    spent = ", ".join(
        f"{name.removeprefix('quick_')} {seconds:.0f} s" for name, seconds in times.items() if name.startswith("quick_") == scope.quick
    )
    size = "quick: fewer trials and sizes" if scope.quick else "full"
    facts = {"seeds": f"{scope.seed} and up, one a trial", "size of the run": size, "time": spent}
    introduction = (
        "The experiments of Giovannucci, Minden, Pehlevan, Chklovskii, Efficient Principal Subspace Projection of Streaming Data Through "
        "Fast Similarity Matching (2018), run with online-psp."
    )
    title = "Streaming principal subspace projection: the paper's experiments"
    return write_report(out / f"{scope.prefix}report.html", title, introduction, sections, verdicts, facts, command)
