"""The laws of gates, votes, leave and stops that a CHECK cannot keep, kept by the database itself on both vendors.

Whoever writes, past all code: a gate moves only as approvals/states.py says and what it binds never changes; nobody
with a part in it says yes, and nobody without the proof and the words that the gate asks for; votes are never changed;
leave by ruling needs an approved gate, and an approval the yes of people who may still rule; only leave that was given
is used, and what was refused stays so; a stop stands as it was set until it is lifted, once.
"""

from approvals.quorum import ASKED, COUNTS, GRANTORS, GRANTS, PART, REVIEWS, of_vendor
from approvals.states import MOVES, OPEN, STEP_UPS
from journal.triggers import Law
from ledger.verdicts import UNDER_USED_LEAVE

_BOUND = (
    "id", "digest", "intent_digest", "preconditions_digest", "requirement", "requirement_hash", "minimum",
    "deny_threshold", "effect_id", "session_id", "agent_id", "project_id", "risk", "reversibility", "self_approval",
    "requester_id", "session_owner_id", "agent_owner_id", "leave_for_s", "requested_at_us", "plan_position",
    "opened_position", "policy_set_id", "rule", "tool", "repository_name", "step_up", "reason_of_yes",
)  # fmt: skip
_BOUND_CHANGED = " OR ".join(f"NEW.{name} IS {{distinct}} OLD.{name}" for name in _BOUND)
_ACTIVATED = ("id", "project_id", "policy_set_id", "mode", "user_id", "actor", "activated_at_us")
_ACTIVATED_CHANGED = " OR ".join(f"NEW.{name} IS {{distinct}} OLD.{name}" for name in _ACTIVATED)
_GRANTED = (
    "id", "project_id", "tool", "rule", "agent", "repository", "ref", "environment", "session_id", "granted_by_id",
    "opened_position", "granted_at_us", "minimum", "ends_at_us",
)  # fmt: skip
_GRANTED_CHANGED = " OR ".join(f"NEW.{name} IS {{distinct}} OLD.{name}" for name in _GRANTED)
_TAKEN_BACK = " OR ".join(
    (
        "NEW.uses < OLD.uses",
        "(OLD.in_force_at_us IS NOT NULL AND NEW.in_force_at_us IS {distinct} OLD.in_force_at_us)",
        "(OLD.revoked_at_us IS NOT NULL AND NEW.revoked_at_us IS {distinct} OLD.revoked_at_us)",
        "(OLD.expired_position IS NOT NULL AND NEW.expired_position IS {distinct} OLD.expired_position)",
    )
)
_SET = ("id", "project_id", "scope", "subject", "set_by_id", "set_at_us", "opened_position")
_SET_CHANGED = " OR ".join(f"NEW.{name} IS {{distinct}} OLD.{name}" for name in _SET)
_LIFT_CHANGED = " OR ".join(
    f"NEW.{name} IS {{distinct}} OLD.{name}" for name in ("lifted_at_us", "lifted_by_id")
)
_MOVE = " OR ".join(
    f"(OLD.status = '{before}' AND NEW.status IN ({', '.join(repr(one) for one in after)}))"
    for before, after in MOVES.items()
)
_MOVED_WRONGLY = f"NEW.status <> OLD.status AND NOT ({_MOVE})"


def _of_gate(condition: str) -> str:
    """True when `condition` holds of a vote about to be stored and its gate."""
    found = "EXISTS (SELECT 1 FROM {schema}approvals_gate gate WHERE gate.id = NEW.gate_id AND "
    return f"{found}{condition.replace('vote.', 'NEW.')})"


_RANKS = " ".join(f"WHEN '{name}' THEN {rank}" for rank, name in enumerate(STEP_UPS))
_UNPROVED = f"(CASE vote.step_up {_RANKS} END < CASE gate.step_up {_RANKS} END OR vote.reason_characters < gate.reason_of_yes)"
# Somebody else knows the password: the one who is signed in may be them.
_NOT_OWN_SIGN_IN = (
    "NOT EXISTS (SELECT 1 FROM {schema}agent_sessions_person person WHERE person.user_id = NEW.__user"
    " AND person.password_is_own)"
)
_NOT_PENDING = (
    "NOT EXISTS (SELECT 1 FROM {schema}approvals_gate gate WHERE gate.id = NEW.gate_id AND gate.status = 'pending'"
    " AND gate.digest = NEW.shown_digest)"
)
_OWN_UNTOLD = (
    "(vote.own OR gate.self_approval) AND"
    " vote.own <> COALESCE(vote.user_id IN (gate.requester_id, gate.session_owner_id, gate.agent_owner_id), FALSE)"
)
_NO_QUORUM = (
    "(SELECT COUNT(*) FROM {schema}approvals_vote vote WHERE vote.gate_id = NEW.id AND vote.answer = 'approve'"
    f" AND {COUNTS.replace('gate.', 'NEW.')}) < NEW.minimum"
)
_NO_GATE = "NOT EXISTS (SELECT 1 FROM {schema}approvals_gate gate WHERE gate.effect_id = NEW.id AND gate.status = 'approved')"
_WAITS = "EXISTS (SELECT 1 FROM {schema}approvals_gate gate WHERE gate.effect_id = NEW.id AND gate.status = 'pending')"
# Leave asked for after a clean rejection is for the next attempt. That the one before had happened all the same, a late
# acknowledgement says: it brings back the leave which that one used, and sets aside what stands for the next.
_NEVER_GIVEN = (
    "NEW.leave = 'used' AND OLD.leave NOT IN ('granted', 'used') AND OLD.leave_aside <> 'granted' AND NOT"
    " (NEW.state IN ('acknowledged', 'compensated', 'superseded') AND EXISTS (SELECT 1 FROM {schema}ledger_attempt"
    " attempt WHERE attempt.effect_id = NEW.id AND attempt.leave = 'used'))"
)

