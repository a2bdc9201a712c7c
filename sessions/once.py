"""Carries a secret from the POST that made it to the page that shows it, once, without keeping it anywhere.

The login session, which lies in the database, holds the secret masked by a random pad of its length; the pad travels
in a cookie of two minutes. Either half alone is noise.
"""

import secrets

from django.conf import settings
from django.http import HttpRequest, HttpResponse

_KEY = "shown_once"
_COOKIE = "gatebook-once"
_LIFETIME_S = 120


def put(request: HttpRequest, response: HttpResponse, secret: str, **about: str) -> None:
    """Leave `secret`, and plain words `about` it, for the next page that calls `take`."""
    raw = secret.encode()
    pad = secrets.token_bytes(len(raw))
    request.session[_KEY] = {"masked": _mask(raw, pad).hex(), **about}
    response.set_cookie(
        _COOKIE,
        pad.hex(),
        max_age=_LIFETIME_S,
        httponly=True,
        secure=settings.SESSION_COOKIE_SECURE,
        samesite="Strict",
        path="/settings/",
    )


def take(request: HttpRequest) -> dict[str, str]:
    """The words and, under "secret", the secret left by `put`; empty when there is none or it was shown before."""
    left = request.session.pop(_KEY, None)
    if left is None:
        return {}
    masked = bytes.fromhex(left.pop("masked"))
    try:
        pad = bytes.fromhex(request.COOKIES.get(_COOKIE, ""))
    except ValueError:
        return {}
    if len(pad) != len(masked):
        return {}
    return {**left, "secret": _mask(masked, pad).decode(errors="replace")}


def cleared(response: HttpResponse) -> HttpResponse:
    """The response of the page that called `take`, taking the pad out of the browser too."""
    response.delete_cookie(_COOKIE, path="/settings/", samesite="Strict")
    return response


def _mask(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
