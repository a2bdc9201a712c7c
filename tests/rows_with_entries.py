"""Rows that decide, written by hand with the entries that the guards of the database require."""

from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import models, transaction

from accounts import people
from accounts.models import Agent, AgentToken, Invitation, Membership, Person, Project, TeamMember
from accounts.people import ensure_pseudonym
from approvals.models import (
    Activation,
    Addressee,
    Exemption,
    ExemptionVote,
    Gate,
    PolicySet,
    ReviewSettings,
    Vote,
)
from db.ids import new_uuid7
from erasure import recorded_holds
from erasure.models import ErasureRequest, LegalHold
from hooks.code_hosts import agent_identities, sources
from hooks.models import AgentIdentity, CodeHostSource
from journal import entries
from ledger.models import Stop, Tool
from ledger.tools.registry import DECLARED_COLUMNS
from monitoring.models import StuckLimit
from notifications import channels
from notifications.models import NotificationChannel
from retention.models import RetentionSet

Row = Any  # a model's instance
Facts = dict[str, Any]


def write_entry(
    project: UUID, kind: str, subject: UUID | None, facts: Facts, **columns: Any
) -> int:
    """Append an entry of Gatebook itself and return its position."""
    stored = entries.record_system_entry(
        project,
        kind,
        event_id=columns.pop("event_id", new_uuid7().hex),
        text=orjson.dumps({"kind": kind, **columns.pop("words", {})}).decode(),
        received_us=columns.pop("received_us", 1),
        facts=entries.dump_sorted_json(facts),
        subject=subject,
        **columns,
    )
    return stored.position


def _member(row: Row, kind: str = "admin.member_added") -> None:
    facts = {"person": ensure_pseudonym(row.user), "role": row.role}
    write_entry(row.project_id, kind, row.id, facts)


def _agent(row: Row) -> None:
    facts = {"agent": str(row.id), "owner": _pseudonym(row.owner_id), "team": row.team}
    write_entry(row.project_id, "admin.agent_created", row.id, facts, words={"agent": row.name})


def _invitation(row: Row) -> None:
    write_entry(
        row.project_id,
        "admin.member_invited",
        row.id,
        {"role": row.role},
        actor=row.invited_by,
        words={"username": row.user.get_username()},
    )


def _token(row: Row) -> None:
    ends = row.expires_at
    facts = {
        "agent": row.agent_id.hex,
        "scope": row.scope,
        "expires_us": None if ends is None else int(ends.timestamp() * 1_000_000),
        "digest": bytes(row.digest).hex()[:32],
    }
    write_entry(row.project_id, "admin.token_issued", row.id, facts)


def _team_member(row: Row) -> None:
    facts = {"person": ensure_pseudonym(row.membership.user)}
    write_entry(row.project_id, "admin.team_member_added", row.team_id, facts)


def _tool(row: Row) -> None:
    rows = [*Tool.objects.filter(project=row.project_id), row]
    row.declared_position = _load_tools(row.project_id, rows)


def _load_tools(project: UUID, rows: list[Tool], *, stamp: bool = True) -> int:
    """Write the entry of a load of `rows`; with `stamp`, the stored ones are of this load."""
    columns = ("name", "description", *DECLARED_COLUMNS)
    words = [{column: getattr(row, column) for column in columns} for row in rows]
    position = write_entry(
        project,
        "admin.tools_loaded",
        None,
        {"tools": len(rows), "before": {}},
        words={"tools": words},
    )
    if stamp:
        Tool.objects.filter(project=project).update(declared_position=position)
    return position


def _stop(row: Row) -> None:
    facts = {"scope": row.scope, "thing": "" if row.scope == "tool" else row.subject}
    row.opened_position = write_entry(
        row.project_id,
        "stop.set",
        row.id,
        facts,
        actor=ensure_pseudonym(row.set_by),
        received_us=row.set_at_us,
    )


def _policy_set(row: Row) -> None:
    facts = {"version": row.version, "sha256": row.sha256}
    write_entry(row.project_id, "policy.loaded", row.id, facts, actor=row.loaded_by)


def _retention_set(row: Row) -> None:
    facts = {"version": row.version, "sha256": row.sha256}
    write_entry(row.project_id, "retention.loaded", row.id, facts, actor=row.loaded_by)


def _activation(row: Row) -> None:
    row.position = write_entry(
        row.project_id, "policy.activated", row.policy_set_id, {"mode": row.mode}, actor=row.actor
    )


def _exemption(row: Row) -> None:
    row.opened_position = write_entry(
        row.project_id,
        "exemption.requested",
        row.id,
        {"ends_at_us": row.ends_at_us, "minimum": row.minimum},
        actor=ensure_pseudonym(row.granted_by),
        received_us=row.granted_at_us,
        session=row.session_id,
    )


def _exemption_vote(row: Row) -> None:
    row.actor = ensure_pseudonym(row.user)
    row.position = write_entry(
        row.exemption.project_id,
        "exemption.confirmed",
        row.exemption_id,
        {"password_at_us": row.password_at_us},
        actor=row.actor,
        received_us=row.voted_at_us,
    )


