"""The loaders: every format from a small real file, every promised error from a really broken one."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import struct
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from online_psp.cli.datasets import presence
from online_psp.datasets import KNOWN, ImageLayout, load, registry


@pytest.fixture
def images() -> NDArray[np.uint8]:
    """Twelve pictures of 5×4 pixels, (12, 5, 4)."""
    return np.random.default_rng(0).integers(0, 256, (12, 5, 4), dtype=np.uint8)


@pytest.fixture(autouse=True)
def nothing_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the user's own data."""
    monkeypatch.delenv(registry.ENVIRONMENT, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def save_folder(folder: Path, images: NDArray[np.uint8], suffix: str) -> Path:
    for number, image in enumerate(images, start=1):
        file = folder / f"s{number % 2 + 1}" / f"{number}.{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    return folder


# Formats


def test_npy_of_rows_and_of_images(tmp_path: Path, images: NDArray[np.uint8]) -> None:
    np.save(tmp_path / "rows.npy", images.reshape(12, 20).astype(np.float32))
    np.save(tmp_path / "images.npy", images)
    rows, pictures = load(tmp_path / "rows.npy"), load(tmp_path / "images.npy")
    assert rows.layout is None
    assert rows.X.dtype == np.float32
    assert (rows.N, rows.D, rows.name) == (12, 20, "rows")
    assert pictures.layout == ImageLayout(5, 4)
    np.testing.assert_array_equal(pictures.image(pictures.X[3]), images[3])
    with pytest.raises(ValueError, match="are not images"):
        rows.image(rows.X[0])


def test_mat_takes_fea(tmp_path: Path) -> None:
    X = np.arange(6, dtype=np.uint8).reshape(3, 2)
    savemat(tmp_path / "faces.mat", {"fea": X, "gnd": np.ones((3, 1))})
    data = load(tmp_path / "faces.mat")
    np.testing.assert_array_equal(data.X, X)
    assert data.X.flags.c_contiguous
    np.testing.assert_array_equal(load(tmp_path / "faces.mat", key="gnd").X, np.ones((3, 1)))


@pytest.mark.parametrize("name", ["pictures-idx3-ubyte", "pictures-idx3-ubyte.gz", "told_by_content.bin", "told_by_content.gz"])
def test_idx_plain_and_gzip(tmp_path: Path, images: NDArray[np.uint8], name: str) -> None:
    content = idx_bytes(images)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    data = load(tmp_path / name)
    np.testing.assert_array_equal(data.X, images.reshape(12, 20))
    np.testing.assert_array_equal(data.image(data.X[1]), images[1])


@pytest.mark.parametrize("suffix", ["pgm", "png"])
def test_folder_of_images_in_the_order_people_number_them(tmp_path: Path, images: NDArray[np.uint8], suffix: str) -> None:
    data = load(save_folder(tmp_path / "faces", images, suffix))
    assert data.layout == ImageLayout(5, 4)
    order = [1, 3, 5, 7, 9, 11, 0, 2, 4, 6, 8, 10]  # s1/2, s1/4, … s1/12, s2/1, …
    np.testing.assert_array_equal(data.X, images[order].reshape(12, 20))


def test_colour_becomes_grey(tmp_path: Path) -> None:
    Image.fromarray(np.full((3, 2, 3), (255, 0, 0), dtype=np.uint8)).save(tmp_path / "red.png")
    X = load(tmp_path).X
    assert X.shape == (1, 6)
    assert 0 < X[0, 0] < 255


def test_column_major_pictures_come_out_upright() -> None:
    picture = np.arange(6).reshape(3, 2)
    assert np.array_equal(ImageLayout(3, 2, column_major=True).image(picture.ravel(order="F")), picture)
    assert np.array_equal(ImageLayout(3, 2).image(picture.ravel()), picture)
    with pytest.raises(ValueError, match="row of 6 numbers"):
        ImageLayout(3, 2).image(np.zeros(5))


# Broken files


def broken(tmp_path: Path, images: NDArray[np.uint8]) -> dict[str, tuple[Path, str]]:
    """A path to load and what the error must say, for every promised error."""
    content = idx_bytes(images)
    (tmp_path / "cut-idx3-ubyte.gz").write_bytes(gzip.compress(content)[:-40])
    (tmp_path / "rot-idx3-ubyte.gz").write_bytes(gzip.compress(content)[:30] + b"\xff" * 40)
    (tmp_path / "short-idx3-ubyte").write_bytes(content[:-7])
    (tmp_path / "long-idx3-ubyte").write_bytes(content + b"\0")
    (tmp_path / "header-idx3-ubyte").write_bytes(content[:9])
    (tmp_path / "empty-idx3-ubyte").write_bytes(b"")
    (tmp_path / "magic-idx3-ubyte").write_bytes(b"\x89PNG" + content)
    (tmp_path / "data.doc").write_bytes(bytes(range(32)))
    savemat(tmp_path / "labels.mat", {"gnd": np.ones((3, 1)), "names": np.zeros((2, 2))})
    save_folder(tmp_path / "sizes", images[:2], "png")
    Image.fromarray(np.zeros((7, 4), dtype=np.uint8)).save(tmp_path / "sizes" / "z.png")
    (tmp_path / "nothing").mkdir()
    save_folder(tmp_path / "damaged", images[:2], "png")
    (tmp_path / "damaged" / "bad.png").write_bytes(b"no image")
    return {
        "gzip cut short": (tmp_path / "cut-idx3-ubyte.gz", r"cut-idx3-ubyte.gz.*Compressed file ended"),
        "gzip damaged": (tmp_path / "rot-idx3-ubyte.gz", r"rot-idx3-ubyte.gz.*(decompressing|CRC|Compressed)"),
        "idx cut short": (tmp_path / "short-idx3-ubyte", r"is not a whole \.idx file: 12 rows of 20 values need 7 bytes more"),
        "idx too long": (tmp_path / "long-idx3-ubyte", r"bytes left over"),
        "idx header": (tmp_path / "header-idx3-ubyte", r"header of 16 bytes ends after 9"),
        "idx empty": (tmp_path / "empty-idx3-ubyte", r"not an IDX file"),
        "idx magic": (tmp_path / "magic-idx3-ubyte", r"magic number 89 50 4e 47, where images begin with 00 00 08 03"),
        "unknown format": (tmp_path / "data.doc", r"is of no known kind, by name or first bytes"),
        "mat without fea": (
            tmp_path / "labels.mat",
            r"has 2 tables \(gnd \(3×1\), names \(2×2\)\); name the one to read",
        ),
        "two sizes": (tmp_path / "sizes", r"sizes, row 3 \(z\.png\): it has 4×7 pixels where 4×5 are expected"),
        "no images": (tmp_path / "nothing", r"nothing has no files of a kind that is known"),
        "bad image": (tmp_path / "damaged", r"damaged, row 1 \(bad\.png\): it is not a picture that can be read"),
    }


def test_broken_files_give_one_sentence_that_says_what_to_do(tmp_path: Path, images: NDArray[np.uint8]) -> None:
    for case, (path, message) in broken(tmp_path, images).items():
        with pytest.raises(ValueError, match=message) as caught:
            load(path)
        assert "\n" not in str(caught.value), case


def test_a_missing_file_names_the_known_sets(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="orl, yale, mnist, digits"):
        load(tmp_path / "absent.npy")


# Known sets


def test_digits_need_no_file() -> None:
    digits = load("digits")
    assert (digits.N, digits.D) == (KNOWN["digits"].N, KNOWN["digits"].D)
    assert digits.image(digits.X[0]).shape == (8, 8)


def test_looked_for_in_data_home_then_environment_then_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [tmp_path / "home", tmp_path / "environment", registry.user_cache()]
    for value, place in enumerate(places):
        place.mkdir(parents=True)
        savemat(place / "YaleB_32x32.mat", {"fea": np.full((2, 1024), value, dtype=np.uint8)})
    monkeypatch.setenv(registry.ENVIRONMENT, str(places[1]))
    assert load("yale", places[0]).X[0, 0] == 0
    assert load("yale").X[0, 0] == 1
    monkeypatch.delenv(registry.ENVIRONMENT)
    assert load("yale").X[0, 0] == 2
    assert load("yale").layout == ImageLayout(32, 32, column_major=True)


def test_another_file_under_a_known_name(tmp_path: Path) -> None:
    savemat(tmp_path / "YaleB_32x32.mat", {"fea": np.zeros((2, 9), dtype=np.uint8)})
    with pytest.raises(ValueError, match=r"9 features.* 1024"):
        load("yale", tmp_path)
    assert "NOT the known one" in presence("yale", tmp_path)[1]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder without a word."""

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A public home on this machine: its folder and its address."""
    pytest.importorskip("pooch")
    folder = tmp_path / "served"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: Quiet(*args, directory=str(folder))) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def known_at(monkeypatch: pytest.MonkeyPatch, name: str, url: str, digest: str | None) -> None:
    moved = replace(KNOWN[name], url=url, url_checksum=digest)
    monkeypatch.setattr(registry, "KNOWN", MappingProxyType({**KNOWN, name: moved}))


