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
from scipy import sparse

from online_psp import ALGORITHMS, FSM, IPCA, SM, OnlinePCA
from online_psp.algorithms import StreamingAlgorithm
from online_psp.engine.types import Array, Floats
from online_psp.io import model_file, runs
from online_psp.io.model_file import Contents, ModelFileError
from online_psp.monitoring import Monitor
from tests.oracle import LEARNERS, NAMES


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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("how", ["single", "block"])
@pytest.mark.parametrize("D", [9, 60])
@pytest.mark.parametrize("name", NAMES)
def test_an_algorithm_goes_on_bit_for_bit(tmp_path: Path, name: str, D: int, how: str, dtype: Any) -> None:
    X: Array = rows(150, D).astype(dtype)
    for stop in (0, 3, 5, 37, 103):
        model, path = ALGORITHMS[name](5, D, dtype=dtype), tmp_path / "m.psp"
        feed(model, X[:stop], how)
        model.save(path)
        kind: Any = ALGORITHMS[name]
        loaded = kind.load(path)
        feed(model, X[stop:], how)
        feed(loaded, X[stop:], how)
        assert saved(model, tmp_path) == saved(loaded, tmp_path)
        assert model.get_components().tobytes() == loaded.get_components().tobytes()
        assert repr(loaded) == repr(model)


@pytest.mark.parametrize("options", [{}, {"center": False}, {"whiten": True}, {"dtype": np.float32}, {"oversample": 0, "block_size": 7}])
@pytest.mark.parametrize("how", ["single", "block"])
@pytest.mark.parametrize("D", [9, 150])
@pytest.mark.parametrize("name", LEARNERS)
def test_an_online_pca_goes_on_bit_for_bit(tmp_path: Path, name: str, D: int, how: str, options: dict[str, Any]) -> None:
    X = rows(200, D)
    for stop in (1, 20, 87, 131):
        model, path = OnlinePCA(3, algorithm=name, **options), tmp_path / "m.psp"
        feed(model, X[:stop], how)
        model.save(path)
        loaded = OnlinePCA.load(path)
        assert loaded.get_params() == {**model.get_params(), "dtype": options.get("dtype") and np.dtype(options["dtype"]).name}
        if how == "single":
            outputs = [[each.fit_next(x) for x in X[stop:]] for each in (model, loaded)]
            assert np.array(outputs[0]).tobytes() == np.array(outputs[1]).tobytes()
        else:
            feed(model, X[stop:], how)
            feed(loaded, X[stop:], how)
        loaded.dtype = model.dtype
        assert saved(model, tmp_path) == saved(loaded, tmp_path)
        assert model.transform(X).tobytes() == loaded.transform(X).tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_saving_changes_nothing_and_is_repeatable(tmp_path: Path, name: str) -> None:
    X = rows(100, 60)
    often, plain = ALGORITHMS[name](4, 60), ALGORITHMS[name](4, 60)
    for x in X[:-1]:
        often.fit_next(x)
        plain.fit_next(x)
        assert saved(often, tmp_path) == saved(often, tmp_path)
    assert often.fit_next(X[-1]).tobytes() == plain.fit_next(X[-1]).tobytes()
    assert saved(often, tmp_path) == saved(plain, tmp_path)
    assert os.listdir(tmp_path) == ["saved.psp"]


def test_reading_out_does_not_disturb_what_follows() -> None:
    X = rows(700, 12)
    looked, plain = OnlinePCA(3), OnlinePCA(3)
    for part in np.array_split(X, 13):
        looked.partial_fit(part)
        assert looked.explained_variance_.all()
        plain.partial_fit(part)
    assert looked.components_.tobytes() == plain.components_.tobytes()


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
def test_two_thousand_mutations(tmp_path: Path, seed: int) -> None:
    """500 of them for each of four models: each loads to the identical model or raises the library's own error."""
    model = [OnlinePCA(3), OnlinePCA(3, algorithm="ipca"), OnlinePCA(3), OnlinePCA(2, algorithm="sm", oversample=0)][seed]
    for x in rows(45, 9 if seed == 2 else 60):
        model.fit_next(x)
    path = tmp_path / "m.psp"
    model.save(path)
    data = path.read_bytes()
    loaded = 0
    for i, mutated in enumerate(mutations(data, 500, seed)):
        path.write_bytes(mutated)
        found = try_to_load(lambda: OnlinePCA.load(path), len(data))
        if found is not None:
            loaded += 1
            found.save(tmp_path / "again.psp")
            assert (tmp_path / "again.psp").read_bytes() == data, f"mutation {i} gave another model"
    assert loaded < 100


