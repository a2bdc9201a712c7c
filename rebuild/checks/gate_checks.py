"""Checks of gates, votes and addressees: what people approved, and how each request ended."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from approvals.gates import comments, gates
from approvals.gates.gates import OWNER_FACTS
from approvals.models import Addressee, Gate, Vote
from approvals.policies.engine import REQUEST_PARTIES, Requirement
from approvals.voting import votes
from db.ids import new_uuid7
from investigation.history.past_entries import PastEntry
from investigation.history.past_gate_states import fold_gate_entries
from ledger.fold.effect_state import RESOLVED
from rebuild.past_voters import PastVoters, load_past_voters
from rebuild.project_names import ProjectNames, load_project_names
from rebuild.registry import FoldedRow, RebuildBatch, RowCheck, register_row_check
from rebuild.session_journal import SessionJournal, load_session_journals

_EARLIER_VERSION: Final = "the entry is of a version that did not record it"
_NO_ACCOUNT: Final = "the pseudonym stands for no account any more"
_OF_REQUIREMENT: Final = ("requirement", "self_approval", "step_up", "reason_of_yes")
_OF_PLAN: Final = ("tool", "repository_name")
_BY_RULING: Final = ("effect.granted", "ruling")
# What happened without permission gets an entry of that kind too, with the gate that it passed by.
_PERMITS: Final = ("granted", "used")
_DENIALS: Final = ("denied", "denied_session")
_PARTIES: Final = ("session_owner_id", "agent_owner_id")


def _fold_gates(batch: RebuildBatch) -> Iterator[FoldedRow]:
    names = load_project_names(batch)
    for journal in load_session_journals(batch).values():
        entries_by_gate: dict[UUID, list[PastEntry]] = {}
        plans, intents = {}, dict[int, str]()
        accepted: dict[UUID | None, str] = {}  # the intent of the accepted plan, by effect
        granted_again: dict[str, PastEntry] = {}  # the first that grants by an earlier ruling
        resolvers: dict[UUID | None, list[PastEntry]] = {}  # who said how an attempt ended
        for entry in journal.entries:
            if entry.kind == "effect.planned":
                if entry.lane == "command":
                    accepted[entry.effect] = entry.facts["intent"]
                plans[entry.position] = entry
                intents[entry.position] = accepted.get(entry.effect, "")
            if entry.subject is not None and entry.kind.startswith(("gate.", "effect.granted")):
                entries_by_gate.setdefault(entry.subject, []).append(entry)
            elif (
                entry.is_ours
                and (entry.kind, entry.facts.get("basis")) == _BY_RULING
                and entry.facts.get("permission") in _PERMITS
            ):
                granted_again.setdefault(entry.facts.get("ref", ""), entry)
            elif entry.is_ours and entry.kind == RESOLVED:
                resolvers.setdefault(entry.effect, []).append(entry)
        for entries in entries_by_gate.values():
            request = entries[0]
            if request.kind == "gate.requested" and request.is_ours:
                plan = plans.get(request.facts["plan"])
                row = _fold_gate(
                    journal, entries, plan, intents.get(request.facts["plan"], ""), names
                )
                again = granted_again.get(row.key[0].hex)
                granted = [entry for entry in entries if entry.is_ours and _grants(entry)]
                granted += [] if again is None else [again]
                resolved = resolvers.get(request.effect, ())
                body, voters = journal.read_body(request.position), load_past_voters(batch)
                if granted and not _has_its_votes(entries, body, granted, resolved, voters):
                    row.faults["status"] = "unfounded"
                yield row


def _has_its_votes(
    entries: Sequence[PastEntry],
    request_body: Mapping[str, Any],
    granted: Sequence[PastEntry],
    resolved: Sequence[PastEntry],
    voters: PastVoters,
) -> bool:
    """Return False for a grant without the approvals that the request's own entry asks for.

    What counts is what entries recorded before the grant: the votes, which of them did not count
    then, the roles and teams of the voters, and who had resolved an attempt of the effect.
    """
    first = min(granted, key=attrgetter("position"))
    uncounted: set[str] = set()
    for entry in granted:
        uncounted |= set(entry.facts.get("uncounted", ()))
    facts, requirement = entries[0].facts, _read_requirement(request_body)
    kept_away = _list_kept_away(facts, requirement)
    if "on_behalf_of" in kept_away:
        parties = {entry.actor for entry in resolved if entry.position < first.position}
    else:
        parties = set()
    parties |= {facts[party] for party in kept_away if facts.get(party)}
    approvers = {
        entry.actor
        for entry in entries
        if entry.is_ours
        and entry.kind == "gate.voted"
        and entry.facts["vote"] == "approve"
        and entry.position < first.position
        and entry.event_id not in uncounted
        and all(voters.could_vote(entry.actor, requirement, moment) for moment in (entry, first))
    }
    return len(approvers) >= facts["minimum"] and not approvers & parties


def _grants(entry: PastEntry) -> bool:
    """Return True for an entry that only a granted request has."""
    if entry.kind == "gate.ruled":
        return bool(entry.facts["ruling"] == "approved")
    return entry.kind in ("effect.granted", "gate.used")


def _read_requirement(request_body: Mapping[str, Any]) -> Requirement | None:
    """Return whom a request asks; None if that is erased, or of an earlier version."""
    asks = request_body.get("asks")
    return None if asks is None else Requirement.of(asks)


def _list_kept_away(facts: Mapping[str, Any], requirement: Requirement | None) -> set[str]:
    """Return the facts of a request that name people who may not approve it, as far as known."""
    if requirement is not None:
        kept_away = requirement.kept_away
    else:
        kept_away = REQUEST_PARTIES if facts.get("self_approval") == 0 else ()
    parties = dict(zip(REQUEST_PARTIES, ("on_behalf_of", *OWNER_FACTS), strict=True))
    return {parties[party] for party in kept_away}


def _fold_gate(
    journal: SessionJournal,
    entries: Sequence[PastEntry],
    plan: PastEntry | None,
    intent: str,
    names: ProjectNames,
) -> FoldedRow:
    """Return a gate: its terms from the request and the plan, its course from later entries."""
    request, unknown = entries[0], dict[str, str]()
    facts = request.facts
    terms: dict[str, Any] = {
        "id": request.subject,
        "project_id": journal.project,
        "session_id": journal.session,
        "effect_id": request.effect,
        "agent_id": request.agent,
        "opened_position": request.position,
        "plan_position": facts["plan"],
        "digest": facts["digest"],
        "intent_digest": intent,
        "preconditions_digest": facts["preconditions"],
        "requirement_hash": facts["requirement"],
        "policy_set_id": UUID(facts["policy_set"]),
        "rule": facts["rule"],
        "risk": facts["risk"],
        "reversibility": facts["reversibility"],
        "minimum": facts["minimum"],
        "deny_threshold": facts["deny_threshold"],
        "requested_at_us": request.received_us,
        "decide_by_us": facts["decide_by_us"],
        "valid_for_s": facts["valid_for_s"],
    }
    body = journal.read_body(request.position)
    if "asks" in body:
        requirement = Requirement.of(body["asks"])
        terms |= {name: getattr(requirement, name) for name in _OF_REQUIREMENT[1:]}
        terms["requirement"] = body["asks"]
    else:
        unknown |= dict.fromkeys(_OF_REQUIREMENT, journal.explain_missing_body(request.position))
    if plan is not None and journal.has_body(plan.position):
        planned = journal.read_body(plan.position)
        target = planned.get("target") or {}
        terms |= {"tool": planned["tool"], "repository_name": target.get("repository") or ""}
    else:
        reason = journal.explain_missing_body(facts["plan"])
        unknown |= dict.fromkeys(_OF_PLAN, reason)
    terms |= _find_parties(facts, names, unknown)
    readable = {name: value for name, value in terms.items() if name not in unknown}
    gate = fold_gate_entries(Gate(**readable), list(entries))
    ends = _fold_ends(entries, unknown)
    course = {name: getattr(gate, name) for name in ("status", "version", "decide_by_us")}
    return FoldedRow((request.subject,), {**terms, **course, **ends}, entries[-1].position, unknown)


def _find_parties(
    facts: dict[str, Any], names: ProjectNames, unknown: dict[str, str]
) -> dict[str, int | None]:
    """Return the accounts that may not approve."""
    parties: dict[str, int | None] = {}
    columns = ("requester_id", *_PARTIES)
    is_complete = any(name in facts for name in OWNER_FACTS)
    for column, name in zip(columns, ("on_behalf_of", *OWNER_FACTS), strict=True):
        pseudonym = facts.get(name)
        parties[column] = names.find_person(pseudonym) if pseudonym else None
        if pseudonym and parties[column] is None:
            unknown[column] = _NO_ACCOUNT
        elif not pseudonym and column in _PARTIES and not is_complete:
            unknown[column] = _EARLIER_VERSION
    return parties


def _fold_ends(entries: Sequence[PastEntry], unknown: dict[str, str]) -> dict[str, Any]:
    """Return when a gate was decided and ended, and why. Fills `unknown`."""
    ends: dict[str, Any] = {
        "decided_at_us": None,
        "permission_until_us": None,
        "used_at_us": None,
        "used_attempt": None,
        "ended_at_us": None,
        "reason": "",
    }
    for entry in entries:
        by_agent = (entry.lane, entry.kind) == ("command", "gate.cancelled")
        if not entry.is_ours and not by_agent:
            continue
        facts, at_us = entry.facts, entry.received_us
        match entry.kind.removeprefix("gate."):
            case "effect.granted":
                ends |= {"decided_at_us": at_us, "permission_until_us": facts["until_us"]}
            case "ruled" if facts["ruling"] in _DENIALS:
                ends |= dict.fromkeys(("decided_at_us", "ended_at_us"), facts.get("at_us"))
                if "at_us" not in facts:
                    unknown |= dict.fromkeys(("decided_at_us", "ended_at_us"), _EARLIER_VERSION)
            case "used":
                ends |= {"used_at_us": at_us, "ended_at_us": at_us}
                ends["used_attempt"] = facts["attempt"]
            case "changes_requested" | "expired" | "expired_unused" | "revoked" | "cancelled":
                ends |= {"ended_at_us": at_us, "reason": facts["reason"]}
                if entry.kind == "gate.changes_requested":
                    ends["decided_at_us"] = at_us
    return ends


def _fold_votes(batch: RebuildBatch) -> Iterator[FoldedRow]:
    names = load_project_names(batch)
    for journal in load_session_journals(batch).values():
        requests = {
            entry.subject: entry
            for entry in journal.list_entries("gate.requested")
            if entry.is_ours
        }
        for entry in journal.list_entries("gate.voted"):
            if entry.is_ours and entry.subject in requests:
                with suppress(ValueError):  # an id that is none: no vote of ours
                    request = requests[entry.subject]
                    row = _fold_vote(journal, entry, request.facts["digest"], names)
                    asks = _read_requirement(journal.read_body(request.position))
                    if not load_past_voters(batch).could_vote(entry.actor, asks, entry):
                        row.faults["actor"] = "unfounded"
                    yield row


def _fold_vote(
    journal: SessionJournal, entry: PastEntry, digest: str, names: ProjectNames
) -> FoldedRow:
    facts, unknown = entry.facts, dict[str, str]()
    identity = UUID(hex=entry.event_id)
    user = names.find_person(entry.actor)
    if user is None:
        unknown["user_id"] = _NO_ACCOUNT
    if "at_us" not in facts:
        reasons = dict.fromkeys(("voted_at_us", "team", "own", "view_complete"), _EARLIER_VERSION)
        unknown |= reasons
    if not journal.has_body(entry.position):
        unknown["reason_characters"] = journal.explain_missing_body(entry.position)
    values = {
        "id": identity,
        "project_id": journal.project,
        "gate_id": entry.subject,
        "user_id": user,
        "actor": entry.actor,
        "answer": facts["vote"],
        "team": facts.get("team", ""),
        "card_sha256": facts["card"],
        "shown_version": facts["shown_version"],
        "shown_digest": digest,
        "shown_at_us": facts["first_shown_us"],
        "view_complete": bool(facts.get("complete")),
        "step_up": facts["step_up"],
        "password_at_us": facts.get("password_at_us"),
        "reason_characters": len(journal.read_body(entry.position).get("reason") or ""),
        "position": entry.position,
        "voted_at_us": facts.get("at_us"),
        "own": bool(facts.get("own")),
    }
    return FoldedRow((identity,), values, entry.position, unknown)


def _fold_addressees(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield who is assigned a request, or mentioned on it and has not answered."""
    names = load_project_names(batch)
    for journal in load_session_journals(batch).values():
        present: dict[tuple[UUID, str, str], PastEntry] = {}
        for entry in journal.list_entries("gate.assigned", "gate.commented"):
            gate, facts = entry.subject, entry.facts
            if gate is None or not entry.is_ours:
                continue
            if entry.kind == "gate.commented":
                present.pop((gate, entry.actor, "mentioned"), None)
                for person in facts["mentions"]:
                    present.setdefault((gate, person, "mentioned"), entry)
                continue
            for key in [key for key in present if key[0] == gate and key[2] == "assigned"]:
                del present[key]
            if facts["to"]:
                present[gate, facts["to"], "assigned"] = entry
        for (gate, person, relation), entry in present.items():
            user = names.find_person(person)
            unknown = {"user_id": _NO_ACCOUNT} if user is None else {}
            values = {
                "project_id": journal.project,
                "gate_id": gate,
                "user_id": user,
                "relation": relation,
                "position": entry.position,
            }
            yield FoldedRow((gate, user, relation), values, entry.position, unknown)


