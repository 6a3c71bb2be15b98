"""`fit_stream`: what the command does, in one call of Python."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from online_psp import FSM, OnlinePCA
from online_psp.io.runs import RunError, fit_stream
from online_psp.monitoring import Monitor
from tests.command import data, psp


def sensors(path: Path, n: int = 300, seed: int = 0) -> Path:
    """A table with a site, a time and six columns of numbers."""
    lines = ["site,when," + ",".join(f"x{i}" for i in range(6))]
    lines += [
        f"s{i % 3},2024-05-01 {i // 60:02}:{i % 60:02}," + ",".join(map(repr, row)) for i, row in enumerate(data(n, 6, seed).tolist())
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


ABOUT: dict[str, Any] = {"ids": ["site"], "time_column": "when"}


def test_a_monitor_is_fitted_with_its_table_as_by_the_command(tmp_path: Path) -> None:
    source, table, model = sensors(tmp_path / "x.csv"), tmp_path / "a.csv", tmp_path / "m.psp"
    monitor = fit_stream(source, model, Monitor(OnlinePCA(2), alpha=0.02), alarms=table, reading=ABOUT)
    assert monitor.n_rows == 300
    options = ("--ids", "site", "--time-column", "when", "--set", "alpha=0.02", "-q")
    psp("fit", source, "-k", 2, "-o", tmp_path / "n.psp", "--monitor", tmp_path / "b.csv", *options)
    assert table.read_bytes() == (tmp_path / "b.csv").read_bytes()
    more = sensors(tmp_path / "y.csv", seed=1)
    fit_stream(more, model, update=True, alarms=table)  # columns, IDs and times are those of the file
    psp("update", tmp_path / "n.psp", more, "--monitor", tmp_path / "b.csv", "-q")
    assert len(table.read_bytes().splitlines()) == 601
    assert table.read_bytes() == (tmp_path / "b.csv").read_bytes()
    again = fit_stream(more, model, Monitor(OnlinePCA(2), alpha=0.02), resume=True, alarms=table)
    assert again.n_rows == 600, "nothing is learned twice"


def test_a_page_is_fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("online_psp.watch.server._LAST", 0.1)  # seconds to wait for a browser
    seen: list[Any] = []

    def look(url: str) -> None:
        seen.append(url)

    def report(run: Any) -> None:
        if run.finished:
            return
        with urllib.request.urlopen(f"{seen[0]}data?{10**6}", timeout=20) as found:
            seen.append(json.loads(found.read())["data"])

    fit_stream(sensors(tmp_path / "x.csv"), tmp_path / "m.psp", Monitor(OnlinePCA(2)), watch=look, reading=ABOUT, report=report, block=100)
    assert seen[0].startswith("http://127.0.0.1:")
    assert seen[1]["title"].startswith(str(tmp_path / "x.csv"))
    assert seen[1]["ids"] == ["site"]


def test_what_does_not_go_together_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    X, model, table = data(200, 6), tmp_path / "m.psp", tmp_path / "a.csv"
    fit_stream(X, model, OnlinePCA(2, whiten=True))
    fit_stream(X, tmp_path / "n.psp", Monitor(OnlinePCA(2)), alarms=table)
    before = [path.read_bytes() for path in (model, tmp_path / "n.psp", table)]
    cases: list[tuple[Path, Any, dict[str, Any], str]] = [
        (model, OnlinePCA(3), {"resume": True}, "n_components = 2, not 3"),
        (model, FSM(2, 6), {"resume": True}, "algorithm = None, not fsm"),
        (model, Monitor(OnlinePCA(2)), {"resume": True}, "without --monitor"),
        (model, OnlinePCA(2), {"alarms": table}, "Monitor"),
        (tmp_path / "n.psp", None, {"resume": True}, "table of alarms"),
        (tmp_path / "n.psp", Monitor(OnlinePCA(2), alpha=0.1), {"resume": True, "alarms": table}, "alpha = 0.01, not 0.1"),
        (tmp_path / "n.psp", Monitor(OnlinePCA(2)), {"resume": True, "alarms": table, "epochs": 2}, "epochs"),
        (tmp_path / "none.psp", None, {"update": True}, "does not exist"),
    ]
    for path, what, options, message in cases:
        with pytest.raises(RunError, match=message):
            fit_stream(X, path, what, **options)
    assert [path.read_bytes() for path in (model, tmp_path / "n.psp", table)] == before
    assert fit_stream(X, model, OnlinePCA(2), resume=True).whiten, "settings that are not given are those of the file"
