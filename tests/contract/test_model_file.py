"""Model files: going on bit for bit, files that are damaged or made to deceive."""

from __future__ import annotations

import json
import math
import os
import resource
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from online_psp import ALGORITHMS, FSM, SM, OnlinePCA
from online_psp.algorithms import StreamingAlgorithm
from online_psp.engine.types import Array, Floats
from online_psp.io import model_file
from online_psp.io.model_file import Contents, ModelFileError
from online_psp.monitoring import Monitor
from tests.oracle import NAMES
from tests.pairs import Row, pairs, title


def rows(n: int, D: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, D)) * np.linspace(3, 0.1, D) + rng.standard_normal(D)


def feed(model: Any, X: Array, how: str) -> None:
    if how == "single":
        for x in X:
            model.fit_next(x)
    elif isinstance(model, OnlinePCA):
        model.partial_fit(X)
    else:
        model.fit_block(X)


def saved(model: Any, folder: Path) -> bytes:
    """Every array and number of the state, as the bytes of its file."""
    model.save(folder / "saved.psp")
    return (folder / "saved.psp").read_bytes()


# Going on


ALGORITHM_RUNS = pairs(
    {"name": NAMES, "D": (9, 60), "how": ("single", "block"), "dtype": ("float64", "float32"), "stop": (0, 3, 5, 37, 103)}
)


@pytest.mark.parametrize("run", ALGORITHM_RUNS, ids=title)
def test_an_algorithm_goes_on_bit_for_bit(tmp_path: Path, run: Row) -> None:
    kind: Any = ALGORITHMS[run["name"]]
    X: Array = rows(150, run["D"]).astype(run["dtype"])
    often, plain = (kind(5, run["D"], dtype=run["dtype"]) for _ in range(2))
    for model in (often, plain):
        feed(model, X[: run["stop"]], run["how"])
    assert saved(often, tmp_path) == saved(often, tmp_path), "saving is repeatable"
    assert os.listdir(tmp_path) == ["saved.psp"]
    loaded = kind.load(tmp_path / "saved.psp")
    assert repr(loaded) == repr(plain)
    for model in (often, plain, loaded):
        feed(model, X[run["stop"] :], run["how"])
    assert saved(often, tmp_path) == saved(plain, tmp_path), "saving changes nothing"
    assert saved(loaded, tmp_path) == saved(plain, tmp_path)
    assert loaded.get_components().tobytes() == plain.get_components().tobytes()


