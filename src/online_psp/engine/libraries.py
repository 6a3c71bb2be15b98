"""Array libraries other than NumPy, through the array API standard."""

from __future__ import annotations

from typing import Any

import numpy as np

from online_psp.engine.types import Array


class Library:
    """An array library with a device and a precision, in which to make new arrays."""

    def __init__(self, xp: Any, like: Any, dtype: Any) -> None:
        from array_api_compat import device

        self.xp, self.device, self.dtype = xp, device(like), np.dtype(dtype)

    def of(self, values: Array) -> Any:
        """NumPy values as an array of this library."""
        return self.xp.asarray(np.ascontiguousarray(values, dtype=self.dtype), device=self.device)


def namespace_of(X: Any) -> Any:
    """The array API namespace of X; None if X is a NumPy array or no array at all."""
    if isinstance(X, np.ndarray | list | tuple) or not (hasattr(X, "__array_namespace__") or type(X).__module__.split(".")[0] == "torch"):
        return None
    try:
        import array_api_compat
    except ImportError as error:
        message = f"To learn from {type(X).__module__.split('.')[0]} arrays as they are: pip install 'online-psp[array-api]'."
        raise ImportError(message) from error
    xp = array_api_compat.array_namespace(X)
    return None if array_api_compat.is_numpy_namespace(xp) else xp


def to_host(X: Any) -> Array:
    """A NumPy array with the same values, without a copy if possible."""
    if hasattr(X, "detach"):  # torch
        return np.asarray(X.detach().cpu().numpy())
    return np.asarray(X.get() if hasattr(X, "get") else X)
