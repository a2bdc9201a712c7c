"""The laws of gates and votes that take more than one row, kept by the database itself on both vendors.

Whoever writes, past all code: a gate moves only as approvals/states.py says and what it binds never changes; nobody
with a part in it says yes; votes are never changed; leave by ruling needs an approved gate, and an approval its quorum.
"""

from approvals.states import MOVES
from journal.triggers import Law

_BOUND = (
    "digest", "preconditions_digest", "requirement", "requirement_hash", "minimum", "deny_threshold", "effect_id",
    "session_id", "agent_id", "project_id", "risk", "reversibility", "self_approval", "requester_id",
    "session_owner_id", "agent_owner_id", "leave_for_s", "requested_at_us", "plan_position", "opened_position",
    "policy_set_id", "rule", "tool", "repository_name",
)  # fmt: skip
_BOUND_CHANGED = " OR ".join(f"NEW.{name} IS {{distinct}} OLD.{name}" for name in _BOUND)
_ACTIVATED = ("id", "project_id", "policy_set_id", "mode", "user_id", "actor", "activated_at_us")
_ACTIVATED_CHANGED = " OR ".join(f"NEW.{name} IS {{distinct}} OLD.{name}" for name in _ACTIVATED)
_GRANTED = (
    "id", "project_id", "tool", "rule", "agent", "repository", "ref", "environment", "session_id", "granted_by_id",
    "opened_position", "granted_at_us", "ends_at_us",
)  # fmt: skip
_GRANTED_CHANGED = " OR ".join(f"NEW.{name} IS {{distinct}} OLD.{name}" for name in _GRANTED)
_TAKEN_BACK = " OR ".join(
    (
        "NEW.uses < OLD.uses",
        "(OLD.revoked_at_us IS NOT NULL AND NEW.revoked_at_us IS {distinct} OLD.revoked_at_us)",
        "(OLD.expired_position IS NOT NULL AND NEW.expired_position IS {distinct} OLD.expired_position)",
    )
)
_MOVE = " OR ".join(
    f"(OLD.status = '{before}' AND NEW.status IN ({', '.join(repr(one) for one in after)}))"
    for before, after in MOVES.items()
)
_MOVED_WRONGLY = f"NEW.status <> OLD.status AND NOT ({_MOVE})"
_INTERESTED = (
    "EXISTS (SELECT 1 FROM {schema}approvals_gate gate WHERE gate.id = NEW.gate_id AND NOT gate.self_approval"
    " AND NEW.user_id IN (gate.requester_id, gate.session_owner_id, gate.agent_owner_id))"
)
_NOT_PENDING = (
    "NOT EXISTS (SELECT 1 FROM {schema}approvals_gate gate WHERE gate.id = NEW.gate_id AND gate.status = 'pending'"
    " AND gate.digest = NEW.shown_digest)"
)
_NO_QUORUM = (
    "(SELECT COUNT(*) FROM {schema}approvals_vote vote WHERE vote.gate_id = NEW.id AND vote.answer = 'approve')"
    " < NEW.minimum"
)
_NO_GATE = (
    "NOT EXISTS (SELECT 1 FROM {schema}approvals_gate gate WHERE gate.effect_id = NEW.id AND gate.status = 'approved')"
)

