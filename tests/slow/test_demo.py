"""``psp demo``: three lines of numbers that are as good as they should be, and a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from online_psp.suite import demo
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
    first = demo.drift().alarms[0]
    assert 1500 <= first.row < 1550, f"one sensor slips at row 1,500; got {first}"
    assert (first.kind, first.features[0][0]) == ("mean", 6)
    filled = demo.fill(X)
    assert filled.error < 0.4
    here = ~np.isnan(filled.seen)
    np.testing.assert_allclose(filled.filled[here], filled.true[here], rtol=1e-6, err_msg="seen pixels should stay")
