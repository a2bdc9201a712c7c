"""Whose yes counts now: one text of SQL that the triggers, the counting of a quorum, the last look and the pages share.

A vote is never deleted, and its voter may leave: be given a lesser role, leave the project or the team, be deactivated,
or come to own what the yes was to. Then it counts no longer. A no stands, whoever gave it.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

import orjson
from django.db import connection

from approvals.models import Gate
from approvals.states import OPEN
from journal import sql
from journal.models import Entry
from sessions.models import ROLES

FAULTS: Final = (
    "no_reviewer",
    "not_asked",
    "part_in_it",
)  # why a yes does not count, the first that is so

_RULING: Final = ", ".join(f"'{role}'" for role in ROLES[ROLES.index("reviewer") :])
# Each is a condition on rows called `vote` and `gate`; {people:…}, {teams:…} and {distinct_from:…} are names in a
# requirement.
_MEMBER: Final = (
    "SELECT 1 FROM {schema}agent_sessions_membership member JOIN {schema}auth_user person ON person.id = member.user_id"
    " WHERE member.project_id = gate.project_id AND member.user_id = vote.user_id"
)
REVIEWS: Final = f"EXISTS ({_MEMBER} AND person.is_active AND member.role IN ({_RULING}))"
ASKED: Final = (
    "(NOT EXISTS ({people:gate.requirement}) AND NOT EXISTS ({teams:gate.requirement})"
    f" OR EXISTS ({_MEMBER} AND person.username IN ({{people:gate.requirement}}))"
    f" OR EXISTS ({_MEMBER} AND member.id IN (SELECT one.membership_id FROM {{schema}}agent_sessions_teammember one"
    " JOIN {schema}agent_sessions_team team ON team.id = one.team_id"
    " WHERE team.project_id = gate.project_id AND team.name IN ({teams:gate.requirement}))))"
)
_PARTIES: Final = {
    "requester": "gate.requester_id, session.on_behalf_of_id",
    "session_owner": "gate.session_owner_id, session.owner_id",
    "agent_owner": "gate.agent_owner_id, agent.owner_id",
}
_KEPT_AWAY: Final = " OR ".join(
    f"vote.user_id IN ({people}) AND (NOT gate.self_approval OR '{party}' IN ({{distinct_from:gate.requirement}}))"
    for party, people in _PARTIES.items()
)
# Whoever said what became of an effect, or of what it compensates, asks for what follows from it.
_RESOLVED: Final = (
    "EXISTS (SELECT 1 FROM {schema}ledger_effect about JOIN {schema}journal_entry said"
    " ON said.effect IN (about.id, about.compensates_id) JOIN {schema}agent_sessions_person who"
    " ON who.pseudonym = said.actor WHERE about.id = gate.effect_id AND who.user_id = vote.user_id"
    " AND said.kind = 'effect.resolved' AND said.lane = 'system'"
    " AND (NOT gate.self_approval OR 'requester' IN ({distinct_from:gate.requirement})))"
)
PART: Final = (
    f"({_RESOLVED} OR EXISTS (SELECT 1 FROM {{schema}}agent_sessions_session session"
    " JOIN {schema}agent_sessions_agent agent ON agent.id = gate.agent_id WHERE session.id = gate.session_id"
    f" AND ({_KEPT_AWAY})))"
)
COUNTS: Final = f"{REVIEWS} AND {ASKED} AND NOT {PART}"

# Who granted an exemption counts while they may still grant one: rows called `vote` and `exemption`.
GRANTING: Final = ROLES[ROLES.index("operator") :]
_GRANTING: Final = ", ".join(f"'{role}'" for role in GRANTING)
GRANTS: Final = (
    "EXISTS (SELECT 1 FROM {schema}agent_sessions_membership member JOIN {schema}auth_user person"
    " ON person.id = member.user_id WHERE member.project_id = exemption.project_id AND member.user_id = vote.user_id"
    f" AND person.is_active AND member.role IN ({_GRANTING}))"
)
GRANTORS: Final = f"(SELECT COUNT(*) FROM {{schema}}approvals_exemptionvote vote WHERE vote.exemption_id = exemption.id AND {GRANTS})"

_NAMES: Final = {
    "sqlite": r"SELECT value FROM json_each(\2, '$.\1')",
    "postgresql": r"SELECT jsonb_array_elements_text(\2 -> '\1')",
}


def of_vendor(condition: str, vendor: str) -> str:
    """`condition` as a database of `vendor` reads it, but for the schema."""
    return re.sub(r"\{(people|teams|distinct_from):([\w.]+)\}", _NAMES[vendor], condition)


class Yes(NamedTuple):
    """One yes: by whom, how it was proved, how long its reason is, and why it does not count now (empty: it does)."""

    vote: UUID
    user: int
    step_up: str
    reason_characters: int
    fault: str


_READ: Final = (
    f"SELECT vote.gate_id, vote.id, vote.user_id, vote.step_up, vote.reason_characters, {REVIEWS}, {ASKED}, {PART}"
    " FROM approvals_vote vote JOIN approvals_gate gate ON gate.id = vote.gate_id"
    " WHERE vote.answer = 'approve' AND vote.gate_id IN ({gates}) ORDER BY vote.position"
)


def yeses(gates: Sequence[UUID]) -> dict[UUID, list[Yes]]:
    """Every yes to each of `gates`, in the order they were given, as things are now. One query."""
    found: dict[UUID, list[Yes]] = {gate: [] for gate in gates}
    if not found:
        return found
    text = of_vendor(_READ, connection.vendor).replace("{schema}", "")
    marks = text.replace("{gates}", ", ".join(["%s"] * len(found)))
    for gate, vote, user, step_up, characters, reviews, asked, part in sql.rows(
        marks, list(map(sql.vendor_id, found))
    ):
        faults = dict(zip(FAULTS, (not reviews, not asked, part), strict=True))
        fault = next((name for name, is_so in faults.items() if is_so), "")
        found[_uuid(gate)].append(Yes(_uuid(vote), user, step_up, characters, fault))
    return found


def faults(gate: Gate) -> dict[UUID, str]:
    """The votes for a yes that do not count, and why: as of now while the gate is open, else as the book tells it."""
    if gate.status in OPEN:
        return {one.vote: one.fault for one in yeses([gate.id])[gate.id] if one.fault}
    if gate.minimum == 1 and gate.reason != "quorum_lost":
        return {}  # the first yes that counted was the ruling
    said = Entry.objects.filter(
        effect=gate.effect_id, subject=gate.id, kind__in=("gate.ruled", "gate.revoked")
    )
    found = [orjson.loads(one).get("uncounted", {}) for one in said.values_list("facts", flat=True)]
    return {UUID(hex=vote): fault for one in found for vote, fault in one.items()}


def told(yes: Sequence[Yes]) -> dict[str, dict[str, str]]:
    """What the book keeps of the yeses that did not count: each vote's id, and why; nothing where all of them did."""
    uncounted = {one.vote.hex: one.fault for one in yes if one.fault}
    return {"uncounted": uncounted} if uncounted else {}


def _uuid(value: UUID | str) -> UUID:
    return value if isinstance(value, UUID) else UUID(hex=value)
