"""How much memory a process holds."""

from __future__ import annotations

import os


def resident(process: int | None = None) -> int | None:
    """Bytes of memory that a process holds now, by default this one; None if the system does not tell."""
    try:
        with open(f"/proc/{process or 'self'}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
