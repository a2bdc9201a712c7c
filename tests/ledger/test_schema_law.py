"""The law that stands in the schema: each constraint is broken once by a direct write, beside a write that keeps it.

The models are walked, so a constraint that nobody tries here fails the suite.
"""

from itertools import product
from typing import Any, Final

import pytest
from django.apps import apps
from django.db import DatabaseError, IntegrityError, connection, models, transaction

from approvals.models import Activation, Exemption, Gate, PolicySet, Vote
from approvals.models_notices import Notice, NoticeChannel
from approvals.states import LONGEST_DECIDE_WITHIN_S, LONGEST_LEAVE_FOR_S, US
from ingest.models import Answer
from inquiry.models import Pulse
from inquiry.models_alerts import AlertChannel
from inquiry.models_incidents import IncidentEntry
from journal.models import Body, Entry, Erasure, Outbox
from ledger import states
from ledger.models import Attempt, Effect, Hold, Tool
from sessions.models import (
    Agent,
    AgentToken,
    Artifact,
    Item,
    Membership,
    Person,
    Project,
    Repository,
    Session,
    Task,
    Team,
    TeamMember,
)
from sessions.models_leases import BeatMinute
from sessions.models_messages import Delivery, Reading
from tests.ledger.cases_of_incidents import INCIDENTS
from tests.ledger.cases_of_questions import QUESTIONS
from tests.ledger.cases_of_recovery import RECOVERY
from tests.ledger.rows_by_hand import LAWFUL, Row, World
from tests.ledger.schema_cases import Case, check, moved, same

pytestmark = pytest.mark.django_db
SQLITE: Final = connection.vendor == "sqlite"
ROOMS: Final = ("journal", "agent_sessions", "ledger", "approvals", "inquiry", "ingest")


def _first_channel(world: World) -> NoticeChannel:
    found: NoticeChannel = NoticeChannel.objects.first() or world.write(NoticeChannel)
    return found


def _first_membership(world: World) -> Membership:
    found: Membership = Membership.objects.first() or world.write(Membership)
    return found


GIVEN: Final[Row] = {"status": "approved", "decided_at_us": 1, "leave_until_us": 2_000_001}
USED: Final[Row] = {"status": "used", "used_at_us": 3, "used_attempt": 1, "ended_at_us": 3}
MOVED: Final = {"state": "dispatched", "attempt_count": 1, "leave_basis": "observe"}
OPEN: Final = {"is_open": True}

