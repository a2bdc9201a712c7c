"""The one writer of StoredResponse: stores and replays responses to commands by their key.

`Reply` is the result of an endpoint, which says whether it is stored.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from django.http import HttpRequest

from accounts import tokens
from api.models import StoredResponse
from api.problems import Problem
from api.redaction import redact
from db import raw_sql
from db.clock import now_us
from db.raw_sql import vendor_id
from journal import entries
from journal.entries import AppendStatus, Origin
from journal.models import Entry

RESPONSE_RETENTION_US: Final = 7 * 24 * 3_600 * 1_000_000
MAX_RESPONSE_CHARACTERS: Final = 1024
KEY_CHARACTERS: Final = 64
_KEY: Final = re.compile(f"[!-~]{{1,{KEY_CHARACTERS}}}")


@dataclass(slots=True)
class Reply:
    """A status and a JSON object.

    If `kept`, the reply is stored and returned when the command is repeated. `replay` marks a reply
    that was loaded from that store.
    """

    status: int
    body: dict[str, Any]
    kept: bool = True
    replay: bool = False
    headers: dict[str, str] = field(default_factory=dict)


def read_idempotency_key(request: HttpRequest, redaction_key: bytes | None) -> str:
    """Return the key of a command, redacted. Problem 400 without a valid one."""
    key: str | None = request.META.get("HTTP_IDEMPOTENCY_KEY")
    if not key:
        detail = (
            f"The Idempotency-Key header is missing. Send 1 to {KEY_CHARACTERS} visible ASCII"
            " characters, new for every command."
        )
        raise Problem(400, "idempotency_key_missing", detail)
    if not _KEY.fullmatch(key) or tokens.TOKEN_PATTERN.search(key):
        detail = (
            f"The Idempotency-Key is invalid. Send 1 to {KEY_CHARACTERS} visible ASCII characters,"
            " such as a UUID."
        )
        raise Problem(400, "idempotency_key_invalid", detail)
    # The key becomes the id of the journal entry. A harmless key can look like a secret by chance,
    # so only Gatebook's own tokens are rejected; anything else is redacted.
    return key if redaction_key is None else redact.redact_key(key, redaction_key)


def store_response(origin: Origin, status: int, body: dict[str, Any]) -> None:
    """Store the response (at most 1 KiB) to a command in its transaction."""
    text = orjson.dumps(body).decode()
    if len(text) > MAX_RESPONSE_CHARACTERS:
        return  # a replay rebuilds it from the journal
    raw_sql.execute_write(
        "INSERT INTO api_storedresponse (project, source, key, status, body, created_us) VALUES "
        "(%s,"
        " %s, %s, %s, %s, %s)"
        " ON CONFLICT (project, source, key) DO NOTHING",
        [vendor_id(origin.project), origin.source, origin.key, status, text, origin.received_us],
    )


def has_stored_response(origin: Origin) -> bool:
    """Return whether the command succeeded and its response is stored."""
    return StoredResponse.objects.filter(
        project=origin.project, source=origin.source, key=origin.key
    ).exists()


def replay_response(origin: Origin, kind: str) -> Reply | None:
    """Return the stored response for this command's key; None if the key is unused.

    422 `key_reuse` if the key was used with other content.
    """
    appended = entries.compare_with_stored(origin.draft(kind), origin.received_us)
    if appended is None:
        return None
    if appended.status is AppendStatus.CONFLICT:
        detail = (
            "This Idempotency-Key was used for another command. Use a new key for every command."
        )
        return Reply(422, {"code": "key_reuse", "detail": detail}, kept=False, replay=True)
    answer = StoredResponse.objects.filter(
        project=origin.project, source=origin.source, key=origin.key
    ).first()
    if answer is None:
        return Reply(200, _rebuild_body(appended.position), kept=False, replay=True)
    return Reply(answer.status, orjson.loads(answer.body), kept=False, replay=True)


def _rebuild_body(position: int) -> dict[str, Any]:
    """Build a response with the object's id for a command without a stored one."""
    entry = Entry.objects.get(position=position)
    detail = (
        "This command succeeded; its response is no longer stored. Read the object for its"
        " current state."
    )
    return {
        "id": str(entry.subject or entry.effect or entry.session),
        "position": position,
        "detail": detail,
    }


def prune_responses(keep_us: int = RESPONSE_RETENTION_US) -> int:
    """Delete stored responses older than `keep_us` in small batches; return how many.

    The keys in the journal remain, so a command still runs only once.
    """
    deleted = 0
    while True:
        oldest = list(
            StoredResponse.objects.filter(created_us__lt=now_us() - keep_us).values_list(
                "id", flat=True
            )[:500]
        )
        if not oldest:
            return deleted
        deleted += StoredResponse.objects.filter(id__in=oldest).delete()[0]