# Leave that people gave is for one attempt. It serves the next one too where the verdict table says that nothing more
# can come of that than what they approved.
_SECOND_USE = (
    "NEW.number > 1 AND NEW.lane = 'command' AND NEW.leave = 'used' AND NOT (NEW.replaces IS NOT NULL"
    f" AND NEW.verdict_row IN ({', '.join(repr(row) for row in UNDER_USED_LEAVE)}))"
)
_NOT_RULED_ANEW = (
    "EXISTS (SELECT 1 FROM {schema}ledger_effect effect WHERE effect.id = NEW.effect_id"
    " AND effect.leave_basis = 'ruling' AND NOT EXISTS (SELECT 1 FROM {schema}approvals_gate gate"
    " WHERE gate.effect_id = effect.id AND gate.status = 'approved'))"
)

_NOT_REQUESTED = (
    "NOT EXISTS (SELECT 1 FROM {schema}approvals_exemption exemption WHERE exemption.id = NEW.exemption_id"
    f" AND exemption.in_force_at_us IS NULL AND exemption.revoked_at_us IS NULL AND {GRANTS.replace('vote.', 'NEW.')})"
)
_TOO_FEW_GRANT = (
    "NEW.in_force_at_us IS NOT NULL AND OLD.in_force_at_us IS NULL"
    f" AND {GRANTORS.replace('exemption.', 'NEW.')} < NEW.minimum"
)
_UNEXEMPTED = (
    "NEW.leave = 'granted' AND NEW.leave_basis = 'exemption' AND NOT NEW.imported AND NOT EXISTS (SELECT 1"
    " FROM {schema}approvals_exemption exemption WHERE exemption.project_id = NEW.project_id"
    " AND REPLACE(CAST(exemption.id AS text), '-', '') = NEW.leave_ref AND exemption.in_force_at_us IS NOT NULL"
    f" AND exemption.revoked_at_us IS NULL AND {GRANTORS} >= exemption.minimum)"
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
        "an approval needs as many yeses that count as its quorum",
    ),
    "gate_never_goes": ("approvals_gate", "DELETE", "", "a gate is never deleted"),
    "vote_is_of_nobody_with_a_part_in_it": (
        "approvals_vote", "INSERT", f"NEW.answer = 'approve' AND {_of_gate(PART)}",
        "requester, session owner and agent owner do not approve",
    ),
    "yes_is_of_somebody_who_is_asked": (
        "approvals_vote", "INSERT", f"NEW.answer = 'approve' AND {_of_gate(f'NOT ({REVIEWS} AND {ASKED})')}",
        "only active reviewers whom the gate asks approve",
    ),
    "yes_proves_what_its_gate_asks": (
        "approvals_vote", "INSERT", f"NEW.answer = 'approve' AND {_of_gate(_UNPROVED)}",
        "a yes comes with the proof and the reason that the gate asks for",
    ),
    "vote_is_on_a_pending_gate_as_shown": (
        "approvals_vote", "INSERT", _NOT_PENDING, "a vote is on a pending gate, and on what it binds",
    ),
    "yes_to_ones_own_says_so": (
        "approvals_vote", "INSERT", f"NEW.answer = 'approve' AND {_of_gate(_OWN_UNTOLD)}",
        "a yes says whether it is to what the voter asked for or owns",
    ),
    "vote_is_under_ones_own_password": (
        "approvals_vote", "INSERT", _NOT_OWN_SIGN_IN.replace("__user", "user_id"),
        "nobody votes under a password that somebody else set",
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
    "leave_waits_for_its_gate": (
        "ledger_effect", "UPDATE", f"NEW.leave = 'granted' AND OLD.leave NOT IN ('granted', 'pending') AND {_WAITS}",
        "no leave is given while people are asked for it",
    ),
    "leave_is_given_before_it_is_used": (
        "ledger_effect", "UPDATE", _NEVER_GIVEN, "only leave that was given is used",
    ),
    "leave_that_was_refused_stays_refused": (
        "ledger_effect", "UPDATE", "OLD.leave = 'refused' AND NEW.leave IN ('held', 'pending', 'granted')",
        "what was refused stays so, or ran all the same",
    ),
    "leave_set_aside_is_what_stood": (
        "ledger_effect", "UPDATE", "NEW.leave_aside NOT IN ('', OLD.leave_aside, OLD.leave)",
        "only leave that stands is set aside",
    ),
    # After the insert: an upsert calls what stands before it also for rows that it then updates.
    "leave_by_ruling_serves_again_by_few_rows": (
        "ledger_attempt", "STORED", f"{_SECOND_USE} AND {_NOT_RULED_ANEW}",
        "leave by ruling is for one attempt, and for its replay by rows that do nothing twice",
    ),
    # Nor is an effect taken away to be stored again as if it had leave.
    "effect_never_goes": ("ledger_effect", "DELETE", "", "an effect is never deleted"),
    "attempt_never_goes": ("ledger_attempt", "DELETE", "", "an attempt is never deleted"),
    "activation_only_ceases": (
        "approvals_activation", "UPDATE", f"{_ACTIVATED_CHANGED} OR (NEW.is_current AND NOT OLD.is_current)",
        "what was put in force stays on record; it can only cease to be the current one",
    ),
    "activation_never_goes": ("approvals_activation", "DELETE", "", "what was put in force stays on record"),
    "exemption_never_changes_what_it_covers": (
        "approvals_exemption", "UPDATE", f"{_GRANTED_CHANGED} OR {_TAKEN_BACK}",
        "what an exemption covers and when it ends is fixed at the grant; a revocation stands and uses only grow",
    ),
    "exemption_is_under_ones_own_password": (
        "approvals_exemption", "INSERT", _NOT_OWN_SIGN_IN.replace("__user", "granted_by_id"),
        "nobody exempts under a password that somebody else set",
    ),
    "exemption_opens_requested": (
        "approvals_exemption", "INSERT", "NEW.in_force_at_us IS NOT NULL", "an exemption is requested before it counts",
    ),
    "exemption_is_granted_by_enough_people": (
        "approvals_exemption", "UPDATE", _TOO_FEW_GRANT, "an exemption counts once enough operators granted it",
    ),
    "exemption_vote_is_of_an_operator": (
        "approvals_exemptionvote", "INSERT", _NOT_REQUESTED, "only active operators grant what is requested",
    ),
    "exemption_vote_is_under_ones_own_password": (
        "approvals_exemptionvote", "INSERT", _NOT_OWN_SIGN_IN.replace("__user", "user_id"),
        "nobody exempts under a password that somebody else set",
    ),
    "exemption_vote_never_changes": ("approvals_exemptionvote", "UPDATE", "", "who granted it is never changed"),
    "exemption_vote_never_goes": ("approvals_exemptionvote", "DELETE", "", "who granted it is never deleted"),
    "leave_by_exemption_has_one_that_stands": (
        "ledger_effect", "UPDATE",
        f"(OLD.leave <> 'granted' OR OLD.leave_ref <> NEW.leave_ref) AND {_UNEXEMPTED}",
        "leave by exemption needs one that stands",
    ),
    "leave_by_exemption_is_born_of_one_that_stands": (
        "ledger_effect", "INSERT", _UNEXEMPTED, "leave by exemption needs one that stands",
    ),
    "exemption_never_goes": ("approvals_exemption", "DELETE", "", "an exemption is never deleted"),
    "hold_is_only_lifted_and_once": (
        "ledger_hold", "UPDATE", f"{_SET_CHANGED} OR (OLD.lifted_at_us IS NOT NULL AND ({_LIFT_CHANGED}))",
        "a stop stays as it was set, and as it was lifted",
    ),
    "hold_never_goes": ("ledger_hold", "DELETE", "", "a stop is never deleted"),
    "policy_set_never_changes": ("approvals_policyset", "UPDATE", "", "rules are never changed once loaded"),
    "policy_set_never_goes": ("approvals_policyset", "DELETE", "", "rules are never deleted"),
}  # fmt: skip


