"""Running the Java programs that come with pycocoevalcap: in a temporary folder, with files as input and output, under a time limit.

It replaces pycocoevalcap's own wrappers: the one of METEOR talks to the program over pipes and hangs on any error, and the one of
the tokenizer writes into site-packages.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

GET_JAVA = (
    "install Java (apt install default-jre-headless, brew install openjdk, or conda install openjdk) and evaluate again"
)
# METEOR reads and prints numbers with the locale's decimal point; without the encoding, "café" is read wrongly.
LOCALE = ("-Duser.language=en", "-Duser.country=US", "-Dfile.encoding=UTF-8")


class JavaError(Exception):
    """A Java program failed or took too long; the message completes "METEOR ..."."""


def java_available() -> bool:
    """Whether a working Java is on the PATH (a Mac without Java has a `java` that only says what to install)."""
    if shutil.which("java") is None:
        return False
    try:
        with temporary_folder() as folder:
            run(["-version"], folder, timeout=30)
    except JavaError:
        return False
    return True


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder for the files of a Java program, removed at the end of the `with`."""
    with tempfile.TemporaryDirectory(prefix="satlib-metrics-") as name:
        yield Path(name)


def run(arguments: Sequence[str], folder: Path, timeout: float) -> str:
    """Run Java in a folder and return its standard output; no process of it is left running, whatever happens.

    Output goes to files: reading a pipe would hang as long as some grandchild keeps it open.
    """
    output, errors = folder / "stdout", folder / "stderr"
    with output.open("wb") as stdout, errors.open("wb") as stderr:
        streams = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr}
        try:
            process = subprocess.Popen(["java", *arguments], cwd=folder, start_new_session=True, **streams)
        except OSError as error:
            raise JavaError(f"cannot be started ({error.strerror})") from error
        try:
            status = process.wait(timeout)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise JavaError(f"was stopped after {timeout:g} seconds") from error
            raise
    if status != 0:
        messages = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise JavaError(f"ended with status {status} ({messages[-1] if messages else 'no message'})")
    return output.read_text(encoding="utf-8", errors="replace")
