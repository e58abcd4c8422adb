"""The command ``kbert``: it finds the subcommand, reads its options, runs it, and prints errors in one line.

Options come from the command line and from a TOML file with a table for each subcommand. The subcommands are defined in
the packages that do their work; to add one, add its object to `COMMANDS`. They import Keras when they run, not before.
"""

from __future__ import annotations

import argparse
import inspect
import io
import os
import shutil
import signal
import sys
import textwrap
import threading
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol

import kbert
from kbert.errors import KbertError
from kbert.pretraining.commands import COMMANDS as PRETRAINING_COMMANDS
from kbert.tables.commands import COMMANDS as TABLE_COMMANDS
from kbert.values.options import path as as_path
from kbert.values.printable import printable, printable_lines
from kbert.weights.commands import COMMANDS as WEIGHTS_COMMANDS


class Command(Protocol):
    """A subcommand. Its docstring is the description in its help.

    Attributes
    ----------
    name, summary : str
        What the list of subcommands shows.
    example : str
        A call, for the help.
    required : tuple of str
        Options and arguments that must be given, on the command line or in the file.
    either : tuple of tuple of str
        Groups of options of which at most one may be given. One on the command line replaces another one in the file.
    if_interrupted : str
        What is printed after Ctrl-C or SIGTERM: what the same call will do next time.
    """

    @property
    def name(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def example(self) -> str: ...
    @property
    def required(self) -> tuple[str, ...]: ...
    @property
    def either(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def if_interrupted(self) -> str: ...

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options. None of them is required by argparse, because it may be in the file."""

    def run(self, options: argparse.Namespace) -> None:
        """Run the subcommand. ``options`` has an attribute for every option."""


COMMANDS: dict[str, Command] = {
    command.name: command for command in (*TABLE_COMMANDS, *PRETRAINING_COMMANDS, *WEIGHTS_COMMANDS)
}

# Errors that the user's input may cause. Any other is a fault of the program, and is shown with its traceback.
_EXPECTED = (KbertError, ValueError, TypeError, OSError, ImportError)
# The value of an option that is not on the command line.
_NOT_GIVEN = object()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments without the program's name; those of the process by default.

    Returns
    -------
    int
        The exit status: 0 for success, 1 if it was interrupted, by Ctrl-C or by a reader of its output that ended, as
        ``head`` does, 2 for an error, which is printed in one line on stderr.
    """
    if argv is None:
        argv = sys.argv[1:]
        # The text of a corpus may have characters that the terminal's encoding lacks.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
    command, options = None, None
    try:
        command = _command(argv)
        options = read_options(command, argv[1:])
        with warnings.catch_warnings(), _telling_of_sigterm(command.if_interrupted):
            warnings.showwarning = partial(_show_warning, warnings.showwarning, set())
            command.run(options)
        if sys.stdout is not None:  # as where it was closed, ">&-"
            sys.stdout.flush()
        return 0
    except SystemExit as exit_:  # argparse raises it after --help and --version
        return int(exit_.code or 0)
    except KeyboardInterrupt:
        advice = command.if_interrupted if command is not None and options is not None else ""
        print(f"kbert: interrupted. {advice}".rstrip(), file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of the output, such as head, has closed it. Python would report that once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print("kbert: stopped, since what reads its output has ended.", file=sys.stderr)
        return 1
    except _EXPECTED as error:
        if options is not None and options.traceback:
            raise
        print(f"kbert: {_message(error)}", file=sys.stderr)
        return 2


@contextmanager
def _telling_of_sigterm(advice: str) -> Iterator[None]:
    """Print a line before SIGTERM ends the process: by itself it does that without a word."""

    def end(number: int, frame: FrameType | None) -> None:
        print(f"kbert: ended by SIGTERM. {advice}".rstrip(), file=sys.stderr, flush=True)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    is_main, before = threading.current_thread() is threading.main_thread(), signal.getsignal(signal.SIGTERM)
    if not is_main or before != signal.SIG_DFL:  # only Python's main thread may set a handler
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _command(argv: Sequence[str]) -> Command:
    """Find the subcommand. After printing --help or --version, argparse raises SystemExit here."""
    if argv and argv[0] in COMMANDS:
        return COMMANDS[argv[0]]
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items())
    parser = _Parser(
        prog="kbert",
        usage="kbert COMMAND ...",
        description="BERT, from text to a model.",
        epilog=f"commands:\n{listed}\n\n`kbert COMMAND --help` lists the options of one.",
    )
    parser.add_argument("--version", action="version", version=f"kbert {kbert.__version__}")
    parser.parse_known_args(argv)
    known = f"The commands are {', '.join(COMMANDS)}; `kbert --help` says more."
    if not argv:
        raise ValueError(f"which command? {known}")
    raise ValueError(f"there is no command {argv[0]!r}.{_nearest(argv[0], COMMANDS)} {known}")


# --- Options


class _Parser(argparse.ArgumentParser):
    """A parser that raises errors instead of printing them, and does not accept shortened options."""

    def __init__(self, **values: Any) -> None:
        super().__init__(**values, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        raise ValueError(message.removeprefix("argument "))


def read_options(command: Command, argv: Sequence[str]) -> argparse.Namespace:
    """Read the options of a subcommand.

    A value on the command line comes before one in the file, and that before the default.

    Raises
    ------
    ValueError
        If an option is unknown, missing or invalid, or may not be given together with another one.
    FileNotFoundError
        If there is no such file.
    """
    width = shutil.get_terminal_size().columns - 2  # argparse wraps at the same width
    paragraphs = [textwrap.fill(text, width) for text in inspect.cleandoc(command.__doc__ or "").split("\n\n")]
    parser = _Parser(
        prog=f"kbert {command.name}",
        description="\n\n".join(paragraphs),
        epilog=f"example:\n  {command.example}",
    )
    command.add_options(parser)
    parser.add_argument(
        "--config",
        type=as_path,
        metavar="FILE.toml",
        help=f"take options from its table [{command.name}]; those of the command line win",
    )
    parser.add_argument("--traceback", action="store_true", help="show where in the program an error was raised")
    actions = {action.dest: action for action in parser._actions if action.dest != "help"}

    given = _of_command_line(parser, actions, argv)
    in_file = _of_file(given["config"], command, actions) if "config" in given else {}
    # A flag that a file leaves off, as it is by default, is not given.
    set_in_file = [name for name, v in in_file.items() if v is not False or actions[name].default is not False]
    for names in command.either:
        for where, set_here in (("", list(given)), (f"{given.get('config')}: ", set_in_file)):
            both = [_shown(actions[name]) for name in names if name in set_here]
            if len(both) > 1:
                raise ValueError(f"{where}give {' or '.join(both)}, not both.")
        if any(name in given for name in names):
            in_file = {name: value for name, value in in_file.items() if name not in names}
    values = {**{name: action.default for name, action in actions.items()}, **in_file, **given}
    missing = [_shown(actions[name]) for name in command.required if values[name] is None]
    if missing:
        raise ValueError(f"{command.name} needs {' and '.join(missing)}; `kbert {command.name} --help` says more.")
    return argparse.Namespace(**values)


def _of_command_line(
    parser: argparse.ArgumentParser, actions: dict[str, argparse.Action], argv: Sequence[str]
) -> dict[str, Any]:
    """Return the options on the command line, without the defaults of the others."""
    start = argparse.Namespace(**dict.fromkeys(actions, _NOT_GIVEN))
    found, unknown = parser.parse_known_intermixed_args(argv, start)
    if unknown:
        name = unknown[0].partition("=")[0]
        options = [option for action in actions.values() for option in action.option_strings]
        raise ValueError(f"unknown argument {name}.{_nearest(name, options)}")
    # argparse gives None or an empty list for positional arguments that are not there.
    absent: dict[str, tuple[Any, ...]] = {
        name: (None,) if action.option_strings else (None, []) for name, action in actions.items()
    }
    return {name: v for name, v in vars(found).items() if v is not _NOT_GIVEN and v not in absent[name]}


def _of_file(path: Path, command: Command, actions: dict[str, argparse.Action]) -> dict[str, Any]:
    """Return the options in a subcommand's table of a TOML file."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}.") from None
    except ValueError as error:
        raise ValueError(f"{path} is no valid TOML: {error}.") from None
    for name, table in tables.items():
        if name not in COMMANDS or not isinstance(table, dict):
            listed = ", ".join(f"[{known}]" for known in COMMANDS)
            raise ValueError(
                f"{path}: {name!r} is no table of a command.{_nearest(name, COMMANDS)} There are {listed}."
            )
    values: dict[str, Any] = {}
    known = [name for name in actions if name not in ("config", "traceback")]
    for key, value in tables.get(command.name, {}).items():
        name = key.replace("-", "_")
        shown = f"{path}: [{command.name}] {key}"
        if name not in known:
            raise ValueError(f"{shown} is no option.{_nearest(name, known)}")
        if name in values:
            raise ValueError(f"{shown} is given twice.")
        try:
            values[name] = _value(actions[name], value)
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise ValueError(f"{shown} {error}") from None
    return values


def _value(action: argparse.Action, value: Any) -> Any:
    """Convert a value of a TOML file as argparse converts one of the command line."""
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise ValueError(f"must be true or false, not {value!r}.")
        return value
    if action.nargs == "*":
        return [_text(item) for item in (value if isinstance(value, list) else [value])]
    text = _text(value)
    read = action.type(text) if callable(action.type) else text
    if action.choices is not None and read not in action.choices:
        raise ValueError(f"must be one of {', '.join(map(str, action.choices))}, not {value!r}.")
    return read


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"must be a text or a number, not {value!r}.")
    return str(value)


def _shown(action: argparse.Action) -> str:
    return action.option_strings[0] if action.option_strings else str(action.metavar)


# --- Messages


# What other programs call a command of kbert.
_OTHER_NAMES = {"train": "fit", "finetune": "fit", "fine-tune": "fit", "test": "evaluate", "score": "evaluate"}


def _nearest(name: str, known: Iterable[str]) -> str:
    names, other = list(known), _OTHER_NAMES.get(name, "")
    near = [other] if other in names else get_close_matches(name, names, n=1, cutoff=0.5)
    return f" Did you mean {near[0]}?" if near else ""


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return _one_line(f"{error.filename}: {error.strerror}")
    return _one_line(str(error)) or type(error).__name__


def _one_line(text: str) -> str:
    """A message in one line, in which names from files cannot steer the terminal."""
    return printable(" ".join(text.split()))


def _show_warning(
    otherwise: Callable[..., None], told: set[str], message: Warning | str, category: type[Warning], *line: Any
) -> None:
    """Print a warning that is meant for users in one line, once, without the line of code that issued it.

    Python would repeat one if ``warnings.catch_warnings`` was used in between.
    """
    if issubclass(category, UserWarning):
        text = _one_line(str(message))
        if text not in told:
            told.add(text)
            print(f"kbert: warning: {text}", file=sys.stderr)
    else:
        otherwise(printable_lines(str(message)), category, *line)
