"""Database triggers of gates, votes, permission, exemptions and stops.

They keep, on both databases and for every writer, what a CHECK constraint cannot express. A gate
changes status only as in approvals/gates/statuses.py, and what an approval covers never changes.
People with an interest in the effect cannot approve it, nor can anyone without the required proof
and reason. Votes never change. Permission by ruling needs an approved gate, and approval a quorum
of people who may vote now. Only granted permission is used, and denied permission stays denied. A
stop never changes, except that it is lifted once.
"""

from approvals.gates.statuses import GATE_TRANSITIONS, OPEN_STATUSES, STEP_UPS, UNDO_S, US
from approvals.voting.quorum import (
    APPROVAL_COUNTS_SQL,
    CAN_GRANT_SQL,
    GRANTOR_COUNT_SQL,
    HAS_INTEREST_SQL,
    IS_ASKED_SQL,
    IS_REVIEWER_SQL,
    render_for_vendor,
)
from db.triggers import TriggerSet
from ledger.verdicts.table import ROWS_UNDER_USED_PERMISSION

_BOUND = (
    "id",
    "digest",
    "intent_digest",
    "preconditions_digest",
    "requirement",
    "requirement_hash",
    "minimum",
    "deny_threshold",
    "effect_id",
    "session_id",
    "agent_id",
    "project_id",
    "risk",
    "reversibility",
    "self_approval",
    "requester_id",
    "session_owner_id",
    "agent_owner_id",
    "valid_for_s",
    "requested_at_us",
    "plan_position",
    "opened_position",
    "policy_set_id",
    "rule",
    "tool",
    "repository_name",
    "step_up",
    "reason_of_yes",
)
_BOUND_CHANGED = " OR ".join(f"NEW.{name} IS {{distinct}} OLD.{name}" for name in _BOUND)
_ACTIVATED = ("id", "project_id", "policy_set_id", "mode", "user_id", "actor", "activated_at_us")
_ACTIVATED_CHANGED = " OR ".join(f"NEW.{name} IS {{distinct}} OLD.{name}" for name in _ACTIVATED)
_GRANTED = (
    "id",
    "project_id",
    "tool",
    "rule",
    "agent",
    "repository",
    "ref",
    "environment",
    "session_id",
    "granted_by_id",
    "opened_position",
    "granted_at_us",
    "minimum",
    "ends_at_us",
)
_GRANTED_CHANGED = " OR ".join(f"NEW.{name} IS {{distinct}} OLD.{name}" for name in _GRANTED)
_EXEMPTION_REVERTED = " OR ".join(
    (
        "NEW.uses < OLD.uses",
        "(OLD.in_force_at_us IS NOT NULL AND NEW.in_force_at_us IS {distinct} OLD.in_force_at_us)",
        "(OLD.revoked_at_us IS NOT NULL AND NEW.revoked_at_us IS {distinct} OLD.revoked_at_us)",
        "(OLD.expired_position IS NOT NULL AND NEW.expired_position IS {distinct}"
        " OLD.expired_position)",
    )
)
_SET = ("id", "project_id", "scope", "subject", "set_by_id", "set_at_us", "opened_position")
_SET_CHANGED = " OR ".join(f"NEW.{name} IS {{distinct}} OLD.{name}" for name in _SET)
_LIFT_CHANGED = " OR ".join(
    f"NEW.{name} IS {{distinct}} OLD.{name}" for name in ("lifted_at_us", "lifted_by_id")
)
_ALLOWED_MOVE = " OR ".join(
    f"(OLD.status = '{before}' AND NEW.status IN ({', '.join(repr(status) for status in after)}))"
    for before, after in GATE_TRANSITIONS.items()
)
_BAD_MOVE = f"NEW.status <> OLD.status AND NOT ({_ALLOWED_MOVE})"


def _on_gate(condition: str) -> str:
    """Return the SQL condition that a new vote's gate satisfies `condition`."""
    subquery = "EXISTS (SELECT 1 FROM {schema}approvals_gate gate WHERE gate.id = NEW.gate_id AND "
    return f"{subquery}{condition.replace('vote.', 'NEW.')})"


