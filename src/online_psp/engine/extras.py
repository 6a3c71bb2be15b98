"""Optional packages: name what is missing before any work is done, with the line that installs it."""

from __future__ import annotations

from importlib.util import find_spec


class MissingPackageError(ImportError):
    """An optional package that is not installed; the message has the line that installs it."""


def need_matplotlib(purpose: str) -> None:
    """Raise `MissingPackageError` where matplotlib is not installed.

    Parameters
    ----------
    purpose : str
        What needs it, as the subject of the sentence: ``"psp demo"``.
    """
    if find_spec("matplotlib") is None:
        raise MissingPackageError(f"{purpose} needs matplotlib: pip install 'online-psp[plot]'.")
