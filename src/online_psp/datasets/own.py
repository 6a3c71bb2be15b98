"""The user's own data sets, by name: a small file in the user's cache says where each is, with its checksum when it was added."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from online_psp.datasets.files import read_file
from online_psp.datasets.images import DataSet
from online_psp.datasets.registry import KNOWN, checksum, user_cache

_FILE = "datasets.json"


@dataclass(frozen=True)
class OwnSet:
    """A named file or folder.

    Attributes
    ----------
    path : str
        Absolute path.
    key : str or None
        Which array of the file.
    N, D : int
    checksum : str
        Its SHA-256 when it was added.
    """

    path: str
    key: str | None
    N: int
    D: int
    checksum: str


def own_sets() -> dict[str, OwnSet]:
    """The data sets that were added, by name."""
    path = user_cache() / _FILE
    if not path.exists():
        return {}
    try:
        return {str(name): OwnSet(**entry) for name, entry in json.loads(path.read_text(encoding="utf-8")).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error}); move it away and add your data sets again.") from error


def add_set(name: str, file: str | Path, key: str | None = None, replace: bool = False) -> OwnSet:
    """Give a file, or a folder of images, a name that `load` knows.

    Parameters
    ----------
    name : str
        Letters, digits, dots, dashes and underscores; the first is a letter or a digit.
    file : str or Path
    key : str, optional
        Which array of a .npz or .mat file; the same as ``::key`` after the name.
    replace : bool
        Whether to replace a set that already has this name.
    """
    known = own_sets()
    if not name or not name[0].isalnum() or not all(letter.isalnum() or letter in "._-" for letter in name):
        raise ValueError(f"{name!r} cannot be a name: use letters, digits, dots, dashes and underscores, with a letter or digit first.")
    if name in KNOWN or name == "spiked":
        raise ValueError(f"{name!r} is a data set that comes with this package; choose another name.")
    if name in known and not replace:
        raise ValueError(f"{name!r} already names {known[name].path}; use --force to replace it.")
    place, _, within = str(file).partition("::")
    path, key = Path(place).expanduser().resolve(), key or within or None
    if not path.exists():
        raise FileNotFoundError(f"{file} does not exist.")
    found = read_file(path, key)
    own = OwnSet(str(path), key, found.N, found.D, _digest(path))
    _write({**known, name: own})
    return own


def _write(sets: dict[str, OwnSet]) -> None:
    """Write the whole file, and replace the old one only when it is complete."""
    home = user_cache()
    home.mkdir(parents=True, exist_ok=True)
    partial = home / f"{_FILE}.part"
    partial.write_text(json.dumps({name: asdict(own) for name, own in sets.items()}, indent=1), encoding="utf-8")
    os.replace(partial, home / _FILE)


def load_own(name: str, own: OwnSet, key: str | None = None) -> DataSet:
    """The rows of a user's data set; raises an error if its file is gone or has changed, or if a file here has the same name."""
    from dataclasses import replace

    path, here = Path(own.path), Path(name)
    if here.exists() and not (path.exists() and here.samefile(path)):
        raise ValueError(f"{name!r} is your data set {path}, and also a file in this folder: write {os.curdir}{os.sep}{name} for the file.")
    if not path.exists():
        raise FileNotFoundError(f"The data set {name!r} was {path}, which no longer exists; add it again with --force.")
    if _digest(path) != own.checksum:
        raise ValueError(f"{path} has changed since it was added as {name!r}; add it again with --force.")
    return replace(read_file(path, key or own.key), name=name)


def _digest(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents in a folder."""
    if path.is_file():
        return checksum(path)
    digest = hashlib.sha256()
    for file in sorted(place for place in path.rglob("*") if place.is_file()):
        digest.update(f"{file.relative_to(path)} {checksum(file)}\n".encode())
    return digest.hexdigest()
