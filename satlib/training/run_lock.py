"""A run's folder belongs to one process at a time: a second one would mix its checkpoints with the first one's.

The operating system holds the lock for as long as its process lives (filelock), so a killed process leaves none behind. Who holds it
stands in a file beside it, for the message. The lock's file stays in the folder: whoever deleted it could let two processes in.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from msgspec import Struct

from satlib.errors import SatlibError
from satlib.files.atomic import write_json
from satlib.files.reading import Count, read_json

LOCK, OWNER = ".lock", ".owner"


class Owner(Struct):
    """Who works in a run's folder."""

    pid: Count
    host: str
    since: str


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder, which is made if it is not there, within a `with` block.

    Raises:
        SatlibError: another process holds it (the message names it), or the folder cannot be written.
    """
    lock = FileLock(folder / LOCK)
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise SatlibError(
            f"{folder} is in use{_owner(folder)}; wait until it has ended, or name another folder with --out"
        ) from error
    except OSError as error:
        raise SatlibError(f"cannot write {folder}: {error.strerror}; choose another folder with --out") from error
    try:
        write_json(
            folder / OWNER, {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M")}
        )
        yield
    finally:
        (folder / OWNER).unlink(missing_ok=True)
        if [path.name for path in folder.iterdir()] == [LOCK]:  # the run was refused before it wrote anything
            (folder / LOCK).unlink()
            if made:
                folder.rmdir()
        lock.release()


def _owner(folder: Path) -> str:
    """Who holds the folder, as part of a sentence; empty in the moment in which it has not said so yet."""
    try:
        owner = read_json(folder / OWNER, Owner, "an owner of a run's folder")
    except SatlibError:
        return ""
    return f" by process {owner.pid} on {owner.host}, since {owner.since}"
