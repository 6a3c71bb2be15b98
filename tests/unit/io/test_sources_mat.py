"""Tables in MATLAB files: beside SciPy's reader on whole files, and never worse than one sentence on damaged ones."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.io import loadmat, savemat

from online_psp.engine.types import Array
from online_psp.io.sources import SourceError, open_source


def rows_of(path: Path | str, **options: Any) -> Array:
    """All rows of a source, dense."""
    parts = [block.rows for block in open_source(str(path), **options).blocks(16)]
    return np.concatenate([part.toarray() if sparse.issparse(part) else part for part in parts])


def table(n: int = 40, D: int = 7, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((n, D))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?"])
def test_numbers_of_every_kind(tmp_path: Path, kind: str, compressed: bool) -> None:
    X = (100 * np.abs(table())).astype(kind)
    savemat(tmp_path / "x.mat", {"labels": np.ones((40, 1)), "fea": X, "text": "abc"}, do_compression=compressed)
    found = rows_of(tmp_path / "x.mat")
    assert found.dtype == (np.float32 if kind == "f4" else np.float64)
    np.testing.assert_array_equal(found, X.astype(np.float64))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", [np.float64, np.bool_])
def test_sparse_matrices(tmp_path: Path, kind: type, compressed: bool) -> None:
    X: Array = np.where(np.abs(table(50, 30)) > 1.5, table(50, 30), 0.0).astype(kind)
    X[:, 3] = 0
    savemat(tmp_path / "x.mat", {"X": sparse.csc_matrix(X)}, do_compression=compressed)
    source = open_source(str(tmp_path / "x.mat"))
    assert sparse.issparse(next(iter(source.blocks(8))).rows), "sparse rows must stay sparse"
    np.testing.assert_array_equal(rows_of(tmp_path / "x.mat"), X.astype(np.float64))


def test_a_wide_sparse_matrix_need_not_fit_as_a_dense_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = sparse.csc_array((rng.standard_normal(999), (np.arange(999), rng.integers(100_000, size=999))), shape=(1000, 100_000))
    savemat(tmp_path / "x.mat", {"X": X}, do_compression=True)
    found = next(iter(open_source(str(tmp_path / "x.mat"), max_memory=20_000_000).blocks(1000))).rows
    assert abs(found - X).max() == 0


def test_files_of_matlab_4(tmp_path: Path) -> None:
    savemat(tmp_path / "x.mat", {"X": table()}, format="4")
    with pytest.raises(SourceError, match="MATLAB 4: save it with -v7"):
        rows_of(tmp_path / "x.mat")


def test_other_variables_do_not_matter(tmp_path: Path) -> None:
    """Cells, structures, complex numbers and objects beside the table, which is named or the usual one."""
    others = {"c": np.array([[1, "a"]], dtype=object), "s": {"a": 1}, "z": np.eye(2) * 1j, "cube": np.zeros((2, 3, 4))}
    savemat(tmp_path / "x.mat", {**others, "mine": table(), "X": 2 * table()}, do_compression=True)
    np.testing.assert_array_equal(rows_of(tmp_path / "x.mat"), 2 * table())
    np.testing.assert_array_equal(rows_of(f"{tmp_path / 'x.mat'}::mine"), table())
    opaque = (
        struct.pack("<IIII", 6, 8, 17, 0) + struct.pack("<II", 1, 3) + b"obj".ljust(8, b"\0") + struct.pack("<II", 1, 4) + b"MCOS\0\0\0\0"
    )
    data = (tmp_path / "x.mat").read_bytes()
    (tmp_path / "y.mat").write_bytes(data[:128] + struct.pack("<II", 14, len(opaque)) + opaque + data[128:])
    np.testing.assert_array_equal(rows_of(tmp_path / "y.mat"), 2 * table())
    for name, words in {"c": "is a cell", "s": "is a struct", "z": "complex", "cube": r"shape \(2, 3, 4\)"}.items():
        with pytest.raises(SourceError, match=words):
            open_source(f"{tmp_path / 'x.mat'}::{name}")
    with pytest.raises(SourceError, match="'obj' is an object, not numbers: choose another"):
        open_source(f"{tmp_path / 'y.mat'}::obj")


def test_text_and_version_73_are_one_sentence(tmp_path: Path) -> None:
    savemat(tmp_path / "x.mat", {"X": "some text"})
    with pytest.raises(SourceError, match="is text, not a matrix"):
        open_source(str(tmp_path / "x.mat"))
    (tmp_path / "y.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + struct.pack("<H", 0x0200) + b"IM" + bytes(400))
    with pytest.raises(SourceError, match="cannot be read as matlab"):
        open_source(str(tmp_path / "y.mat"))


def test_files_of_matlab_73(tmp_path: Path) -> None:
    """HDF5 behind a header of text; columns come one after the other, and sparse matrices are in three arrays."""
    h5py = pytest.importorskip("h5py")
    X, S = table(), sparse.csc_array(np.where(table(50, 30) > 1, table(50, 30), 0))
    with h5py.File(tmp_path / "x.mat", "w", userblock_size=512) as file:
        file["fea"] = X.T
        file["name"] = np.frombuffer(b"abc", np.uint8).astype(np.uint16)[:, np.newaxis]
        file["name"].attrs["MATLAB_class"] = np.bytes_("char")
        group = file.create_group("S")
        group.attrs["MATLAB_sparse"] = np.uint64(50)
        group["data"], group["ir"], group["jc"] = S.data, S.indices.astype(np.uint64), S.indptr.astype(np.uint64)
    with (tmp_path / "x.mat").open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file".ljust(124) + struct.pack("<H", 0x0200) + b"IM")
    np.testing.assert_array_equal(rows_of(tmp_path / "x.mat"), X)
    np.testing.assert_array_equal(rows_of(f"{tmp_path / 'x.mat'}::S"), S.toarray())


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """A matrix that says that it is small, and unpacks to more than is allowed."""
    head = struct.pack("<IIII", 6, 8, 6, 0) + struct.pack("<IIii", 5, 8, 2, 2) + struct.pack("<I", 1 << 16 | 1) + b"X\0\0\0"
    size = 1 << 26
    packed = zlib.compress(struct.pack("<II", 14, len(head) + 8 + size) + head + struct.pack("<II", 9, size) + bytes(size))
    savemat(tmp_path / "x.mat", {})
    start = (tmp_path / "x.mat").read_bytes()[:128]
    (tmp_path / "x.mat").write_bytes(start + struct.pack("<II", 15, len(packed)) + packed)
    with pytest.raises(SourceError, match="unpacks to more than is allowed"):
        open_source(str(tmp_path / "x.mat"), max_memory=1 << 22)
    with pytest.raises(SourceError, match=r"not as long as it says|is damaged"):
        open_source(str(tmp_path / "x.mat"), max_memory=1 << 30)


def test_a_shape_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    savemat(tmp_path / "x.mat", {"X": np.zeros((1000, 1000))}, do_compression=True)
    with pytest.raises(SourceError, match="would take"):
        open_source(str(tmp_path / "x.mat"), max_memory=1 << 20)


def mutations(data: bytes, rng: np.random.Generator, count: int) -> Any:
    """Flipped bits, other bytes, lengths, cuts, and pieces left out or put in twice; most of them near the tags at the beginning."""
    for _ in range(count):
        changed, kind = bytearray(data), rng.integers(6)
        at = int(rng.integers(len(data) if rng.random() < 0.5 else min(len(data), 300)))
        if kind == 0:
            changed[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            changed[at : at + 4] = struct.pack("<I", int(rng.choice([0, 1, 7, 2**31 - 1, 2**31, 2**32 - 1])))
        elif kind == 2:
            del changed[at:]
        elif kind == 3:
            del changed[at : at + int(rng.integers(1, 40))]
        elif kind == 4:
            changed[at:at] = changed[at : at + int(rng.integers(1, 40))]
        else:
            changed[at] = int(rng.integers(256))
        yield bytes(changed)


def whole_files(folder: Path) -> dict[str, bytes]:
    """Files to damage: full and sparse, plain and compressed, with variables beside the table."""
    X = table()
    held: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "plain": ({"gnd": np.ones((40, 1)), "fea": X}, {}),
        "packed": ({"gnd": np.ones((40, 1)), "fea": X}, {"do_compression": True}),
        "sparse": ({"X": sparse.csc_matrix(np.where(X > 1, X, 0))}, {}),
        "mixed": ({"s": {"a": 1}, "t": "text", "X": (100 * X).astype(np.int16)}, {}),
    }
    for name, (variables, options) in held.items():
        savemat(folder / f"{name}.mat", variables, **options)
    return {name: (folder / f"{name}.mat").read_bytes() for name in held}


def repacked(data: bytes) -> bytes:
    """The variables of a plain file compressed: damage inside them is then not found by a checksum."""
    inside = zlib.compress(data[128:])
    return data[:128] + struct.pack("<II", 15, len(inside)) + inside


@pytest.mark.parametrize("name", ["plain", "packed", "sparse", "mixed", "inside"])
def test_damaged_files_give_rows_or_one_sentence(tmp_path: Path, name: str) -> None:
    held = whole_files(tmp_path)
    data, rng = held["sparse" if name == "inside" else name], np.random.default_rng(len(name))
    path, refused = tmp_path / "m.mat", []
    for number, changed in enumerate(mutations(data, rng, 300)):
        path.write_bytes(repacked(changed) if name == "inside" else changed)
        try:
            found = rows_of(path, max_memory=1 << 24)
        except SourceError as error:
            refused.append(str(error))
        else:
            assert found.ndim == 2, f"mutation {number} gave no rows"
            assert np.isfinite(found).all(), f"mutation {number} gave values that are not finite"
    assert len(refused) > 50, f"of 300 damaged files only {len(refused)} were refused"
    assert not [text for text in refused if "\n" in text], "a message had more than one line"


@pytest.mark.parametrize(("file", "shape"), [("ATT_faces_112_92.mat", (400, 10304)), ("YaleB_32x32.mat", (2414, 1024))])
def test_published_faces_are_as_scipy_reads_them(file: str, shape: tuple[int, int]) -> None:
    path = Path(os.environ.get("ONLINE_PSP_DATA", "nowhere")) / file
    if not path.exists():
        pytest.skip(f"{file} is not in the folder that ONLINE_PSP_DATA names")
    found = rows_of(path)
    assert found.shape == shape
    np.testing.assert_array_equal(found, loadmat(path)["fea"])
