"""Which approvals count now: SQL shared by triggers, quorum, dispatch and pages.

Votes are never deleted, but voters may get a lesser role, quit the project or the team, be
deactivated, or become owner of what they approved. Their approval no longer counts then. A denial
always counts.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

import orjson
from django.db import connection

from accounts.models import ROLES
from approvals.gates.statuses import OPEN_STATUSES
from approvals.models import Gate
from db import raw_sql
from db.raw_sql import read_uuid
from journal.models import Entry

# Why an approval does not count, in order of precedence.
APPROVAL_FAULTS: Final = ("no_reviewer", "not_asked", "part_in_it")

_REVIEWER_ROLES: Final = ", ".join(f"'{role}'" for role in ROLES[ROLES.index("reviewer") :])
# Conditions on rows called `vote` and `gate`; {people:…}, {teams:…} and {distinct_from:…} are names
# in a requirement.
_MEMBER: Final = (
    "SELECT 1 FROM {schema}accounts_membership member JOIN {schema}auth_user person ON"
    " person.id = member.user_id"
    " WHERE member.project_id = gate.project_id AND member.user_id = vote.user_id"
)
IS_REVIEWER_SQL: Final = (
    f"EXISTS ({_MEMBER} AND person.is_active AND member.role IN ({_REVIEWER_ROLES}))"
)
IS_ASKED_SQL: Final = (
    "(NOT EXISTS ({people:gate.requirement}) AND NOT EXISTS ({teams:gate.requirement})"
    f" OR EXISTS ({_MEMBER} AND person.username IN ({{people:gate.requirement}}))"
    f" OR EXISTS ({_MEMBER} AND member.id IN (SELECT one.membership_id FROM"
    f" {{schema}}accounts_teammember one"
    " JOIN {schema}accounts_team team ON team.id = one.team_id"
    " WHERE team.project_id = gate.project_id AND one.project_id = gate.project_id"
    " AND team.name IN ({teams:gate.requirement}))))"
)
_PARTIES: Final = {
    "requester": "gate.requester_id, session.on_behalf_of_id",
    "session_owner": "gate.session_owner_id, session.owner_id",
    "agent_owner": "gate.agent_owner_id, agent.owner_id",
}
_KEPT_AWAY: Final = " OR ".join(
    f"vote.user_id IN ({people}) AND (NOT gate.self_approval OR '{party}' IN"
    f" ({{distinct_from:gate.requirement}}))"
    for party, people in _PARTIES.items()
)
# A person who resolved an effect, or the effect that it compensates, counts as its requester.
_RESOLVED: Final = (
    "EXISTS (SELECT 1 FROM {schema}ledger_effect about JOIN {schema}journal_entry said"
    " ON said.effect IN (about.id, about.compensates_id) JOIN {schema}accounts_person who"
    " ON who.pseudonym = said.actor WHERE about.id = gate.effect_id AND who.user_id = vote.user_id"
    " AND said.kind = 'effect.resolved' AND said.lane = 'system'"
    " AND (NOT gate.self_approval OR 'requester' IN ({distinct_from:gate.requirement})))"
)
HAS_INTEREST_SQL: Final = (
    f"({_RESOLVED} OR EXISTS (SELECT 1 FROM {{schema}}agent_sessions_session session"
    " JOIN {schema}accounts_agent agent ON agent.id = gate.agent_id WHERE session.id ="
    " gate.session_id"
    f" AND ({_KEPT_AWAY})))"
)
APPROVAL_COUNTS_SQL: Final = f"{IS_REVIEWER_SQL} AND {IS_ASKED_SQL} AND NOT {HAS_INTEREST_SQL}"

# A grantor counts while they may still grant exemptions: rows called `vote` and `exemption`.
GRANTING_ROLES: Final = ROLES[ROLES.index("operator") :]
_GRANTING: Final = ", ".join(f"'{role}'" for role in GRANTING_ROLES)
CAN_GRANT_SQL: Final = (
    "EXISTS (SELECT 1 FROM {schema}accounts_membership member JOIN {schema}auth_user person"
    " ON person.id = member.user_id WHERE member.project_id = exemption.project_id AND"
    " member.user_id = vote.user_id"
    f" AND person.is_active AND member.role IN ({_GRANTING}))"
)
GRANTOR_COUNT_SQL: Final = (
    f"(SELECT COUNT(*) FROM {{schema}}approvals_exemptionvote vote WHERE vote.exemption_id ="
    f" exemption.id AND {CAN_GRANT_SQL})"
)

_NAMES_SQL: Final = {
    "sqlite": r"SELECT value FROM json_each(\2, '$.\1')",
    "postgresql": r"SELECT jsonb_array_elements_text(\2 -> '\1')",
}


def render_for_vendor(condition: str, vendor: str) -> str:
    """Return `condition` in the dialect of `vendor`, except the schema."""
    return re.sub(r"\{(people|teams|distinct_from):([\w.]+)\}", _NAMES_SQL[vendor], condition)


class ApprovalVote(NamedTuple):
    """One approval and its proof. `fault` is why it does not count now, or empty."""

    vote: UUID
    user: int
    step_up: str
    reason_characters: int
    fault: str


_APPROVALS_SQL: Final = (
    "SELECT vote.gate_id, vote.id, vote.user_id, vote.step_up, vote.reason_characters,"
    f" {IS_REVIEWER_SQL}, {IS_ASKED_SQL}, {HAS_INTEREST_SQL}"
    " FROM approvals_vote vote JOIN approvals_gate gate ON gate.id = vote.gate_id"
    " WHERE vote.answer = 'approve' AND vote.gate_id IN ({gates}) ORDER BY vote.position"
)


def load_approvals(gates: Sequence[UUID]) -> dict[UUID, list[ApprovalVote]]:
    """Return every approval of each gate in voting order, as of now. One query."""
    approvals_by_gate: dict[UUID, list[ApprovalVote]] = {gate: [] for gate in gates}
    if not approvals_by_gate:
        return approvals_by_gate
    text = render_for_vendor(_APPROVALS_SQL, connection.vendor).replace("{schema}", "")
    marks = text.replace("{gates}", ", ".join(["%s"] * len(approvals_by_gate)))
    for (
        gate,
        vote,
        user,
        step_up,
        characters,
        is_reviewer,
        is_asked,
        has_interest,
    ) in raw_sql.fetch_rows(marks, list(map(raw_sql.vendor_id, approvals_by_gate))):
        faults = dict(
            zip(APPROVAL_FAULTS, (not is_reviewer, not is_asked, has_interest), strict=True)
        )
        fault = next((name for name, applies in faults.items() if applies), "")
        approvals_by_gate[read_uuid(gate)].append(
            ApprovalVote(read_uuid(vote), user, step_up, characters, fault)
        )
    return approvals_by_gate


def load_uncounted_approvals(gate: Gate) -> dict[UUID, str]:
    """Return the approvals that do not count and why, now or as recorded at the end."""
    if gate.status in OPEN_STATUSES:
        return {
            approval.vote: approval.fault
            for approval in load_approvals([gate.id])[gate.id]
            if approval.fault
        }
    if gate.minimum == 1 and gate.reason != "quorum_lost":
        return {}  # the first valid approval decided the gate
    ruling_entries = Entry.objects.filter(
        effect=gate.effect_id, subject=gate.id, kind__in=("gate.ruled", "gate.revoked")
    )
    uncounted_facts = [
        orjson.loads(approval).get("uncounted", {})
        for approval in ruling_entries.values_list("facts", flat=True)
    ]
    return {
        UUID(hex=vote): fault for approval in uncounted_facts for vote, fault in approval.items()
    }


def build_uncounted_facts(approvals: Sequence[ApprovalVote]) -> dict[str, dict[str, str]]:
    """Return the approvals that did not count as facts for the journal.

    Each vote's id and why; empty if all of them counted.
    """
    uncounted = {approval.vote.hex: approval.fault for approval in approvals if approval.fault}
    return {"uncounted": uncounted} if uncounted else {}
