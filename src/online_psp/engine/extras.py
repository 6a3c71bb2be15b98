"""Errors for optional packages that are not installed, raised before any work is done, with the pip line to install them."""

from __future__ import annotations

from importlib.util import find_spec


class MissingPackageError(ImportError):
    """An optional package is not installed; the message has the pip line that installs it."""


def need_matplotlib(purpose: str) -> None:
    """Raise `MissingPackageError` if matplotlib is not installed.

    Parameters
    ----------
    purpose : str
        What needs it, as the subject of the sentence: ``"psp demo"``.
    """
    _need(purpose, "matplotlib")


def need_pages(purpose: str) -> None:
    """The same for what pages with pictures need."""
    _need(purpose, "matplotlib")
    _need(purpose, "jinja2")


def _need(purpose: str, package: str) -> None:
    if find_spec(package) is None:
        raise MissingPackageError(f"{purpose} needs {package}: pip install 'online-psp[plot]'.")
