"""Guards of gates, votes, exemptions and policies, on both databases.

What people decided is in the journal first: a gate opens, moves and gets votes only with the
entries that say so, an exemption is granted and ended only with its own, and rules come into force
and go out of it only with `policy.activated`. approvals/triggers.py keeps what the rows must be
among themselves.
"""

from typing import Final

from approvals.gates.statuses import GATE_STATUSES
from db.row_guards import RowGuard, build_guards, entry_says, list_changes

_RULED: Final = ("approved", "denied", "denied_session", "changes_requested")
_RULED_SQL: Final = ", ".join(f"'{status}'" for status in _RULED)
_GATE_KINDS: Final = (
    "gate.ruled",
    *(f"gate.{status}" for status in GATE_STATUSES if status not in (*_RULED, "pending")),
)
_MOMENTS: Final = (
    "decided_at_us",
    "permission_until_us",
    "used_at_us",
    "used_attempt",
    "ended_at_us",
    "reason",
)


def _pseudonym_of(user: str) -> str:
    return f"(SELECT pseudonym FROM {{schema}}accounts_person WHERE user_id = {user})"


def _equal_facts(**columns: str) -> str:
    """Return the condition that facts equal the row's columns, given as SQL by fact."""
    return " AND ".join(
        f"{{fact:{fact}}} = {{text:{expression}}}" for fact, expression in columns.items()
    )


def _mentions(user: str) -> str:
    """Return the condition that an entry's facts have the pseudonym of `user` in a list."""
    quote = "'\"'"
    sought = f"{quote} || {_pseudonym_of(user)} || {quote}"
    return (
        f"{{only:postgresql}}strpos(entry.facts, {sought}) > 0{{end:postgresql}}"
        f"{{only:sqlite}}instr(entry.facts, {sought}) > 0{{end:sqlite}}"
    )


def _says_settings(kind: str, where: str) -> str:
    actor = _pseudonym_of("NEW.user_id")
    return entry_says(
        kind, project="NEW.project_id", subject="", where=f"entry.actor = {actor} AND {where}"
    )


_ABSENCE: Final = ("away_from_us", "away_until_us", "stand_in_id")
_DIGEST: Final = ("digest_hour", "digest_address")
_SAYS_ABSENCE: Final = _says_settings(
    "admin.absence_changed",
    _equal_facts(from_us="NEW.away_from_us", until_us="NEW.away_until_us")
    + f" AND {{fact:stand_in}} = COALESCE({_pseudonym_of('NEW.stand_in_id')}, '')",
)
_SAYS_DIGEST: Final = _says_settings("admin.digest_changed", _equal_facts(hour="NEW.digest_hour"))
_ADDRESSED: Final = ("gate.assigned", "gate.commented")

