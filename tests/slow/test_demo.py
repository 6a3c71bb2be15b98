"""``psp demo``: three lines of numbers that are as good as they should be, and a picture."""

from __future__ import annotations

from pathlib import Path

from online_psp.suite import demo
from online_psp.suite.pictures import new_figure
from online_psp.suite.studies.missing import digits
from online_psp.suite.studies.tracking import alarm
from tests.command import psp


def test_the_demo_shows_what_it_promises(tmp_path: Path) -> None:
    picture = tmp_path / "demo.png"
    shown = psp("demo", "--out", picture, env={"COLUMNS": "200"}).stdout
    lines = [line for line in shown.split("Next:")[0].splitlines() if line.strip()]
    assert [line.split()[0] for line in lines] == ["components", "drift", "missing", "picture"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    for step in ("psp fit", "psp bench --quick", "README.md"):
        assert step in shown.split("Next:")[1], f"{step} is not among what to do next"


def test_what_the_demo_shows_is_good() -> None:
    X = demo.pictures(3000)
    assert X.shape == (3000, demo.SIDE**2)
    assert X.min() >= 0.0
    assert X.max() <= 1.0
    found = alarm(new_figure(7, 4))
    assert [each.kind for each in found] == ["mean", "direction"]
    assert 1500 <= found[0].row < 1550
    assert 2500 <= found[1].row < 2550
    assert digits(new_figure(9, 4)) < 0.8