def test_what_else_a_model_has_is_kept(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(rows(80, 6), columns=list("abcdef"))
    model = OnlinePCA(0.8, oversample=5).fit(frame)
    model.save(tmp_path / "m.psp")
    loaded = OnlinePCA.load(tmp_path / "m.psp")
    assert list(loaded.feature_names_in_) == list("abcdef")
    assert loaded.n_components == 0.8
    np.testing.assert_array_equal(loaded.transform(frame), model.transform(frame))
    new = OnlinePCA(7)
    new.save(tmp_path / "new.psp")
    assert not OnlinePCA.load(tmp_path / "new.psp").__sklearn_is_fitted__()


def test_functions_are_not_stored_but_asked_for(tmp_path: Path) -> None:
    def rate(t: float) -> float:
        return 1.0 / (t + 9.0)

    X = rows(60, 50)
    model = FSM(3, 50, learning_rate=rate, beta=rate)
    feed(model, X[:40], "block")
    model.save(tmp_path / "m.psp")
    with pytest.raises(ModelFileError, match="pass learning_rate= when loading"):
        FSM.load(tmp_path / "m.psp")
    loaded = FSM.load(tmp_path / "m.psp", learning_rate=rate, beta=rate)
    feed(model, X[40:], "block")
    feed(loaded, X[40:], "block")
    assert model.get_components().tobytes() == loaded.get_components().tobytes()
    FSM(3, 50).save(tmp_path / "m.psp")
    with pytest.raises(ModelFileError, match="without a function as learning_rate"):
        FSM.load(tmp_path / "m.psp", learning_rate=rate)


def test_the_wrong_class_is_named(tmp_path: Path) -> None:
    FSM(3, 5).save(tmp_path / "fsm.psp")
    OnlinePCA(3).fit(rows(9, 5)).save(tmp_path / "pca.psp")
    assert isinstance(StreamingAlgorithm.load(tmp_path / "fsm.psp"), FSM)
    with pytest.raises(ModelFileError, match=r"FSM\.load"):
        SM.load(tmp_path / "fsm.psp")
    with pytest.raises(ModelFileError, match="not an OnlinePCA"):
        OnlinePCA.load(tmp_path / "fsm.psp")
    with pytest.raises(ModelFileError, match=r"OnlinePCA\.load"):
        FSM.load(tmp_path / "pca.psp")
    with pytest.raises(FileNotFoundError):
        OnlinePCA.load(tmp_path / "none.psp")


# The file itself


def test_it_is_a_safetensors_file(tmp_path: Path) -> None:
    OnlinePCA(3).fit(rows(50, 8)).save(tmp_path / "m.psp")
    with safe_open(tmp_path / "m.psp", "numpy") as file:
        header = json.loads(file.metadata()["online-psp"])
        assert file.get_tensor("stream.moments.mean").shape == (8,)
    assert header["format"] == "online-psp-model"
    assert header["version"] == model_file.VERSION


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "m.psp"
    OnlinePCA(3).fit(rows(50, 8)).save(path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            OnlinePCA(30).fit(rows(500, 200)).save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.psp"]


def mutations(data: bytes, count: int, seed: int) -> list[bytes]:
    """Flips, truncations, extensions, swaps, and edits of the header's text and numbers."""
    rng = np.random.default_rng(seed)
    header = 8 + struct.unpack("<Q", data[:8])[0]
    digits = [i for i in range(8, header) if chr(data[i]).isdigit()]
    words = [
        b'"F64"',
        b'"K"',
        b'"D"',
        b"state",
        b"shape",
        b"data_offsets",
        b"streaming",
        b"auto",
        b"version",
        b"mean",
        b"null",
        b"false",
        b"fsm",
    ]
    found = []
    for _ in range(count):
        new = bytearray(data)
        kind = rng.integers(8)
        if kind == 0:
            new[rng.integers(len(new))] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            new[rng.integers(header)] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            new = new[: rng.integers(len(new))]
        elif kind == 3:
            new[digits[rng.integers(len(digits))]] = ord(str(rng.integers(10)))
        elif kind == 4:
            at = digits[rng.integers(len(digits))]
            new[at : at + 1] = str(rng.integers(10**18)).encode()
            new[:8] = struct.pack("<Q", header - 8 + len(new) - len(data))
        elif kind == 5:
            word = words[rng.integers(len(words))]
            new = bytearray(data.replace(word, words[rng.integers(len(words))], 1))
            new[:8] = struct.pack("<Q", header - 8 + len(new) - len(data))
        elif kind == 6:
            new += rng.bytes(int(rng.integers(1, 50)))
        else:
            new[:8] = struct.pack("<Q", int(rng.integers(2**63)) >> int(rng.integers(63)))
        found.append(bytes(new))
    return found


def try_to_load(load: Callable[[], Any], size: int) -> Any:
    """The model, or None if the library's own error was raised; memory is bounded by the size of the file either way."""
    tracemalloc.start()
    try:
        return load()
    except ModelFileError:
        return None
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 20 * size + 1_000_000


@pytest.mark.parametrize("seed", range(4))
def test_six_hundred_mutations(tmp_path: Path, seed: int) -> None:
    """150 of them for each of four models: each loads to the identical model or raises the library's own error."""
    model = [OnlinePCA(3), OnlinePCA(2, oversample=0), OnlinePCA(3, missing="impute"), OnlinePCA(2, robust=True)][seed]
    for x in rows(45, 9 if seed == 2 else 60):
        model.fit_next(x)
    path = tmp_path / "m.psp"
    model.save(path)
    data = path.read_bytes()
    loaded = 0
    for i, mutated in enumerate(mutations(data, 150, seed)):
        path.write_bytes(mutated)
        found = try_to_load(lambda: OnlinePCA.load(path), len(data))
        if found is not None:
            loaded += 1
            found.save(tmp_path / "again.psp")
            assert (tmp_path / "again.psp").read_bytes() == data, f"mutation {i} gave another model"
    assert loaded < 30


@pytest.mark.parametrize("single", [False, True])
def test_numbers_that_overflow_in_a_decomposition_are_said_in_our_words(single: bool) -> None:
    model, X = SM(3, 6, M0=1e-202 * np.eye(3)), rows(400, 6)

    def learn() -> None:
        for part in X if single else [X]:
            (model.fit_next if single else model.fit_block)(part)
        model.get_components()

    with np.errstate(all="ignore"), pytest.raises(ValueError, match="The model is no longer finite"):
        learn()


def test_errors_of_a_function_of_the_users_keep_their_words() -> None:
    def rate(t: int) -> float:
        np.linalg.inv(np.zeros((2, 2)))
        return 0.1

    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        SM(3, 6, learning_rate=rate).fit_block(rows(20, 6))


@pytest.mark.parametrize("alpha", [1e-200, 1e-17])
def test_a_level_that_no_limit_can_have(alpha: float) -> None:
    """1 − alpha is 1 there, and the limit of T² infinite: no row would ever be an outlier."""
    with pytest.raises(ValueError, match="alpha must be a probability"):
        Monitor(OnlinePCA(2), alpha=alpha)


def test_versions_and_foreign_files(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "m.psp"
    OnlinePCA(3).fit(rows(50, 8)).save(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b'\\"version\\":%d' % model_file.VERSION, b'\\"version\\":7'))
    with pytest.raises(ModelFileError, match=r"version 7.*upgrade"):
        OnlinePCA.load(path)
    save_file({"x": np.zeros(3)}, path)
    with pytest.raises(ModelFileError, match="not written by this library"):
        OnlinePCA.load(path)
    nested = b'{"a":' + b"[" * 200_000
    for text in (b"", b"PK\x03\x04" + b"\0" * 500, b"\x80\x04\x95" + b"x" * 900, struct.pack("<Q", len(nested)) + nested):
        path.write_bytes(text)
        with pytest.raises(ModelFileError):
            OnlinePCA.load(path)
    with pytest.raises(IsADirectoryError):
        OnlinePCA.load(tmp_path)


def test_many_arrays(tmp_path: Path) -> None:
    arrays = {f"array {i:06}": np.asfortranarray(np.arange(6.0).reshape(2, 3)) for i in range(1000)}
    model_file.write(tmp_path / "m.psp", Contents("x", arrays, {}, {}))
    found = model_file.read(tmp_path / "m.psp")
    assert all(np.array_equal(found.arrays[name], array) for name, array in arrays.items())


def test_what_cannot_be_read_again_is_not_written(tmp_path: Path) -> None:
    for state in ({"n": 10**30}, {"n": math.nan}, {"n": 1e300, "m": [10**400]}):
        with pytest.raises(ValueError, match=r"JSON"):
            model_file.write(tmp_path / "m.psp", Contents("x", {}, state, {}))
    with pytest.raises(ValueError, match="cannot be saved"):
        model_file.write(tmp_path / "m.psp", Contents("x", {}, {"n": "x" * 600_000}, {}))
    assert os.listdir(tmp_path) == []