def edits(value: Any, rng: np.random.Generator) -> Any:
    """Another JSON value in its place."""
    others = [
        None,
        True,
        -1,
        0,
        1,
        2,
        10**9,
        2**53,
        10**30,
        0.5,
        1e300,
        -3.5,
        "",
        "auto",
        "float32",
        "scatter",
        "kept",
        "ccipca",
        [],
        {},
        [1],
        {"a": 1},
    ]
    return others[rng.integers(len(others))]


def leaves(value: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        return [leaf for key in value for leaf in leaves(value[key], (*at, key))]
    return [at]


@pytest.mark.parametrize("seed", range(3))
def test_files_made_on_purpose(tmp_path: Path, seed: int) -> None:
    """The checksum is right and the contents are not: still the library's own error, or a model that has the shapes it says."""
    rng = np.random.default_rng(seed)
    model: Any = [OnlinePCA(3), OnlinePCA(3, algorithm="ccipca"), FSM(4)][seed]
    feed(model, rows(49, 60), "single")
    path = tmp_path / "m.psp"
    model.save(path)
    original = model_file.read(path)
    size = path.stat().st_size
    places = leaves(original.state)
    for _ in range(300):
        arrays, state = dict(original.arrays), json.loads(json.dumps(original.state))
        if rng.random() < 0.3:
            name = list(arrays)[rng.integers(len(arrays))]
            change = rng.integers(4)
            if change == 0:
                del arrays[name]
            elif change == 1:
                arrays[name] = arrays[name][..., :-1]
            elif change == 2:
                arrays[name] = arrays[name].astype(np.float32 if arrays[name].dtype == np.float64 else np.float64)
            else:
                arrays[name] = np.full_like(arrays[name], np.nan)
        else:
            at, inside = places[rng.integers(len(places))], state
            for key in at[:-1]:
                inside = inside[key]
            inside[at[-1]] = edits(inside[at[-1]], rng)
        try:
            model_file.write(path, Contents(original.kind, arrays, state, {}))
        except ModelFileError:  # what could not be read again is not written
            continue
        found = try_to_load(lambda: type(model).load(path), size)
        if found is not None:
            found.fit_next(rows(1, 60)[0])


def forged(path: Path, array: str | None = None, values: Any = None, **options: float) -> None:
    """Change one array of a model file, or options of its algorithm, and sign it again."""
    found = model_file.read(path)
    arrays = dict(found.arrays)
    if array is not None:
        arrays[array] = np.full_like(arrays[array], values)
    state = {**found.state, "options": {**found.state["options"], **options}} if options else found.state
    model_file.write(path, Contents(found.kind, arrays, state, found.run))


@pytest.mark.parametrize(
    ("options", "n", "array", "value"),
    [
        ({}, 30, "stream.scatter.rows", 1e150),
        ({}, 30, "stream.scatter.rows", 1e-308),
        ({}, 30, "stream.moments.mean", -1e308),
        ({"dtype": "float32", "robust": True}, 3, "stream.careful.rows", 1e20),
        ({"robust": True, "standardize": True}, 3, "stream.careful.rows", 1e-308),
        ({"missing": "impute"}, 30, "stream.moments.variance", 1e300),
        ({"robust": True}, 500, "stream.careful.known", 1e308),
        ({"robust": True}, 500, "stream.careful.pairs.products", 1e308),
    ],
)
def test_numbers_that_no_rows_lead_to(tmp_path: Path, options: dict[str, Any], n: int, array: str, value: float) -> None:
    """Finite, and yet their squares overflow, so that coordinates would be infinite, and not a word."""
    path = tmp_path / "m.psp"
    OnlinePCA(2, **options).fit(rows(n, 6)).save(path)
    forged(path, array, value)
    with pytest.raises(ModelFileError, match=r"(larger|smaller) than any"):
        OnlinePCA.load(path)


def test_weights_that_cancel_give_no_directions(tmp_path: Path) -> None:
    """The rows weigh nothing beside what is said to be known of their features."""
    path = tmp_path / "m.psp"
    OnlinePCA(3, robust=True, standardize=True).fit(rows(3, 60)).save(path)
    forged(path, "stream.careful.known", 0.5)
    forged(path, "stream.careful.weights", 1e-308)
    model = OnlinePCA.load(path)
    with pytest.raises(ValueError, match="covariances of the model are not finite"):
        model.components_  # noqa: B018


@pytest.mark.parametrize("name", ["sums", "place"])
def test_sums_of_pairs_whose_squares_overflow(name: str, tmp_path: Path) -> None:
    X = rows(60, 6)
    X[::7, 2] = np.nan
    OnlinePCA(2, missing="impute").fit(X).save(tmp_path / "m.psp")
    forged(tmp_path / "m.psp", f"stream.careful.pairs.{name}", 1e200)
    with pytest.raises(ModelFileError, match="sums that are larger than any"):
        OnlinePCA.load(tmp_path / "m.psp")


@pytest.mark.parametrize("single", [False, True])
def test_numbers_that_overflow_in_a_decomposition_are_said_in_our_words(single: bool) -> None:
    model, X = SM(3, 6, M0=1e-202 * np.eye(3)), rows(400, 6)

    def learn() -> None:
        for part in X if single else [X]:
            (model.fit_next if single else model.fit_block)(part)
        model.get_components()

    with np.errstate(all="ignore"), pytest.raises(ValueError, match="The model is no longer finite"):
        learn()


@pytest.mark.parametrize("single", [False, True])
def test_numbers_that_overflow_in_a_decomposition_of_a_kernel_are_said_in_our_words(single: bool) -> None:
    model, X = IPCA(2, 6), rows(40, 6)
    model.fit_block(X[:20])
    model._S[:] = np.inf  # by steps that were too large, or by a file that passes its checks
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="The model is no longer finite"):
        _ = model.fit_next(X[20]) if single else model.fit_block(X[20:])