_RANKS = " ".join(f"WHEN '{name}' THEN {rank}" for rank, name in enumerate(STEP_UPS))
_UNPROVED = (
    f"(CASE vote.step_up {_RANKS} END < CASE gate.step_up {_RANKS} END OR"
    " vote.reason_characters < gate.reason_of_yes)"
)
# A password set by another person does not prove who is signed in.
_NOT_OWN_SIGN_IN = (
    "NOT EXISTS (SELECT 1 FROM {schema}accounts_person person WHERE person.user_id ="
    " NEW.__user"
    " AND person.password_is_own)"
)
_NOT_PENDING = (
    "NOT EXISTS (SELECT 1 FROM {schema}approvals_gate gate WHERE gate.id = NEW.gate_id AND"
    " gate.status = 'pending'"
    " AND gate.digest = NEW.shown_digest)"
)
_OWN_NOT_FLAGGED = (
    "(vote.own OR gate.self_approval) AND"
    " vote.own <> COALESCE(vote.user_id IN (gate.requester_id, gate.session_owner_id,"
    " gate.agent_owner_id), FALSE)"
)
_NO_QUORUM = (
    "(SELECT COUNT(*) FROM {schema}approvals_vote vote WHERE vote.gate_id = NEW.id AND"
    " vote.answer = 'approve'"
    f" AND {APPROVAL_COUNTS_SQL.replace('gate.', 'NEW.')}) < NEW.minimum"
)
_NO_APPROVED_GATE = (
    "NOT EXISTS (SELECT 1 FROM {schema}approvals_gate gate WHERE gate.effect_id = NEW.id AND"
    " gate.status = 'approved')"
)
_GATE_PENDING = (
    "EXISTS (SELECT 1 FROM {schema}approvals_gate gate WHERE gate.effect_id = NEW.id AND"
    " gate.status = 'pending')"
)
# Permission requested after a clean rejection is for the next attempt. A late acknowledgement can
# show that the earlier attempt happened after all: it restores the permission that the earlier
# attempt used, and suspends that of the next one.
_NEVER_GRANTED = (
    "NEW.permission = 'used' AND OLD.permission NOT IN ('granted', 'used')"
    " AND OLD.saved_permission <> 'granted' AND NOT"
    " (NEW.state IN ('acknowledged', 'compensated', 'superseded')"
    " AND EXISTS (SELECT 1 FROM {schema}ledger_attempt attempt"
    " WHERE attempt.effect_id = NEW.id AND attempt.permission = 'used'))"
)
# A person can take a denial back at once; the effect then waits for a new request. Entries of this
# kind are Gatebook's own (approvals/voting/undo.py).
_DENIAL_UNDONE = (
    "NEW.permission = 'pending' AND EXISTS (SELECT 1 FROM {schema}approvals_gate gate"
    " JOIN {schema}approvals_gate denied ON denied.effect_id = gate.effect_id"
    " JOIN {schema}journal_entry undone ON undone.effect = gate.effect_id"
    " AND undone.subject = denied.id"
    " WHERE gate.effect_id = NEW.id AND gate.status = 'pending' AND denied.status = 'denied'"
    " AND REPLACE(CAST(gate.id AS text), '-', '') = NEW.permission_ref"
    " AND REPLACE(CAST(denied.id AS text), '-', '') = OLD.permission_ref"
    " AND undone.kind = 'gate.undone' AND undone.lane = 'system'"
    f" AND undone.received_us <= denied.decided_at_us + {UNDO_S * US})"
)

# Permission given by people is for one attempt. It covers the next one too in the rows of the
# verdict table in which a second attempt cannot cause more than what they approved.
_SECOND_USE = (
    "NEW.number > 1 AND NEW.lane = 'command' AND NEW.permission = 'used' AND NOT (NEW.replaces IS"
    " NOT NULL"
    f" AND NEW.verdict_row IN ({', '.join(repr(row) for row in ROWS_UNDER_USED_PERMISSION)}))"
)
_NOT_APPROVED_AGAIN = (
    "EXISTS (SELECT 1 FROM {schema}ledger_effect effect WHERE effect.id = NEW.effect_id"
    " AND effect.permission_basis = 'ruling'"
    " AND NOT EXISTS (SELECT 1 FROM {schema}approvals_gate gate"
    " WHERE gate.effect_id = effect.id AND gate.status = 'approved'))"
)

