"""Model files that are damaged: the library's own error, or the identical model."""

from __future__ import annotations

import json
import random
import resource
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.io.model_file import ModelFileError
from tests.torture._common import Tally, run
from tests.torture.models import KINDS, Saved

_WORDS = (b'"F64"', b'"K"', b"state", b"shape", b"data_offsets", b"auto", b"version", b"mean", b"null", b"false", b"block", b"fsm", b"true")
_MEMORY = 12 << 30  # bytes of addresses, most of which libraries take without using them


def model_files(folder: Path, chance: random.Random, count: int = 1000) -> Tally:
    """So many files made from one model; in a process of its own, so that a crash is seen."""
    kind = chance.choices(list(KINDS), [share for share, _ in KINDS.values()])[0]
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
        _damaged(original, path, np.random.default_rng(seed), count, found, saved)
        report.write_text(json.dumps(found))
        return 0

    ended = run(work, folder, 900.0)
    name = f"damaged {kind}, made {making}, seed {seed}"
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
