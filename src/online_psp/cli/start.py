"""The start of ``psp``: what has to be in place before the libraries are loaded, which takes a second or two.

A signal in that time ends the process with a sentence, not with a traceback from inside some library. And modules beside the data are never
imported, neither here nor in the processes that are started from here.
"""

from __future__ import annotations

import io
import os
import signal
import sys

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_STOPPED = b"psp: Stopped; nothing was written.\n"


def psp() -> None:
    """Run the command line."""
    fill_standard_streams()
    escape_on_output()
    heard = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    for number in heard:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop_at_once)
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    try:
        from online_psp.cli.main import app

        app()
    except KeyboardInterrupt:  # while the last sentence was written
        if "--debug" in sys.argv:
            raise
        sys.exit(130)
    finally:
        for number in heard:  # the process only has to end
            signal.signal(number, signal.SIG_IGN)


def fill_standard_streams() -> None:
    """Open the null device in the place of standard streams that are closed: their numbers must not become those of outputs."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def escape_on_output() -> None:
    """Let standard output escape what its encoding does not have, as standard error does; a name must not end a command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def stop_at_once(*_: object) -> None:
    """End the process, which holds no output and is in the middle of loading libraries."""
    os.write(2, _STOPPED)
    os._exit(130)


def leave_out_working_folder() -> None:
    """Forget the working folder, which ``python -m`` puts first on the path."""
    if not sys.flags.safe_path and sys.path:
        try:
            here = os.getcwd()
        except OSError:  # it has been deleted
            here = ""
        if sys.path[0] in ("", here):
            del sys.path[0]
