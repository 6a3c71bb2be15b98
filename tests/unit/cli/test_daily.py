"""A model that learns a file a day: nothing is counted twice unseen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.command import data, psp, write_csv


def day(folder: Path, number: int, n: int = 60) -> Path:
    return write_csv(folder / f"day{number}.csv", data(n, 8, seed=number))


def info(model: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(psp("info", model, "--json").stdout)
    return found


def test_a_day_without_rows_keeps_the_record_of_what_was_learned(tmp_path: Path) -> None:
    model, second = tmp_path / "m.psp", day(tmp_path, 2)
    psp("fit", day(tmp_path, 1), "-k", 2, "-o", model, "-q")
    psp("update", model, second, "-q")
    empty = tmp_path / "day3.csv"
    empty.write_text(second.read_text().splitlines()[0] + "\n")
    psp("update", model, empty, "-q")
    assert [Path(entry["name"]).name for entry in info(model)["before"]] == ["day1.csv", "day2.csv"]
    again = psp("update", model, second, "-q").stderr
    assert "learned" in again, f"a file that is learned a second time should be named; got {again!r}"
    assert "before" in again
    assert info(model)["samples"] == 180


def test_threads_are_a_number_of_threads(tmp_path: Path) -> None:
    source = day(tmp_path, 1)
    psp("fit", source, "-k", 2, "-o", tmp_path / "m.psp", "--threads", 1, "-q")
    psp("update", tmp_path / "m.psp", day(tmp_path, 2), "--threads", 2, "-q")
    assert "threads" in psp("fit", source, "-k", 2, "-o", tmp_path / "n.psp", "--threads", 0, code=2).stderr
