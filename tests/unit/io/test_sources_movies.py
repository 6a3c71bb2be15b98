"""Arrays of three dimensions, and files of many pages: pictures are rows, whichever axis is time."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from online_psp.io.sources import SourceError, UnknownSourceError, open_source


def rows_of(path: Path, **options: Any) -> tuple[Any, Any]:
    """A source and all its rows."""
    source = open_source(path, **options)
    return source, np.concatenate([block.rows for block in source.blocks(7)])


@pytest.mark.parametrize("form", ["npy", "npz", "h5"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_are_along_the_first_axis_or_that_of_time(tmp_path: Path, form: str, order: Any) -> None:
    X, path = np.random.default_rng(0).random((3, 4, 50)), tmp_path / f"movie.{form}"
    if form == "h5":
        with h5py.File(path, "w") as file:
            file["a/frames"], file["rate"] = X, 30.0
    else:
        (np.save if form == "npy" else lambda path, X: np.savez_compressed(path, X=X))(path, np.asarray(X, order=order))
    for axis, expected in ((None, X), (0, X), (2, np.moveaxis(X, -1, 0))):
        source, rows = rows_of(path, time_axis=axis)
        np.testing.assert_array_equal(rows, expected.reshape(len(expected), -1))
        assert source.image_shape == expected.shape[1:]
        assert [("time_axis=2" in each) for each in source.warnings] == ([True] if axis is None else [])
    with pytest.raises(UnknownSourceError, match="first or the last axis"):
        open_source(path, time_axis=1)


def test_an_error_lists_what_a_file_holds_with_shapes(tmp_path: Path) -> None:
    for arrays, parts in (("a 4 3 2/b 5 6", ("a (4×3×2)", "b (5×6)")), ("a 7", ("a (7)",))):
        path = tmp_path / f"{len(parts)}.h5"
        with h5py.File(path, "w") as file:
            for name, *shape in map(str.split, arrays.split("/")):
                file[name] = np.zeros([int(size) for size in shape])
        with pytest.raises(SourceError) as error:
            open_source(path)
        assert all(part in str(error.value) for part in parts)


def test_pages_are_rows(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (70, 5, 6), dtype=np.uint8)
    first, *others = (Image.fromarray(page) for page in pixels)
    first.save(tmp_path / "movie.tif", save_all=True, append_images=others)
    source, rows = rows_of(tmp_path / "movie.tif")
    assert (source.total, source.image_shape) == (70, (5, 6))
    np.testing.assert_array_equal(rows, pixels.reshape(70, -1))
    later = [block.rows for block in itertools.islice(open_source(tmp_path / "movie.tif").blocks(10, 40), 1)]
    np.testing.assert_array_equal(later[0], pixels[40:50].reshape(10, -1))
    first.save(tmp_path / "one.tif")
    with pytest.raises(UnknownSourceError, match="one picture"):
        open_source(tmp_path / "one.tif")