# What INSERT OR REPLACE would remove past the DELETE trigger on a connection without recursive_triggers: a row with the
# same values in these columns, where both rows are as it says behind them. Nothing here is ever inserted over.
_REPLACED: dict[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "approvals_gate": (
        (("id",), ""),
        (("rowid",), ""),
        (("effect_id",), f"status IN ({', '.join(repr(one) for one in OPEN)})"),
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
    "ledger_hold": (
        (("id",), ""),
        (("rowid",), ""),
        (("project_id", "scope", "subject"), "lifted_at_us IS NULL"),
    ),
}
# When PostgreSQL calls a law of effects at all: they are written by the thousand, and hardly one might offend.
_CALLED: dict[str, str] = {
    "leave_by_ruling_has_an_approved_gate": "NEW.leave = 'granted'",
    "leave_by_ruling_is_never_born": "NEW.leave = 'granted'",
    "leave_waits_for_its_gate": "NEW.leave = 'granted'",
    "leave_by_exemption_has_one_that_stands": "NEW.leave = 'granted' AND NEW.leave_basis = 'exemption'",
    "leave_by_exemption_is_born_of_one_that_stands": "NEW.leave = 'granted' AND NEW.leave_basis = 'exemption'",
    "leave_is_given_before_it_is_used": "NEW.leave = 'used' AND OLD.leave NOT IN ('granted', 'used')",
    "leave_that_was_refused_stays_refused": "OLD.leave = 'refused'",
    "leave_set_aside_is_what_stood": "NEW.leave_aside <> ''",
    "leave_by_ruling_serves_again_by_few_rows": _SECOND_USE,
}


_WHEN = {"STORED": "AFTER INSERT"}


def _postgresql() -> tuple[dict[str, tuple[str, str]], str]:
    triggers, functions = {}, []
    for name, (table, event, condition, said) in _LAWS.items():
        test = of_vendor(condition, "postgresql").replace("{schema}", "{schema}.")
        test = test.replace("{distinct}", "DISTINCT FROM") or "TRUE"
        functions.append(f"""
CREATE OR REPLACE FUNCTION {table}_{name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF {test} THEN
    RAISE EXCEPTION '{name}: {said}' USING ERRCODE = 'check_violation';
  END IF;
  RETURN {"OLD" if event == "DELETE" else "NEW"};
END $$;""")
        of = (
            " OF leave, leave_basis, leave_aside"
            if (table, event) == ("ledger_effect", "UPDATE")
            else ""
        )
        when = f" WHEN ({_CALLED[name]})" if name in _CALLED else ""
        triggers[name] = (
            table,
            f"{_WHEN.get(event, f'BEFORE {event}')}{of} ON {table} FOR EACH ROW{when}"
            f" EXECUTE FUNCTION {table}_{name}()",
        )
    for table in _REPLACED:
        triggers[f"{table}_is_never_truncated"] = (
            table,
            f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION approvals_refuse_truncation()",
        )
    functions.append("""
CREATE OR REPLACE FUNCTION approvals_refuse_truncation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is never truncated: what was decided stays on record', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation';
END $$;""")
    return triggers, "".join(functions)


def _kept() -> dict[str, tuple[str, str]]:
    """Triggers that refuse to insert over a row, in the words of the uniqueness that is broken by it."""
    triggers = {}
    for table, keys in _REPLACED.items():
        for columns, being in keys:
            alike = [f"{name} = NEW.{name}" for name in columns] + (
                [being, f"NEW.{being}"] if being else []
            )
            said = ", ".join(f"{table}.{name}" for name in columns)
            triggers[f"{table}_{'_'.join(columns)}_is_never_replaced"] = (
                table,
                f"BEFORE INSERT ON {table} WHEN EXISTS (SELECT 1 FROM {table} WHERE {' AND '.join(alike)})"
                f" BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: {said}'); END",
            )
        triggers[f"{table}_keeps_its_rowid"] = (
            table,
            f"BEFORE UPDATE ON {table} WHEN NEW.rowid <> OLD.rowid"
            f" BEGIN SELECT RAISE(ABORT, '{table}_keeps_its_rowid: UPDATE OR REPLACE would remove another row'); END",
        )
    return triggers


def _sqlite() -> dict[str, tuple[str, str]]:
    triggers = _kept()
    for name, (table, event, condition, said) in _LAWS.items():
        test = of_vendor(condition, "sqlite").replace("{schema}", "").replace("{distinct}", "NOT")
        of = (
            " OF leave, leave_basis, leave_aside"
            if (table, event) == ("ledger_effect", "UPDATE")
            else ""
        )
        when = f" WHEN {test}" if test else ""
        moment = _WHEN.get(event, f"BEFORE {event}")
        statement = (
            f"{moment}{of} ON {table}{when} BEGIN SELECT RAISE(ABORT, '{name}: {said}'); END"
        )
        triggers[name] = (table, statement)
    return triggers


_POSTGRESQL, _FUNCTIONS = _postgresql()
LAW = Law(postgresql=_POSTGRESQL, functions=_FUNCTIONS, sqlite=_sqlite())