CASES: Final[dict[str, Case]] = {
    # the journal
    "entry_id_is_used_once_per_source": same(Entry, lambda _: {"event_id": "a"}, lambda _: {"source": "another"}),
    "entry_lane_is_known": check(Entry, {"lane": "fast"}, {"lane": "system"}),
    "entry_kind_is_subject_dot_verb": check(Entry, {"kind": "started"}, {"kind": "session.started"}),
    "entry_has_an_id": check(Entry, {"event_id": ""}),
    "entry_has_a_source": check(Entry, {"source": ""}),
    "body_salt_is_32_bytes": check(Body, {"salt": b"s" * 31}),
    "erasure_has_a_reason": check(Erasure, {"reason": ""}),
    "outbox_says_a_thing_once": same(Outbox, lambda _: {"deduplication_key": "k"}, lambda w: {"project": w.project.id}),
    "outbox_tries_are_counted": check(Outbox, {"tries": -1}, {"tries": 3}),
    # projects, people, agents
    "project_name_is_unique": same(Project, lambda _: {"name": "x"}, lambda _: {"name": "X"}),
    "project_has_a_name": check(Project, {"name": ""}),
    "person_pseudonym_is_unique": same(Person, lambda _: {"pseudonym": "p"}, lambda _: {"pseudonym": "q"}),
    "person_theme_is_known": check(Person, {"theme": "pink"}, {"theme": "dark"}),
    "person_clock_is_known": check(Person, {"clock": "lunar"}, {"clock": "local"}),
    "membership_is_one_per_person": same(
        Membership, lambda w: {"user": w.user}, lambda w: {"project": w.write(Project)}
    ),
    "membership_role_is_known": check(Membership, {"role": "king"}, {"role": "operator"}),
    "agent_name_is_unique_in_project": same(Agent, lambda _: {"name": "x"}, lambda w: {"project": w.write(Project)}),
    "agent_has_a_name": check(Agent, {"name": ""}),
    "token_public_id_is_unique": same(AgentToken, lambda _: {"public_id": "x"}, lambda _: {"public_id": "y"}),
    "token_scope_is_known": check(AgentToken, {"scope": "root"}, {"scope": "import"}),
    "repository_name_is_unique_in_project": same(
        Repository, lambda _: {"name": "x"}, lambda w: {"project": w.write(Project)}
    ),
    "repository_has_a_name": check(Repository, {"name": ""}),
    # sessions
    "session_key_is_unique_in_project": same(Session, lambda _: {"key": "x"}, lambda w: {"project": w.write(Project)}),
    "session_has_a_key": check(Session, {"key": ""}),
    "session_mode_is_known": check(Session, {"mode": "lazy"}, {"mode": "leased"}),
    "session_status_is_known": check(Session, {"status": "lost"}, {"status": "suspended"}),
    "session_is_not_its_own_parent": Case(
        Session,
        wrong=lambda w: {"id": w.project.id, "parent_id": w.project.id},
        right=lambda w: {"parent": w.session},
    ),
    "session_effects_are_counted": check(Session, {"effect_count": -1}),
    "task_key_is_unique_in_session": same(Task, lambda _: {"key": "x"}, lambda w: {"session": w.write(Session)}),
    "task_has_a_key": check(Task, {"key": ""}),
    "task_state_is_known": check(Task, {"state": "maybe"}, {"state": "blocked"}),
    "task_is_done_by_a_fact": check(Task, {"state": "done"}, {"state": "done", "done_mark": "m"}),
    "item_key_is_unique_in_task": same(Item, lambda _: {"key": "x"}, lambda w: {"task": w.write(Task)}),
    "item_has_a_key": check(Item, {"key": ""}),
    "item_state_is_known": check(Item, {"state": "running"}, {"state": "failed"}),
    "artifact_hash_is_sha256": check(Artifact, {"sha256": "a" * 63}),
    "artifact_size_is_not_negative": check(Artifact, {"size": -1}, {"size": 0}),
    "team_name_is_unique_in_project": same(Team, lambda _: {"name": "x"}, lambda w: {"project": w.write(Project)}),
    "team_has_a_name": check(Team, {"name": ""}),
    "team_member_is_listed_once": same(
        TeamMember,
        lambda w: {"team": Team.objects.first() or w.write(Team), "membership": _first_membership(w)},
        lambda w: {"team": w.write(Team)},
    ),
    # policies, gates, votes
    "policy_set_version_is_unique": same(PolicySet, lambda _: {"name": "x"}, lambda _: {"version": 2}),
    "policy_set_has_a_name": check(PolicySet, {"name": ""}),
    "policy_set_versions_start_at_one": check(PolicySet, {"version": 0}, {"version": 1}),
    "project_has_one_policy_in_force": same(
        Activation, lambda _: {"is_current": True}, lambda w: {"project": w.write(Project)}
    ),
    "activation_mode_is_known": check(Activation, {"mode": "off"}, {"mode": "enforce"}),
    "exemption_names_a_tool": check(Exemption, {"tool": ""}, {"tool": "*"}),
    "exemption_ends_within_thirty_days": check(Exemption, {"ends_at_us": LONGEST_DECIDE_WITHIN_S * US + 2}),
    "exemption_is_used_before_it_ends": check(Exemption, {"used_at_us": 10}, {"used_at_us": 9}),
    "exemption_uses_are_counted": check(Exemption, {"uses": -1}, {"uses": 1}),
    "effect_has_at_most_one_open_gate": same(Gate, lambda w: {"effect": w.used}, lambda w: {"effect": w.write(Effect)}),
    "gate_reason_is_known": check(Gate, {"reason": "mood"}, {"reason": "by_agent"}),
    "gate_risk_is_known": check(
        Gate, {"risk": "none"}, {"risk": "critical", "step_up": "typed_digest", "reason_of_yes": 3}
    ),
    "gate_reversibility_is_known": check(
        Gate,
        {"reversibility": "maybe"},
        {"reversibility": "irreversible", "step_up": "typed_digest", "reason_of_yes": 3},
    ),
    "gate_step_up_is_known": check(Gate, {"step_up": "wink"}, {"step_up": "reauth"}),
    "gate_of_what_is_grave_takes_the_code": check(
        Gate, {"risk": "high", "step_up": "reauth"}, {"risk": "high", "step_up": "typed_digest"}
    ),
    "gate_of_what_is_final_takes_a_reason": check(
        Gate,
        {"reversibility": "irreversible", "step_up": "typed_digest"},
        {"reversibility": "irreversible", "step_up": "typed_digest", "reason_of_yes": 3},
    ),
    "gate_binds_a_digest": check(Gate, {"digest": ""}),
    "gate_needs_at_least_one_person": check(Gate, {"minimum": 0}, {"minimum": 3}),
    "gate_is_denied_by_at_least_one": check(Gate, {"deny_threshold": 0}, {"deny_threshold": 2}),
    "gate_of_ones_own_is_of_low_risk": check(
        Gate, {"self_approval": True, "risk": "medium"}, {"self_approval": True, "risk": "low"}
    ),
    "gate_is_decided_within_thirty_days": check(Gate, {"decide_by_us": LONGEST_DECIDE_WITHIN_S * US + 2}),
    "gate_leave_lasts_at_most_a_day": check(Gate, {"leave_for_s": LONGEST_LEAVE_FOR_S + 1}),
    "gate_has_ended_or_is_open": check(Gate, {"ended_at_us": 1}),  # also what keeps an unknown status out
    **{
        name: moved(steps, wrong, right)
        for name, (steps, wrong, right) in {
            "gate_is_approved_before_its_deadline": (
                [],
                {**GIVEN, "decided_at_us": 9_000_001, "leave_until_us": 11_000_001},
                GIVEN,
            ),
            "gate_leave_has_an_end": ([], {**GIVEN, "leave_until_us": 9_000_000}, GIVEN),
            "gate_expires_after_its_deadline": (
                [],
                {"status": "expired", "ended_at_us": 8_999_999},
                {"status": "expired", "ended_at_us": 9_000_000},
            ),
            "gate_is_used_while_its_leave_lasts": ([GIVEN], {**USED, "used_at_us": 2_000_003}, USED),
            "gate_is_used_once": ([GIVEN], {"used_attempt": 2}, USED),
        }.items()
    },
    "person_votes_once_on_a_gate": same(Vote, lambda w: {"gate": w.gate}, lambda w: {"user": w.new_user()}),
    "vote_answer_is_known": check(Vote, {"answer": "perhaps"}, {"answer": "return"}),
    "approval_saw_everything": check(
        Vote, {"answer": "approve", "view_complete": False}, {"answer": "approve", "view_complete": True}
    ),
    "vote_of_ones_own_is_a_yes": check(Vote, {"own": True}, {"own": False}),
    "vote_step_up_is_known": check(Vote, {"step_up": "wink"}, {"step_up": "reauth"}),
    "vote_follows_what_was_shown": check(Vote, {"voted_at_us": 0}, {"voted_at_us": 1}),
    "vote_reason_is_counted": check(Vote, {"reason_characters": -1}, {"reason_characters": 3}),
    # notices
    "notice_channel_is_there_once": same(
        NoticeChannel, lambda _: {"target": "x"}, lambda w: {"project": w.write(Project)}
    ),
    "notice_channel_kind_is_known": check(NoticeChannel, {"kind": "pigeon"}, {"kind": "slack"}),
    "notice_channel_has_a_target": check(NoticeChannel, {"target": ""}),
    "notice_channel_risk_is_known": check(NoticeChannel, {"minimum_risk": "none"}, {"minimum_risk": "high"}),
    "notice_channel_removed_is_silent": check(
        NoticeChannel, {"removed_at_us": 1}, {"removed_at_us": 1, "enabled": False}
    ),
    "notice_is_written_once": same(
        Notice, lambda w: {"channel": _first_channel(w), "key": "x"}, lambda _: {"key": "y"}
    ),
    "notice_topic_is_known": check(Notice, {"topic": "weather"}, {"topic": "integrity"}),
    "notice_state_is_known": check(Notice, {"state": "lost"}, {"state": "quiet"}),
    "notice_sent_says_when": check(Notice, {"state": "sent"}, {"state": "sent", "sent_at_us": 1}),
    "notice_tries_are_counted": check(Notice, {"tries": -1}, {"tries": 1}),
    # the ledger
    "thing_is_held_once": same(Hold, lambda _: {"subject": "x"}, lambda w: {"project": w.write(Project)}),
    "hold_scope_is_known": check(Hold, {"scope": "planet"}, {"scope": "project", "subject": ""}),
    "hold_names_what_it_stops": check(Hold, {"subject": ""}, {"scope": "project", "subject": ""}),
    "hold_is_lifted_by_a_person": Case(
        Hold,
        wrong=lambda _: {"lifted_at_us": 2},
        right=lambda w: {"lifted_at_us": 2, "lifted_by": w.user},
    ),
    "effect_judgement_is_known": check(Effect, {"judged": "shrug"}, {"judged": "ask"}),
    "tool_name_is_unique_in_project": same(Tool, lambda _: {"name": "x"}, lambda w: {"project": w.write(Project)}),
    "tool_class_is_known": check(Tool, {"tool_class": "magic"}, {"tool_class": "keyed"}),
    "tool_reversibility_is_known": check(Tool, {"reversibility": "maybe"}, {"reversibility": "read"}),
    "tool_times_are_positive": check(Tool, {"deadline_s": 0}, {"deadline_s": 1}),
    "tool_window_and_counts_are_numbers": check(Tool, {"max_attempts": 0}, {"max_attempts": 1}),
    "tool_undo_is_known": check(Tool, {"undo": "regret"}, {"undo": "reference"}),
    "effect_undoes_what_it_compensates": Case(
        Effect, wrong=lambda _: {"undoes": 1}, right=lambda w: {"undoes": 1, "compensates": w.effect}
    ),
    "effect_undone_attempts_are_counted": check(Effect, {"undone": -1}, {"undone": 1}),
    "attempt_replaces_by_a_row_of_the_table": Case(
        Attempt,
        wrong=lambda w: {"number": 2, "lane": "command", "replaces": 1, "verdict_row": "26", **w.under("used")},
        right=lambda w: {"number": 2, "lane": "command", "replaces": 1, "verdict_row": "17", **w.under("used")},
    ),
    "effect_key_is_unique_in_session": same(
        Effect, lambda _: {"effect_key": "x"}, lambda w: {"session": w.write(Session)}
    ),
    "compensation_is_open_once": same(
        Effect,
        lambda w: {"compensates": w.effect, "lane": "command"},
        lambda _: {"state": "superseded"},
    ),
    "effect_has_a_key": check(Effect, {"effect_key": ""}),
    "effect_leave_is_known": check(
        Effect, {"leave": "assumed", "state": "nowhere", "leave_basis": "observe"}, {"leave": "held"}
    ),
    "effect_leave_aside_is_of_the_next_attempt": check(Effect, {"leave_aside": "used"}, {"leave_aside": "granted"}),
    "effect_leave_basis_is_known": check(Effect, {"leave_basis": "hope"}, {"leave_basis": "returned"}),
    "effect_leave_has_a_basis_once_it_is_not_held": check(
        Effect, {"leave": "granted"}, {"leave": "granted", "leave_basis": "policy"}
    ),
    "effect_moves_only_with_leave": check(Effect, {**MOVED, "leave": "granted"}, {**MOVED, "leave": "used"}),
    "effect_outcome_fits_its_state": check(
        Effect, {**MOVED, "leave": "used", "outcome": "ok"}, {**MOVED, "leave": "used", "outcome": ""}
    ),
    "effect_with_an_attempt_is_not_held": check(
        Effect,
        {"state": "superseded", "attempt_count": 1},
        {"state": "superseded", "attempt_count": 1, "leave": "used", "leave_basis": "observe"},
    ),
    "effect_attempts_are_counted": check(Effect, {"attempt_count": -1, "leave": "used", "leave_basis": "observe"}),
    "effect_moves_only_by_an_attempt": check(
        Effect, {**MOVED, "leave": "used", "attempt_count": 0}, {**MOVED, "leave": "used", "attempt_count": 1}
    ),
    "effect_reason_is_known": check(Effect, {"failure_reason": "mood"}, {"failure_reason": "timeout"}),
    "effect_resolution_is_known": check(Effect, {"resolution": "ignored"}, {"resolution": "abandoned"}),
    "effect_ref_class_is_known": check(Effect, {"ref_class": "holy"}, {"ref_class": "protected"}),
    "effect_plan_names_tool_and_intent": check(
        Effect,
        {"planned_mark": "m", "tool": "git.push"},
        {"planned_mark": "m", "tool": "git.push", "intent_digest": "v1:0"},
    ),
    "attempt_number_is_unique_in_effect": same(Attempt, lambda _: {"number": 7}, lambda w: w.under("used")),
    "effect_has_at_most_one_open_attempt": same(Attempt, lambda _: OPEN, lambda _: {"is_open": False}),
    "attempt_numbers_start_at_one": check(Attempt, {"number": 0}, {"number": 1}),
    "attempt_moves_only_with_leave": Case(Attempt, lambda w: w.under("granted"), lambda w: w.under("bypassed")),
    "command_dispatch_uses_its_leave": Case(
        Attempt,
        wrong=lambda w: {"lane": "command", **w.under("observed")},
        right=lambda w: {"lane": "command", **w.under("used")},
    ),
    "open_attempt_was_dispatched_and_not_answered": check(Attempt, {**OPEN, "failed_mark": "m"}, OPEN),
    "attempt_outcome_is_known": check(Attempt, {"outcome": "fine"}, {"outcome": "unknown"}),
    "attempt_reason_is_known": check(Attempt, {"failure_reason": "mood"}, {"failure_reason": "rejected"}),
    "attempt_has_a_mark": check(Attempt, {"dispatched_mark": ""}, {"dispatched_mark": "", "failed_mark": "m"}),
    # the door
    "answer_is_given_once_per_key": same(Answer, lambda _: {"key": "x"}, lambda _: {"source": "another"}),
    "answer_is_a_success": check(Answer, {"status": 409}, {"status": 201}),
    **RECOVERY,
    **INCIDENTS,
    **QUESTIONS,
}


