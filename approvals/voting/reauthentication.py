"""Reauthentication by password, valid for 5 minutes."""

import time
from typing import Final

from django.contrib.auth import authenticate

from accounts.access import MemberRequest
from approvals.gates import states

REAUTH_VALID_S: Final = states.PASSWORD_VALID_S
WRONG_CODE: Final = "The code does not match. Type the four characters shown above."
WRONG_PASSWORD: Final = (
    "Wrong password. "  # noqa: S105
    "After five wrong passwords, sign-in for your name is locked for 15 minutes."
)
_PROVED_S: Final = "proved_s"  # key in the user's session


def is_recently_proved(request: MemberRequest) -> bool:
    """Return True if the password was given within the last 5 minutes."""
    given = request.session.get(_PROVED_S)
    return isinstance(given, int) and 0 <= time.time() - given <= REAUTH_VALID_S


def password_given_at_us(request: MemberRequest) -> int | None:
    """Return when the password was last given since sign-in; None if never."""
    given = request.session.get(_PROVED_S)
    return given * states.US if isinstance(given, int) else None


def check_password(request: MemberRequest, password: str) -> bool:
    """Check the user's password.

    A wrong password counts as a failed sign-in; the fifth locks sign-in for the name.
    """
    user = authenticate(request, username=request.user.get_username(), password=password)
    if user is None or user.pk != request.user.pk:
        return False
    request.session[_PROVED_S] = int(time.time())
    return True