_NOT_REQUESTED = (
    "NOT EXISTS (SELECT 1 FROM {schema}approvals_exemption exemption WHERE exemption.id ="
    " NEW.exemption_id"
    " AND exemption.in_force_at_us IS NULL AND exemption.revoked_at_us IS NULL AND"
    f" {CAN_GRANT_SQL.replace('vote.', 'NEW.')})"
)
_TOO_FEW_GRANT = (
    "NEW.in_force_at_us IS NOT NULL AND OLD.in_force_at_us IS NULL"
    f" AND {GRANTOR_COUNT_SQL.replace('exemption.', 'NEW.')} < NEW.minimum"
)
_NO_VALID_EXEMPTION = (
    "NEW.permission = 'granted' AND NEW.permission_basis = 'exemption' AND NOT NEW.imported AND NOT"
    " EXISTS (SELECT 1"
    " FROM {schema}approvals_exemption exemption WHERE exemption.project_id = NEW.project_id"
    " AND REPLACE(CAST(exemption.id AS text), '-', '') = NEW.permission_ref AND"
    " exemption.in_force_at_us IS NOT NULL"
    f" AND exemption.revoked_at_us IS NULL AND {GRANTOR_COUNT_SQL} >= exemption.minimum)"
)

# name -> (table, event, condition, message). Conditions use NEW, and OLD where the event has it.
_TRIGGERS: dict[str, tuple[str, str, str, str]] = {
    "gate_status_follows_its_transitions": (
        "approvals_gate",
        "UPDATE",
        _BAD_MOVE,
        "a gate changes status only as its transitions allow",
    ),
    "gate_terms_never_change": (
        "approvals_gate",
        "UPDATE",
        _BOUND_CHANGED,
        "the terms of a gate never change",
    ),
    "gate_that_ended_never_changes": (
        "approvals_gate",
        "UPDATE",
        "OLD.ended_at_us IS NOT NULL",
        "a gate that ended never changes",
    ),
    "gate_starts_pending": (
        "approvals_gate",
        "INSERT",
        "NEW.status <> 'pending'",
        "a gate starts pending",
    ),
    "gate_is_approved_by_its_quorum": (
        "approvals_gate",
        "UPDATE",
        f"NEW.status = 'approved' AND OLD.status <> 'approved' AND {_NO_QUORUM}",
        "a gate is approved only by its quorum of valid approvals",
    ),
    "gate_is_never_deleted": ("approvals_gate", "DELETE", "", "a gate is never deleted"),
    "approver_is_not_a_party": (
        "approvals_vote",
        "INSERT",
        f"NEW.answer = 'approve' AND {_on_gate(HAS_INTEREST_SQL)}",
        "the requester, session owner and agent owner cannot approve",
    ),
    "approver_is_eligible": (
        "approvals_vote",
        "INSERT",
        f"NEW.answer = 'approve' AND {_on_gate(f'NOT ({IS_REVIEWER_SQL} AND {IS_ASKED_SQL})')}",
        "only eligible active reviewers can approve",
    ),
    "approval_has_the_required_proof": (
        "approvals_vote",
        "INSERT",
        f"NEW.answer = 'approve' AND {_on_gate(_UNPROVED)}",
        "an approval has the proof and reason that its gate requires",
    ),
    "vote_is_on_a_pending_gate_as_shown": (
        "approvals_vote",
        "INSERT",
        _NOT_PENDING,
        "a vote is on a pending gate and on its current terms",
    ),
    "approval_of_own_request_is_marked": (
        "approvals_vote",
        "INSERT",
        f"NEW.answer = 'approve' AND {_on_gate(_OWN_NOT_FLAGGED)}",
        "an approval states whether the voter requested or owns the effect",
    ),
    "voter_has_own_password": (
        "approvals_vote",
        "INSERT",
        _NOT_OWN_SIGN_IN.replace("__user", "user_id"),
        "a voter has chosen their password themselves",
    ),
    "vote_never_changes": ("approvals_vote", "UPDATE", "", "a vote is never changed"),
    "vote_is_never_deleted": ("approvals_vote", "DELETE", "", "a vote is never deleted"),
    "permission_by_ruling_has_an_approved_gate": (
        "ledger_effect",
        "UPDATE",
        "NEW.permission = 'granted'"
        " AND (NEW.permission_basis = 'ruling' OR OLD.permission = 'pending')"
        " AND (OLD.permission <> 'granted' OR OLD.permission_basis <> NEW.permission_basis)"
        f" AND {_NO_APPROVED_GATE}",
        "permission by ruling needs an approved gate",
    ),
    "permission_by_ruling_is_never_inserted": (
        "ledger_effect",
        "INSERT",
        "NEW.permission = 'granted' AND NEW.permission_basis = 'ruling'",
        "an effect is not inserted with permission by ruling",
    ),
    "permission_waits_for_its_gate": (
        "ledger_effect",
        "UPDATE",
        "NEW.permission = 'granted' AND OLD.permission NOT IN ('granted', 'pending')"
        f" AND {_GATE_PENDING}",
        "no permission is granted while a gate is pending",
    ),
    "permission_is_granted_before_it_is_used": (
        "ledger_effect",
        "UPDATE",
        _NEVER_GRANTED,
        "only granted permission can be used",
    ),
    "permission_that_was_denied_stays_denied": (
        "ledger_effect",
        "UPDATE",
        "OLD.permission = 'denied' AND NEW.permission IN ('none', 'pending', 'granted')"
        f" AND NOT ({_DENIAL_UNDONE})",
        "denied permission stays denied, or the effect ran without it",
    ),
    "saved_permission_is_the_previous_one": (
        "ledger_effect",
        "UPDATE",
        "NEW.saved_permission NOT IN ('', OLD.saved_permission, OLD.permission)",
        "only the current permission can be saved",
    ),
    # AFTER, because an upsert fires BEFORE INSERT triggers also for rows that it then updates.
    "permission_by_ruling_is_reused_by_few_rows": (
        "ledger_attempt",
        "STORED",
        f"{_SECOND_USE} AND {_NOT_APPROVED_AGAIN}",
        "permission by ruling is for one attempt, and for a replay by verdicts that cannot repeat"
        " the effect",
    ),
    # An effect cannot be deleted and inserted again with permission.
    "effect_is_never_deleted": ("ledger_effect", "DELETE", "", "an effect is never deleted"),
    "attempt_is_never_deleted": ("ledger_attempt", "DELETE", "", "an attempt is never deleted"),
    "activation_only_ends": (
        "approvals_activation",
        "UPDATE",
        f"{_ACTIVATED_CHANGED} OR (NEW.is_current AND NOT OLD.is_current)",
        "an activation never changes; it can only stop being the current one",
    ),
    "activation_is_never_deleted": (
        "approvals_activation",
        "DELETE",
        "",
        "an activation is never deleted",
    ),
    "exemption_terms_never_change": (
        "approvals_exemption",
        "UPDATE",
        f"{_GRANTED_CHANGED} OR {_EXEMPTION_REVERTED}",
        "the terms of an exemption never change; a revocation is final and uses only grow",
    ),
    "exemption_requester_has_own_password": (
        "approvals_exemption",
        "INSERT",
        _NOT_OWN_SIGN_IN.replace("__user", "granted_by_id"),
        "the person has chosen their password themselves",
    ),
    "exemption_starts_requested": (
        "approvals_exemption",
        "INSERT",
        "NEW.in_force_at_us IS NOT NULL",
        "an exemption starts as a request",
    ),
    "exemption_is_granted_by_enough_people": (
        "approvals_exemption",
        "UPDATE",
        _TOO_FEW_GRANT,
        "an exemption is granted by its quorum of operators",
    ),
    "exemption_vote_is_of_an_operator": (
        "approvals_exemptionvote",
        "INSERT",
        _NOT_REQUESTED,
        "only active operators grant a requested exemption",
    ),
    "exemption_voter_has_own_password": (
        "approvals_exemptionvote",
        "INSERT",
        _NOT_OWN_SIGN_IN.replace("__user", "user_id"),
        "the person has chosen their password themselves",
    ),
    "exemption_vote_never_changes": (
        "approvals_exemptionvote",
        "UPDATE",
        "",
        "an exemption vote is never changed",
    ),
    "exemption_vote_is_never_deleted": (
        "approvals_exemptionvote",
        "DELETE",
        "",
        "an exemption vote is never deleted",
    ),
    "permission_by_exemption_has_a_valid_one": (
        "ledger_effect",
        "UPDATE",
        "(OLD.permission <> 'granted' OR OLD.permission_ref <> NEW.permission_ref)"
        f" AND {_NO_VALID_EXEMPTION}",
        "permission by exemption needs a valid exemption",
    ),
    "permission_by_exemption_starts_with_a_valid_one": (
        "ledger_effect",
        "INSERT",
        _NO_VALID_EXEMPTION,
        "permission by exemption needs a valid exemption",
    ),
    "exemption_is_never_deleted": (
        "approvals_exemption",
        "DELETE",
        "",
        "an exemption is never deleted",
    ),
    "stop_is_only_lifted_and_once": (
        "ledger_stop",
        "UPDATE",
        f"{_SET_CHANGED} OR (OLD.lifted_at_us IS NOT NULL AND ({_LIFT_CHANGED}))",
        "a stop never changes, except that it is lifted once",
    ),
    "stop_is_never_deleted": ("ledger_stop", "DELETE", "", "a stop is never deleted"),
    "policy_set_never_changes": (
        "approvals_policyset",
        "UPDATE",
        "",
        "rules are never changed once loaded",
    ),
    "policy_set_is_never_deleted": ("approvals_policyset", "DELETE", "", "rules are never deleted"),
}


