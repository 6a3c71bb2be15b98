"""The start of ``psp``: what has to be in place before the libraries are loaded, which takes a second or two."""

from __future__ import annotations

import io
import os
import sys


def psp() -> None:
    """Run the command line."""
    fill_standard_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show must not end a command
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # modules beside the data are not imported, in processes started from here neither
    try:
        from online_psp.cli.main import app

        app()
    except KeyboardInterrupt:
        sys.stderr.write("psp: Stopped.\n")
        sys.exit(130)


def fill_standard_streams() -> None:
    """Open the null device in the place of standard streams that are closed: their numbers must not become those of outputs."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def leave_out_working_folder() -> None:
    """Forget the working folder, which ``python -m`` puts first on the path."""
    if not sys.flags.safe_path and sys.path:
        try:
            here = os.getcwd()
        except OSError:  # it has been deleted
            here = ""
        if sys.path[0] in ("", here):
            del sys.path[0]