def our_models() -> list[type[models.Model]]:
    """Every table of Gatebook's own."""
    return [model for label in ROOMS for model in apps.get_app_config(label).get_models()]


def constraints() -> dict[str, models.BaseConstraint]:
    """Every named constraint of those tables."""
    return {constraint.name: constraint for model in our_models() for constraint in model._meta.constraints}


def test_every_constraint_is_tried_and_every_table_has_a_lawful_row() -> None:
    assert set(CASES) == set(constraints())
    assert set(LAWFUL) == set(our_models())
    for name, case in CASES.items():
        assert name in {constraint.name for constraint in case.model._meta.constraints}


@pytest.fixture
def world() -> World:
    return World()


def write(world: World, model: type[models.Model], columns: Row) -> None:
    """One direct write in a savepoint of its own."""
    with transaction.atomic():
        world.write(model, **columns)


def _move(world: World, model: type[models.Model], columns: Row, *before: Row) -> None:
    """Write a row, then change it step by step, the last time to `columns`; an approval gets the vote it needs."""
    gate = world.write(model)
    if columns.get("status") != "expired":
        world.write(Vote, gate=gate, answer="approve", user=world.new_reviewer())
    for step in (*before, columns):
        with transaction.atomic():
            Gate.objects.filter(id=gate.id).update(**step)


