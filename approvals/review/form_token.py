"""The vote form: the signed token of what a reviewer's page showed, and its access record."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.db import transaction
from django.db.models import QuerySet

from accounts.models import Membership
from accounts.people import ensure_pseudonym
from approvals.checks.check_results import CheckResult
from approvals.confirmation import AnswerForm
from approvals.models import Gate, Vote
from approvals.review.card import Card
from approvals.voting.votes import MAX_VOTE_REASON, ShownGate
from approvals.voting.warned_proof import find_unseen_warnings
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from journal import entries
from journal.entries import SYSTEM_SOURCE
from journal.models import Entry

TICK_NAMES: Final = ("hidden_seen", "all_read")
VOTE_FORM: Final = AnswerForm(
    "vote", ("answer", "reason", "seen", *TICK_NAMES), MAX_VOTE_REASON + 1, ("from", "list")
)


class PageSnapshot(NamedTuple):
    """A page as it was shown, stored with the vote and compared with later pages."""

    gate: str
    shown: ShownGate
    decide_by_us: int
    votes: int


def sign_gate_snapshot(
    gate: Gate, membership: Membership, card: Card, votes: int, warnings: Sequence[str] = ()
) -> str:
    """Return the token for the form of `gate` on the current page of `membership`.

    `warnings` are the check ids of the warnings that the page shows.
    """
    value = [
        gate.id.hex,
        gate.version,
        gate.digest,
        card.sha256,
        card.complete,
        now_us(),
        gate.decide_by_us,
        votes,
        list(warnings),
    ]
    return VOTE_FORM.sign_page(value, membership)


def verify_gate_snapshot(token: str, gate: Gate, membership: Membership) -> PageSnapshot | None:
    """Verify a token and return what its page showed.

    Returns None for a token that is forged, too old, another user's or another gate's.
    """
    value = VOTE_FORM.verify_page(token, membership)
    if value is None:
        return None
    *shown, decide_by_us, votes = value[1:8]
    warnings = value[8] if len(value) > 8 else []  # a page from before this version has none
    seen = PageSnapshot(
        value[0], ShownGate(*shown)._replace(warnings=tuple(warnings)), decide_by_us, votes
    )
    return seen if seen.gate == gate.id.hex else None


def diff_snapshot(
    seen: PageSnapshot, gate: Gate, card: Card, checks: Iterable[CheckResult] = ()
) -> list[tuple[str, str, str]]:
    """List changes since the page was made: (name, as shown, now), times in µs.

    A warning of `checks` that the page did not show is listed by its title.
    """
    changed = []
    if seen.shown.digest != gate.digest:
        changed.append(
            ("Digest of the permission", seen.shown.digest[:11] + "…", gate.digest[:11] + "…")
        )
    if seen.shown.card_sha256 != card.sha256:
        changed.append(
            ("Facts of the request", seen.shown.card_sha256[:8] + "…", card.sha256[:8] + "…")
        )
    votes = Vote.objects.filter(gate=gate).count()
    if seen.votes != votes:
        changed.append(("Answers", str(seen.votes), str(votes)))
    if seen.decide_by_us != gate.decide_by_us:
        changed.append(("Open until", str(seen.decide_by_us), str(gate.decide_by_us)))
    unseen = find_unseen_warnings(checks, seen.shown.warnings)
    changed += [("Warning", "not shown", result.title) for result in unseen]
    if not changed and seen.shown.version != gate.version:
        changed.append(("Version", str(seen.shown.version), str(gate.version)))
    return changed


def record_gate_view(gate: Gate, membership: Membership) -> None:
    """Record access.viewed for a person and a gate, once for each version of the gate."""
    person = ensure_pseudonym(membership.user)
    event_id = entries.keyed_digest("access.viewed", gate.id.hex, person, str(gate.version))
    if _RECORDED.rows(project=gate.project_id, event_id=event_id):
        return
    facts = {"version": gate.version}
    with transaction.atomic(durable=True):
        entries.record_system_entry(
            gate.project_id,
            "access.viewed",
            event_id=event_id,
            text=orjson.dumps({"kind": "access.viewed", "gate": gate.id, **facts}).decode(),
            received_us=now_us(),
            actor=person,
            facts=orjson.dumps(facts).decode(),
            session=gate.session_id,
            effect=gate.effect_id,
            subject=gate.id,
        )


def _select_recorded(project: UUID, event_id: str) -> "QuerySet[Any]":
    entries = Entry.objects.filter(project=project, source=SYSTEM_SOURCE, event_id=event_id)
    return entries.values_list("position")


_RECORDED: Final = CompiledQuerySet(_select_recorded, project=UUID, event_id=str)