def test_errors_of_a_function_of_the_users_keep_their_words() -> None:
    def rate(t: int) -> float:
        np.linalg.inv(np.zeros((2, 2)))
        return 0.1

    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        SM(3, 6, learning_rate=rate).fit_block(rows(20, 6))


def test_axes_that_are_longer_than_any(tmp_path: Path) -> None:
    OnlinePCA(2, axes="stable").fit(rows(200, 60)).save(tmp_path / "m.psp")
    forged(tmp_path / "m.psp", "stream.axes", 1e308)
    with pytest.raises(ModelFileError, match="axes are longer than any"):
        OnlinePCA.load(tmp_path / "m.psp")


def test_variances_that_have_faded_to_nothing_explain_no_more_than_all(tmp_path: Path) -> None:
    OnlinePCA(2, axes="stable").fit(rows(3, 6)).save(tmp_path / "m.psp")
    forged(tmp_path / "m.psp", "stream.scatter.matrix", 5e-324)
    model = OnlinePCA.load(tmp_path / "m.psp")
    assert model.explained_variance_ratio_.sum() <= 1.0, f"{model.explained_variance_ratio_.sum()} of the variance is explained"


def test_a_running_sum_of_rows_that_weigh_next_to_nothing(tmp_path: Path) -> None:
    OnlinePCA(2).fit(sparse.csr_array(rows(200, 60))).save(tmp_path / "m.psp")
    found = model_file.read(tmp_path / "m.psp")
    state = json.loads(json.dumps(found.state))
    assert state["stream"]["moments"]["parts"]["weight"] == 200.0
    state["stream"]["moments"]["parts"]["weight"] = 1e-320
    model_file.write(tmp_path / "m.psp", found._replace(state=state))
    with pytest.raises(ModelFileError, match="larger than any that are learned"):
        OnlinePCA.load(tmp_path / "m.psp")


def test_groups_of_features_that_are_no_numbers_of_features(tmp_path: Path) -> None:
    OnlinePCA(3, robust=True).fit(rows(30, 6)).save(tmp_path / "m.psp")
    forged(tmp_path / "m.psp", "stream.careful.groups", 0.5)
    with pytest.raises(ModelFileError, match="groups of features"):
        OnlinePCA.load(tmp_path / "m.psp")


