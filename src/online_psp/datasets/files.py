"""Readers of the formats in which such data comes: NumPy, MATLAB, IDX, folders of images.

Every reader raises a ValueError of one sentence that names the file, what is wrong with it, and what to do.
"""

from __future__ import annotations

import gzip
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from online_psp.datasets.images import DataSet, ImageLayout

FORMATS = ".npy, .npz, .mat, IDX (plain or gzip) or a folder of PGM/PNG images"
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP_MAGIC = b"\x1f\x8b"
_USUAL_NAMES = ("X", "fea", "data")


def read_file(path: str | Path, key: str | None = None) -> DataSet:
    """Read a data file or a folder of images; the format is told by the name, and by the first bytes where that says nothing.

    Parameters
    ----------
    path : str or Path
    key : str, optional
        Which array of a .npz or .mat file to take.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file or folder {path}.")
    if path.is_dir():
        return read_image_folder(path)
    readers = {".npy": read_npy, ".npz": read_npz, ".mat": read_mat}
    suffix = path.suffix.lower()
    if suffix in (".npz", ".mat"):
        return readers[suffix](path, key)
    if key is not None:
        raise ValueError(f"{path} holds one array, so key={key!r} chooses nothing: leave it out.")
    if suffix == ".npy":
        return read_npy(path)
    if "idx" in path.name.lower() or _looks_like_idx(path):
        return read_idx(path)
    raise ValueError(f"{path} is in no format known here: it should be {FORMATS}.")


def read_npy(path: Path, key: str | None = None) -> DataSet:
    """An array of samples (N, D), or of images (N, height, width)."""
    try:
        with path.open("rb") as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} cannot be read as a .npy file ({error}): save it again with numpy.save, as numbers.") from error
    return _as_rows(array, path)


def read_npz(path: Path, key: str | None = None) -> DataSet:
    """The only array of the file, the one named X, fea or data, or the one asked for."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            chosen = _choose({name: name for name in archive.files}, path, key)
            return _as_rows(archive[chosen], path)
    except (zipfile.BadZipFile, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as a .npz file ({error}): it is damaged or incomplete, so get it again.") from error


def _choose(present: Mapping[str, str], path: Path, key: str | None) -> str:
    names = list(present)
    if key is not None:
        if key in names:
            return key
        raise ValueError(f"{path} has no array {key!r}; it holds {_listing(present)}.")
    usual = [name for name in _USUAL_NAMES if name in names]
    if len(names) == 1 or usual:
        return usual[0] if usual else names[0]
    raise ValueError(f"{path} holds {_listing(present) or 'nothing'}: say which array to take with key=….")


def _listing(present: Mapping[str, str]) -> str:
    return ", ".join(present.values())


def read_mat(path: Path, key: str | None = None) -> DataSet:
    """The variable `fea` of a MATLAB file (one sample a row), as face data is published, or the variable asked for."""
    from scipy.io import loadmat, whosmat

    name = "fea" if key is None else key
    try:
        held = {variable: f"{variable} ({'×'.join(map(str, shape))})" for variable, shape, _ in whosmat(path)}
        if name not in held:
            hint = "it is empty" if not held else f"it holds {_listing(held)}; name the one to take with key=…"
            raise ValueError(f"{path} has no variable {name!r}: {hint}.")
        array = loadmat(path, variable_names=[name])[name]
    except NotImplementedError as error:  # HDF5, which scipy does not read
        raise ValueError(f"{path} is a MATLAB 7.3 file, which is not read here: save it in MATLAB with the option -v7.") from error
    except ValueError as error:
        if "has no variable" in str(error):
            raise
        raise ValueError(f"{path} cannot be read as a MATLAB file ({error}): it is damaged or something else, so get it again.") from error
    except (TypeError, OSError, zlib.error, struct.error, KeyError, IndexError) as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"{path} cannot be read as a MATLAB file ({reason}): it is damaged or something else, so get it again.") from error
    if hasattr(array, "toarray"):
        array = array.toarray()
    if not isinstance(array, np.ndarray) or array.ndim != 2:
        raise ValueError(f"{name!r} in {path} must be a matrix with one sample a row; it has shape {np.shape(array)}.")
    return _as_rows(array, path)