def test_an_absent_set_is_fetched_checked_and_kept(tmp_path: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, address = server
    content = gzip.compress(idx_bytes(np.full((3, 28, 28), 7, dtype=np.uint8)))
    (folder / "train-images-idx3-ubyte.gz").write_bytes(content)
    url = f"{address}/train-images-idx3-ubyte.gz"
    known_at(monkeypatch, "mnist", url, hashlib.sha256(b"something else").hexdigest())
    with pytest.raises(FileNotFoundError, match=r"fetching it failed: .*hash"):
        load("mnist", tmp_path / "home")
    known_at(monkeypatch, "mnist", url, hashlib.sha256(content).hexdigest())
    assert load("mnist", tmp_path / "home").N == 3
    (folder / "train-images-idx3-ubyte.gz").unlink()
    assert load("mnist", tmp_path / "home").N == 3


def test_orl_is_fetched_as_a_zip_of_pgm_images(tmp_path: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, address = server
    faces = np.random.default_rng(1).integers(0, 256, (3, 112, 92), dtype=np.uint8)
    with zipfile.ZipFile(folder / "att_faces.zip", "w") as archive:
        for number, face in enumerate(faces, start=1):
            stream = io.BytesIO()
            Image.fromarray(face).save(stream, format="PPM")
            archive.writestr(f"s1/{number}.pgm", stream.getvalue())
    known_at(monkeypatch, "orl", f"{address}/att_faces.zip", None)
    orl = load("orl", tmp_path / "home")
    np.testing.assert_array_equal(np.stack([orl.image(row) for row in orl.X]), faces)


def test_offline_says_where_to_get_it_and_where_to_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pooch")
    known_at(monkeypatch, "yale", "http://127.0.0.1:9/YaleB_32x32.mat", None)
    for download in (True, False):
        with pytest.raises(FileNotFoundError) as caught:
            load("yale", tmp_path / "home", download=download)
        text = str(caught.value)
        assert "\n" not in text
        for part in ("127.0.0.1:9/YaleB_32x32.mat", str(tmp_path / "home"), "put it", registry.ENVIRONMENT, KNOWN["yale"].home):
            assert part in text


def test_the_papers_sets_as_they_are(data_home: Path) -> None:
    for name in ("orl", "yale", "mnist"):
        data = load(name, data_home, download=False)
        assert (data.N, data.D) == (KNOWN[name].N, KNOWN[name].D)
        assert presence(name, data_home)[1].endswith("ok")
    orl = load("orl", data_home, download=False)
    faces = np.array([orl.image(row) for row in orl.X], dtype=np.float64)
    assert faces.shape == (400, 112, 92)
    # Upright and not mirrored into stripes: neighbouring pixels of a face are alike in both directions, and the two halves are alike.
    assert np.abs(np.diff(faces, axis=1)).mean() < 10
    assert np.abs(np.diff(faces, axis=2)).mean() < 10
    mean = faces.mean(axis=0)
    flipped_sideways, flipped_over = np.abs(mean - mean[:, ::-1]).mean(), np.abs(mean - mean[::-1]).mean()
    assert flipped_sideways < flipped_over