@pytest.mark.filterwarnings("ignore:robust=True")
def test_variances_whose_squares_overflow_are_a_sentence(tmp_path: Path) -> None:
    """Weights, decays and rows so small that their quotients are huge: the end was an OverflowError."""
    OnlinePCA(2, robust=True, half_life="3min").fit(rows(100, 6), times=np.arange(100.0)).save(tmp_path / "m.psp")
    for array in ("weights", "decays", "rows"):
        kept = model_file.read(tmp_path / "m.psp").arrays[f"stream.careful.{array}"]
        forged(tmp_path / "m.psp", f"stream.careful.{array}", 1e-150 * kept)
    model = OnlinePCA.load(tmp_path / "m.psp")
    model.partial_fit(rows(3, 6), times=100.0 + np.arange(3.0))
    with pytest.raises(ValueError, match="no longer finite"):
        model.components_  # noqa: B018


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [("history", "iterations", 1e300), ("fd", "sketch", 2.0**53), ("oja", "scale", 1e300), ("gha", "variance", 1e-300)],
)
def test_options_that_never_end_or_overflow(tmp_path: Path, name: str, option: str, value: float) -> None:
    model = ALGORITHMS[name](2, 6)
    model.fit_block(rows(20, 6))
    model.save(tmp_path / "m.psp")
    forged(tmp_path / "m.psp", None, None, **{option: value})
    with pytest.raises(ModelFileError, match="impossible"):
        ALGORITHMS[name].load(tmp_path / "m.psp")


@pytest.mark.parametrize(("name", "array"), [("gha", "U"), ("gha", "Z"), ("history", "variances"), ("block", "B")])
def test_a_state_that_is_larger_than_any(tmp_path: Path, name: str, array: str) -> None:
    model = ALGORITHMS[name](2, 6)
    model.fit_block(rows(20, 6))
    model.save(tmp_path / "m.psp")
    forged(tmp_path / "m.psp", f"state.running.{array}", 1e308)
    with pytest.raises(ModelFileError, match=r"(longer|larger) than any"):
        ALGORITHMS[name].load(tmp_path / "m.psp")


@pytest.mark.parametrize(
    ("array", "value"), [("components", 1e300), ("mean", 1e308), ("variances", 0.0), ("variances", 1e-308), ("scale", 1e-308)]
)
def test_a_monitor_that_scores_by_the_impossible(tmp_path: Path, array: str, value: float) -> None:
    """Scores would be infinite."""
    monitor = Monitor(OnlinePCA(2, standardize=True))
    monitor.update(rows(100, 6))
    monitor.save(tmp_path / "m.psp")
    forged(tmp_path / "m.psp", f"learned.judge.seen.{array}", value)
    with pytest.raises(ModelFileError, match="what it scores rows by"):
        Monitor.load(tmp_path / "m.psp")


@pytest.mark.parametrize("alpha", [1e-200, 1e-17])
def test_a_level_that_no_limit_can_have(tmp_path: Path, alpha: float) -> None:
    """1 − alpha is 1 there, and the limit of T² infinite: no row would ever be an outlier."""
    with pytest.raises(ValueError, match="alpha must be a probability"):
        Monitor(OnlinePCA(2), alpha=alpha)
    monitor = Monitor(OnlinePCA(2))
    monitor.update(rows(100, 6))
    monitor.save(tmp_path / "m.psp")
    found = model_file.read(tmp_path / "m.psp")
    state = {**found.state, "parameters": {**found.state["parameters"], "alpha": alpha}}
    model_file.write(tmp_path / "m.psp", found._replace(state=state))
    with pytest.raises(ModelFileError, match="alpha must be a probability"):
        Monitor.load(tmp_path / "m.psp")


def test_a_monitor_whose_rows_are_later_than_its_last(tmp_path: Path) -> None:
    """Rows would be weighted by a negative age."""
    monitor = Monitor(OnlinePCA(2, half_life="3min"))
    monitor.update(rows(100, 6), np.arange(100.0))
    monitor.save(tmp_path / "m.psp")
    assert Monitor.load(tmp_path / "m.psp").n_rows == 100
    found = model_file.read(tmp_path / "m.psp")
    state = json.loads(json.dumps(found.state))
    state["learned"]["judge"]["last_time"] = 1e103
    model_file.write(tmp_path / "m.psp", found._replace(state=state))
    with pytest.raises(ModelFileError, match="later than that of its last row"):
        Monitor.load(tmp_path / "m.psp")


