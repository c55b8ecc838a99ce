"""The exception for errors that the user can correct."""


class SatlibError(Exception):
    """Bad input, described in one line: what is wrong, where, and what to do next.

    The command line prints this line without a traceback and exits with status 2.
    """
