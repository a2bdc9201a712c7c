"""What people saw and did about an effect: views, votes, rulings and notifications, by name.

Views are journal entries: one per person and hour of an effect's page, and one per person and shown
version of a request. They are read from the entries that the page shows anyway.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from django.contrib.auth.models import User

from approvals.models import Gate
from notifications.models import Notification

MAX_NOTIFICATIONS: Final = 50
# Kind of an entry -> what was done.
_ACTS: Final = {
    "gate.requested": "approval requested",
    "gate.voted": "answered the request",
    "gate.ruled": "request decided",
    "gate.extended": "extended the request",
    "gate.undone": "took the answer back",
    "gate.commented": "commented on the request",
    "gate.assigned": "assigned the request",
    "gate.changes_requested": "requested changes",
    "gate.revoked": "revoked the approval",
    "gate.expired": "request expired without an answer",
    "gate.expired_unused": "approval expired unused",
    "gate.cancelled": "request withdrawn",
    "effect.resolved": "resolved the effect",
    "stop.set": "stopped it",
    "stop.lifted": "lifted a stop",
}
_TOPICS: Final = {
    "gate.requested": "about the request",
    "gate.unseen": "that nobody opened the request",
    "gate.addressed": "that the request is assigned to them, or mentions them",
}
_DELIVERIES: Final = {
    "sent": "delivered",
    "due": "not delivered yet",
    "failed": "delivery failed",
    "quiet": "not sent: no longer needed",
}


@dataclass(frozen=True, slots=True)
class PersonAct:
    """One row: when, who (a name, an address or empty) and what; `position` of its entry."""

    at_us: int
    who: str
    what: str
    position: int | None = None


def list_people_acts(entries: Iterable[Any], gates: Sequence[Gate]) -> list[PersonAct]:
    """Return what people saw and did, oldest first. At most two queries.

    `entries` are journal entries of the effect, `gates` its requests.
    """
    listed = [entry for entry in entries if entry.lane == "system"]
    listed = [entry for entry in listed if entry.kind in _ACTS or entry.kind == "access.viewed"]
    names = _load_names({entry.actor for entry in listed if entry.actor})
    gate_ids = {gate.id for gate in gates}
    acts = [
        PersonAct(
            entry.received_us,
            names.get(entry.actor, _describe_unnamed(entry.actor)),
            _describe_entry(entry, is_request=entry.subject in gate_ids),
            entry.position,
        )
        for entry in listed
    ]
    return sorted(
        [*acts, *_list_notifications(gate_ids)], key=lambda act: (act.at_us, act.position or 0)
    )


def _describe_entry(entry: Any, *, is_request: bool) -> str:
    if entry.kind != "access.viewed":
        return _ACTS[entry.kind]
    facts = orjson.loads(entry.facts or "{}")
    if is_request:
        version = facts.get("version")
        return "saw the request" + (f", version {version}" if version else "")
    return {"body": "read an entry in full", "artifact": "downloaded an artifact"}.get(
        facts.get("what", ""), "saw this page"
    )


def _describe_unnamed(actor: str) -> str:
    # Only pseudonyms of people begin so; an archive, and an erased person, have no name.
    return f"a person without a name here ({actor})" if actor.startswith("p_") else ""


def _load_names(pseudonyms: set[str]) -> dict[str, str]:
    people = User.objects.filter(person__pseudonym__in=pseudonyms).select_related("person")
    return {user.person.pseudonym: user.get_username() for user in people} if pseudonyms else {}


def _list_notifications(gates: set[Any]) -> list[PersonAct]:
    if not gates:
        return []
    rows = Notification.objects.filter(gate__in=gates).select_related("channel").order_by("id")
    return [
        PersonAct(
            row.sent_at_us or row.due_at_us,
            row.channel.shown,
            f"notified {_TOPICS.get(row.topic, 'about the answer')}: {_DELIVERIES[row.state]}",
        )
        for row in rows[:MAX_NOTIFICATIONS]
    ]