def _looks_like_idx(path: Path) -> bool:
    with path.open("rb") as stream:
        head = stream.read(4)
    return head[:2] == _GZIP_MAGIC or (len(head) == 4 and head[:2] == b"\0\0" and head[2] in _IDX_TYPES)


def read_idx(path: Path) -> DataSet:
    """An IDX file, as MNIST is published: a magic number, the sizes, the numbers; gzip is undone where it is found."""
    content = _unzipped(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _IDX_TYPES or content[3] == 0:
        raise ValueError(
            f"{path} is not an IDX file: it begins with the magic number {content[:4].hex(' ') or '(nothing)'}, "
            "where images begin with 00 00 08 03."
        )
    dtype, ndim = np.dtype(_IDX_TYPES[content[2]]), content[3]
    header = 4 + 4 * ndim
    if len(content) < header:
        raise ValueError(f"{path} is truncated: its header of {header} bytes ends after {len(content)}; get it again.")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", ndim, offset=4))
    wanted = header + math.prod(shape) * dtype.itemsize
    if len(content) != wanted:
        what = "is truncated" if len(content) < wanted else "has bytes left over"
        sizes = "×".join(map(str, shape))
        raise ValueError(f"{path} {what}: {sizes} numbers need {wanted} bytes and it has {len(content)}; get it again.")
    array = np.frombuffer(content, dtype, offset=header).reshape(shape)
    return _as_rows(array.astype(dtype.newbyteorder("=")), path)


def _unzipped(path: Path) -> bytes:
    raw = path.read_bytes()
    if raw[:2] != _GZIP_MAGIC:
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, zlib.error, OSError) as error:
        raise ValueError(f"{path} is a gzip file that is damaged or cut short ({error}): get it again.") from error


def read_image_folder(path: Path) -> DataSet:
    """PGM and PNG images of one size, in the folder and those inside it, in the order people number them; colour becomes grey."""
    from PIL import Image, UnidentifiedImageError

    files = sorted((file for file in path.rglob("*") if file.suffix.lower() in (".pgm", ".png")), key=lambda file: _natural(file, path))
    if not files:
        raise ValueError(f"The folder {path} has no PGM or PNG images in it.")
    rows: list[NDArray[Any]] = []
    for file in files:
        try:
            with Image.open(file) as image:
                pixels = np.asarray(image if image.mode in ("L", "I", "I;16", "F") else image.convert("L"))
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
            raise ValueError(f"{file} cannot be read as an image ({error}): replace it or take it out of the folder.") from error
        if rows and pixels.shape != rows[0].shape:
            one, two = (f"{shape[0]}×{shape[1]}" for shape in (rows[0].shape, pixels.shape))
            raise ValueError(
                f"The images in {path} differ in size: {files[0].name} is {one} and {file.name} is {two} pixels; make them equal."
            )
        rows.append(pixels)
    return _as_rows(np.stack(rows), path)


def _natural(file: Path, root: Path) -> list[tuple[int, str]]:
    """2.pgm before 10.pgm."""
    parts = re.split(r"(\d+)", file.relative_to(root).as_posix())
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _as_rows(array: NDArray[Any], path: Path) -> DataSet:
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{path} must hold real numbers; it holds {array.dtype}.")
    if array.ndim not in (2, 3) or array.size == 0:
        raise ValueError(f"{path} must hold samples as rows (N, D) or images (N, height, width); its shape is {array.shape}.")
    layout = ImageLayout(*array.shape[1:]) if array.ndim == 3 else None
    X = np.ascontiguousarray(array.reshape(len(array), -1))
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        row = int(np.argmin(np.isfinite(X).all(axis=1)))
        raise ValueError(f"Row {row} of {path} has a value that is not finite: fill it in or leave the row out.")
    return DataSet(path.stem, X, layout, path)
