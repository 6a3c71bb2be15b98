"""The published data sets known by name: what they are, where to find them, how to fetch them."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from online_psp.datasets.files import read_file
from online_psp.datasets.images import DataSet, ImageLayout
from online_psp.io.sources import UnknownSourceError

ENVIRONMENT = "ONLINE_PSP_DATA"
_TIMEOUT_SECONDS = 20


@dataclass(frozen=True)
class KnownSet:
    """A published data set.

    Attributes
    ----------
    names : tuple of str
        Names under which to look for its file or folder, the preferred one first.
    checksums : tuple of str
        SHA-256 of files known to be right; empty if none is known.
    url, url_checksum : str, str or None
        Address to fetch from, and the SHA-256 of what is there, if it is known.
    home : str
        Page that describes it, to get it from by hand.
    """

    title: str
    N: int
    D: int
    layout: ImageLayout
    names: tuple[str, ...]
    checksums: tuple[str, ...]
    url: str
    url_checksum: str | None
    home: str
    licence: str


KNOWN: Mapping[str, KnownSet] = MappingProxyType(
    {
        "orl": KnownSet(
            title="ORL (AT&T) faces",
            N=400,
            D=10304,
            layout=ImageLayout(112, 92, column_major=True),
            names=("ATT_faces_112_92.mat", "att_faces"),
            checksums=("92601414fe3546a535913f78402d0dc78171eec33ea6faed82dd3bd3cc8d5acf",),
            url="https://www.cl.cam.ac.uk/Research/DTG/attarchive/pub/data/att_faces.zip",
            url_checksum=None,
            home="https://cam-orl.co.uk/facedatabase.html",
            licence="free with credit to AT&T Laboratories Cambridge",
        ),
        "yale": KnownSet(
            title="Extended YALE B faces, cropped",
            N=2414,
            D=1024,
            layout=ImageLayout(32, 32, column_major=True),
            names=("YaleB_32x32.mat",),
            checksums=("3fbbda4eb781b9bb28025189677b6727706e114eb0215bbfd718f1f4fcb54b99",),
            url="http://www.cad.zju.edu.cn/home/dengcai/Data/YaleB/YaleB_32x32.mat",
            url_checksum="3fbbda4eb781b9bb28025189677b6727706e114eb0215bbfd718f1f4fcb54b99",
            home="http://www.cad.zju.edu.cn/home/dengcai/Data/FaceData.html",
            licence="free for research, with credit to the Extended Yale Face Database B",
        ),
        "mnist": KnownSet(
            title="MNIST training digits",
            N=60000,
            D=784,
            layout=ImageLayout(28, 28),
            names=("train-images-idx3-ubyte.gz", "train-images-idx3-ubyte", "train-images.idx3-ubyte"),
            checksums=(
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",  # as first published
                "d2cebd02927d553943b2679536bf602ec0cdcb6555ad87dda5d640e1d425faaf",  # the same numbers, packed again
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",  # not packed
            ),
            url="https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz",
            url_checksum="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            home="http://yann.lecun.com/exdb/mnist/",
            licence="CC BY-SA 3.0",
        ),
        "digits": KnownSet(
            title="Optical digits, 8×8",
            N=1797,
            D=64,
            layout=ImageLayout(8, 8),
            names=(),
            checksums=(),
            url="",
            url_checksum=None,
            home="https://archive.ics.uci.edu/dataset/80",
            licence="CC BY 4.0; comes with scikit-learn",
        ),
    }
)


def load(name: str | Path, data_home: str | Path | None = None, *, key: str | None = None, download: bool = True) -> DataSet:
    """Load a data set known by name, or any file that can be read.

    Parameters
    ----------
    name : str or Path
        "orl", "yale", "mnist", "digits", or any file of rows that `online_psp.io.sources.open_source` reads: ``x.csv``, ``x.parquet``,
        ``x.npz::a``, ``parts/*.npy``, a folder of pictures, …
    data_home : str or Path, optional
        Folder to look in first, before the one named by the environment variable ``ONLINE_PSP_DATA`` and the user's cache.
    key : str, optional
        Which array of a .npz, .mat, HDF5 or Zarr file to take; the same as ``::key`` after the name.
    download : bool
        Whether to fetch a known set that is not found, into `data_home` or the user's cache.
    """
    if str(name) not in KNOWN:
        return _read(name, key)
    known = KNOWN[str(name)]
    if not known.names:
        return DataSet(str(name), _bundled_digits(), known.layout)
    path = locate(str(name), data_home)
    if path is None:
        path = _fetch(str(name), known, data_home, download)
    found = read_file(path, key)
    if found.D != known.D:
        raise ValueError(
            f"{path} has {found.D} features, but {known.title} has {known.D}: it is another file of the same name; move it away."
        )
    layout = found.layout or known.layout  # a folder of images knows its own
    return replace(found, name=str(name), layout=layout)


def _read(name: str | Path, key: str | None) -> DataSet:
    try:
        return read_file(name, key)
    except UnknownSourceError as error:
        if str(error).endswith("does not exist."):
            raise FileNotFoundError(f"{name} is neither a file or folder nor a data set known here ({', '.join(KNOWN)}).") from None
        raise


def _bundled_digits() -> np.ndarray[Any, Any]:
    from sklearn.datasets import load_digits

    return np.asarray(load_digits().data)


def user_cache() -> Path:
    """Default folder for fetched data."""
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "online-psp"


def search_path(data_home: str | Path | None = None) -> list[Path]:
    """The folders to look in, in order."""
    given = [data_home, os.environ.get(ENVIRONMENT)]
    return [Path(folder).expanduser() for folder in given if folder] + [user_cache()]


def locate(name: str, data_home: str | Path | None = None) -> Path | None:
    """The file or folder of a known set, or None if it is in none of the folders."""
    for folder in search_path(data_home):
        for file in KNOWN[name].names:
            if (folder / file).exists():
                return folder / file
    return None


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _fetch(name: str, known: KnownSet, data_home: str | Path | None, download: bool) -> Path:
    target = Path(data_home).expanduser() if data_home else user_cache()
    if not download:
        raise FileNotFoundError(_where_to_get(name, known, data_home, "fetching is switched off"))
    try:
        import pooch
    except ImportError as error:
        reason = "fetching it needs the package pooch (pip install 'online-psp[data]')"
        raise FileNotFoundError(_where_to_get(name, known, data_home, reason)) from error
    file = known.url.rsplit("/", 1)[-1]
    unzip = pooch.Unzip(extract_dir=known.names[-1]) if file.endswith(".zip") else None
    try:
        pooch.retrieve(
            known.url,
            known_hash=known.url_checksum,
            fname=file,
            path=target,
            processor=unzip,
            downloader=pooch.HTTPDownloader(timeout=_TIMEOUT_SECONDS),
        )
    except Exception as error:  # of the network, the server or the disk
        raise FileNotFoundError(_where_to_get(name, known, data_home, f"fetching it failed: {_short(error)}")) from error
    path = locate(name, target)
    if path is None:
        raise FileNotFoundError(_where_to_get(name, known, data_home, f"{known.url} no longer gives the file that it used to"))
    return path


def _short(error: Exception) -> str:
    cause = error.__class__.__name__
    text = " ".join(str(error).split())
    return f"{cause}, {text[:160]}…" if len(text) > 160 else f"{cause}, {text}"


def _where_to_get(name: str, known: KnownSet, data_home: str | Path | None, reason: str) -> str:
    places = [str(place) for place in search_path(data_home)]
    return (
        f"The data set {name!r} ({known.title}) is not here. Get it from {known.url} (described at {known.home}), and put it, unpacked "
        f"if it is a .zip, as {' or '.join(known.names)} into {places[0]}, or into any folder that --data-home (data_home) or the "
        f"environment variable {ENVIRONMENT} names. It was looked for in {', '.join(places)}, and {reason}."
    )
