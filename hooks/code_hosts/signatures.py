"""Check the signature of a webhook request over its raw bytes. Pure; in constant time."""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

_HEX: Final = re.compile(r"[0-9a-f]{64}")
_MAX_SIGNATURES: Final = 8  # in one header of the standard form
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - marks a secret, and is none

GetHeader = Callable[[str], str]


def is_signed_by_github(header: GetHeader, body: bytes, secrets: Iterable[str]) -> bool:
    """Check X-Hub-Signature-256: HMAC-SHA256 of the body under one of `secrets`.

    The older X-Hub-Signature (SHA-1) is never accepted.
    """
    algorithm, _, sent = header("X-Hub-Signature-256").strip().partition("=")
    if algorithm != "sha256" or not _HEX.fullmatch(sent):
        return False
    matches = [
        hmac.compare_digest(hmac.new(secret.encode(), body, hashlib.sha256).hexdigest(), sent)
        for secret in secrets
    ]
    return any(matches)


def is_signed_by_gitlab(header: GetHeader, body: bytes, secrets: Iterable[str]) -> bool:
    """Check `webhook-signature` if it is sent, else X-Gitlab-Token, against `secrets`.

    A signature is `v1,` and the base64 of HMAC-SHA256 over `<webhook-id>.<webhook-timestamp>.` and
    the body. A wrong one is not rescued by a right token.
    """
    signatures = header("webhook-signature").split()[:_MAX_SIGNATURES]
    if signatures:
        signed = f"{header('webhook-id')}.{header('webhook-timestamp')}.".encode() + body
        matches = [
            hmac.compare_digest(_sign_standard(secret, signed).encode(), sent.encode())
            for secret in secrets
            for sent in signatures
        ]
        return any(matches)
    token = header("X-Gitlab-Token").strip().encode()
    matches = [hmac.compare_digest(secret.encode(), token) for secret in secrets]
    return bool(token) and any(matches)


def _sign_standard(secret: str, signed: bytes) -> str:
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = secret.encode()
    return f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


CHECKS: Final[Mapping[str, Callable[[GetHeader, bytes, Iterable[str]], bool]]] = {
    "github": is_signed_by_github,
    "gitlab": is_signed_by_gitlab,
}
