"""A model that learns a file a day: nothing is counted twice unseen."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.command import data, psp, write_csv


def day(folder: Path, number: int, n: int = 60) -> Path:
    return write_csv(folder / f"day{number}.csv", data(n, 8, seed=number))


def read(table: Path) -> list[dict[str, str]]:
    with open(table, newline="") as file:
        return list(csv.DictReader(file))


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


def sensors(folder: Path, number: int, shifted: bool = False, n: int = 500) -> Path:
    """A day of five machines' rows; with a shift of one sensor after row 200."""
    X = np.random.default_rng(number).standard_normal((n, 2)) @ np.random.default_rng(99).standard_normal((2, 8))
    X += 0.5 * np.random.default_rng(50 + number).standard_normal((n, 8))
    if shifted:
        X[200:, 3] += 5.0
    lines = ["machine,when," + ",".join(f"s{i}" for i in range(8))]
    lines += [f"m{i % 5},2024-05-{number:02} {i // 60:02}:{i % 60:02}," + ",".join(map(repr, row)) for i, row in enumerate(X.tolist())]
    path = folder / f"day{number}.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_table_goes_on_from_day_to_day_and_an_alarm_can_be_acted_on(tmp_path: Path) -> None:
    model, table = tmp_path / "m.psp", tmp_path / "alarms.csv"
    about = ("--ids", "machine", "--time-column", "when")
    psp("fit", sensors(tmp_path, 1), "-k", 2, "-o", model, "--monitor", table, *about, "-q")
    psp("update", model, sensors(tmp_path, 2), "--monitor", table, "-q")
    said = psp("update", model, sensors(tmp_path, 3, shifted=True), "--monitor", table, "--fail-on-drift", code=3).stderr
    lines = read(table)
    assert [int(line["row"]) for line in lines] == list(range(1, 1501))
    assert [Path(line["source"]).name for line in lines[::500]] == ["day1.csv", "day2.csv", "day3.csv"]
    assert lines[500]["machine"] == "m0"
    assert lines[500]["when"] == "2024-05-02T00:00:00"
    alarm = next(line for line in lines if line["drift"])
    assert 1200 < int(alarm["row"]) < 1230
    assert alarm["drift"] == "mean"
    assert alarm["features"].startswith("s3 "), alarm
    for part in ("day3.csv, row 2", "2024-05-03T03", "s3 ", alarm["machine"]):
        assert part in said, f"the terminal should say {part} as it happens; it says {said}"
    assert "s3 " in psp("info", model).stdout.replace("\n", "")
    last = info(model)["monitor"]["alarms"][0]
    assert last["features"][0]["feature"] == 3
    assert "2024-05-03T03" in last["label"]
    kept = table.read_bytes()
    assert "other columns" in psp("update", model, sensors(tmp_path, 4), "--monitor", table, "--ids", "when", code=1).stderr
    assert table.read_bytes() == kept
    psp("update", model, sensors(tmp_path, 4), "--monitor", tmp_path / "own.csv", "--fail-on-drift", "-q", code=3)
    own = read(tmp_path / "own.csv")
    assert len(own) == 500, "another name begins another table"
    assert [line["features"].split()[0] for line in own if line["drift"]] == ["s3"], "the sensor is back where it was"
    psp("update", model, sensors(tmp_path, 5), "--monitor", tmp_path / "own.csv", "--fail-on-drift", "-q")


def test_rows_with_missing_cells_are_scored_and_marked(tmp_path: Path) -> None:
    X = data(400, 8)
    X[::7, 2] = np.nan
    source, table = write_csv(tmp_path / "x.csv", X), tmp_path / "a.csv"
    psp("fit", source, "-k", 2, "-o", tmp_path / "m.psp", "--missing", "impute", "--monitor", table, "-q")
    lines = read(table)
    assert [line["missing"] for line in lines] == ["1" if i % 7 == 0 else "0" for i in range(400)]
    assert all(line["spe"] for line in lines[50:])
    psp("score", tmp_path / "m.psp", source, "-o", tmp_path / "s.csv", "-q")
    assert all(line["spe"] for line in read(tmp_path / "s.csv"))
