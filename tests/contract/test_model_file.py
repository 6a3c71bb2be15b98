"""Model files: going on bit for bit, files that are damaged or made to deceive."""

from __future__ import annotations

import copy
import json
import os
import pickle
import resource
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from online_psp import ALGORITHMS, FSM, SM, OnlinePCA
from online_psp.algorithms import StreamingAlgorithm
from online_psp.engine.types import Array, Floats
from online_psp.io import model_file
from online_psp.io.model_file import ModelFileError
from online_psp.metrics import subspace_error
from tests import DATA
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
    {
        "name": NAMES,
        "D": (9, 60),
        "how": ("single", "block"),
        "dtype": ("float64", "float32"),
        "stop": (0, 3, 5, 37, 103),
        "start": (False, True),
        "way": ("file", "file of a subclass", "pickle", "deep copy", "copy"),
    }
)
STARTS: dict[str, dict[str, Any]] = {
    "fsm": {"Minv0": np.diag([9.0, 8.0, 7.0, 6.0, 5.0])},
    "sm": {"M0": np.diag([0.1, 0.2, 0.3, 0.4, 0.5])},
    "ipca": {"sigma2_0": [5.0, 4.0, 3.0, 2.0, 1.0]},
    "ccipca": {"sigma2_0": "data"},
}


@pytest.mark.parametrize("run", ALGORITHM_RUNS, ids=title)
def test_an_algorithm_goes_on_bit_for_bit(tmp_path: Path, run: Row) -> None:
    """Also with a start that is not needed yet. Saving, reading and the twin's learning change nothing."""
    cls: Any = ALGORITHMS[run["name"]]
    kind: Any = type("Mine", (cls,), {"__doc__": "An algorithm of one's own."}) if "subclass" in run["way"] else cls
    X: Array = rows(150, run["D"]).astype(run["dtype"])
    often, plain = (kind(5, run["D"], dtype=run["dtype"], **(STARTS[run["name"]] if run["start"] else {})) for _ in range(2))
    for model in (often, plain):
        feed(model, X[: run["stop"]], run["how"])
    if "file" in run["way"]:
        assert saved(often, tmp_path) == saved(often, tmp_path), "saving is repeatable"
        twin = kind.load(tmp_path / "saved.psp")
        assert type(twin) is kind
        assert type(cls.load(tmp_path / "saved.psp")) is cls
    else:
        twin = {"pickle": lambda model: pickle.loads(pickle.dumps(model)), "deep copy": copy.deepcopy, "copy": copy.copy}[run["way"]](often)
    assert repr(twin) == repr(plain)
    feed(twin, X[run["stop"] :], run["how"])
    for x in X[run["stop"] :]:
        often.get_components()
        if run["how"] == "single":
            often.fit_next(x)
    if run["how"] == "block":
        often.fit_block(X[run["stop"] :])
    feed(plain, X[run["stop"] :], run["how"])
    for model, what in ((often, "reading or a copy changed the model"), (twin, f"a {run['way']} goes on otherwise")):
        assert saved(model, tmp_path) == saved(plain, tmp_path), what
        assert model.get_components().tobytes() == plain.get_components().tobytes(), what


