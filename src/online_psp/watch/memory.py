"""How much memory a process holds."""

from __future__ import annotations

import os


def resident(process: int | None = None) -> int | None:
    """Bytes that this process holds now, or another one by its number; None where that is not easy to tell."""
    try:
        with open(f"/proc/{process or 'self'}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