def _addressee(row: Row) -> None:
    person = ensure_pseudonym(row.user)
    is_assigned = row.relation == "assigned"
    row.position = write_entry(
        row.project_id,
        "gate.assigned" if is_assigned else "gate.commented",
        row.gate_id,
        {"to": person} if is_assigned else {"mentions": [person]},
    )


def _review_settings(row: Row) -> None:
    columns = {"from_us": row.away_from_us, "until_us": row.away_until_us, "hour": row.digest_hour}
    facts = {name: value for name, value in columns.items() if value is not None}
    if row.stand_in is not None:
        facts["stand_in"] = ensure_pseudonym(row.stand_in)
    for kind in ("admin.absence_changed", "admin.digest_changed"):
        write_entry(row.project_id, kind, None, facts, actor=ensure_pseudonym(row.user))


def _gate(row: Row) -> None:
    facts = {
        "digest": row.digest,
        "preconditions": row.preconditions_digest,
        "requirement": row.requirement_hash,
        "minimum": row.minimum,
        "deny_threshold": row.deny_threshold,
        "decide_by_us": row.decide_by_us,
        "valid_for_s": row.valid_for_s,
        "policy_set": "" if row.policy_set_id is None else row.policy_set_id.hex,
        "rule": row.rule,
        "risk": row.risk,
        "reversibility": row.reversibility,
        "plan": row.plan_position,
        "step_up": row.step_up,
        "reason_of_yes": row.reason_of_yes,
        "self_approval": int(row.self_approval),
        "on_behalf_of": _pseudonym(row.requester_id),
        "session_owner": _pseudonym(row.session_owner_id),
        "agent_owner": _pseudonym(row.agent_owner_id),
    }
    row.opened_position = write_entry(
        row.project_id,
        "gate.requested",
        row.id,
        facts,
        received_us=row.requested_at_us,
        session=row.session_id,
        effect=row.effect_id,
    )


def _pseudonym(user: int | None) -> str:
    return Person.objects.filter(user=user).values_list("pseudonym", flat=True).first() or ""


def _vote(row: Row) -> None:
    row.actor = ensure_pseudonym(row.user)
    facts = {
        "vote": row.answer,
        "card": row.card_sha256,
        "shown_version": row.shown_version,
        "first_shown_us": row.shown_at_us,
        "step_up": row.step_up,
        "password_at_us": row.password_at_us,
        "reason_characters": row.reason_characters,
        "at_us": row.voted_at_us,
        "complete": row.view_complete,
        "team": row.team,
        **({"own": True} if row.own else {}),
    }
    row.position = write_entry(
        row.project_id,
        "gate.voted",
        row.gate_id,
        facts,
        actor=row.actor,
        received_us=row.voted_at_us,
        event_id=row.id.hex,
        session=row.gate.session_id,
        effect=row.gate.effect_id,
    )


def _channel(row: Row) -> None:
    channels._record_entry(row, "admin.channel_added", ensure_pseudonym(row.created_by), {})


def _source(row: Row) -> None:
    sources._record_source_entry(row, "admin.source_added", row.created_by)


def _identity(row: Row) -> None:
    agent_identities._record_identity_entry(row, "admin.identity_added", row.created_by)


def _limit(row: Row) -> None:
    facts = {"agent": row.agent_id.hex, "limit": row.name, "value": row.value}
    write_entry(row.project_id, "stuck.limit_changed", row.agent_id, facts)


def _erasure_request(row: Row) -> None:
    row.requested_position = write_entry(
        row.project_id,
        "erasure.requested",
        None,
        {"request": row.id.hex, "subject": row.subject_kind},
        actor=ensure_pseudonym(row.asked_by),
    )


def _legal_hold(row: Row) -> None:
    row.set_position = write_entry(
        row.project_id,
        "erasure.hold_set",
        None,
        {"subject": row.kind, "words": recorded_holds.digest_hold_words(row.words)},
        actor=ensure_pseudonym(row.set_by),
        session=row.session_id,
    )


# Model -> what writes the entry of a new row, before it is inserted.
ENTRIES: Final[dict[type[models.Model], Callable[[Row], None]]] = {
    Activation: _activation,
    Addressee: _addressee,
    Agent: _agent,
    AgentIdentity: _identity,
    AgentToken: _token,
    CodeHostSource: _source,
    ErasureRequest: _erasure_request,
    Exemption: _exemption,
    ExemptionVote: _exemption_vote,
    Gate: _gate,
    Invitation: _invitation,
    LegalHold: _legal_hold,
    Membership: _member,
    NotificationChannel: _channel,
    PolicySet: _policy_set,
    RetentionSet: _retention_set,
    ReviewSettings: _review_settings,
    Stop: _stop,
    StuckLimit: _limit,
    TeamMember: _team_member,
    Tool: _tool,
    Vote: _vote,
}


