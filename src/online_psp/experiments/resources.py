"""Memory and processor time of a process and of those that it has started. Linux reports all of it, other systems some."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple


def resident_bytes() -> tuple[int, int]:
    """Memory of this process now, and its peak since `forget_peak`; (0, 0) if the system does not say."""
    return _sizes("self") or _resident_elsewhere()


def _sizes(process: str) -> tuple[int, int] | None:
    """VmRSS and VmHWM of a process, in bytes."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace").splitlines()
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith(("VmRSS", "VmHWM"))}
        return sizes["VmRSS"], sizes["VmHWM"]
    except (OSError, KeyError, ValueError, IndexError):
        return None


def _resident_elsewhere() -> tuple[int, int]:
    try:
        import resource
    except ImportError:
        return 0, 0
    peak = int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)
    return peak, peak


def forget_peak() -> None:
    """Reset the peak, if the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


class Others(NamedTuple):
    """What the other processes of this session have used, which this one has started.

    Attributes
    ----------
    peak : int
        Sum of the peaks of the running ones, in bytes, or the largest peak of those that have ended, if that is more.
    seconds : float
        Processor time, including those that have ended.
    """

    peak: int
    seconds: float


def others() -> Others:
    """What the other processes of this session have used so far; zero if the system does not say."""
    times = os.times()
    seconds, peak = times.children_user + times.children_system, 0
    for place in Path("/proc").glob("[0-9]*"):
        found = None if place.name == str(os.getpid()) else _of_session(place)
        if found is not None:
            peak, seconds = peak + found.peak, seconds + found.seconds
    return Others(max(peak, _largest_ended()), seconds)


def _of_session(place: Path) -> Others | None:
    """What a process has used, if it belongs to this session."""
    try:
        fields = (place / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        if int(fields[3]) != os.getsid(0):
            return None
        spent = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
    sizes = _sizes(place.name)
    return Others(sizes[1] if sizes else 0, spent)


def _largest_ended() -> int:
    try:
        import resource
    except ImportError:
        return 0
    return int(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def available_bytes() -> float:
    """Memory available now, including cached files; infinite if the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace").splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, ValueError, IndexError, StopIteration):
        pass
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def installed_bytes() -> float:
    """The memory of the machine; infinite if the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
