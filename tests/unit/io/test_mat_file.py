"""Models as MAT files: what they hold, what is refused, and the exchange with Octave."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat
from scipy.sparse import csc_array

from online_psp import OnlinePCA
from online_psp.engine.types import Array
from online_psp.io.mat5 import list_variables, read_variable
from online_psp.io.model_file import ModelFileError
from tests.contract.test_model_file import rows


def test_mat_files_hold_what_was_learned(tmp_path: Path) -> None:
    X = rows(300, 40)
    model = OnlinePCA(3, whiten=True).fit(X)
    model.save(tmp_path / "m.mat")
    found = loadmat(tmp_path / "m.mat")
    assert found["format"].item() == "online-psp-model"
    assert found["version"].item() == 1
    assert found["components"].shape == (3, 40)
    loaded = OnlinePCA.load(tmp_path / "m.mat")
    np.testing.assert_allclose(loaded.transform(X), model.transform(X), atol=1e-12)
    np.testing.assert_allclose(loaded.explained_variance_, model.explained_variance_, rtol=1e-12)
    assert loaded.noise_variance_ == pytest.approx(model.noise_variance_)
    assert loaded.n_samples_seen_ == 300
    loaded.partial_fit(X)
    assert loaded.n_samples_seen_ == 600
    np.testing.assert_allclose(np.abs(np.sum(loaded.components_ * model.components_, axis=1)), 1.0, atol=1e-3)
    other = OnlinePCA.load(tmp_path / "m.mat").merge(model)
    np.testing.assert_allclose(np.abs(np.sum(other.components_ * model.components_, axis=1)), 1.0, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "format"),
        ({"format": np.arange(16.0)}, "format"),
        ({"digest": np.arange(64.0)}, "checksum"),
        ({"version": 2}, "version"),
        ({"components": np.ones((2, 4))}, "orthonormal"),
        ({"components": {"a": 1}}, "struct"),
        ({"components": csc_array(np.eye(2, 4))}, "'components' is a sparse matrix"),
        ({"digest": csc_array(np.eye(2, 4))}, "'digest' is a sparse matrix"),
        ({"mean": np.zeros(3)}, "must have 4"),
        ({"explained_variance": [1.0, -1.0]}, "negative"),
        ({"explained_variance": [1.0, np.nan]}, "finite"),
        ({"n_samples_seen": 2.5}, "whole"),
    ],
)
def test_mat_files_are_checked(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good = {
        "format": "online-psp-model",
        "version": 1,
        "components": np.eye(2, 4),
        "explained_variance": [2.0, 1.0],
        "mean": np.zeros(4),
        "n_samples_seen": 9,
    }
    savemat(tmp_path / "m.mat", good)
    assert OnlinePCA.load(tmp_path / "m.mat").n_features_in_ == 4
    savemat(tmp_path / "m.mat", good | change)
    with pytest.raises(ModelFileError, match=message):
        OnlinePCA.load(tmp_path / "m.mat")


def test_damaged_mat_files(tmp_path: Path) -> None:
    OnlinePCA(3).fit(rows(30, 6)).save(tmp_path / "m.mat")
    data = (tmp_path / "m.mat").read_bytes()
    for mutated in [data[:100], data[:300], data[:-8], b"", b"x" * 1000]:
        (tmp_path / "m.mat").write_bytes(mutated)
        with pytest.raises(ModelFileError):
            OnlinePCA.load(tmp_path / "m.mat")


def test_a_file_that_ends_after_any_variable_is_damaged(tmp_path: Path) -> None:
    """Variables that may be left out, such as `whiten`, are missed all the same: the checksum comes first."""
    path = tmp_path / "m.mat"
    OnlinePCA(3, whiten=True).fit(rows(30, 6)).save(path)
    data = path.read_bytes()
    at, ends = 128, []
    while at < len(data):
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
        ends.append(at)
    assert ends[-1] == len(data)
    for end in ends[:-1]:
        path.write_bytes(data[:end])
        with pytest.raises(ModelFileError):
            OnlinePCA.load(path)


def test_writing_is_repeatable_and_carries_a_digest(tmp_path: Path) -> None:
    model = OnlinePCA(3).fit(rows(300, 40))
    model.save(tmp_path / "a.mat")
    data = (tmp_path / "a.mat").read_bytes()
    time.sleep(1.1)
    model.save(tmp_path / "b.mat")
    assert data == (tmp_path / "b.mat").read_bytes()
    at = data.rindex(model.components_[1].tobytes()[:8])  # a value somewhere in the middle, changed in its last bits
    (tmp_path / "a.mat").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(ModelFileError, match="checksum"):
        OnlinePCA.load(tmp_path / "a.mat")


def by_hand(**changes: Any) -> dict[str, Any]:
    """The variables of a small model."""
    good = {
        "format": "online-psp-model",
        "version": 1,
        "components": np.eye(2, 4),
        "explained_variance": [2.0, 1.0],
        "mean": np.zeros(4),
        "n_samples_seen": 9,
    }
    return good | changes


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("compressed", [False, True])
def test_what_others_write_is_read(tmp_path: Path, kind: Any, compressed: bool) -> None:
    """SciPy writes numbers of every type; a column in place of a row, and variables that are no concern of ours, do no harm."""
    others = {"notes": "text", "table": {"a": 1}, "names": np.array(["a", "b"], dtype=object), "z": 1j}
    mean = np.arange(4).astype(kind)[:, np.newaxis]
    components = np.eye(2, 4).astype(kind)
    savemat(tmp_path / "m.mat", by_hand(mean=mean, components=components, **others), do_compression=compressed)
    model = OnlinePCA.load(tmp_path / "m.mat")
    assert model.mean_.tolist() == [0, 1, 2, 3]
    assert model.n_samples_seen_ == 9


def file_of(variables: Mapping[str, Array | str]) -> bytes:
    """A MAT file in which every element has a tag of eight bytes."""
    head = b"MATLAB 5.0 MAT-file, written by online-psp".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    return head + b"".join(_matrix(name, value) for name, value in variables.items())


def _matrix(name: str, value: Array | str) -> bytes:
    if isinstance(value, str):
        data = value.encode("utf-16-le", "replace")
        shape, kind, values = (1 if data else 0, len(data) // 2), 4, _tagged(4, data)
    else:
        array = np.asarray(value, dtype="<f8")
        shape, kind, values = (array.shape[0], array.shape[1]), 6, _tagged(9, array.tobytes(order="F"))
    flags = _tagged(6, struct.pack("<II", kind, 0))
    return _tagged(14, flags + _tagged(5, struct.pack("<ii", *shape)) + _tagged(1, name.encode("ascii")) + values)


def _tagged(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def test_the_other_byte_order(tmp_path: Path) -> None:
    values = np.arange(6.0).reshape(2, 3)
    data = file_of({"a": values, "b": "text"})
    assert read_variable(data, list_variables(data)["a"], 1000).tolist() == values.tolist()
    swapped = bytearray(data[:124] + data[124:126][::-1] + b"MI")
    at = 128
    while at < len(data):  # tags and values are of four and eight bytes here, and text of two
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        inside = data[at + 8 : at + 8 + length]
        swapped += b"".join(data[at + i : at + i + 4][::-1] for i in (0, 4))
        place = 0
        while place < length:
            kind, size = (int.from_bytes(inside[place + i : place + i + 4], "little") for i in (0, 4))
            width = {1: 1, 4: 2, 5: 4, 6: 4, 9: 8}[kind]
            body = inside[place + 8 : place + 8 + size]
            swapped += kind.to_bytes(4, "big") + size.to_bytes(4, "big")
            swapped += b"".join(body[i : i + width][::-1] for i in range(0, size, width)) + bytes(-size % 8)
            place += 8 + size + -size % 8
        at += 8 + length
    found = {name: read_variable(bytes(swapped), each, 1000) for name, each in list_variables(bytes(swapped)).items()}
    assert found["a"].tolist() == values.tolist()
    assert found["b"] == "text"


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """Zeros of 2 GB that compress to 2 MB: refused by what it says of itself, before it is unpacked."""
    import zlib

    head = struct.pack("<IIII", 6, 8, 6, 0) + struct.pack("<IIii", 5, 8, 1, 1 << 28) + struct.pack("<II", 1, 4) + b"mean\0\0\0\0"
    length = len(head) + 8 + (1 << 31)
    packer = zlib.compressobj()
    packed = packer.compress(struct.pack("<II", 14, length) + head + struct.pack("<II", 9, 1 << 31))
    zeros = bytes(1 << 20)
    for _ in range(64):  # the beginning of it will do
        packed += packer.compress(zeros)
    packed += packer.flush()
    OnlinePCA(3).fit(rows(30, 6)).save(tmp_path / "m.mat")
    start = (tmp_path / "m.mat").read_bytes()[:128]
    (tmp_path / "m.mat").write_bytes(start + struct.pack("<II", 15, len(packed)) + packed)
    with pytest.raises(ModelFileError, match="unpacks to more"):
        OnlinePCA.load(tmp_path / "m.mat")


@pytest.mark.parametrize("writer", ["ours", "compressed"])
def test_a_thousand_mutations(tmp_path: Path, writer: str) -> None:
    """Flips, cuts and other lengths: the library's own error, or, where there is no digest, a model that can be used."""
    path = tmp_path / "m.mat"
    OnlinePCA(3).fit(rows(60, 9)).save(path)
    if writer == "compressed":
        found = {name: value for name, value in loadmat(path).items() if name[0] != "_" and name != "digest"}
        savemat(path, found, do_compression=True)
    data = path.read_bytes()
    rng = np.random.default_rng(5)
    expected, X = OnlinePCA.load(path), rows(5, 9)
    loaded = 0
    for _ in range(1000):
        new = bytearray(data)
        kind = rng.integers(4)
        at = int(rng.integers(len(new)))
        if kind == 0:
            new[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            new[at : at + 4] = int(rng.integers(2**32)).to_bytes(4, "little")
        elif kind == 2:
            new = new[:at]
        else:
            new[at:at] = rng.bytes(int(rng.integers(1, 17)))
        path.write_bytes(new)
        try:
            model = OnlinePCA.load(path)
        except ModelFileError:
            continue
        loaded += 1
        if writer == "ours":
            assert np.array_equal(model.components_, expected.components_), "a damaged file gave another model"
        assert np.isfinite(model.transform(X)).all()
    assert loaded < 300