def test_what_else_a_model_has_is_kept(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(rows(80, 6), columns=list("abcdef"))
    model = OnlinePCA(0.8, oversample=5).fit(frame)
    model.save(tmp_path / "m.psp")
    loaded = OnlinePCA.load(tmp_path / "m.psp")
    assert list(loaded.feature_names_in_) == list("abcdef")
    assert loaded.n_components == 0.8
    np.testing.assert_array_equal(loaded.transform(frame), model.transform(frame))
    timed = OnlinePCA(2, half_life=np.timedelta64(5_000_000_000, "ns"))
    timed.save(tmp_path / "timed.psp")
    assert OnlinePCA.load(tmp_path / "timed.psp").half_life == "5.0s"
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
    model = OnlinePCA(3).fit(rows(50, 8))
    model.save(tmp_path / "m.psp")
    with safe_open(tmp_path / "m.psp", "numpy") as file:
        header = json.loads(file.metadata()["online-psp"])
        assert any(np.array_equal(file.get_tensor(name), rows(50, 8)) for name in file.keys())  # noqa: SIM118
    assert header["format"] == "online-psp-model"


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


def damaged(data: bytes, chance: np.random.Generator) -> bytes:
    """The file with a bit flipped, a digit of its header changed, its end cut off, or something after its end."""
    new, header = bytearray(data), 8 + struct.unpack("<Q", data[:8])[0]
    kind = chance.integers(5)
    if kind == 0:
        return bytes(new[: chance.integers(len(new))])
    if kind == 1:
        return bytes(new) + chance.bytes(int(chance.integers(1, 50)))
    if kind == 2:
        digits = [i for i in range(8, header) if chr(data[i]).isdigit()]
        new[chance.choice(digits)] = ord(str(chance.integers(10)))
    else:
        new[chance.integers(header if kind == 3 else len(new))] ^= 1 << int(chance.integers(8))
    return bytes(new)


@pytest.mark.parametrize("model", [OnlinePCA(3), OnlinePCA(3, missing="impute", robust=True), FSM(3)], ids=repr)
def test_damaged_files_are_refused_or_harmless(tmp_path: Path, model: Any) -> None:
    """Each loads to the identical model or raises the library's own error, in memory bounded by the size of the file."""
    for x in rows(45, 60):
        model.fit_next(x)
    data, load = saved(model, tmp_path), type(model).load
    chance, path, loaded = np.random.default_rng(3), tmp_path / "m.psp", 0
    for _ in range(150):
        path.write_bytes(damaged(data, chance))
        tracemalloc.start()
        try:
            assert saved(load(path), tmp_path) == data, "another model was loaded"
            loaded += 1
        except ModelFileError:
            pass
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 20 * len(data) + 1_000_000
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


def test_versions_and_foreign_files(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "m.psp"
    OnlinePCA(3).fit(rows(50, 8)).save(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b'\\"version\\": %d' % model_file.VERSION, b'\\"version\\": 7'))
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


@pytest.mark.parametrize("name", ["model.mean", "model.basis", "buffer.rows"])
def test_shapes_must_go_together(tmp_path: Path, name: str) -> None:
    """Compiled kernels do not look where an array ends."""
    path = tmp_path / "m.psp"
    OnlinePCA(3, oversample=3).fit(rows(450, 70)).save(path)
    found = model_file.read(path)
    model_file.write(path, found._replace(arrays={**found.arrays, name: found.arrays[name][..., :-1]}))
    with pytest.raises(ModelFileError, match="cannot be used as a model"):
        OnlinePCA.load(path)


# Files of this format, written once, still load and go on


def model_of(name: str) -> Any:
    """The model of a frozen file, made anew."""
    rng = np.random.default_rng(11)
    X = rng.standard_normal((400, 70)) * np.linspace(3, 0.1, 70) + 1.0
    model = ALGORITHMS[name](4, 70)
    model.fit_block(X[:60])
    feed(model, X[60:67], "single")
    return model


@pytest.mark.parametrize("name", NAMES)
def test_frozen_files_are_read_for_ever(name: str) -> None:
    frozen, fresh = ALGORITHMS[name].load(DATA / "models" / f"{name}.psp"), model_of(name)
    X = np.random.default_rng(12).standard_normal((90, 70)) * np.linspace(3, 0.1, 70) + 1.0
    for model in (frozen, fresh):
        model.fit_block(X)
    error = subspace_error(frozen.get_components(), fresh.get_components())
    assert error < 1e-6, f"it went on {error:.1e} from a model made now"


ONLINE: dict[str, dict[str, Any]] = {
    "few": {"n_components": 20},
    "many": {"n_components": 3, "oversample": 3},
    "all": {
        "n_components": 3,
        "oversample": 3,
        "half_life": 200,
        "missing": "impute",
        "robust": True,
        "standardize": True,
        "axes": "stable",
    },
}


def online(name: str) -> tuple[OnlinePCA, Floats]:
    """The model of a frozen file of OnlinePCA, made anew, and rows to go on with."""
    X = np.random.default_rng(13).standard_normal((900, 70)) * np.linspace(3, 0.1, 70) + 1.0
    if name == "all":
        X[np.random.default_rng(14).random(X.shape) < 0.1] = np.nan
    return OnlinePCA(**ONLINE[name]).fit(X[:450]), X[450:]


@pytest.mark.parametrize("name", ONLINE)
def test_frozen_files_of_online_pca_are_read_for_ever(name: str) -> None:
    fresh, X = online(name)
    frozen = OnlinePCA.load(DATA / "models" / f"online_{name}.psp").partial_fit(X)
    error = subspace_error(frozen.components_.T, fresh.partial_fit(X).components_.T)
    assert error < 1e-6, f"it went on {error:.1e} from a model made now"


if __name__ == "__main__":  # writes the frozen files: only ever once for a format
    for each in NAMES:
        model_of(each).save(DATA / "models" / f"{each}.psp")
    for each in ONLINE:
        online(each)[0].save(DATA / "models" / f"online_{each}.psp")