# Columns and partial condition of each unique key. INSERT OR REPLACE removes rows without firing
# DELETE triggers on a connection without recursive_triggers, so triggers refuse to insert over a
# row.
_UNIQUE_KEYS: dict[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "approvals_gate": (
        (("id",), ""),
        (("rowid",), ""),
        (("effect_id",), f"status IN ({', '.join(repr(status) for status in OPEN_STATUSES)})"),
    ),
    "approvals_vote": ((("id",), ""), (("rowid",), ""), (("gate_id", "user_id"), "")),
    "approvals_policyset": (
        (("id",), ""),
        (("rowid",), ""),
        (("project_id", "name", "version"), ""),
    ),
    "approvals_activation": ((("id",), ""), (("rowid",), ""), (("project_id",), "is_current")),
    "approvals_exemption": (
        (("id",), ""),
        (("rowid",), ""),
    ),
    "approvals_exemptionvote": ((("id",), ""), (("rowid",), ""), (("exemption_id", "user_id"), "")),
    "ledger_stop": (
        (("id",), ""),
        (("rowid",), ""),
        (("project_id", "scope", "subject"), "lifted_at_us IS NULL"),
    ),
}
# WHEN clauses of PostgreSQL triggers on effects: thousands are written at a time, so a trigger
# function is called only for rows that could violate it.
_GRANTED_BY_EXEMPTION = "NEW.permission = 'granted' AND NEW.permission_basis = 'exemption'"
_WHEN_CLAUSES: dict[str, str] = {
    "permission_by_ruling_has_an_approved_gate": "NEW.permission = 'granted'",
    "permission_by_ruling_is_never_inserted": "NEW.permission = 'granted'",
    "permission_waits_for_its_gate": "NEW.permission = 'granted'",
    "permission_by_exemption_has_a_valid_one": _GRANTED_BY_EXEMPTION,
    "permission_by_exemption_starts_with_a_valid_one": _GRANTED_BY_EXEMPTION,
    "permission_is_granted_before_it_is_used": (
        "NEW.permission = 'used' AND OLD.permission NOT IN ('granted', 'used')"
    ),
    "permission_that_was_denied_stays_denied": "OLD.permission = 'denied'",
    "saved_permission_is_the_previous_one": "NEW.saved_permission <> ''",
    "permission_by_ruling_is_reused_by_few_rows": _SECOND_USE,
}


