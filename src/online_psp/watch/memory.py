"""How much memory this process holds."""

from __future__ import annotations

import os


def resident() -> int | None:
    """Bytes of memory that this process holds now; None if the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None