def test_shares_with_hardly_a_digit(tmp_path: Path) -> None:
    """The components would explain more than all of the variance."""
    OnlinePCA(3).fit(rows(30, 60)).save(tmp_path / "m.psp")
    forged(tmp_path / "m.psp", "stream.scatter.shares", 5e-324)
    with pytest.raises(ModelFileError, match="shares that are not between 0 and 1"):
        OnlinePCA.load(tmp_path / "m.psp")


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("sizes", 3),
        ("sizes", ["3"]),
        ("names", "x.npy"),
        ("names", [3]),
        ("files", "one"),
        ("schema", {"feature_names": [1, "a"]}),
        ("digests", {"one": None}),
        ("digests", {"0": {"first": [0, 2**50, "00"], "last": None}}),
        ("digests", {"0": 3}),
    ],
)
def test_a_source_that_is_known_by_the_impossible(tmp_path: Path, entry: str, value: Any) -> None:
    """A run that is resumed compares its source with it."""
    path = tmp_path / "m.psp"
    runs.fit_stream(rows(100, 6), path, OnlinePCA(2), block=50)
    found = model_file.read(path)
    assert runs.reopen(path).row == 100
    model_file.write(path, found._replace(run={**found.run, "identity": {**found.run["identity"], entry: value}}))
    with pytest.raises(ModelFileError, match="holds no run that can be resumed"):
        runs.reopen(path)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("name", ["sm", "grouse", "adaoja"])
def test_principal_components_that_are_not_finite_are_not_handed_out(tmp_path: Path, name: str) -> None:
    """A basis whose squares overflow is a sentence of ours, not of some library, and never infinity."""
    model = ALGORITHMS[name](2, 6)
    model.fit_block(rows(40, 6))
    model.save(tmp_path / "m.psp")
    basis = max((each for each in model_file.read(tmp_path / "m.psp").arrays.items() if each[1].shape in ((6, 2), (2, 6))), key=str)[0]
    forged(tmp_path / "m.psp", basis, 1e200)
    with pytest.raises(ValueError, match=r"no longer finite|longer than any"):
        ALGORITHMS[name].load(tmp_path / "m.psp").principal_components()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_not_handed_out(value: float) -> None:
    """Whatever led there: steps that are too large, or a file that passes its checks."""
    model = ALGORITHMS["oja"](2, 6)
    model.fit_block(rows(20, 6))
    model._components = lambda _: np.full((6, 2), value)
    with pytest.raises(ValueError, match="no longer finite"):
        model.get_components()


def test_a_count_that_no_longer_counts(tmp_path: Path) -> None:
    """Beyond 2⁵³ a float does not tell t from t + 1."""
    model = ALGORITHMS["isvd"](2, 6)
    model.fit_block(rows(20, 6))
    model.save(tmp_path / "m.psp")
    found = model_file.read(tmp_path / "m.psp")
    state = {**found.state, "state": {**found.state["state"], "t": 2**53}}
    model_file.write(tmp_path / "m.psp", found._replace(state=state))
    with pytest.raises(ModelFileError, match="'t' is out of range"):
        ALGORITHMS["isvd"].load(tmp_path / "m.psp")


def test_versions_and_foreign_files(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "m.psp"
    OnlinePCA(3).fit(rows(50, 8)).save(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b'\\"version\\":%d' % model_file.VERSION, b'\\"version\\":7'))
    with pytest.raises(ModelFileError, match="version 7 of the format, and this library knows versions up to 2; upgrade"):
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


# Files made to deceive: the container


def signed(path: Path, text: str, arrays: dict[str, Any] | None = None) -> None:
    """A file whose header is this text, word for word; ``DIGEST`` in it becomes the right checksum where it can be told."""
    from safetensors.numpy import save_file

    stored = {} if arrays is None else arrays
    try:
        header = json.loads(text.replace("DIGEST", ""))
        header.pop("digest")
        text = text.replace("DIGEST", model_file._digest(header, stored))
    except (ValueError, RecursionError, OverflowError):
        pass
    save_file(stored, path, {"online-psp": text})


def header_with(entry: str) -> str:
    return (
        f'{{"digest":"DIGEST","format":"online-psp-model","version":{model_file.VERSION},"kind":"OnlinePCA","fortran":[],"run":{{}},'
        f'"state":{{"parameters":{{}},"fitted":false,"x":{entry}}}}}'
    )


