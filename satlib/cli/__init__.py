"""The command line: `satlib --help`.

A command is a function below its options; its docstring is its help. It imports what it needs when
it runs, so that `satlib --help` answers at once. The modules `use`, `train` and `measure` hold the
commands, which read options, open what these name (`inputs`), call satlib and print; other packages
add theirs in a module of the entry-point group "satlib.commands".
"""

import argparse
import difflib
import importlib.metadata
import io
import os
import signal
import sys
from collections.abc import Sequence

from satlib import __version__, files
from satlib.cli import measure, train, use
from satlib.cli.options import COMMANDS, command, option
from satlib.errors import Interrupted, SatlibError

__all__ = ["COMMANDS", "command", "main", "measure", "option", "parser", "train", "use"]

# The help's formatter keeps line breaks as they are.
DESCRIPTION = """\
Show, Attend and Tell: train an image captioner with visual attention, score it, \
and see where it looked.
Begin with satlib demo, or with satlib caption photo.jpg.
"""
# In the order in which one meets them.
GROUPS = {
    "Learn": ("demo", "check"),
    "Use": ("caption", "page", "export", "info"),
    "Train": ("data", "features", "train", "recipe"),
    "Measure": ("evaluate", "ground", "table"),
}


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    about = DESCRIPTION
    for group, names in GROUPS.items():
        about += f"\n{group}\n"
        for name in names:
            if name in COMMANDS:  # the course's are there once its package is loaded
                function, _ = COMMANDS[name]
                about += f"  {name:9} {function.__doc__}\n"

    result = argparse.ArgumentParser(
        "satlib", description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    result.add_argument("--version", action="version", version=f"satlib {__version__}")
    subparsers = result.add_subparsers(metavar="COMMAND", dest="command", required=True)
    for name, (function, options) in COMMANDS.items():
        subparser = subparsers.add_parser(name, description=function.__doc__)
        subparser.add_argument(
            "--quiet", action="store_true", help="print only results and mistakes"
        )
        for names, settings in options:
            subparser.add_argument(*names, **settings)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit status.

    0 if all went well; 1 if a command found something wrong in what it checked, or left out a
    photograph; 2 if it could not do its work, and said why in a line; 130 after Ctrl-C or SIGTERM;
    141 if what is printed has no reader any more.
    """
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    _load_commands(words[0])
    proposal = _proposal(words[0])
    if proposal:
        print(proposal, file=sys.stderr)
        return 2
    options = parser().parse_args(words)
    files.quiet = options.quiet

    # A file or a pipe of Windows would have an encoding without "✓" and 狗, and so may a terminal.
    if isinstance(sys.stdout, io.TextIOWrapper):
        encoding = None if sys.stdout.isatty() else "utf-8"
        sys.stdout.reconfigure(encoding=encoding, errors="replace")

    # Waiting threads spin only briefly: long spinning takes cores from other programs, and without
    # spinning they would wake late. OpenMP reads this as torch is imported, which the command does.
    # Who has set a policy keeps it.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")

    # SIGTERM ends a command as Ctrl-C does.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run(options)
    finally:
        signal.signal(signal.SIGTERM, before)


def _load_commands(word: str) -> None:
    """Load the commands of other packages, unless the word is a command already."""
    # They are imported only for the help, and for commands that are not satlib's own.
    if word not in COMMANDS:
        for entry in importlib.metadata.entry_points(group="satlib.commands"):
            entry.load()


def _proposal(word: str) -> str | None:
    """What to say of a misspelt command; of a word like no command argparse says what there is."""
    similar = difflib.get_close_matches(word, COMMANDS, n=1)
    if word in COMMANDS or not similar:
        return None
    return f"satlib: there is no command {word}; did you mean {similar[0]}?"


def _run(options: argparse.Namespace) -> int:
    """Run the chosen command; its exit status."""
    function, _ = COMMANDS[options.command]
    try:
        status = function(options) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader has enough, as in satlib table | head. Python would flush once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Interrupted as error:
        # torchrun's processes stop together; the first one reports it.
        if os.environ.get("RANK", "0") == "0":
            print(f"satlib: {error}", file=sys.stderr)
        return 130
    # An OSError names a file and says why: a disk that is full, a folder that is not ours.
    except (SatlibError, OSError) as error:
        print(f"satlib: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("satlib: interrupted; finished work is kept", file=sys.stderr)
        return 130