def add_row(row: Row) -> Row:
    """Insert a row after its entry, in its own savepoint; return it."""
    with transaction.atomic():
        if isinstance(row, Membership | TeamMember):
            user: User = row.user if isinstance(row, Membership) else row.membership.user
            Person.objects.get_or_create(user=user, defaults={"pseudonym": f"p_user_{user.pk}"})
        if type(row) in ENTRIES:
            ENTRIES[type(row)](row)
        row.save(force_insert=True)
    return row


def add_rows(rows: Iterable[Row]) -> list[Row]:
    """Insert each row after its entry."""
    return [add_row(row) for row in rows]


def mark_own_password(user: User) -> Person:
    """Let a person's password count as their own, as after they set it."""
    with transaction.atomic():
        person, _ = Person.objects.get_or_create(
            user=user, defaults={"pseudonym": f"p_{user.username}"}
        )
        if not people.read_password_salt(user.password):
            user.password = f"md5${new_uuid7().hex}$0"
            user.save(update_fields=["password"])
        project = Project.objects.first() or Project.objects.create(name="default")
        facts = {"person": person.pseudonym, "salt": people.read_password_salt(user.password)}
        facts["password"] = people.digest_password(user.password)
        write_entry(project.id, "admin.password_changed", None, facts)
        Person.objects.filter(user=user).update(password_is_own=True)
        person.refresh_from_db()
        user.refresh_from_db()
    return person


def change_roles(members: "models.QuerySet[Membership]", role: str) -> None:
    """Give members a role, whatever the verbs would refuse."""
    with transaction.atomic():
        for member in members.select_related("user"):
            member.role = role
            _member(member, "admin.member_changed")
            member.save(update_fields=["role"])


def remove_members(members: "models.QuerySet[Membership]") -> None:
    """Remove members, whatever the verbs would refuse."""
    with transaction.atomic():
        for member in members.select_related("user"):
            for listed in TeamMember.objects.filter(membership=member):
                facts = {"person": ensure_pseudonym(member.user)}
                write_entry(listed.project_id, "admin.team_member_removed", listed.team_id, facts)
                listed.delete()
            _member(member, "admin.member_removed")
            member.delete()


def close_accounts(users: "models.QuerySet[User]") -> None:
    """Close accounts, whatever the verbs would refuse."""
    with transaction.atomic():
        for user in users:
            people._record_account(user, "admin.account_closed", "gatebook")
            User.objects.filter(pk=user.pk).update(is_active=False)


def change_agents(agents: "models.QuerySet[Agent]", **columns: Any) -> None:
    """Give agents an owner or a team, whatever the verbs would refuse."""
    with transaction.atomic():
        for agent in agents:
            if "owner" in columns:
                owner = columns["owner"]
                facts = {"owner": "" if owner is None else ensure_pseudonym(owner)}
                write_entry(agent.project_id, "admin.agent_changed", agent.id, facts)
            if "team" in columns:
                facts = {"team": columns["team"]}
                write_entry(agent.project_id, "admin.agent_team_changed", agent.id, facts)
        agents.update(**columns)


def change_tools(tools: "models.QuerySet[Tool]", **columns: Any) -> int:
    """Change declared tools, as a load of the same project does; return how many."""
    with transaction.atomic():
        keys = list(tools.values_list("pk", flat=True))
        for project in set(tools.values_list("project", flat=True)):
            _change_tools(project, keys, columns)
    return len(keys)


def _change_tools(project: UUID, keys: list[UUID], columns: Facts) -> None:
    rows = list(Tool.objects.filter(project=project))
    changed = [row for row in rows if row.pk in keys]
    for row in changed:
        vars(row).update(columns)
    position = _load_tools(project, rows, stamp=False)
    Tool.objects.filter(pk__in=keys).update(**columns, declared_position=position)
    Tool.objects.filter(project=project).exclude(pk__in=keys).update(declared_position=position)


def remove_tools(tools: "models.QuerySet[Tool]") -> None:
    """Remove declared tools."""
    with transaction.atomic():
        for tool in tools:
            write_entry(tool.project_id, "admin.tools_loaded", None, {"tools": 0, "before": {}})
            tool.delete()


_RULED: Final = ("approved", "denied", "denied_session", "changes_requested")


def change_gates(gates: "models.QuerySet[Gate]", **columns: Any) -> int:
    """Change gates after the entries that the guards require; return how many."""
    with transaction.atomic():
        for gate in gates:
            of_gate = {"session": gate.session_id, "effect": gate.effect_id}
            status, until = columns.get("status"), columns.get("decide_by_us")
            if status in _RULED:
                write_entry(gate.project_id, "gate.ruled", gate.id, {"ruling": status}, **of_gate)
            elif status is not None:
                facts = {
                    "reason": columns.get("reason", gate.reason),
                    "attempt": columns.get("used_attempt"),
                }
                write_entry(gate.project_id, f"gate.{status}", gate.id, facts, **of_gate)
            if isinstance(until, int):
                facts = {"decide_by_us": until}
                write_entry(gate.project_id, "gate.extended", gate.id, facts, **of_gate)
        return gates.update(**columns)