_TIMING = {"STORED": "AFTER INSERT"}


def _build_postgresql() -> tuple[dict[str, tuple[str, str]], str]:
    triggers, functions = {}, []
    for name, (table, event, condition, message) in _TRIGGERS.items():
        test = render_for_vendor(condition, "postgresql").replace("{schema}", "{schema}.")
        test = test.replace("{distinct}", "DISTINCT FROM") or "TRUE"
        functions.append(f"""
CREATE OR REPLACE FUNCTION {table}_{name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF {test} THEN
    RAISE EXCEPTION '{name}: {message}' USING ERRCODE = 'check_violation';
  END IF;
  RETURN {"OLD" if event == "DELETE" else "NEW"};
END $$;""")
        of = (
            " OF permission, permission_basis, saved_permission"
            if (table, event) == ("ledger_effect", "UPDATE")
            else ""
        )
        when = f" WHEN ({_WHEN_CLAUSES[name]})" if name in _WHEN_CLAUSES else ""
        triggers[name] = (
            table,
            f"{_TIMING.get(event, f'BEFORE {event}')}{of} ON {table} FOR EACH ROW{when}"
            f" EXECUTE FUNCTION {table}_{name}()",
        )
    for table in _UNIQUE_KEYS:
        triggers[f"{table}_is_never_truncated"] = (
            table,
            f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION"
            " approvals_refuse_truncation()",
        )
    functions.append("""
CREATE OR REPLACE FUNCTION approvals_refuse_truncation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is never truncated: what was decided stays on record', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation';
END $$;""")
    return triggers, "".join(functions)