def _column(field: Any) -> str:
    return str(field.column)


def named(error: IntegrityError, name: str) -> bool:
    """Whether the database said which law was broken. SQLite names the columns of a uniqueness instead."""
    constraint = constraints()[name]
    if connection.vendor == "sqlite" and isinstance(constraint, models.UniqueConstraint):
        meta = CASES[name].model._meta
        columns = ", ".join(f"{meta.db_table}.{_column(meta.get_field(column))}" for column in constraint.fields)
        return str(error) == f"UNIQUE constraint failed: {columns}"
    return name in str(error)


# What speaks before a constraint and is taken away here, so that the constraint itself is heard.
AHEAD: Final[dict[str, dict[str, list[str]]]] = {
    "sqlite": {
        # a trigger passes over an entry that is in the book already
        "entry_id_is_used_once_per_source": ["DROP TRIGGER journal_entry_is_never_replaced"],
        # a trigger refuses a second lease under the name of its id
        "lease_is_one_per_subject": ["DROP TRIGGER lease_is_never_replaced"],
    },
    "postgresql": {
        # an unknown kind breaks two constraints, of which the first by alphabet is named
        "lease_kind_is_known": ["ALTER TABLE agent_sessions_lease DROP CONSTRAINT lease_is_on_what_its_kind_says"],
    },
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_schema_refuses_what_breaks_it_and_takes_what_keeps_it(world: World, name: str) -> None:
    case = CASES[name]
    with connection.cursor() as cursor:
        for statement in AHEAD[connection.vendor].get(name, ()):
            cursor.execute(statement)
    if case.first is not None:
        write(world, case.model, case.first(world))
    put = write if case.steps is None else _move
    put(world, case.model, case.right(world), *(case.steps or ()))
    for wrong in (case.wrong(world), *case.also(world)):
        with pytest.raises(IntegrityError) as refused:
            put(world, case.model, wrong, *(case.steps or ()))
        assert named(refused.value, name), (wrong, refused.value)


@pytest.mark.parametrize(("state", "leave"), list(product(states.STATES, states.LEAVES)))
def test_a_state_stands_only_under_the_leaves_of_the_table(world: World, state: str, leave: str) -> None:
    row = {
        "state": state,
        "leave": leave,
        "leave_basis": "observe",
        "resolution": "happened",  # so that no attempt is needed
        "outcome": states.OUTCOME_OF_STATE[state][0],
    }
    if leave in states.LEAVE_OF_STATE[state]:
        write(world, Effect, row)
        return
    with pytest.raises(IntegrityError, match="effect_moves_only_with_leave"):
        write(world, Effect, row)


@pytest.mark.parametrize(("state", "outcome"), list(product(states.STATES, states.OUTCOMES)))
def test_a_state_has_only_the_outcomes_of_the_table(world: World, state: str, outcome: str) -> None:
    row = {"state": state, "leave": "used", "leave_basis": "observe", "attempt_count": 1, "outcome": outcome}
    if outcome in states.OUTCOME_OF_STATE[state]:
        write(world, Effect, row)
        return
    with pytest.raises(IntegrityError, match="effect_outcome_fits_its_state"):
        write(world, Effect, row)


@pytest.mark.parametrize("leave", states.STILL)
@pytest.mark.parametrize("state", ["dispatched", "acknowledged"])
def test_an_effect_that_was_forgotten_can_never_move(world: World, leave: str, state: str) -> None:
    """Code that forgets approvals gets an effect that fails closed, by UPDATE too; only what was granted is used."""
    write(world, Effect, {"effect_key": "e", "leave": leave, "leave_basis": "observe"})
    moving = {"state": state, "attempt_count": 1, "outcome": states.OUTCOME_OF_STATE[state][0]}
    with pytest.raises(IntegrityError), transaction.atomic():
        Effect.objects.filter(effect_key="e").update(**moving)
    if leave != "granted":
        with pytest.raises(IntegrityError, match="leave_is_given_before_it_is_used"), transaction.atomic():
            Effect.objects.filter(effect_key="e").update(**moving, leave="used")
        return
    assert Effect.objects.filter(effect_key="e").update(**moving, leave="used") == 1


@pytest.mark.parametrize("leave", states.STILL)
@pytest.mark.parametrize("mark", ["dispatched_mark", "acknowledged_mark", "failed_mark"])
def test_no_attempt_is_marked_without_leave(world: World, leave: str, mark: str) -> None:
    row: dict[str, Any] = {"dispatched_mark": "", mark: "m"}
    with pytest.raises(IntegrityError, match="attempt_moves_only_with_leave"):
        write(world, Attempt, {**row, **world.under(leave)})
    write(world, Attempt, {**row, **world.under("observed")})


@pytest.mark.parametrize(("claimed", "leave"), list(product(states.MOVED, states.LEAVES)))
def test_an_attempt_is_stored_only_under_the_leave_of_its_effect(world: World, claimed: str, leave: str) -> None:
    """What an attempt says of its own leave is not believed: a forged one beside an effect without leave is refused."""
    row = {**world.under(leave), "leave": claimed}
    if claimed == leave:
        write(world, Attempt, row)
        return
    with pytest.raises(IntegrityError, match="attempt_needs_the_leave_of_its_effect"):
        write(world, Attempt, row)


def _insert(verb: str, conflict: str = "", *, effect: Effect, leave: str, number: int = 1) -> None:
    """An attempt by plain SQL: `verb` INTO …, ending with `conflict`."""
    effect_id, project_id = effect.id, effect.project_id
    identities = [effect_id, project_id] if connection.vendor == "postgresql" else [effect_id.hex, project_id.hex]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            f"{verb} INTO ledger_attempt (effect_id, project_id, number, leave, remote_key, process, lane, is_open,"
            " replaced, outcome, failure_reason, external_reference, dispatch_key, dispatched_mark, acknowledged_mark,"
            " failed_mark, verdict_row)"
            " VALUES (%s, %s, %s, %s, 'gbk-1', '', 'evidence', false, false, '', '', '', '', 'm', '', '', '')"
            f" {conflict}",
            [*identities, number, leave],
        )


