"""Model files that are damaged, or made on purpose: the library's own error, or a model that can be used."""

from __future__ import annotations

import copy
import json
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.io import model_file
from online_psp.io.model_file import Contents, ModelFileError
from tests.torture._common import Tally, run
from tests.torture.models import KINDS, Saved

_WORDS = (b'"F64"', b'"K"', b"state", b"shape", b"data_offsets", b"auto", b"version", b"mean", b"null", b"false", b"block", b"fsm", b"true")
_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 255, 10**9, 2**53, 2**62, 0.0, -0.0, 0.5, 1e-320, 1e300, -3.5, "", "auto", "float32", "\x1b[2J", [], {},
    [1], ["a"], {"a": 1}, [[]], "x" * 5000,
)  # fmt: skip

_NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, -1e308, 1e-308, 1e150, 1e-150, 1e20, 0.5)


def model_files(folder: Path, chance: random.Random, count: int = 1000) -> Tally:
    """So many files made from one model; in a process of its own, so that a crash is seen."""
    kind = chance.choices(list(KINDS), [share for share, _ in KINDS.values()])[0]
    purpose = kind != "mat" and chance.random() < 0.6
    suffix = ".mat" if kind == "mat" else ".psp"
    original, path = folder / f"original{suffix}", folder / f"m{suffix}"
    making, seed = chance.randrange(10**9), chance.randrange(10**9)
    report = folder / "report.json"

    def work() -> int:
        warnings.simplefilter("ignore")
        np.seterr(all="ignore")
        saved = KINDS[kind][1](original, random.Random(making))
        print(saved.words)
        found = {"words": saved.words, "tried": 0, "refused": 0, "right": 0, "lost": []}
        (_purpose if purpose else _damaged)(original, path, np.random.default_rng(seed), count, found, saved)
        report.write_text(json.dumps(found))
        return 0

    ended = run(work, folder, 900.0)
    name = f"{'made on purpose' if purpose else 'damaged'}, {kind}, made {making}, seed {seed}"
    if ended.code != 0 or not report.exists():
        return Tally(count, lost=[f"{name}: code {ended.code}, signal {ended.signal}: {ended.said[-300:]}"])
    found = json.loads(report.read_text())
    lost = [f"{name}, {found['words']}: {words}" for words in found["lost"]]
    tally = Tally(found["tried"], found["refused"], found["right"], lost)
    tally.kinds[kind] += found["tried"]
    return tally


def _damaged(original: Path, path: Path, rng: np.random.Generator, count: int, tally: dict[str, Any], saved: Saved) -> None:
    data, again = original.read_bytes(), path.with_name("again" + path.suffix)
    whole = saved.load(original)
    if hasattr(whole, "save"):  # sparse moments come back as dense ones: what counts is what a whole file gives
        whole.save(again)
    expected = again.read_bytes() if again.exists() else b""
    for number in range(count):
        path.write_bytes(_changed(data, rng))
        tally["tried"] += 1
        try:
            model = saved.load(path)
        except ModelFileError:
            tally["refused"] += 1
            continue
        except Exception as error:
            tally["lost"].append(f"number {number}: {type(error).__name__}: {error}"[:300])
            continue
        if path.suffix == ".mat" or not hasattr(model, "save"):  # what has no digest, or is saved with its source
            same = path.suffix == ".mat" or path.read_bytes() == data
        else:
            model.save(again)
            same = again.read_bytes() == expected
        if same:
            tally["right"] += 1
        else:
            tally["lost"].append(f"number {number}: another model, and not a word")


def _changed(data: bytes, rng: np.random.Generator) -> bytes:
    """A file with something of it changed."""
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
    return bytes(new)


def _purpose(original: Path, path: Path, rng: np.random.Generator, count: int, tally: dict[str, Any], saved: Saved) -> None:
    """The checksum is right, and the contents are not."""
    found = model_file.read(original)
    for number in range(count):
        arrays, state, run = dict(found.arrays), json.loads(json.dumps(found.state)), json.loads(json.dumps(found.run))
        for _ in range(int(rng.integers(1, 3))):
            if rng.random() < 0.4 and arrays:
                _spoil(arrays, rng)
            else:
                _forge(run if run and rng.random() < 0.5 else state, rng)
        tally["tried"] += 1
        try:
            model_file.write(path, Contents(found.kind, arrays, state, run))
            model = saved.load(path)
        except ModelFileError:
            tally["refused"] += 1
            continue
        except Exception as error:
            tally["lost"].append(f"number {number}, loading: {type(error).__name__}: {error}"[:300])
            continue
        try:
            saved.use(model)
            tally["right"] += 1
        except ValueError:
            tally["refused"] += 1
        except Exception as error:
            tally["lost"].append(f"number {number}, using: {type(error).__name__}: {error}"[:300])


def _forge(state: dict[str, Any], rng: np.random.Generator) -> None:
    """Put some other value at some place of a JSON object."""
    places = _leaves(state)
    at, inside = places[rng.integers(len(places))], state
    for key in at[:-1]:
        inside = inside[key]
    if at:
        inside[at[-1]] = copy.deepcopy(_VALUES[rng.integers(len(_VALUES))])  # or it is put into itself the next time


def _spoil(arrays: dict[str, Any], rng: np.random.Generator) -> None:
    """Damage one array: its shape, its type, all of its values, or one of them."""
    name = list(arrays)[rng.integers(len(arrays))]
    array = arrays[name]
    change, bad = rng.integers(8), _NUMBERS[rng.integers(len(_NUMBERS))]
    if change == 0:
        del arrays[name]
    elif change == 1:
        arrays[name] = array[..., :-1].copy() if array.ndim else array
    elif change == 2:
        arrays[name] = array.astype(np.float32 if array.dtype == np.float64 else np.float64)
    elif change == 3:
        arrays["more"] = np.zeros(3)
    elif change == 4:
        arrays[name] = np.full_like(array, bad)
    elif change == 5:
        arrays[name] = (array * bad).astype(array.dtype)
    elif change == 6:
        arrays[name] = rng.standard_normal(array.shape).astype(array.dtype)
    elif array.size:
        arrays[name] = array.copy()
        arrays[name].flat[rng.integers(array.size)] = bad


def _leaves(value: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        return [leaf for key in value for leaf in _leaves(value[key], (*at, key))]
    return [at]