def _build_no_replace_triggers() -> dict[str, tuple[str, str]]:
    """Return triggers that refuse to insert over a row, with uniqueness errors."""
    triggers = {}
    for table, keys in _UNIQUE_KEYS.items():
        for columns, being in keys:
            same_values = [f"{name} = NEW.{name}" for name in columns] + (
                [being, f"NEW.{being}"] if being else []
            )
            message = ", ".join(f"{table}.{name}" for name in columns)
            triggers[f"{table}_{'_'.join(columns)}_is_never_replaced"] = (
                table,
                f"BEFORE INSERT ON {table} WHEN EXISTS (SELECT 1 FROM {table} WHERE"
                f" {' AND '.join(same_values)})"
                f" BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: {message}'); END",
            )
        triggers[f"{table}_keeps_its_rowid"] = (
            table,
            f"BEFORE UPDATE ON {table} WHEN NEW.rowid <> OLD.rowid"
            f" BEGIN SELECT RAISE(ABORT, '{table}_keeps_its_rowid: UPDATE OR REPLACE would"
            " remove another row'); END",
        )
    return triggers


def _build_sqlite() -> dict[str, tuple[str, str]]:
    triggers = _build_no_replace_triggers()
    for name, (table, event, condition, message) in _TRIGGERS.items():
        test = (
            render_for_vendor(condition, "sqlite")
            .replace("{schema}", "")
            .replace("{distinct}", "NOT")
        )
        of = (
            " OF permission, permission_basis, saved_permission"
            if (table, event) == ("ledger_effect", "UPDATE")
            else ""
        )
        when = f" WHEN {test}" if test else ""
        moment = _TIMING.get(event, f"BEFORE {event}")
        statement = (
            f"{moment}{of} ON {table}{when} BEGIN SELECT RAISE(ABORT, '{name}: {message}'); END"
        )
        triggers[name] = (table, statement)
    return triggers


_POSTGRESQL, _FUNCTIONS = _build_postgresql()
APPROVAL_TRIGGERS = TriggerSet(postgresql=_POSTGRESQL, functions=_FUNCTIONS, sqlite=_build_sqlite())
