"""The command line: `satlib --help`.

Commands are grouped into modules by topic. For each there is a function that describes its arguments (`add_NAME`) and one that
runs it; the work itself is done by other modules of satlib. Those that import torch are imported when a command runs, so that
`satlib --help` answers at once.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from satlib import __version__
from satlib.cli import caption, data, doctor, study, train
from satlib.cli.arguments import Parser
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
    1: "done, and something was found to be wrong (satlib check, data check, doctor)",
    2: "a mistake that you can correct; the last line says what, where and what to do",
    130: "interrupted (Ctrl-C or SIGTERM); finished work is kept",
}
_DISTRIBUTED = ("features", "train")  # the commands that torchrun may start


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; `options.command` is the function that runs the one that was given."""
    made = Parser(prog="satlib", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--version", action="version", version=f"satlib {__version__}")
    commands = made.add_subparsers(title="commands", metavar="COMMAND", dest="name_of_command", required=True)
    for add in (*data.COMMANDS, *train.COMMANDS, *caption.COMMANDS, *doctor.COMMANDS, *study.COMMANDS):
        add(commands)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; give its exit status (`EXIT`)."""
    if not (sys.argv[1:] if arguments is None else arguments):
        print(FIRST)
        return 0
    options = parser().parse_args(arguments)
    progress.quiet = options.quiet
    # OpenMP threads that wait by spinning make a step several times slower where the processor is shared; threads that sleep at
    # once make it a third slower where it is not. So they spin for some microseconds, then sleep. Read when torch is loaded.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
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
    except (KeyboardInterrupt, RuntimeError) as error:
        # Up to Python 3.11, Ctrl-C while a class is created (an import at the start) comes wrapped in a RuntimeError.
        if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        print("satlib: interrupted; finished work is kept", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the program that reads our output has ended (head, less)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


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
