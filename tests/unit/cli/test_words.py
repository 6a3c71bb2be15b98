"""What people type and mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from online_psp import __version__
from tests.command import data, psp, write_csv


@pytest.mark.parametrize(
    ("words", "part"),
    [(["--help"], "transform"), (["fit", "-h"], "--n-components"), (["-v"], __version__)],
)
def test_help_and_version(words: list[str], part: str) -> None:
    assert part in psp(*words, env={"COLUMNS": "300", "TERM": "dumb"}).stdout


def test_two_tables_are_no_model(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "x.csv", data(40, 6))
    assert "cannot be used as a model" in psp("transform", source, source, "-o", tmp_path / "y.npy", code=1).stderr


def test_a_model_is_not_written_under_the_name_of_a_table(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "x.csv", data(40, 6))
    said = psp("fit", source, "-k", 2, "-o", tmp_path / "a.npy", code=2).stderr
    assert "psp transform" in said
    assert not (tmp_path / "a.npy").exists()


def test_the_size_of_pictures_is_remembered(tmp_path: Path) -> None:
    """A plot of components as pictures is taller than one without."""
    source = write_csv(tmp_path / "x.csv", data(40, 6))

    def height(model: Path, *options: str) -> int:
        psp("plot", model, "-o", tmp_path / "plot.png", "--force", "-q", *options)
        with Image.open(tmp_path / "plot.png") as picture:
            return int(picture.height)

    plain, shaped = tmp_path / "plain.psp", tmp_path / "shaped.psp"
    psp("fit", source, "-k", 2, "-o", plain, "-q")
    psp("fit", source, "-k", 2, "-o", shaped, "-q", "--image", "2x3")
    without = height(plain)
    assert height(plain, "--image", "2x3") == height(shaped) > without
    psp("update", shaped, write_csv(tmp_path / "y.csv", data(40, 6, seed=1)), "-q")
    assert height(shaped) > without
    for command in (["plot", plain, "-o", tmp_path / "p.png"], ["fit", source, "-k", 2, "-o", tmp_path / "n.psp"]):
        assert "6" in psp(*command, "--image", "3x3", code=2).stderr
    assert not (tmp_path / "n.psp").exists()
