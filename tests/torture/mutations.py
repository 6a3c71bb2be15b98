"""Model files that are damaged, or made on purpose: the library's own error, or a model that can be used."""

from __future__ import annotations

import copy
import json
import random
import resource
import time
import traceback
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
    None, True, False, -1, 0, 1, 2, 3, 7, 60, 255, 10**9, 2**31, 2**52, 2**53, 2**62, 0.0, -0.0, 0.5, 0.999999, 1e-320, 1e-200, 1e-12, 1e12,
    1e150, 1e300, -1e300, -3.5, "", "auto", "float32", "float64", "impute", "stable", "1s", "1e300d", "\x1b[2J", "\u202e", "\x9b2J", [], {},
    [1], ["a"], {"a": 1}, [[]], [1e308], "x" * 5000,
)  # fmt: skip

_NUMBERS = (
    np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, 1.0, 1e308, -1e308, 1e-308, 5e-324, 1e200, 1e-200, 1e150, -1e150, 1e-150, 1e75, 1e38, 1e-38,
    1e20, 1e-20, 1e9, 2.0**53, 0.5,
)  # fmt: skip
_FACTORS = (-1.0, 0.5, 2.0, 1e3, 1e-3, 1e15, 1e-15, 1e100, 1e-100)
_LONGEST = 60.0  # seconds of processor time that loading and using one file may take
_MEMORY = 12 << 30  # bytes of addresses, most of which libraries take without using them


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
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
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
        if not hasattr(model, "save"):  # a run, which is saved with its source
            same = path.read_bytes() == data
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
        began = time.process_time()
        try:
            model_file.write(path, Contents(found.kind, arrays, state, run))
        except ValueError:  # a number was multiplied beyond all numbers: no such file can be made
            continue
        tally["tried"] += 1
        try:
            model = saved.load(path)
        except ModelFileError:
            tally["refused"] += 1
            continue
        except Exception as error:
            tally["lost"].append(f"number {number}, loading: {_told(error)}")
            continue
        try:
            saved.use(model)
            tally["right"] += 1
        except ValueError as error:
            if _ours(error):
                tally["refused"] += 1
            else:
                tally["lost"].append(f"number {number}, using: no sentence of ours: {_told(error)}")
        except Exception as error:
            tally["lost"].append(f"number {number}, using: {_told(error)}")
        if time.process_time() - began > _LONGEST:
            tally["lost"].append(f"number {number}: it took {time.process_time() - began:.0f} seconds")


def _ours(error: BaseException) -> bool:
    """Whether an error was raised by this package, not by a library deep inside of it."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and "online_psp" in frames[-1].filename


def _told(error: BaseException) -> str:
    frames = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-3:]]
    return f"{type(error).__name__}: {error} ({' '.join(frames)})"[:400]


def _forge(state: dict[str, Any], rng: np.random.Generator) -> None:
    """Put some other value at some place of a JSON object."""
    places = _leaves(state)
    at, inside = places[rng.integers(len(places))], state
    for key in at[:-1]:
        inside = inside[key]
    if not at:
        return
    found = inside[at[-1]]
    if type(found) in (int, float) and rng.random() < 0.4:  # a number that is only somewhat wrong passes more checks
        factor = _FACTORS[rng.integers(len(_FACTORS))]
        inside[at[-1]] = max(min(int(found * factor) + int(rng.integers(-1, 2)), 2**62), -(2**62)) if type(found) is int else found * factor
    else:
        inside[at[-1]] = copy.deepcopy(_VALUES[rng.integers(len(_VALUES))])  # or it is put into itself the next time


def _spoil(arrays: dict[str, Any], rng: np.random.Generator) -> None:
    """Damage one array: its shape, its type, all of its values, or one of them."""
    name = list(arrays)[rng.integers(len(arrays))]
    array = arrays[name]
    change, bad = rng.integers(14), _NUMBERS[rng.integers(len(_NUMBERS))]
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
    elif change == 7:
        arrays[name] = array[rng.permutation(len(array))] if array.ndim else array
    elif change == 8:
        arrays[name] = -array
    elif change == 9 and array.ndim == 2:
        arrays[name] = array.copy()
        arrays[name][rng.integers(max(len(array), 1)) if len(array) else slice(0)] = bad
    elif change == 10 and array.ndim == 2 and array.shape[1]:
        arrays[name] = array.copy()
        arrays[name][:, rng.integers(array.shape[1])] = bad
    elif change == 11:
        arrays[name] = np.concatenate([array, array]) if array.ndim else array
    elif change == 12:  # many arrays at once, so that what must agree still does
        start = name.rpartition(".")[0]
        for other in [each for each in arrays if each.startswith(start)]:
            arrays[other] = (arrays[other] * bad).astype(arrays[other].dtype)
    elif array.size:
        arrays[name] = array.copy()
        arrays[name].flat[rng.integers(array.size)] = bad


def _leaves(value: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        return [leaf for key in value for leaf in _leaves(value[key], (*at, key))]
    return [at]