UPSERT: Final = "ON CONFLICT (effect_id, number) DO UPDATE SET leave = excluded.leave, replaced = true"
WAYS: Final = [
    *[("INSERT", ""), ("INSERT", "ON CONFLICT DO NOTHING"), ("INSERT", UPSERT)],
    *([(verb, "") for verb in ("INSERT OR REPLACE", "INSERT OR IGNORE", "REPLACE")] if SQLITE else []),
]


@pytest.mark.parametrize(("verb", "conflict"), WAYS)
def test_no_way_of_inserting_gets_a_forged_attempt_in(world: World, verb: str, conflict: str) -> None:
    granted = world.under("granted")["effect"]
    with pytest.raises(IntegrityError, match="attempt_needs_the_leave_of_its_effect"):
        _insert(verb, conflict, effect=granted, leave="used")
    _insert(verb, conflict, effect=world.used, leave="used")
    assert list(Attempt.objects.values_list("effect", "leave")) == [(world.used.id, "used")]


def test_the_leave_that_an_attempt_ran_under_is_never_changed(world: World) -> None:
    observed = world.under("observed")["effect"]
    write(world, Attempt, {"effect": observed, "leave": "observed", "number": 1})
    attempts = Attempt.objects.filter(effect=observed)
    for change in ({"leave": "used"}, {"effect": world.used}, {"leave": "used", "effect": world.used}):
        with pytest.raises(IntegrityError, match="attempt_keeps_its_leave"), transaction.atomic():
            attempts.update(**change)
    with pytest.raises(IntegrityError, match="attempt_keeps_its_leave"):
        _insert("INSERT", UPSERT, effect=observed, leave="used")
    with transaction.atomic():  # heard only now: it would have needed leave
        _insert("INSERT", UPSERT, effect=observed, leave="bypassed")
    assert attempts.update(leave="observed") == 1
    assert attempts.update(leave="observed", outcome="ok") == 1  # said again, as every upsert says it