_GUARDS: Final = (
    RowGuard(
        "person_is_addressed_with_its_entry",
        "approvals_addressee",
        "INSERT",
        "NOT "
        + entry_says(
            _ADDRESSED,
            project="NEW.project_id",
            subject="NEW.gate_id",
            position="NEW.position",
            where="(NEW.relation = 'assigned' AND entry.kind = 'gate.assigned' AND {fact:to} = "
            f"{_pseudonym_of('NEW.user_id')}) OR (NEW.relation = 'mentioned'"
            f" AND entry.kind = 'gate.commented' AND {_mentions('NEW.user_id')})",
        ),
        "a person is assigned or mentioned only with gate.assigned or gate.commented",
    ),
    RowGuard(
        "addressee_never_changes",
        "approvals_addressee",
        "UPDATE",
        "",
        "an addressee is added or removed, and never changed",
        moment="BEFORE",
    ),
    RowGuard(
        "addressee_ends_with_its_entry",
        "approvals_addressee",
        "DELETE",
        "NOT "
        + entry_says(
            _ADDRESSED,
            project="OLD.project_id",
            subject="OLD.gate_id",
            where="(OLD.relation = 'assigned' AND entry.kind = 'gate.assigned' AND {fact:to} <> "
            f"{_pseudonym_of('OLD.user_id')}) OR (OLD.relation = 'mentioned'"
            " AND entry.kind = 'gate.commented'"
            f" AND entry.actor = {_pseudonym_of('OLD.user_id')})",
        ),
        "an addressee is removed only by another assignment or an answer",
    ),
    RowGuard(
        "review_settings_start_with_their_entry",
        "approvals_reviewsettings",
        "INSERT",
        "((NEW.away_from_us IS NOT NULL OR NEW.stand_in_id IS NOT NULL)"
        f" AND NOT {_SAYS_ABSENCE}) OR (NEW.digest_hour IS NOT NULL AND NOT {_SAYS_DIGEST})",
        "a reviewer's settings start empty, or with the entry that changes them",
    ),
    RowGuard(
        "review_settings_keep_their_person",
        "approvals_reviewsettings",
        "UPDATE",
        list_changes(("id", "project_id", "user_id")),
        "a reviewer's settings keep their person",
        columns=("id", "project_id", "user_id"),
        moment="BEFORE",
    ),
    RowGuard(
        "absence_changes_with_its_entry",
        "approvals_reviewsettings",
        "UPDATE",
        f"NOT {_SAYS_ABSENCE}",
        "a reviewer's absence changes only with their admin.absence_changed",
        columns=_ABSENCE,
        when=list_changes(_ABSENCE),
    ),
    RowGuard(
        "digest_changes_with_its_entry",
        "approvals_reviewsettings",
        "UPDATE",
        f"NOT {_SAYS_DIGEST}",
        "a reviewer's digest changes only with their admin.digest_changed",
        columns=_DIGEST,
        when=list_changes(_DIGEST),
    ),
    RowGuard(
        "gate_opens_with_its_entry",
        "approvals_gate",
        "INSERT",
        "NOT "
        + entry_says(
            "gate.requested",
            project="NEW.project_id",
            subject="NEW.id",
            position="NEW.opened_position",
            where="entry.effect = NEW.effect_id AND entry.session = NEW.session_id AND "
            + _equal_facts(
                digest="NEW.digest",
                preconditions="NEW.preconditions_digest",
                requirement="NEW.requirement_hash",
                minimum="NEW.minimum",
                deny_threshold="NEW.deny_threshold",
                decide_by_us="NEW.decide_by_us",
                valid_for_s="NEW.valid_for_s",
                rule="NEW.rule",
                risk="NEW.risk",
                reversibility="NEW.reversibility",
                plan="NEW.plan_position",
                step_up="NEW.step_up",
                reason_of_yes="NEW.reason_of_yes",
                self_approval="CAST(NEW.self_approval AS integer)",
                on_behalf_of=_pseudonym_of("NEW.requester_id"),
                session_owner=_pseudonym_of("NEW.session_owner_id"),
                agent_owner=_pseudonym_of("NEW.agent_owner_id"),
            )
            + " AND {fact:policy_set} = {hex:NEW.policy_set_id}",
        ),
        "a gate opens only with its gate.requested",
    ),
    RowGuard(
        "gate_moves_with_its_entry",
        "approvals_gate",
        "UPDATE",
        "NOT "
        + entry_says(
            _GATE_KINDS,
            project="NEW.project_id",
            subject="NEW.id",
            # A status comes at most once, and an agent cancels its own request by a command.
            once=True,
            lane="",
            where="entry.effect = NEW.effect_id AND entry.lane IN ('system', 'command') AND"
            f" CASE WHEN NEW.status IN ({_RULED_SQL}) THEN entry.kind = 'gate.ruled'"
            " AND {fact:ruling} = NEW.status ELSE entry.kind = 'gate.' || NEW.status"
            " AND {fact:reason} = NEW.reason"
            " AND (NEW.status <> 'used' OR {fact:attempt} = {text:NEW.used_attempt}) END",
        ),
        "a gate changes status only with the entry of its decision or end",
        columns=("status",),
        when="NEW.status <> OLD.status",
    ),
    RowGuard(
        "gate_moments_are_of_its_status",
        "approvals_gate",
        "UPDATE",
        "",
        "what a gate records of its decision and end changes only with its status",
        columns=_MOMENTS,
        when=f"NEW.status = OLD.status AND ({list_changes(_MOMENTS)})",
    ),
    RowGuard(
        "gate_is_extended_with_its_entry",
        "approvals_gate",
        "UPDATE",
        "NOT "
        + entry_says(
            "gate.extended",
            project="NEW.project_id",
            subject="NEW.id",
            where="entry.effect = NEW.effect_id AND "
            + _equal_facts(decide_by_us="NEW.decide_by_us"),
        ),
        "the deadline of a gate changes only with gate.extended",
        columns=("decide_by_us",),
        when="NEW.decide_by_us <> OLD.decide_by_us",
    ),
    RowGuard(
        "vote_is_cast_with_its_entry",
        "approvals_vote",
        "INSERT",
        "NOT "
        + entry_says(
            "gate.voted",
            project="NEW.project_id",
            subject="NEW.gate_id",
            position="NEW.position",
            # One entry is one vote: its id is that of the row.
            where="entry.id = {hex:NEW.id} AND entry.actor = NEW.actor"
            f" AND entry.actor = {_pseudonym_of('NEW.user_id')} AND "
            + _equal_facts(
                vote="NEW.answer",
                card="NEW.card_sha256",
                shown_version="NEW.shown_version",
                first_shown_us="NEW.shown_at_us",
                step_up="NEW.step_up",
                password_at_us="NEW.password_at_us",  # noqa: S106 - a column
                reason_characters="NEW.reason_characters",
                at_us="NEW.voted_at_us",
                complete="NEW.view_complete",
                team="NEW.team",
            )
            + " AND {fact:own} = CASE WHEN NEW.own THEN {text:NEW.own} ELSE '' END",
        ),
        "a vote is cast only with the voter's gate.voted",
    ),
    RowGuard(
        "exemption_is_requested_with_its_entry",
        "approvals_exemption",
        "INSERT",
        "NOT "
        + entry_says(
            ("exemption.granted", "exemption.requested"),
            project="NEW.project_id",
            subject="NEW.id",
            position="NEW.opened_position",
            where=f"entry.actor = {_pseudonym_of('NEW.granted_by_id')}"
            " AND entry.received_us = NEW.granted_at_us"
            " AND {hex:entry.session} = {hex:NEW.session_id} AND "
            + _equal_facts(ends_at_us="NEW.ends_at_us")
            + " AND CASE entry.kind WHEN 'exemption.granted' THEN NEW.minimum = 1"
            " ELSE {fact:minimum} = {text:NEW.minimum} END",
        ),
        "an exemption is requested only with its entry",
    ),
    RowGuard(
        "exemption_is_granted_with_its_entry",
        "approvals_exemption",
        "UPDATE",
        "NOT "
        + entry_says(
            "exemption.granted",
            project="NEW.project_id",
            subject="NEW.id",
            once=True,
            where="entry.received_us = NEW.in_force_at_us",
        ),
        "an exemption comes into force only with exemption.granted",
        columns=("in_force_at_us",),
        when="NEW.in_force_at_us IS {distinct} OLD.in_force_at_us",
    ),
    RowGuard(
        "exemption_is_revoked_with_its_entry",
        "approvals_exemption",
        "UPDATE",
        "NOT "
        + entry_says(
            "exemption.revoked",
            project="NEW.project_id",
            subject="NEW.id",
            once=True,
            where="entry.received_us = NEW.revoked_at_us",
        ),
        "an exemption is revoked only with exemption.revoked",
        columns=("revoked_at_us",),
        when="NEW.revoked_at_us IS {distinct} OLD.revoked_at_us",
    ),
    RowGuard(
        "exemption_vote_is_cast_with_its_entry",
        "approvals_exemptionvote",
        "INSERT",
        "NOT "
        + entry_says(
            ("exemption.granted", "exemption.confirmed", "exemption.requested"),
            project="(SELECT project_id FROM {schema}approvals_exemption"
            " WHERE id = NEW.exemption_id)",
            subject="NEW.exemption_id",
            position="NEW.position",
            where="entry.actor = NEW.actor AND entry.received_us = NEW.voted_at_us"
            f" AND entry.actor = {_pseudonym_of('NEW.user_id')} AND "
            + _equal_facts(password_at_us="NEW.password_at_us"),  # noqa: S106 - a column
        ),
        "a person grants an exemption only with their own entry",
    ),
    RowGuard(
        "policy_set_is_loaded_with_its_entry",
        "approvals_policyset",
        "INSERT",
        "NOT "
        + entry_says(
            "policy.loaded",
            project="NEW.project_id",
            subject="NEW.id",
            once=True,
            where="entry.actor = NEW.loaded_by AND "
            + _equal_facts(version="NEW.version", sha256="NEW.sha256"),
        ),
        "rules are loaded only with policy.loaded",
    ),
    RowGuard(
        "policy_comes_into_force_with_its_entry",
        "approvals_activation",
        "INSERT",
        "NOT "
        + entry_says(
            "policy.activated",
            project="NEW.project_id",
            subject="NEW.policy_set_id",
            position="NEW.position",
            where="entry.actor = NEW.actor AND " + _equal_facts(mode="NEW.mode"),
        )
        + " OR EXISTS (SELECT 1 FROM {schema}journal_entry newer"
        " WHERE newer.project = NEW.project_id AND newer.kind = 'policy.activated'"
        " AND NOT (newer.kind IN ('effect.planned', 'effect.dispatched', 'effect.acknowledged',"
        " 'effect.failed')) AND newer.position > NEW.position)",
        "rules come into force only with policy.activated",
    ),
    RowGuard(
        "policy_goes_out_of_force_with_the_next",
        "approvals_activation",
        "UPDATE",
        "NOT "
        + entry_says(
            "policy.activated",
            project="NEW.project_id",
            subject="",
            once=True,
            where="entry.position > COALESCE(OLD.position, 0)",
        ),
        "rules go out of force only with the policy.activated of the next ones",
        columns=("is_current",),
        when="NEW.is_current IS {distinct} OLD.is_current",
    ),
    RowGuard(
        "activation_keeps_its_position",
        "approvals_activation",
        "UPDATE",
        "",
        "an activation keeps the position of its entry",
        columns=("position",),
        when="NEW.position IS {distinct} OLD.position",
    ),
)

# approvals/triggers.py keeps the other tables from TRUNCATE and REPLACE.
APPROVAL_GUARDS: Final = build_guards(
    _GUARDS,
    {
        "approvals_addressee": (("id",), ("gate_id", "user_id", "relation")),
        "approvals_reviewsettings": (("id",), ("project_id", "user_id")),
    },
    needs=("accounts_membership", "accounts_person", "approvals_exemption"),
)