@pytest.mark.parametrize(
    "entry",
    [
        "1" * 400,
        "1" * 5000,
        "1e999",
        "-1e999",
        "NaN",
        "Infinity",
        '"\\ud800"',
        '"\\udfff\\ud800"',
        "[" * 100_000,
        '{"text.":"text.7"}',
        '{"text.":3}',
    ],
)
def test_numbers_and_text_that_no_model_has(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "m.psp"
    signed(path, header_with("1"))
    assert model_file.read(path).state["x"] == 1
    signed(path, header_with(entry))
    for load in (model_file.read, OnlinePCA.load):
        with pytest.raises(ModelFileError) as caught:
            load(path)
        assert len(str(caught.value)) < 400 + len(str(path))


def test_a_header_is_small_and_many_arrays_are_read_at_once(tmp_path: Path) -> None:
    """A 3.5 MB header, of text or of empty arrays, is refused before it is parsed; many arrays, all of them by columns, are no burden."""
    path = tmp_path / "m.psp"
    signed(path, header_with(json.dumps("x" * 3_500_000)))
    with pytest.raises(ModelFileError, match="larger than that of any model"):
        model_file.read(path)
    many = {f"a{i}": np.zeros(0) for i in range(10_001)}
    signed(path, header_with("1"), many)
    with pytest.raises(ModelFileError, match="larger than that of any model"):
        model_file.read(path)
    arrays = {f"array {i:06}": np.asfortranarray(np.arange(6.0).reshape(2, 3)) for i in range(8000)}
    model_file.write(path, Contents("x", arrays, {}, {}))
    found = model_file.read(path)
    assert all(np.array_equal(found.arrays[name], array) for name, array in arrays.items())


def test_what_cannot_be_read_again_is_not_written(tmp_path: Path) -> None:
    for state in ({"n": 10**30}, {"n": math.nan}, {"n": 1e300, "m": [10**400]}):
        with pytest.raises(ValueError, match=r"JSON"):
            model_file.write(tmp_path / "m.psp", Contents("x", {}, state, {}))
    with pytest.raises(ValueError, match="cannot be saved"):
        model_file.write(tmp_path / "m.psp", Contents("x", {}, {"n": "x" * 600_000}, {}))
    assert os.listdir(tmp_path) == []


def test_fields_check_what_they_give() -> None:
    fields = model_file.Fields(
        {
            "a": np.array([[1.0, -2.0]]),
            "bad": np.array([np.nan]),
            "I": np.eye(2, 3),
            "skew": np.array([[1.0, 0.5], [-0.5, 1.0]]),
            "C": np.array([[2.0, 1.0], [1.0, 2.0]]),
            "minus": np.array([[1.0, 3.0], [3.0, 1.0]]),
            "part.b": np.zeros(3),
            "part.extra": np.zeros(3),
        },
        {"n": 3, "x": 0.0, "huge": 10**400, "names": ["a", "b"], "mixed": ["a", 1], "yes": True, "part": {}},
    )
    assert fields.count("n") == 3
    assert fields.number("x") == 0.0
    assert fields.texts("names", 2) == ["a", "b"]
    assert fields.texts("absent") is None
    assert fields.array("a", (1, 2), least=-2.0, most=1.0).shape == (1, 2)
    assert fields.orthonormal("I", (2, 3)).shape == (2, 3)
    assert fields.covariance("C", 2).shape == (2, 2)
    refused: list[Callable[[], Any]] = [
        lambda: fields.count("yes"),
        lambda: fields.count("n", 4),
        lambda: fields.count("huge"),
        lambda: fields.number("huge"),
        lambda: fields.number("yes"),
        lambda: fields.number("x", above=0.0),
        lambda: fields.texts("mixed"),
        lambda: fields.texts("names", 3),
        lambda: fields.array("a", (1, 2), least=-1.0),
        lambda: fields.array("a", (2, 1)),
        lambda: fields.array("bad", (1,)),
        lambda: fields.orthonormal("a", (1, 2)),
        lambda: fields.covariance("skew", 2),
        lambda: fields.covariance("minus", 2),
        fields.nothing_left,
    ]
    for attempt in refused:
        with pytest.raises(ModelFileError):
            attempt()
    part = fields.under("part")
    part.array("b", (3,))
    for name, shape in (("a", (1, 2)), ("skew", (2, 2)), ("minus", (2, 2))):
        fields.array(name, shape)
    fields.array("bad", (1,), finite=False)
    with pytest.raises(ModelFileError, match="extra"):
        fields.nothing_left()
    part.array("extra", (3,))
    fields.nothing_left()
