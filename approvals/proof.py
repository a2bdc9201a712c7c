"""Proof that the person at the page is still the one who signed in: a password, good for five minutes."""

import time
from typing import Final

from django.contrib.auth import authenticate

from approvals import states
from sessions.access import MemberRequest

GOOD_FOR_S: Final = states.PASSWORD_COUNTS_S
_PROVED_S: Final = "proved_s"  # key in the sign-in's session


def fresh(request: MemberRequest) -> bool:
    """True when the password was given within the last five minutes."""
    given = request.session.get(_PROVED_S)
    return isinstance(given, int) and 0 <= time.time() - given <= GOOD_FOR_S


def given_at_us(request: MemberRequest) -> int | None:
    """When the password was given last in this sign-in; None where it was not since then."""
    given = request.session.get(_PROVED_S)
    return given * states.US if isinstance(given, int) else None


def prove(request: MemberRequest, password: str) -> bool:
    """Check the person's password. Wrong ones are counted as at the sign-in, and close the name after the fifth."""
    user = authenticate(request, username=request.user.get_username(), password=password)
    if user is None or user.pk != request.user.pk:
        return False
    request.session[_PROVED_S] = int(time.time())
    return True
