"""Redacts secrets in payloads before they are stored or digested.

Each secret becomes `[redacted:kind:hmac12]`, the first 12 hex digits of an HMAC under the project's
key. Equal secrets therefore correlate within a project, a repeated call has the same digest, and
testing a guess requires the key.

Detected are tokens of a known form, secrets next to a revealing name in text (`password=…`,
`Authorization: …`), and string values of fields with a revealing name. Entropy is not used, because
it would classify commit ids as secrets.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from django.conf import settings

from api.redaction.patterns import (
    ALL_HINTS,
    KIND_SEARCHES,
    Accepts,
    Hints,
    contains_secret,
    is_placeholder,
    is_secret_number,
    match_field_kind,
    match_token_kind,
    matches_any,
    may_contain_token,
)

REDACTION_MARK = "[redacted:"
_SHORTEST = 7  # no pattern matches less
_MOST_ROUNDS = 8
_SCHEMES = ("bearer", "basic", "token")


def might_contain_secret(text: str) -> bool:
    """Check cheaply; False means that `redact_value` changes nothing in the text."""
    return ALL_HINTS.in_text(text)


def select_hints(texts: Iterable[str]) -> Hints:
    """Return the hints that occur in `texts` at all, for checking each of them."""
    return ALL_HINTS.within("\n".join(texts))


def redact_value(value: Any, key: bytes) -> tuple[Any, int]:
    """Return the JSON value with its secrets redacted, and their number.

    `key` is the project's key and must not be empty. The given value is not modified; it is
    returned itself if it has no secrets. Redaction is idempotent and not recursive.
    """
    if not key:
        raise ValueError("the redaction key must not be empty")
    work = _Redaction(key)
    redacted = work.walk(value)
    return (redacted, work.count) if work.count else (value, 0)


def derive_project_key(project: UUID) -> bytes:
    """Return the redaction key of a project."""
    return hmac.new(settings.GATEBOOK_PEPPER, b"redaction" + project.bytes, hashlib.sha256).digest()


def redact_key(key: str, project_key: bytes) -> str:
    """Return a sender's id; if it contains a secret, a mark long enough to be unique."""
    if not might_contain_secret(key) or not redact_value(key, project_key)[1]:
        return key
    digest = hmac.new(
        project_key, b"key" + key.encode("utf-8", "surrogatepass"), "sha256"
    ).hexdigest()
    return f"{REDACTION_MARK}idempotency_key:{digest[:32]}]"


def redact_search(project: UUID, text: str) -> str:
    """Redact a search text, unless the project has turned redaction off."""
    from accounts.models import Project  # imported late: other programs redact without Django apps

    if (
        not might_contain_secret(text)
        or not Project.objects.filter(id=project, redacts=True).exists()
    ):
        return text
    cleaned: str = redact_value(text, derive_project_key(project))[0]
    return cleaned


class _Redaction:
    def __init__(self, key: bytes) -> None:
        self.key = key
        self.count = 0
        # Cache by secret, because the same secret often occurs many times.
        self.digests: dict[str, str] = {}

    def walk(self, value: Any) -> Any:
        """Return a copy of `value` with every string redacted."""
        root: list[Any] = [value]
        pending: list[tuple[Any, Any]] = [(root, None)]
        # Each container on the stack is already a copy; its children are replaced in place.
        while pending:
            node, above = pending.pop()
            if type(node) is dict:
                node_items: list[tuple[Any, Any, str | None]] = self._classify_members(node, above)
            else:
                node_items = [(index, child, above) for index, child in enumerate(node)]
            for position, child, kind in node_items:
                if type(child) is str:
                    node[position] = self.field(child, kind) if kind else self.text(child)
                elif type(child) is int and kind and is_secret_number(child, kind):
                    node[position] = self.mark(kind, str(child))
                elif type(child) is dict:
                    node[position] = copy = {
                        self.text(name): inner for name, inner in child.items()
                    }
                    pending.append((copy, kind))
                elif type(child) is list:
                    node[position] = copied = list(child)
                    pending.append((copied, kind))
        return root[0]

    def _classify_members(
        self, node: dict[str, Any], above: str | None
    ) -> list[tuple[str, Any, str | None]]:
        # Recorded headers are often {"name": "Authorization", "value": "…"}.
        name = node.get("name")
        named_kind = match_field_kind(name, node) if type(name) is str and "value" in node else None
        return [
            (
                field,
                child,
                match_field_kind(field, node)
                or (named_kind if field == "value" else None)
                or (above if above and contains_secret(field) else None),
            )
            for field, child in node.items()
        ]

    def field(self, text: str, kind: str) -> str:
        """Redact the whole value of a field whose name indicates a secret."""
        scheme, space, rest = text.partition(" ")
        secret = rest.strip() if space and scheme.lower() in _SCHEMES else text
        if not secret.strip() or secret.startswith(REDACTION_MARK) or is_placeholder(secret):
            return text
        return self.mark(match_token_kind(secret) or kind, secret)

    def text(self, text: str) -> str:
        """Redact the secrets in free text."""
        if len(text) < _SHORTEST or not might_contain_secret(text):
            return text
        # Redacting one secret can expose another at its edge, so a change requires another round.
        for _ in range(_MOST_ROUNDS):
            before = text
            text = self._redact_once(text)
            if text == before:
                break
        return text

    def _redact_once(self, text: str) -> str:
        lowered, tokens = text.lower(), may_contain_token(text)
        for kind, is_token, searches in KIND_SEARCHES:
            if (tokens or not is_token) and matches_any(searches, lowered if kind.folded else text):
                cleaned = kind.pattern.sub(self._build_replacer(kind.name, kind.accepts), text)
                if cleaned != text:
                    text, lowered = cleaned, cleaned.lower()
        return text

    def _build_replacer(
        self, name: str, accepts: Accepts | None
    ) -> Callable[["re.Match[str]"], str]:
        def replace(match: "re.Match[str]") -> str:
            secret = match.group("secret")
            if (
                secret.startswith(REDACTION_MARK)
                or _is_inside_mark(match)
                or not (accepts is None or accepts(match))
            ):
                return match.group()
            matched = match.group()
            start = match.start("secret") - match.start()
            return matched[:start] + self.mark(name, secret) + matched[start + len(secret) :]

        return replace

    def mark(self, kind: str, secret: str) -> str:
        self.count += 1
        digest = self.digests.get(secret)
        if digest is None:
            digest = hmac.digest(self.key, secret.encode("utf-8", "surrogatepass"), "sha256").hex()[
                :12
            ]
            self.digests[secret] = digest
        return f"{REDACTION_MARK}{kind}:{digest}]"


def _is_inside_mark(match: "re.Match[str]") -> bool:
    # Marks name their kind, so `[redacted:password:0f3…]` itself looks like a password.
    before = match.string[max(0, match.start() - 40) : match.start()]
    return before.rfind(REDACTION_MARK) > before.rfind("]")
