"""One error policy for every command: ``psp:`` and one sentence on standard error, exit code 2 for usage and 1 for data.

A traceback is shown only with ``--debug``. Text from files and libraries is never printed raw: terminal control characters are escaped.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from online_psp.cli.start import stop_at_once

USAGE, DATA, INTERRUPTED = 2, 1, 130
DEBUG = "--debug"
_STOPPED = "Stopped."
_TIMER = getattr(signal, "SIGALRM", None)
_ASK_AGAIN = 0.02  # seconds
_QUIET = 1.0  # seconds

#: The base class of the argument parser's errors, from Click or from Typer's copy of it.
_ParserError: Any = next(each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException")


class CommandError(Exception):
    """Ends a command with a sentence and an exit code."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


def fail(sentence: str, code: int) -> CommandError:
    """The exception that ends the command with this sentence and exit code."""
    return CommandError(str(sentence), code)


def plain(text: object) -> str:
    """Text as one line, with control characters and the like escaped."""
    line = " ".join(str(text).split())
    return "".join(each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode() for each in line)


def say(text: object) -> None:
    """Print a line on standard error; if nobody reads it any more, the command continues."""
    with contextlib.suppress(OSError):
        typer.echo(f"psp: {plain(text)}", err=True)


def explain(error: BaseException) -> tuple[str, int]:
    """One sentence for an error, and the exit code."""
    from online_psp.engine.extras import MissingPackageError
    from online_psp.io.files import OutputError, OutputInUseError, OutputReplacedError
    from online_psp.io.sources import MissingExtraError, UnknownSourceError

    code, sentence = DATA, str(error)
    if isinstance(error, CommandError):
        code = error.code
    elif isinstance(error, _ParserError):
        code, sentence = USAGE, _parser_sentence(error)
    elif isinstance(error, UnknownSourceError | MissingExtraError | MissingPackageError | OutputError):
        code = DATA if isinstance(error, OutputInUseError | OutputReplacedError) else USAGE
    elif isinstance(error, FileNotFoundError) and error.filename is not None:
        code, sentence = USAGE, f"{error.filename} does not exist."
    elif isinstance(error, OSError) and error.errno is None and "shared object" in sentence:  # llvmlite's
        sentence = "A library cannot be loaded: there is too little memory for it (ulimit -v), or its file is not whole."
    elif isinstance(error, OSError):
        sentence = f"{error.filename or 'Reading or writing'}: {str(error.strerror or error).rstrip('.')}."
    elif isinstance(error, MemoryError):
        sentence = "There is not enough memory; a smaller --block, or fewer components, needs less."
    elif not isinstance(error, ValueError) or not sentence:  # not one of our own errors
        first = (sentence.strip().splitlines() or ["no more is known"])[0]
        sentence = f"{type(error).__name__}: {first.rstrip('.')}. {DEBUG} shows where it came from."
    return sentence, code


def _parser_sentence(error: Any) -> str:
    message = str(error.format_message())
    end = "" if message.endswith("?") else "."
    context = getattr(error, "ctx", None)
    hint = f" See {context.command_path} --help." if context is not None else ""
    return f"{message.rstrip('.')}{end}{hint}"


class Commands(TyperGroup):
    """The group of commands, with the error policy around them."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *, standalone_mode: bool = True, **extra: Any) -> Any:  # type: ignore[override]
        words = list(sys.argv[1:] if args is None else args)
        end = words.index("--") if "--" in words else len(words)
        debug = DEBUG in words[:end]
        words = [word for word in words[:end] if word != DEBUG] + words[end:]
        if words[:1] == ["help"]:
            words = [*words[1:], "--help"]
        with warnings.catch_warnings(), _interruptible() as interrupt:
            warnings.showwarning = _show_warning
            try:
                found = super().main(words, prog_name or "psp", standalone_mode=False, **extra)
                code = found if isinstance(found, int) else 0
                if code == INTERRUPTED:  # the parser swallows a KeyboardInterrupt silently
                    say(_STOPPED)
            except (Exception, KeyboardInterrupt) as error:
                interrupt.ended = True
                if debug:
                    raise
                code = _ended_by(error, words)
        if standalone_mode:
            sys.exit(code)
        return code


@contextlib.contextmanager
def _interruptible() -> Iterator[_Interrupt]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does, with a sentence and nothing half written; ignored signals stay ignored."""
    before: dict[int, Any] = {}
    interrupt, unraisable = _Interrupt(), sys.unraisablehook
    sys.unraisablehook = lambda found: interrupt.raise_again() if found.exc_type is KeyboardInterrupt else unraisable(found)
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGALRM", "SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler, stop_at_once):
                before[number] = signal.signal(number, interrupt)
    try:
        yield interrupt
    finally:
        interrupt.forget()
        sys.unraisablehook = unraisable
        for number, handler in before.items():
            signal.signal(number, handler)


class _Interrupt:
    """A handler of signals that raises KeyboardInterrupt, but not while a module is being imported.

    Libraries do not expect it there: some lose it, some are left half loaded. While no output is held, the process ends at once. Later, the
    first signal waits for the end of the import, which a timer checks; a second signal does not wait. Signals right after a
    KeyboardInterrupt ask for the same: another one would break the cleaning up.
    """

    def __init__(self) -> None:
        self._came = 0
        self._quiet = -math.inf  # time on the monotonic clock up to which signals add nothing
        self.ended = False
        """Whether the command has ended, and only its last sentence is to come."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._came += number != _TIMER
        if not self._came or self.ended or time.monotonic() < self._quiet:
            return
        if self._came == 1 and _importing(frame):
            if not _holding():
                stop_at_once()
            if _TIMER is not None and signal.getsignal(_TIMER) is self:
                signal.setitimer(signal.ITIMER_REAL, _ASK_AGAIN)
                return
        self._quiet = time.monotonic() + _QUIET
        raise KeyboardInterrupt

    def raise_again(self) -> None:
        """Raise a KeyboardInterrupt soon that was lost, as in a destructor."""
        self._quiet = -math.inf
        if _TIMER is not None and signal.getsignal(_TIMER) is self:
            signal.setitimer(signal.ITIMER_REAL, _ASK_AGAIN)

    def forget(self) -> None:
        """Stop the timer."""
        if _TIMER is not None and signal.getsignal(_TIMER) is self:
            signal.setitimer(signal.ITIMER_REAL, 0.0)


def _holding() -> bool:
    """Whether an output is held, which has to be released."""
    files: Any = sys.modules.get("online_psp.io.files")
    return files is not None and bool(files.HELD)


def _importing(frame: FrameType | None) -> bool:
    """Whether a frame is part of an import."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib."):
            return True
        frame = frame.f_back
    return False


def _ended_by(error: BaseException, words: Sequence[str]) -> int:
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        say(_STOPPED)
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):  # the reader of the output has closed it
        _silence()
        return DATA
    sentence, code = explain(error)
    if type(error).__name__ == "NoSuchOption" and (file := _file_with_dash(words)):
        sentence = f"{sentence} If the file {file} is meant, write ./{file}."
    if type(error).__name__ != "NoArgsIsHelpError":  # the help has already been shown
        say(sentence)
    return code


def _file_with_dash(words: Sequence[str]) -> str | None:
    """The name of a file among the arguments that looks like an option."""
    import os

    return next((word for word in words if word.startswith("-") and os.path.isfile(word)), None)


def _silence() -> None:
    """Redirect standard output, so that the rest of it is not flushed into a closed pipe."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    say(message)


def usage(sentence: str) -> NoReturn:
    """End the command because of how it was called."""
    raise fail(sentence, USAGE)