def _select_addressees(batch: RebuildBatch) -> "QuerySet[Any]":
    rows = Addressee.objects.filter(gate__session__in=batch.sessions)
    return rows if batch.effects is None else rows.filter(gate__effect__in=batch.effects)


def _select_gates(batch: RebuildBatch) -> "QuerySet[Any]":
    rows = Gate.objects.filter(session__in=batch.sessions)
    return rows if batch.effects is None else rows.filter(effect__in=batch.effects)


def _select_votes(batch: RebuildBatch) -> "QuerySet[Any]":
    rows = Vote.objects.filter(gate__session__in=batch.sessions)
    return rows if batch.effects is None else rows.filter(gate__effect__in=batch.effects)


def register_gate_checks() -> None:
    """Register the checks of gates, votes and addressees."""
    register_row_check(
        Gate._meta.db_table,
        RowCheck(
            Gate,
            ("id",),
            "session",
            _fold_gates,
            _select_gates,
            gates.restore_gates,
            per_effect=True,
        ),
    )
    register_row_check(
        Vote._meta.db_table,
        RowCheck(
            Vote,
            ("id",),
            "session",
            _fold_votes,
            _select_votes,
            votes.restore_votes,
            per_effect=True,
        ),
    )
    register_row_check(
        Addressee._meta.db_table,
        RowCheck(
            Addressee,
            ("gate_id", "user_id", "relation"),
            "session",
            _fold_addressees,
            _select_addressees,
            comments.restore_addressees,
            {"id": "a number of the table, to which nothing refers"},
            lambda _row: {"id": new_uuid7()},
            per_effect=True,
        ),
    )
