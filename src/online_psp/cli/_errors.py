"""One error policy for every command: ``psp:`` and one sentence on standard error, exit code 2 for usage and 1 for data.

A traceback is shown only with ``--debug``. Text from files and libraries is never printed raw: terminal control characters are escaped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

USAGE, DATA, INTERRUPTED = 2, 1, 130
DEBUG = "--debug"
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

#: The base class of the argument parser's errors, from Click or from Typer's copy of it.
_ParserError: Any = next(each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException")


class CommandError(Exception):
    """Ends a command with a sentence and an exit code."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


def usage(sentence: str) -> NoReturn:
    """End the command because of how it was called."""
    raise CommandError(sentence, USAGE)


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
    if isinstance(error, CommandError):
        return str(error), error.code
    if isinstance(error, _ParserError):
        return _parser_sentence(error), USAGE
    from online_psp.engine.extras import MissingPackageError
    from online_psp.io.files import OutputError, OutputInUseError
    from online_psp.io.runs import RunError
    from online_psp.io.sources import MissingExtraError, UnknownSourceError

    code, sentence = DATA, str(error)
    if isinstance(error, UnknownSourceError | MissingExtraError | MissingPackageError | OutputError | RunError):
        code = DATA if isinstance(error, OutputInUseError) else USAGE
    elif isinstance(error, FileNotFoundError) and error.filename is not None:
        code, sentence = USAGE, f"{error.filename} does not exist."
    elif isinstance(error, OSError):
        sentence = f"{error.filename or 'Reading or writing'}: {str(error.strerror or error).rstrip('.')}."
    elif isinstance(error, MemoryError):
        sentence = "There is not enough memory; fewer rows at a time (--set block=…), or fewer components, need less."
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
        with warnings.catch_warnings(), _interruptible():
            warnings.showwarning = _show_warning
            try:
                found = super().main(words, prog_name or "psp", standalone_mode=False, **extra)
                code = found if isinstance(found, int) else 0
                if code == INTERRUPTED:  # the parser swallows a KeyboardInterrupt silently
                    say("Stopped.")
            except (Exception, KeyboardInterrupt) as error:
                if debug:
                    raise
                code = _ended_by(error)
        if standalone_mode:
            sys.exit(code)
        return code


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does, with a sentence and nothing half written; ignored signals stay ignored."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)


def _ended_by(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        say("Stopped.")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):  # the reader of the output has closed it: the rest is not flushed into it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DATA
    sentence, code = explain(error)
    if type(error).__name__ == "NoSuchOption":
        sentence += _as_setting(error)
    if type(error).__name__ != "NoArgsIsHelpError":  # the help has already been shown
        say(sentence)
    return code


def _as_setting(error: Any) -> str:
    """How to set what is no option of a command, if it is one of its settings."""
    name = str(error.option_name).lstrip("-").replace("-", "_")
    settings = next((each.help for each in error.ctx.command.params if "--set" in each.opts), "") if error.ctx else ""
    return f" It is a setting: --set {name}=…" if name in settings.replace(",", " ").replace(".", " ").split() else ""


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    say(message)
