"""The one exception that satlib raises on purpose for what a person can put right."""


class SatlibError(Exception):
    """Bad input, said in one line: what is wrong, where, and what to do next.

    The command line prints the line and exits with status 2; it never shows a traceback for one.
    """


class RenamedWarning(FutureWarning):
    """An old name was used that the next version will not accept; the command line prints it as one line."""
