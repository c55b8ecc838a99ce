"""The exception for errors that the user can correct."""


class SatlibError(Exception):
    """Bad input, described in one line: what is wrong, where, and what to do next.

    The command line prints this line without a traceback and exits with status 2.
    """


class RenamedWarning(FutureWarning):
    """An old name was used that the next version will not accept; the command line prints it as one line."""
