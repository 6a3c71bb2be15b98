"""What an object needs so that it can be unpickled from read-only memory (``joblib.load(..., mmap_mode="r")``) and still learn."""

from __future__ import annotations

from typing import Any

import numpy as np


def writable(value: Any) -> Any:
    """The same value with read-only arrays replaced by copies, inside tuples too."""
    if isinstance(value, np.ndarray):
        return value if value.flags.writeable else np.array(value)
    if isinstance(value, tuple):
        parts = [writable(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


class WritableState:
    """Arrays are updated in place, so none of them may be read-only."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: writable(value) for name, value in state.items()})