def test_an_attempt_of_an_earlier_leave_may_be_written_again(world: World) -> None:
    """After a clean rejection the leave speaks of the next attempt; a late word on the first still comes in."""
    write(world, Attempt, {"effect": world.used, "number": 1})
    Effect.objects.filter(id=world.used.id).update(leave="granted")
    _insert("INSERT", UPSERT, effect=world.used, leave="used")
    assert Attempt.objects.get(effect=world.used).replaced
    with pytest.raises(IntegrityError, match="attempt_needs_the_leave_of_its_effect"):
        _insert("INSERT", UPSERT, effect=world.used, leave="used", number=2)


@pytest.mark.parametrize("state", states.STATES)
def test_only_planned_and_dispatched_compensations_count_as_open(world: World, state: str) -> None:
    open_one = {"compensates": world.effect, "lane": "command"}
    row = {"state": state, "leave": "used", "leave_basis": "observe", "attempt_count": 1}
    write(world, Effect, {**open_one, **row, "outcome": states.OUTCOME_OF_STATE[state][0]})
    if state in ("planned", "dispatched"):
        with pytest.raises(IntegrityError):
            write(world, Effect, open_one)
        write(world, Effect, {**open_one, **row, "attempt_count": 2})  # a report of a later attempt is never refused
        write(world, Effect, {**open_one, "lane": "evidence"})  # what was merely reported is never refused
    else:
        write(world, Effect, open_one)


