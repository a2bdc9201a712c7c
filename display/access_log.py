"""Access log: records searches, views and exports in the journal.

One entry per person or agent, object and hour, so polling and paging do not fill the journal. Facts
hold the result counts; the query text is in the body and can be erased.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.utils.module_loading import import_string

from accounts.access import MemberRequest
from accounts.people import ensure_pseudonym
from db.clock import now_us
from journal import entries
from journal.entries import SYSTEM_SOURCE
from journal.models import Entry

HOUR_US: Final = 3_600_000_000


def access_actor(request: MemberRequest) -> str:
    """Return the journal's name for the signed-in person."""
    return request.person.pseudonym or ensure_pseudonym(request.user)


Cleaner = Callable[[UUID, str], str]
_cleaners: list[str] = []


def register_query_cleaner(cleaner: str) -> None:
    """Register by its path a higher app's Cleaner that removes secrets from query text.

    api/apps.py registers `redact_search` at the start.
    """
    if cleaner not in _cleaners:
        _cleaners.append(cleaner)


def _remove_secrets(project: UUID, text: str) -> str:
    for cleaner in _cleaners:
        text = import_string(cleaner)(project, text)
    return text


def record_search(
    project: UUID, actor: str, text: str, *, entity: str, row_count: int, more: bool
) -> None:
    """Record that `actor` ran `text` and saw `row_count` rows, or `more`."""
    text = _remove_secrets(project, text)
    _record_access(
        project,
        "access.searched",
        actor,
        (text,),
        {"q": text},
        {"entity": entity, "found": row_count, "more": more},
    )


def record_view(
    project: UUID, actor: str, what: str, number: int, of: tuple[UUID | None, UUID | None, UUID]
) -> None:
    """Record that `actor` was shown agent data.

    `what` is session, effect, body or artifact; `number` is its position; `of` are session, effect
    and object.
    """
    facts = {"what": what, "position": number}
    _record_access(project, "access.viewed", actor, (what, str(number)), facts, facts, of)


def record_export_access(
    project: UUID, actor: str, text: str, facts: dict[str, Any], *, subject: UUID
) -> None:
    """Record that `actor` exported the results of `text`; one entry per export."""
    _record_access(
        project,
        "access.exported",
        actor,
        (subject.hex,),
        {"q": _remove_secrets(project, text)},
        facts,
        (None, None, subject),
        hourly=False,
    )


# Entries known to exist: another access within the hour costs no query.
_recent: OrderedDict[str, None] = OrderedDict()
_REMEMBERED: Final = 4096


def _remember_entry(event_id: str) -> None:
    _recent[event_id] = None
    while len(_recent) > _REMEMBERED:
        _recent.popitem(last=False)


def _record_access(
    project: UUID,
    kind: str,
    actor: str,
    key: tuple[str, ...],
    body: dict[str, Any],
    facts: dict[str, Any],
    of: tuple[UUID | None, UUID | None, UUID | None] = (
        None,
        None,
        None,
    ),  # session, effect, subject
    *,
    hourly: bool = True,
) -> None:
    now = now_us()
    hour = now // HOUR_US if hourly else 0
    event_id = entries.keyed_digest(kind, project.hex, actor, *key, str(hour))
    if event_id in _recent:
        return
    if Entry.objects.filter(project=project, source=SYSTEM_SOURCE, event_id=event_id).exists():
        _remember_entry(event_id)
        return
    # The body must be equal for two accesses within the hour; otherwise they would conflict.
    text = entries.dump_sorted_json({"kind": kind, "hour": hour, **body})
    with transaction.atomic(durable=True):
        entries.record_system_entry(
            project,
            kind,
            event_id=event_id,
            text=text,
            received_us=now,
            actor=actor,
            facts=entries.dump_sorted_json(facts),
            session=of[0],
            effect=of[1],
            subject=of[2],
        )
    _remember_entry(event_id)
