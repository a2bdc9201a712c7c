"""The one writer of Addressee: comments on a request, their mentions, and its assignee.

A comment is an entry of the journal; its text is the entry's body, which can be erased. Agents read
the comments with the request. Neither comments nor assignments change who may vote.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import orjson
from django.db import transaction
from django.db.models import QuerySet

from accounts.models import Membership, Person
from accounts.people import ensure_pseudonym
from approvals.gates import gates
from approvals.models import Addressee, Gate
from approvals.review_settings import load_absences
from approvals.voting.eligibility import check_eligibility, is_gate_reviewer
from db.clock import now_us
from db.errors import ChangeRefused
from db.ids import new_uuid7
from db.row_changes import RowChange, write_row_changes
from journal import entries, outbox
from journal.entry_times import STATED_US
from journal.models import Body, Entry

MAX_COMMENT: Final = 2000  # characters
MAX_COMMENTS: Final = 200  # on one request
MAX_MENTIONS: Final = 10  # people in one comment
_MENTION: Final = re.compile(r"(?<![\w@.])@([\w.+@-]{1,150})")


def list_mentioned_names(text: str) -> list[str]:
    """Return the names after @ in a comment, each once, whether a person has them or not. Pure."""
    names = dict.fromkeys(name.rstrip(".-+@") for name in _MENTION.findall(text))
    return [name for name in names if name]


class Comment(NamedTuple):
    """A comment; `text` is None once it was erased."""

    actor: str  # the author's pseudonym
    at_us: int
    position: int
    text: str | None


class WrittenComment(NamedTuple):
    """A recorded comment: its position, and the names after an @ that no member has."""

    position: int
    strangers: list[str]


@transaction.atomic
def write_comment(gate: Gate, membership: Membership, text: str) -> WrittenComment:
    """Record a comment on a request, and address the members that it mentions.

    Raises ChangeRefused.
    """
    text = text.strip()
    if not 1 <= len(text) <= MAX_COMMENT:
        raise ChangeRefused(f"Write a comment of 1 to {MAX_COMMENT} characters.")
    if not is_gate_reviewer(gate, membership):
        raise ChangeRefused("Only reviewers of this project can comment on its requests.")
    gate = gates.lock_gate(gate).gate
    if _query_comments(gate).count() >= MAX_COMMENTS:
        raise ChangeRefused(f"A request takes at most {MAX_COMMENTS} comments.")
    names = list_mentioned_names(text)[:MAX_MENTIONS]
    members = {
        member.user.get_username(): member
        for member in Membership.objects.filter(
            project=gate.project_id, user__is_active=True, user__username__in=names
        ).select_related("user")
    }
    mentioned = [member for name, member in members.items() if member.pk != membership.pk]
    facts = {
        "mentions": sorted(ensure_pseudonym(member.user) for member in mentioned),
        "characters": len(text),
    }
    position = _record(gate, "gate.commented", membership, facts, {"text": text})
    # Who answers a comment needs no reminder of it.
    Addressee.objects.filter(gate=gate, user=membership.user, relation="mentioned").delete()
    for member in mentioned:
        Addressee.objects.get_or_create(
            gate=gate,
            user=member.user,
            relation="mentioned",
            defaults={"project_id": gate.project_id, "position": position},
        )
    if mentioned:
        _notify(gate, position)
    return WrittenComment(position, [name for name in names if name not in members])


@transaction.atomic
def assign_gate(gate: Gate, membership: Membership, username: str) -> Membership | None:
    """Assign a pending request to a member who may approve it.

    An empty name removes the assignee. Return the member. Raises ChangeRefused.
    """
    gate = gates.lock_gate(gate).gate
    if not is_gate_reviewer(gate, membership):
        raise ChangeRefused("Only reviewers of this project can assign its requests.")
    if gate.status != "pending":
        raise ChangeRefused("Only a request that waits for approval can be assigned.")
    member = None
    if username:
        member = (
            Membership.objects.filter(project=gate.project_id, user__username=username)
            .select_related("user", "project")
            .first()
        )
        if member is None:
            raise ChangeRefused(f"No member of this project is called {username[:150]}.")
        member = _replace_absent(member)
        username = member.user.get_username()
        refusal = check_eligibility(gate, member).refusal
        if refusal is not None:
            raise ChangeRefused(
                f"{username} cannot approve this request, so it is not assigned to them."
            )
    present = Addressee.objects.filter(gate=gate, relation="assigned").first()
    if (present.user_id if present else None) == (member.user_id if member else None):
        return member
    facts = {"to": ensure_pseudonym(member.user) if member is not None else ""}
    position = _record(gate, "gate.assigned", membership, facts, {})
    Addressee.objects.filter(gate=gate, relation="assigned").delete()
    if member is not None:
        Addressee.objects.create(
            project_id=gate.project_id,
            gate=gate,
            user=member.user,
            relation="assigned",
            position=position,
        )
        if member.pk != membership.pk:
            _notify(gate, position)
    return member


def _replace_absent(member: Membership) -> Membership:
    """Return the stand-in of a member who is away. Raises ChangeRefused without one."""
    absence = load_absences(member.project_id).get(member.user_id)
    if absence is None:
        return member
    if absence.stand_in is None:
        raise ChangeRefused(f"{absence}. Assign it to somebody else.")
    return Membership.objects.select_related("user", "project").get(
        project=member.project_id, user=absence.stand_in
    )


def list_addressed_users(entry: Entry) -> list[int]:
    """Return the users whom an entry assigns a request to, or mentions."""
    facts = orjson.loads(entry.facts)
    names = [*facts.get("mentions", ()), facts.get("to", "")]
    people = Person.objects.filter(pseudonym__in=[name for name in names if name])
    return list(people.values_list("user", flat=True))


def restore_addressees(changes: Sequence[RowChange]) -> None:
    """Restore addressees to what the journal gives (manage.py rebuild)."""
    write_row_changes(Addressee, changes)


def load_comments(gates: Iterable[Gate]) -> Mapping[UUID | None, list[Comment]]:
    """Load the comments on requests, oldest first. Two queries."""
    listed = {gate.id: gate.effect_id for gate in gates}
    rows = list(
        Entry.objects.filter(
            effect__in=set(listed.values()),
            subject__in=listed,
            kind="gate.commented",
            lane="system",
        )
        .order_by("position")
        .values_list("subject", "actor", STATED_US, "position")
    )
    positions = [position for *_, position in rows]
    texts = (
        dict(Body.objects.filter(entry__in=positions).values_list("entry", "text")) if rows else {}
    )
    comments: dict[UUID | None, list[Comment]] = {}
    for gate, actor, at_us, position in rows:
        text = orjson.loads(texts[position]).get("text") if position in texts else None
        comments.setdefault(gate, []).append(Comment(actor, at_us, position, text))
    return comments


def _query_comments(gate: Gate) -> "QuerySet[Entry]":
    return Entry.objects.filter(effect=gate.effect_id, subject=gate.id, kind="gate.commented")


def _notify(gate: Gate, position: int) -> None:
    outbox.queue_delivery(
        gate.project_id,
        entry=position,
        topic="gate.addressed",
        deduplication_key=f"gate.addressed:{gate.id.hex}:{position}",
        due_at_us=now_us(),
    )


def _record(
    gate: Gate,
    kind: str,
    membership: Membership,
    facts: Mapping[str, object],
    words: Mapping[str, object],
) -> int:
    return entries.record_system_entry(
        gate.project_id,
        kind,
        event_id=new_uuid7().hex,
        text=entries.dump_sorted_json({"kind": kind, "gate": gate.id, **facts, **words}),
        received_us=now_us(),
        actor=ensure_pseudonym(membership.user),
        facts=entries.dump_sorted_json(facts),
        session=gate.session_id,
        effect=gate.effect_id,
        subject=gate.id,
    ).position
