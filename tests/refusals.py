"""What a user's mistake gives: a `SatlibError` whose message is one line."""

import pytest

from satlib.errors import SatlibError


def refused(call, *parts):
    """The message with which a call is refused, one line that has all the parts."""
    with pytest.raises(SatlibError) as caught:
        call()

    message = str(caught.value)
    # The command line prints it after "satlib: ", so it has to be one line.
    assert "\n" not in message
    for part in parts:
        assert part in message
    return message
