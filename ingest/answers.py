"""The one writer of Answer: keeps what a command was told, and tells it again."""

from typing import Any, Final

import orjson

from ingest.models import Answer
from ingest.reply import Reply
from journal import entries, sql
from journal.clock import now_us
from journal.entries import Status
from journal.models import Entry
from journal.sql import vendor_id
from sessions.origin import Origin

KEPT_US: Final = 7 * 24 * 3_600 * 1_000_000
LONGEST: Final = 1024


def keep(origin: Origin, status: int, body: dict[str, Any]) -> None:
    """Store the answer to a command, in the command's own transaction. An answer holds ids and states, ≤ 1 KiB."""
    text = orjson.dumps(body).decode()
    if len(text) > LONGEST:
        return  # it is told from the book instead
    sql.write(
        "INSERT INTO ingest_answer (project, source, key, status, body, created_us) VALUES (%s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (project, source, key) DO NOTHING",
        [vendor_id(origin.project), origin.source, origin.key, status, text, origin.received_us],
    )


def is_kept(origin: Origin) -> bool:
    """True when the answer to this command is stored: it was done."""
    return Answer.objects.filter(project=origin.project, source=origin.source, key=origin.key).exists()


def replay(origin: Origin, kind: str) -> Reply | None:
    """What the key of this command was told before; 422 when it now comes with other content; None if it is free."""
    appended = entries.look(origin.draft(kind), origin.received_us)
    if appended is None:
        return None
    if appended.status is Status.CONFLICT:
        detail = "This Idempotency-Key was used for another command; use a new key for every new command."
        return Reply(422, {"code": "key_reuse", "detail": detail}, kept=False, replay=True)
    answer = Answer.objects.filter(project=origin.project, source=origin.source, key=origin.key).first()
    if answer is None:
        return Reply(200, _from_the_book(appended.position), kept=False, replay=True)
    return Reply(answer.status, orjson.loads(answer.body), kept=False, replay=True)


def _from_the_book(position: int) -> dict[str, Any]:
    """What can be said of a command whose answer was pruned or too long to keep: the id of what it spoke of."""
    entry = Entry.objects.get(position=position)
    detail = "This command was done; its answer is no longer stored. Read the object for its present state."
    return {"id": str(entry.subject or entry.effect or entry.session), "position": position, "detail": detail}


def prune(keep_us: int = KEPT_US) -> int:
    """Delete answers older than `keep_us`, in short steps, and return how many. The journal's keys stay."""
    deleted = 0
    while True:
        oldest = list(Answer.objects.filter(created_us__lt=now_us() - keep_us).values_list("id", flat=True)[:500])
        if not oldest:
            return deleted
        deleted += Answer.objects.filter(id__in=oldest).delete()[0]