# name -> (table, event, condition, what it says). A condition sees NEW, and OLD where there is one.
_LAWS: dict[str, tuple[str, str, str, str]] = {
    "gate_moves_as_its_life_allows": (
        "approvals_gate", "UPDATE", _MOVED_WRONGLY, "a gate moves only along its life",
    ),
    "gate_never_changes_what_it_binds": (
        "approvals_gate", "UPDATE", _BOUND_CHANGED, "what a gate binds is fixed when it opens",
    ),
    "gate_that_ended_never_changes": (
        "approvals_gate", "UPDATE", "OLD.ended_at_us IS NOT NULL", "what ended stays as it is",
    ),
    "gate_opens_pending": (
        "approvals_gate", "INSERT", "NEW.status <> 'pending'", "a gate opens pending",
    ),
    "gate_is_approved_by_its_quorum": (
        "approvals_gate", "UPDATE",
        f"NEW.status = 'approved' AND OLD.status <> 'approved' AND {_NO_QUORUM}",
        "an approval needs the votes of its quorum",
    ),
    "gate_never_goes": ("approvals_gate", "DELETE", "", "a gate is never deleted"),
    "vote_is_of_nobody_with_a_part_in_it": (
        "approvals_vote", "INSERT", f"NEW.answer = 'approve' AND {_INTERESTED}",
        "requester, session owner and agent owner do not approve",
    ),
    "vote_is_on_a_pending_gate_as_shown": (
        "approvals_vote", "INSERT", _NOT_PENDING, "a vote is on a pending gate, and on what it binds",
    ),
    "vote_never_changes": ("approvals_vote", "UPDATE", "", "a vote is never changed"),
    "vote_never_goes": ("approvals_vote", "DELETE", "", "a vote is never deleted"),
    "leave_by_ruling_has_an_approved_gate": (
        "ledger_effect", "UPDATE",
        "NEW.leave = 'granted' AND (NEW.leave_basis = 'ruling' OR OLD.leave = 'pending')"
        f" AND (OLD.leave <> 'granted' OR OLD.leave_basis <> NEW.leave_basis) AND {_NO_GATE}",
        "leave by ruling needs an approved gate",
    ),
    "leave_by_ruling_is_never_born": (
        "ledger_effect", "INSERT", "NEW.leave = 'granted' AND NEW.leave_basis = 'ruling'",
        "an effect is not born with leave by ruling",
    ),
    "activation_only_ceases": (
        "approvals_activation", "UPDATE", f"{_ACTIVATED_CHANGED} OR (NEW.is_current AND NOT OLD.is_current)",
        "what was put in force stays on record; it can only cease to be the current one",
    ),
    "activation_never_goes": ("approvals_activation", "DELETE", "", "what was put in force stays on record"),
    "exemption_never_changes_what_it_covers": (
        "approvals_exemption", "UPDATE", f"{_GRANTED_CHANGED} OR {_TAKEN_BACK}",
        "what an exemption covers and when it ends is fixed at the grant; a revocation stands and uses only grow",
    ),
    "exemption_never_goes": ("approvals_exemption", "DELETE", "", "an exemption is never deleted"),
    "policy_set_never_changes": ("approvals_policyset", "UPDATE", "", "rules are never changed once loaded"),
    "policy_set_never_goes": ("approvals_policyset", "DELETE", "", "rules are never deleted"),
}  # fmt: skip


def _postgresql() -> tuple[dict[str, tuple[str, str]], str]:
    triggers, functions = {}, []
    for name, (table, event, condition, said) in _LAWS.items():
        test = condition.replace("{schema}", "{schema}.").replace("{distinct}", "DISTINCT FROM") or "TRUE"
        functions.append(f"""
CREATE OR REPLACE FUNCTION {table}_{name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF {test} THEN
    RAISE EXCEPTION '{name}: {said}' USING ERRCODE = 'check_violation';
  END IF;
  RETURN {"OLD" if event == "DELETE" else "NEW"};
END $$;""")
        of = " OF leave, leave_basis" if (table, event) == ("ledger_effect", "UPDATE") else ""
        # A function is only called for what might offend: effects are written by the thousand.
        when = " WHEN (NEW.leave = 'granted')" if table == "ledger_effect" else ""
        triggers[name] = (
            table,
            f"BEFORE {event}{of} ON {table} FOR EACH ROW{when} EXECUTE FUNCTION {table}_{name}()",
        )
    return triggers, "".join(functions)


def _sqlite() -> dict[str, tuple[str, str]]:
    triggers = {}
    for name, (table, event, condition, said) in _LAWS.items():
        test = condition.replace("{schema}", "").replace("{distinct}", "NOT")
        of = " OF leave, leave_basis" if (table, event) == ("ledger_effect", "UPDATE") else ""
        when = f" WHEN {test}" if test else ""
        statement = f"BEFORE {event}{of} ON {table}{when} BEGIN SELECT RAISE(ABORT, '{name}: {said}'); END"
        triggers[name] = (table, statement)
    return triggers


_POSTGRESQL, _FUNCTIONS = _postgresql()
LAW = Law(postgresql=_POSTGRESQL, functions=_FUNCTIONS, sqlite=_sqlite())
