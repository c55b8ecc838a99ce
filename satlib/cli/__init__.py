"""The command line: `satlib --help`.

Commands are grouped into modules by topic. For each there is a function that adds its options to a parser (`add_NAME`) and one
that runs it (`NAME`); the work itself is done by other modules of satlib. A command's module is imported when it is called, and
what imports torch when it runs, so that `satlib --help` answers at once.

Other packages add commands by the entry-point group "satlib.commands": NAME = "MODULE", with the same two functions.
"""

import argparse
import difflib
import importlib
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points

from satlib import __version__
from satlib.cli.arguments import Formatter, Parser
from satlib.errors import Interrupted, SatlibError
from satlib.files import progress

DESCRIPTION = """\
Show, Attend and Tell: train an image captioner with visual attention, score it, and see where it looked.

First steps:
  satlib demo                                train on drawn scenes, then caption photographs; minutes on two CPU cores
  satlib caption photo.jpg                   caption a photograph with the model that comes with satlib
  satlib data fetch flickr8k                 download Flickr8k (1 GB)
  satlib features flickr8k-soft              compute its annotation vectors, once
  satlib train flickr8k-soft                 train soft attention; the same command resumes after a stop
  satlib evaluate runs/flickr8k-soft         caption the test split and score the captions
  satlib ground runs/scenes-soft             measure whether words look at the objects that they name
  satlib page site                           write a web page that captions photographs in the browser
  satlib table                               print your results beside the paper's Table 1

Data sets are looked for in the folder given by --data, or else by $SATLIB_DATA, or else in ./data."""
FIRST = """\
satlib trains and runs captioners with visual attention. Five commands to begin with:

  satlib demo                 train on drawn scenes, then caption photographs; minutes on two CPU cores
  satlib caption photo.jpg    caption a photograph, and draw where each word looked
  satlib train RECIPE         train a captioner (satlib recipe lists the recipes)
  satlib evaluate RUN         score its captions
  satlib table                print your results beside the paper's

satlib --help lists all commands, and satlib COMMAND --help the options of one."""
EXIT = {
    0: "done",
    1: "done, and something was found to be wrong (satlib check, data check), or a photograph was left out (caption)",
    2: "a mistake that you can correct; the last line says what, where and what to do",
    3: "an error in satlib; please report the lines printed",
    130: "interrupted (Ctrl-C or SIGTERM); finished work is kept",
}
COMMANDS = {  # name: the module, and what the command does
    "data": ("data", "download a data set, or check its captions and photographs"),
    "features": ("data", "compute the annotation vectors of a recipe's images, once; resumes after a stop"),
    "train": ("train", "train a captioner by a recipe; the same command resumes after a stop"),
    "tune": (
        "train",
        "before training: search a recipe's hyperparameters with Optuna, on the dev split; resumes after a stop",
    ),
    "evaluate": ("evaluate", "generate captions for a split and score them, or score captions from a file"),
    "ground": ("evaluate", "measure whether words look at the objects that they name"),
    "table": ("evaluate", "print a table like the paper's Table 1: published results beside yours"),
    "caption": ("caption", "caption photographs, and draw where each word looked"),
    "export": ("export", "write a model as a small file to share, or as ONNX; evaluate that file before you share it"),
    "page": ("export", "write a web page on which captioners run in the visitor's browser"),
    "info": ("info", "print versions, devices, and what is missing; or a model's card: what made it, scores, terms"),
    "recipe": ("recipe", "list the recipes, print one, or explain the options of recipes"),
}
_DISTRIBUTED = ("features", "train")  # the commands that torchrun may start


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands; `options.command` is the function that runs the one that was given.

    Args:
        only: give no other command its options, which saves the imports of their modules; all commands are listed anyway.
    """
    result = Parser(prog="satlib", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--version", action="version", version=f"satlib {__version__}")
    listed = result.add_subparsers(title="commands", metavar="COMMAND", dest="name_of_command", required=True)
    others = {} if only in COMMANDS else _commands_of_other_packages()
    for name, (module, text) in {**COMMANDS, **others}.items():
        command = listed.add_parser(name, help=text, description=text, formatter_class=Formatter)
        command.add_argument(
            "--quiet", action="store_true", help="print results and mistakes only: no progress, no remarks"
        )
        if only in (None, name):
            topic = importlib.import_module(f"satlib.cli.{module}" if name in COMMANDS else module)
            getattr(topic, f"add_{name}")(command)
            command.set_defaults(command=getattr(topic, name))
    return result


def _commands_of_other_packages() -> dict[str, tuple[str, str]]:
    """As `COMMANDS`; what a command does is the docstring of its function."""
    others = {}
    for entry in entry_points(group="satlib.commands"):
        text = getattr(entry.load(), entry.name).__doc__
        others[entry.name] = entry.value, text[0].lower() + text[1:].rstrip(".")
    return others


def _options(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command line.

    Raises:
        SystemExit: a mistake, which was printed (status 2), or --help and --version (status 0).
    """
    name = words[0]
    if name not in COMMANDS and not name.startswith("-"):
        names = [*COMMANDS, *_commands_of_other_packages()]
        if name not in names:
            similar = difflib.get_close_matches(name, names, 1)
            meant = f" (did you mean {similar[0]}?)" if similar else ""
            Parser(prog="satlib").error(f"no command is called {name!r}{meant}")
    return parser(name).parse_args(words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; give its exit status (`EXIT`)."""
    words = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # Windows' own encoding, which a pipe has there, lacks "✓"
    if not words:
        print(FIRST)
        return 0
    options = _options(words)
    progress.quiet = options.quiet
    # OpenMP threads that wait by spinning make a step several times slower where the processor is shared; threads that sleep at
    # once make it a third slower where it is not. So they spin for some microseconds, then sleep. Read when torch is loaded.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    # Pillow's warning of very large images; satlib refuses those in a line of its own.
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")
    processes, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))  # set by torchrun
    try:
        if processes > 1 and options.name_of_command not in _DISTRIBUTED:
            raise SatlibError(
                "torchrun can start only satlib features and satlib train; run this command without torchrun"
            )
        with _terminated_as_interrupted():
            return options.command(options)
    except SatlibError as error:
        interrupted = isinstance(error, Interrupted)
        if not (interrupted and rank):  # all processes stop together; the first reports it
            print(f"satlib{f', process {rank} of {processes}' if rank else ''}: {error}", file=sys.stderr)
        return 130 if interrupted else 2
    except BrokenPipeError:  # the program that reads our output has ended (head, less)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, Exception) as error:
        # Up to Python 3.11, Ctrl-C while a class is created (an import at the start) comes wrapped in a RuntimeError.
        if isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt):
            print("satlib: interrupted; finished work is kept", file=sys.stderr)
            return 130
        traceback.print_exc()
        return 3


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does, so that nothing half written stays behind."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # no other receives signals
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
