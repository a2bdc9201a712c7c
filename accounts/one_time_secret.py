"""One-time secrets: carry a secret from the POST that made it to the next page.

The sign-in's session in the database holds the secret masked by a random pad of the same length.
The pad is in a cookie that expires after two minutes. Either half alone reveals nothing.
"""

import secrets

from django.conf import settings
from django.http import HttpRequest, HttpResponse

_KEY = "shown_once"
_COOKIE = "gatebook-once"
_LIFETIME_S = 120
_PATH = "/settings/"


def store_secret_once(
    request: HttpRequest,
    response: HttpResponse,
    secret: str,
    path: str = _PATH,
    **about: str,
) -> None:
    """Store `secret`, and texts `about` it, for the next page that calls `take_secret_once`.

    Only pages below `path` can show it.
    """
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
        path=path,
    )


def take_secret_once(request: HttpRequest) -> dict[str, str]:
    """Return the texts and, under "secret", the secret that `store_secret_once` stored.

    Empty when there is none or it was shown before.
    """
    stored = request.session.pop(_KEY, None)
    if stored is None:
        return {}
    masked = bytes.fromhex(stored.pop("masked"))
    try:
        pad = bytes.fromhex(request.COOKIES.get(_COOKIE, ""))
    except ValueError:
        return {}
    if len(pad) != len(masked):
        return {}
    return {**stored, "secret": _mask(masked, pad).decode(errors="replace")}


def clear_secret_cookie(response: HttpResponse, path: str = _PATH) -> HttpResponse:
    """Delete the pad's cookie in the response of the page that called `take_secret_once`."""
    response.delete_cookie(_COOKIE, path=path, samesite="Strict")
    return response


def _mask(secret: bytes, pad: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(secret, pad, strict=True))
