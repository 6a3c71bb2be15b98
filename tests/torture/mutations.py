"""Model files that are damaged, or made on purpose: the library's own error, or a model that can be used."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from online_psp import OnlinePCA
from online_psp.io import model_file
from online_psp.io.model_file import Contents, ModelFileError
from online_psp.monitoring import Monitor
from online_psp.pca.settings import LEARNERS
from tests.torture._common import Tally, rows, run

_WORDS = (b'"F64"', b'"K"', b"state", b"shape", b"data_offsets", b"auto", b"version", b"mean", b"null", b"false", b"block", b"fsm", b"true")
_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 255, 10**9, 2**53, 2**62, 0.0, -0.0, 0.5, 1e-320, 1e300, -3.5, "", "auto", "float32", "\x1b[2J", [], {},
    [1], ["a"], {"a": 1}, [[]], "x" * 5000,
)  # fmt: skip


def model_files(folder: Path, chance: random.Random, count: int = 2000) -> Tally:
    """So many files made from one model; in a process of its own, so that a crash is seen."""
    name, D = chance.choice(list(LEARNERS)), chance.choice([6, 60])
    options: dict[str, Any] = {"algorithm": name, "whiten": chance.random() < 0.3}
    X = rows(chance.choice([3, 30, 200]), D, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = OnlinePCA(3 if len(X) > 3 else 2, **options).fit(X)
    kind = chance.choice(["damaged", "damaged", "made on purpose", "made on purpose", "mat"])
    suffix = ".mat" if kind == "mat" else ".psp"
    original, path = folder / f"original{suffix}", folder / f"m{suffix}"
    if kind != "mat" and chance.random() < 0.25:
        monitor = Monitor(OnlinePCA(2, half_life=300))
        monitor.update(rows(450, D, 2))
        monitor.save(original)
        name = "monitor"
    else:
        model.save(original)
    seed = chance.randrange(10**9)
    report = folder / "report.json"

    def work() -> int:
        warnings.simplefilter("ignore")
        tally = {"tried": 0, "refused": 0, "right": 0, "lost": []}
        attack = {"damaged": _damaged, "made on purpose": _purpose, "mat": _damaged}[kind]
        attack(original, path, np.random.default_rng(seed), count, tally, X)
        report.write_text(json.dumps(tally))
        return 0

    ended = run(work, folder, 600.0)
    if ended.code != 0 or not report.exists():
        return Tally(count, lost=[f"{kind}, {name}, D={D}, seed {seed}: code {ended.code}, signal {ended.signal}: {ended.said[-300:]}"])
    found = json.loads(report.read_text())
    lost = [f"{kind}, {name}, D={D}, seed {seed}: {words}" for words in found["lost"]]
    tally = Tally(found["tried"], found["refused"], found["right"], lost)
    tally.kinds[kind] += found["tried"]
    return tally


def _damaged(original: Path, path: Path, rng: np.random.Generator, count: int, tally: dict[str, Any], X: Any) -> None:
    data = original.read_bytes()
    load: Any = Monitor.load if path.suffix == ".psp" and model_file.kind_of(original) == "Monitor" else OnlinePCA.load
    for number in range(count):
        new = bytearray(data)
        kind, at = rng.integers(7), int(rng.integers(len(new)))
        if kind == 0:
            new[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            new[min(at, 2000)] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            new = new[:at]
        elif kind == 3:
            new[at : at + 8] = rng.bytes(8)
        elif kind == 4:
            new[at:at] = rng.bytes(int(rng.integers(1, 40)))
        elif kind == 5:
            words = rng.choice(len(_WORDS), 2)
            new = bytearray(data.replace(_WORDS[words[0]], _WORDS[words[1]], 1))
        else:
            new[:8] = int(rng.integers(2**63) >> int(rng.integers(63))).to_bytes(8, "little")
        path.write_bytes(new)
        tally["tried"] += 1
        try:
            model = load(path)
        except ModelFileError:
            tally["refused"] += 1
            continue
        except Exception as error:
            tally["lost"].append(f"number {number}: {type(error).__name__}: {error}"[:300])
            continue
        again = path.with_name("again" + path.suffix)
        model.save(again)
        same = again.read_bytes() == data if path.suffix == ".psp" else np.isfinite(model.transform(X)).all()
        if same:
            tally["right"] += 1
        else:
            tally["lost"].append(f"number {number}: another model, and not a word")


def _purpose(original: Path, path: Path, rng: np.random.Generator, count: int, tally: dict[str, Any], X: Any) -> None:
    """The checksum is right, and the contents are not."""
    found = model_file.read(original)
    places = _leaves(found.state)
    for number in range(count):
        arrays, state = dict(found.arrays), json.loads(json.dumps(found.state))
        for _ in range(int(rng.integers(1, 3))):
            if rng.random() < 0.4 and arrays:
                _spoil(arrays, rng)
            else:
                at, inside = places[rng.integers(len(places))], state
                for key in at[:-1]:
                    inside = inside.get(key) if isinstance(inside, dict) else None
                if isinstance(inside, dict):
                    inside[at[-1]] = _VALUES[rng.integers(len(_VALUES))]
        tally["tried"] += 1
        try:
            model_file.write(path, Contents(found.kind, arrays, state, {}))
            loaded: Any = Monitor.load(path) if found.kind == "Monitor" else OnlinePCA.load(path)
            model = loaded.model if found.kind == "Monitor" else loaded
        except ModelFileError:
            tally["refused"] += 1
            continue
        except Exception as error:
            tally["lost"].append(f"number {number}, loading: {type(error).__name__}: {error}"[:300])
            continue
        try:
            if hasattr(model, "n_features_in_"):
                model.transform(rows(3, model.n_features_in_, 0))
                (loaded.update if found.kind == "Monitor" else model.partial_fit)(rows(3, model.n_features_in_, 0))
                model.explained_variance_ratio_  # noqa: B018
            tally["right"] += 1
        except ValueError:
            tally["refused"] += 1
        except Exception as error:
            tally["lost"].append(f"number {number}, using: {type(error).__name__}: {error}"[:300])


def _spoil(arrays: dict[str, Any], rng: np.random.Generator) -> None:
    name = list(arrays)[rng.integers(len(arrays))]
    array = arrays[name]
    change = rng.integers(7)
    if change == 0:
        del arrays[name]
    elif change == 1:
        arrays[name] = array[..., :-1].copy() if array.ndim else array
    elif change == 2:
        arrays[name] = array.astype(np.float32 if array.dtype == np.float64 else np.float64)
    elif change == 3:
        arrays["more"] = np.zeros(3)
    else:
        arrays[name] = np.full_like(array, (np.nan, 0.0, -1.0, 1e308)[int(change) - 4 + int(rng.integers(2)) if change < 7 else 0])


def _leaves(value: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        return [leaf for key in value for leaf in _leaves(value[key], (*at, key))]
    return [at]