# A table without a column for the project belongs to the installation, or its rows hang on a row that has one. Whoever
# adds a table here says which.
OF_THE_INSTALLATION: Final = {
    Project,  # the wall itself
    Person,  # may be a member of many projects
    Pulse,  # of our own chores, which run once for all projects
}
HANGS_ON: Final[dict[type[models.Model], str]] = {
    Body: "entry",  # one text of one entry
    BeatMinute: "lease",  # a count of one lease's beats, written by every one of them
    AlertChannel: "alert",  # who is to hear of one alert
    Reading: "message",  # one agent's reading of one message
    IncidentEntry: "incident",  # where one thing that was said of one incident stands
    Delivery: "message",  # one file of one message; found by its folder, whose mark is of no project
}


@pytest.mark.parametrize("model", our_models(), ids=lambda model: model._meta.db_table)
def test_every_table_carries_its_project_or_hangs_on_a_row_that_does(model: type[models.Model]) -> None:
    ways = {
        "carries": _carries_project(model),
        "installation": model in OF_THE_INSTALLATION,
        "hangs": model in HANGS_ON,
    }
    assert list(ways.values()).count(True) == 1, ways
    if ways["hangs"]:
        parent = model._meta.get_field(HANGS_ON[model])
        assert not parent.null
        assert _carries_project(parent.related_model)


def _carries_project(model: Any) -> bool:
    """Whether no row of the table is without a project."""
    columns = {one.name: one for one in model._meta.concrete_fields}
    return "project" in columns and not columns["project"].null


def _write_and_check(model: type[models.Model], row: Row) -> None:
    """Insert, and look at once at what PostgreSQL would otherwise look at on commit."""
    model._default_manager.create(**row)
    connection.check_constraints()


@pytest.mark.parametrize(
    ("model", "column", "absent"),
    [
        (Session, "agent_id", "agent"),
        (Effect, "session_id", "session"),
        (Task, "session_id", "session"),
        (Attempt, "effect_id", "effect"),
        (Item, "task_id", "task"),
        (Body, "entry_id", "entry"),
    ],
)
def test_what_a_row_refers_to_must_be_there(world: World, model: type[models.Model], column: str, absent: str) -> None:
    missing = 10**9 if absent == "entry" else Effect(id=world.project.id).id
    lawful = LAWFUL[model](world)
    lawful.pop(absent)
    with pytest.raises(DatabaseError), transaction.atomic():
        _write_and_check(model, {**lawful, column: missing})
