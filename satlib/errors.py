"""The exceptions for errors that the user can correct, and for training that ends early."""


class SatlibError(Exception):
    """Bad input, described in one line: what is wrong, where, and what to do next.

    The command line prints this line without a traceback and exits with status 2.
    """


class Interrupted(SatlibError):  # noqa: N818 (an event, not an error)
    """The run was asked to stop (Ctrl-C or SIGTERM) and did so after saving a checkpoint.

    The command line exits with status 130.
    """


class Diverged(SatlibError):  # noqa: N818 (an event, not an error)
    """A loss or a score is no longer finite: for a search, a result like another."""
