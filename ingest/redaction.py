"""Secrets are taken out of payloads before anything is stored or digested.

Each secret becomes `[redacted:kind:hmac12]`: the first 12 hex digits of an HMAC under the project's key. So equal
secrets still correlate within a project, the same call re-sent has the same digest, and nobody without the key can
test a guess.

Found are tokens of known shape, secrets beside a telling name in text (`password=…`, `Authorization: …`), and string
values of fields with a telling name. There is no guessing by entropy: it would take commit ids for secrets.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from django.conf import settings

from ingest.secret_kinds import (
    ALL_HINTS,
    LOOKS,
    Accepts,
    Hints,
    field_kind,
    finds,
    has_hint,
    holds_secret,
    is_placeholder,
    is_secret_number,
    known_token,
    may_hold_token,
)

_MARK = "[redacted:"
_SHORTEST = 7  # no pattern matches less
_MOST_ROUNDS = 8
_SCHEMES = ("bearer", "basic", "token")


def might_hold_secret(text: str) -> bool:
    """A cheap look at the canonical text of an item: False means that `redact` would change nothing in it."""
    return has_hint(text)


def hints_of(texts: Iterable[str]) -> Hints:
    """What to look for in each of `texts`: looks that find nothing in all of them together are not taken again."""
    return ALL_HINTS.within("\n".join(texts))


def redact(value: Any, key: bytes) -> tuple[Any, int]:
    """The JSON value without its secrets, and how many were taken out.

    `key` is the project's own (any length but empty). The value given is not changed; without secrets it is itself
    returned. Redacting twice changes nothing more. Nesting costs no recursion.
    """
    if not key:
        raise ValueError("the redaction key must not be empty")
    work = _Redaction(key)
    redacted = work.walk(value)
    return (redacted, work.count) if work.count else (value, 0)


def project_key(project: UUID) -> bytes:
    """The key under which secrets of a project are marked."""
    return hmac.new(settings.GATEBOOK_PEPPER, b"redaction" + project.bytes, hashlib.sha256).digest()


def clean_key(key: str, project_key: bytes) -> str:
    """A sender's id without a secret in it: one that holds a secret becomes a mark, long enough to stay unique."""
    if not might_hold_secret(key) or not redact(key, project_key)[1]:
        return key
    digest = hmac.new(project_key, b"key" + key.encode("utf-8", "surrogatepass"), "sha256").hexdigest()
    return f"{_MARK}idempotency_key:{digest[:32]}]"


def clean_search(project: UUID, text: str) -> str:
    """What somebody searched for, without the secrets in it; as it is where the project does not redact."""
    from sessions.models import Project  # here: programs redact without Django's apps

    if not might_hold_secret(text) or not Project.objects.filter(id=project, redacts=True).exists():
        return text
    cleaned: str = redact(text, project_key(project))[0]
    return cleaned


class _Redaction:
    def __init__(self, key: bytes) -> None:
        self.key = key
        self.count = 0
        self.digests: dict[str, str] = {}  # of secrets that were met: the same one often stands in many places

    def walk(self, value: Any) -> Any:
        """A copy of `value` with every string cleaned."""
        root: list[Any] = [value]
        pending: list[tuple[Any, Any]] = [(root, None)]
        # Each container on the stack is already a copy; its children are cleaned in place.
        while pending:
            node, told = pending.pop()
            if type(node) is dict:
                node_items: list[tuple[Any, Any, str | None]] = self._members(node, told)
            else:
                node_items = [(index, child, told) for index, child in enumerate(node)]
            for place, child, kind in node_items:
                if type(child) is str:
                    node[place] = self.field(child, kind) if kind else self.text(child)
                elif type(child) is int and kind and is_secret_number(child, kind):
                    node[place] = self.mark(kind, str(child))
                elif type(child) is dict:
                    node[place] = copy = {self.text(name): inner for name, inner in child.items()}
                    pending.append((copy, kind))
                elif type(child) is list:
                    node[place] = copied = list(child)
                    pending.append((copied, kind))
        return root[0]

    def _members(self, node: dict[str, Any], above: str | None) -> list[tuple[str, Any, str | None]]:
        # Recorded headers often come as {"name": "Authorization", "value": "…"}.
        name = node.get("name")
        told = field_kind(name, node) if type(name) is str and "value" in node else None
        return [
            (
                field,
                child,
                field_kind(field, node)
                or (told if field == "value" else None)
                or (above if above and holds_secret(field) else None),
            )
            for field, child in node.items()
        ]

    def field(self, text: str, kind: str) -> str:
        """The value of a field whose name says that it is a secret: replaced whole."""
        scheme, space, rest = text.partition(" ")
        secret = rest.strip() if space and scheme.lower() in _SCHEMES else text
        if not secret.strip() or secret.startswith(_MARK) or is_placeholder(secret):
            return text
        return self.mark(known_token(secret) or kind, secret)

    def text(self, text: str) -> str:
        """Free text: the secrets in it replaced, the rest left as it is."""
        if len(text) < _SHORTEST or not has_hint(text):
            return text
        # Taking one secret out can leave another at an edge of its own, so a change is followed by another round.
        for _ in range(_MOST_ROUNDS):
            before = text
            text = self._round(text)
            if text == before:
                break
        return text

    def _round(self, text: str) -> str:
        lowered, tokens = text.lower(), may_hold_token(text)
        for kind, is_token, looks in LOOKS:
            if (tokens or not is_token) and finds(looks, lowered if kind.folded else text):
                cleaned = kind.pattern.sub(self._replacer(kind.name, kind.accepts), text)
                if cleaned != text:
                    text, lowered = cleaned, cleaned.lower()
        return text

    def _replacer(self, name: str, accepts: Accepts | None) -> Callable[["re.Match[str]"], str]:
        def replace(match: "re.Match[str]") -> str:
            secret = match.group("secret")
            if secret.startswith(_MARK) or _is_inside_mark(match) or not (accepts is None or accepts(match)):
                return match.group()
            whole = match.group()
            start = match.start("secret") - match.start()
            return whole[:start] + self.mark(name, secret) + whole[start + len(secret) :]

        return replace

    def mark(self, kind: str, secret: str) -> str:
        self.count += 1
        digest = self.digests.get(secret)
        if digest is None:
            digest = hmac.digest(self.key, secret.encode("utf-8", "surrogatepass"), "sha256").hex()[:12]
            self.digests[secret] = digest
        return f"{_MARK}{kind}:{digest}]"


def _is_inside_mark(match: "re.Match[str]") -> bool:
    # Marks name their kind, so `[redacted:password:0f3…]` looks like a password with its value.
    before = match.string[max(0, match.start() - 40) : match.start()]
    return before.rfind(_MARK) > before.rfind("]")
