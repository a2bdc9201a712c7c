"""The constraints of the schema: a direct write violates each of them, and another satisfies it.

The models are walked, so a constraint without a test case fails the suite.
"""

from contextlib import nullcontext
from copy import copy
from typing import Any, Final

import pytest
from django.apps import apps
from django.db import DatabaseError, IntegrityError, connection, models, transaction

from accounts.models import Person, Project
from approvals.models import ExemptionVote, Gate, Vote
from erasure.models import ErasureRequest
from investigation.models import AlertChannel, IncidentEntry
from journal.models import Body, Fingerprint
from ledger import states
from ledger.models import Attempt, Effect, UsedNamePlan, UsedNameProgress
from monitoring.models import JobHeartbeat
from proofs.models import Anchor, SealedEntry, SealProgress, SigningKey, Tile, TreeHead
from sessions.models import HeartbeatMinute, Item, MessageFile, MessageRead, Session, Task
from tests.ledger.cases_of_erasure import ACTIVE_FROM_THE_START, FOLLOW_A_TRIGGER
from tests.ledger.constraint_cases import CASES
from tests.ledger.rows_by_hand import VALID_ROWS, Row, World
from tests.rows_with_entries import change_gates

pytestmark = pytest.mark.django_db
SQLITE: Final = connection.vendor == "sqlite"
APPS: Final = (
    "journal",
    "accounts",
    "agent_sessions",
    "ledger",
    "approvals",
    "notifications",
    "monitoring",
    "investigation",
    "api",
    "hooks",
    "proofs",
    "erasure",
    "retention",
)


def our_models() -> list[type[models.Model]]:
    """Return the models of all tables of Gatebook."""
    return [model for label in APPS for model in apps.get_app_config(label).get_models()]


def constraints() -> dict[str, models.BaseConstraint]:
    """Return the named constraints of these tables."""
    return {
        constraint.name: constraint
        for model in our_models()
        for constraint in model._meta.constraints
    }


def test_every_constraint_is_tried_and_every_table_has_a_valid_row() -> None:
    assert set(CASES) == set(constraints())
    assert set(VALID_ROWS) == set(our_models())
    for name, case in CASES.items():
        assert name in {constraint.name for constraint in case.model._meta.constraints}


@pytest.fixture
def world() -> World:
    return World()


def write(world: World, model: type[models.Model], columns: Row) -> None:
    """Write one row directly, in its own savepoint."""
    with transaction.atomic():
        world.write(model, **columns)


def _move(world: World, model: type[models.Model], columns: Row, *before: Row) -> None:
    """Write a row and change it step by step, last to `columns`; an approval gets the vote it
    needs."""
    gate = world.write(model)
    if columns.get("status") != "expired":
        world.write(Vote, gate=gate, answer="approve", user=world.new_reviewer())
    for step in (*before, columns):
        with transaction.atomic():
            change_gates(Gate.objects.filter(id=gate.id), **step)


def _column(field: Any) -> str:
    return str(field.column)


def named(error: IntegrityError, name: str) -> bool:
    """Return whether the error names the constraint; SQLite names the columns of a unique
    constraint instead."""
    constraint = constraints()[name]
    if connection.vendor == "sqlite" and isinstance(constraint, models.UniqueConstraint):
        meta = CASES[name].model._meta
        columns = ", ".join(
            f"{meta.db_table}.{_column(meta.get_field(column))}" for column in constraint.fields
        )
        return str(error) == f"UNIQUE constraint failed: {columns}"
    return name in str(error)


# Triggers and constraints that raise before the tested constraint are dropped first.
AHEAD: Final[dict[str, dict[str, list[str]]]] = {
    "sqlite": {
        # a trigger skips an entry that is already in the journal
        "entry_id_is_used_once_per_source": ["DROP TRIGGER journal_entry_is_never_replaced"],
        # triggers refuse to replace rows of the seal
        "tile_is_stored_once": ["DROP TRIGGER tile_follows_a_full_one"],
        "tile_holds_1_to_256_hashes": ["DROP TRIGGER tile_follows_a_full_one"],
        "tree_head_is_counted_from_one": ["DROP TRIGGER tree_head_follows_the_last"],
        "signing_key_is_stored_once": ["DROP TRIGGER signing_key_is_never_replaced"],
        # a trigger skips a success that is already stored
        "anchor_takes_a_head_once": ["DROP TRIGGER anchor_is_never_replaced"],
        # a trigger skips what is queued already
        "outbox_event_is_stored_once": [
            "DROP TRIGGER journal_outbox_project_deduplication_key_is_never_replaced"
        ],
        # a trigger rejects a second lease with the same id
        "lease_is_one_per_subject": ["DROP TRIGGER lease_is_never_replaced"],
        **{name: ["DROP TRIGGER erasure_starts_as_a_request"] for name in FOLLOW_A_TRIGGER},
        **{
            name: ["DROP TRIGGER retention_set_is_loaded_with_its_entry"]
            for name in ACTIVE_FROM_THE_START
        },
    },
    "postgresql": {
        # an unknown kind violates two constraints; the error names the first by alphabet
        "effect_permission_is_known": [
            "SET CONSTRAINTS ALL IMMEDIATE",
            "ALTER TABLE ledger_effect DROP CONSTRAINT effect_moves_only_with_permission",
        ],
        "tree_head_is_counted_from_one": [
            "DROP TRIGGER tree_head_follows_the_last ON proofs_treehead"
        ],
        "lease_kind_is_known": [
            "ALTER TABLE agent_sessions_lease DROP CONSTRAINT lease_kind_matches_its_subject"
        ],
        **{
            name: ["DROP TRIGGER erasure_starts_as_a_request ON erasure_erasurerequest"]
            for name in FOLLOW_A_TRIGGER
        },
        **{
            name: ["DROP TRIGGER retention_set_is_loaded_with_its_entry ON retention_retentionset"]
            for name in ACTIVE_FROM_THE_START
        },
    },
}


@pytest.mark.parametrize(
    "model",
    [model for model in our_models() if any(case.model is model for case in CASES.values())],
    ids=lambda model: model._meta.db_table,
)
def test_each_constraint_rejects_its_wrong_rows_and_accepts_the_right_one(
    world: World, model: type[models.Model]
) -> None:
    for name, case in CASES.items():
        if case.model is model:
            with transaction.atomic():
                _try_case(copy(world), name)
                transaction.set_rollback(True)


def _try_case(world: World, name: str) -> None:
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


def _check_pair(world: World, model: type[models.Model], row: Row, constraint: str | None) -> None:
    """Write a row that violates `constraint`, or none."""
    with pytest.raises(IntegrityError, match=constraint) if constraint else nullcontext():
        write(world, model, row)


@pytest.mark.parametrize("state", states.STATES)
def test_a_state_is_stored_only_with_the_permissions_of_the_table(world: World, state: str) -> None:
    for permission in states.PERMISSIONS:
        row = {
            "state": state,
            "permission": permission,
            "permission_basis": "observe",
            "resolution": "happened",  # so that no attempt is needed
            "outcome": states.OUTCOME_OF_STATE[state][0],
        }
        allowed = permission in states.PERMISSIONS_OF_STATE[state]
        _check_pair(world, Effect, row, None if allowed else "effect_moves_only_with_permission")


@pytest.mark.parametrize("state", states.STATES)
def test_a_state_has_only_the_outcomes_of_the_table(world: World, state: str) -> None:
    for outcome in states.OUTCOMES:
        row = {
            "state": state,
            "permission": "used",
            "permission_basis": "observe",
            "attempt_count": 1,
            "outcome": outcome,
        }
        allowed = outcome in states.OUTCOME_OF_STATE[state]
        _check_pair(world, Effect, row, None if allowed else "effect_outcome_fits_its_state")


@pytest.mark.parametrize("permission", states.IDLE_PERMISSIONS)
@pytest.mark.parametrize("state", ["dispatched", "acknowledged"])
def test_an_effect_without_used_permission_can_never_move(
    world: World, permission: str, state: str
) -> None:
    """Code that forgets approvals fails closed, by UPDATE too; only a granted permission can be
    used."""
    write(
        world, Effect, {"effect_key": "e", "permission": permission, "permission_basis": "observe"}
    )
    moving = {"state": state, "attempt_count": 1, "outcome": states.OUTCOME_OF_STATE[state][0]}
    with pytest.raises(IntegrityError), transaction.atomic():
        Effect.objects.filter(effect_key="e").update(**moving)
    if permission != "granted":
        with (
            pytest.raises(IntegrityError, match="permission_is_granted_before_it_is_used"),
            transaction.atomic(),
        ):
            Effect.objects.filter(effect_key="e").update(**moving, permission="used")
        return
    assert Effect.objects.filter(effect_key="e").update(**moving, permission="used") == 1


@pytest.mark.parametrize("permission", states.IDLE_PERMISSIONS)
def test_no_attempt_is_marked_without_permission(world: World, permission: str) -> None:
    for mark in ("dispatched_mark", "acknowledged_mark", "failed_mark"):
        row: dict[str, Any] = {"dispatched_mark": "", mark: "m"}
        with pytest.raises(IntegrityError, match="attempt_moves_only_with_permission"):
            write(world, Attempt, {**row, **world.under(permission)})
        write(world, Attempt, {**row, **world.under("observed")})


@pytest.mark.parametrize("claimed", states.MOVED_PERMISSIONS)
def test_an_attempt_is_stored_only_under_the_permission_of_its_effect(
    world: World, claimed: str
) -> None:
    """An attempt with a forged permission is rejected when its effect does not have it."""
    for permission in states.PERMISSIONS:
        row = {**world.under(permission), "permission": claimed}
        constraint = None if claimed == permission else "attempt_needs_the_permission_of_its_effect"
        _check_pair(world, Attempt, row, constraint)


def _insert(
    verb: str, conflict: str = "", *, effect: Effect, permission: str, number: int = 1
) -> None:
    """Insert an attempt by plain SQL: `verb` INTO …, ending with `conflict`."""
    effect_id, project_id = effect.id, effect.project_id
    identities = (
        [effect_id, project_id]
        if connection.vendor == "postgresql"
        else [effect_id.hex, project_id.hex]
    )
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            f"{verb} INTO ledger_attempt (effect_id, project_id, number, permission, remote_key, "
            "process, lane, is_open,"
            " replaced, outcome, failure_reason, external_reference, dispatch_key, "
            "dispatched_mark, acknowledged_mark,"
            " failed_mark, verdict_row)"
            " VALUES (%s, %s, %s, %s, 'gbk-1', '', 'evidence', false, false, '', '', '', '', 'm', "
            "'', '', '')"
            f" {conflict}",
            [*identities, number, permission],
        )


UPSERT: Final = "ON CONFLICT (effect_id, number) DO UPDATE SET permission = excluded.permission, replaced = true"
WAYS: Final = [
    *[("INSERT", ""), ("INSERT", "ON CONFLICT DO NOTHING"), ("INSERT", UPSERT)],
    *(
        [(verb, "") for verb in ("INSERT OR REPLACE", "INSERT OR IGNORE", "REPLACE")]
        if SQLITE
        else []
    ),
]


@pytest.mark.parametrize(("verb", "conflict"), WAYS)
def test_no_way_of_inserting_stores_a_forged_attempt(
    world: World, verb: str, conflict: str
) -> None:
    granted = world.under("granted")["effect"]
    with pytest.raises(IntegrityError, match="attempt_needs_the_permission_of_its_effect"):
        _insert(verb, conflict, effect=granted, permission="used")
    _insert(verb, conflict, effect=world.used, permission="used")
    assert list(Attempt.objects.values_list("effect", "permission")) == [(world.used.id, "used")]


def test_the_permission_number_and_effect_of_an_attempt_are_never_changed(world: World) -> None:
    observed = world.under("observed")["effect"]
    write(world, Attempt, {"effect": observed, "permission": "observed", "number": 1})
    attempts = Attempt.objects.filter(effect=observed)
    for change in (
        {"permission": "used"},
        {"effect": world.used},
        {"permission": "used", "effect": world.used},
        {"number": 2},
    ):
        with (
            pytest.raises(IntegrityError, match="attempt_keeps_its_permission"),
            transaction.atomic(),
        ):
            attempts.update(**change)
    with pytest.raises(IntegrityError, match="attempt_keeps_its_permission"):
        _insert("INSERT", UPSERT, effect=observed, permission="used")
    with transaction.atomic():  # a later report shows that permission was needed
        _insert("INSERT", UPSERT, effect=observed, permission="bypassed")
    assert attempts.update(permission="observed") == 1
    assert (
        attempts.update(permission="observed", outcome="ok") == 1
    )  # the same value again, as in every upsert


def test_an_attempt_of_an_earlier_permission_may_be_written_again(world: World) -> None:
    """After a clean rejection the permission is for the next attempt; a late report of the first is
    still stored."""
    write(world, Attempt, {"effect": world.used, "number": 1})
    Effect.objects.filter(id=world.used.id).update(permission="granted")
    _insert("INSERT", UPSERT, effect=world.used, permission="used")
    assert Attempt.objects.get(effect=world.used).replaced
    with pytest.raises(IntegrityError, match="attempt_needs_the_permission_of_its_effect"):
        _insert("INSERT", UPSERT, effect=world.used, permission="used", number=2)


@pytest.mark.parametrize("state", states.STATES)
def test_only_planned_and_dispatched_compensations_count_as_open(world: World, state: str) -> None:
    compensation = {"compensates": world.effect, "lane": "command"}
    row = {"state": state, "permission": "used", "permission_basis": "observe", "attempt_count": 1}
    write(world, Effect, {**compensation, **row, "outcome": states.OUTCOME_OF_STATE[state][0]})
    if state in ("planned", "dispatched"):
        with pytest.raises(IntegrityError):
            write(world, Effect, compensation)
        write(
            world, Effect, {**compensation, **row, "attempt_count": 2}
        )  # a report of a later attempt is always accepted
        write(world, Effect, {**compensation, "lane": "evidence"})  # a report is always accepted
    else:
        write(world, Effect, compensation)


# A table without a project column belongs to the installation, or its rows refer to a row that
# has one. New tables are listed in one of these two.
INSTALLATION_TABLES: Final = {
    Project,  # the project itself
    Fingerprint,  # fingerprints of the installation's keys
    Person,  # may be a member of many projects
    JobHeartbeat,  # Gatebook's jobs run once for all projects
    UsedNameProgress,  # how far one of these jobs has read the journal
    SealedEntry,  # one tree seals the journal of all projects
    Tile,
    TreeHead,
    SigningKey,
    SealProgress,
    ErasureRequest,  # its project is empty if it covers every project
    Anchor,  # of tree heads
}
PARENT_FIELD: Final[dict[type[models.Model], str]] = {
    Body: "entry",  # the text of one entry
    HeartbeatMinute: "lease",  # a count of one lease's heartbeats, written by each heartbeat
    AlertChannel: "alert",  # the channels of one alert
    MessageRead: "message",  # one agent's read mark of one message
    IncidentEntry: "incident",  # the position of one entry of one incident
    UsedNamePlan: "name",  # one plan that used one name
    ExemptionVote: "exemption",  # one person's vote for one exemption
    # one file of one message, found by its folder; the mark of a folder has no project
    MessageFile: "message",
}


def test_every_table_has_a_project_or_refers_to_a_row_that_has_one() -> None:
    for model in our_models():
        kinds = {
            "has_project": _has_project(model),
            "installation": model in INSTALLATION_TABLES,
            "parent": model in PARENT_FIELD,
        }
        assert list(kinds.values()).count(True) == 1, (model, kinds)
        if kinds["parent"]:
            parent = model._meta.get_field(PARENT_FIELD[model])
            assert not parent.null, model
            assert _has_project(parent.related_model), model


def _has_project(model: Any) -> bool:
    """Return whether every row of the table has a project."""
    columns = {column.name: column for column in model._meta.concrete_fields}
    return "project" in columns and not columns["project"].null


def _write_and_check(model: type[models.Model], row: Row) -> None:
    """Insert, and check at once the constraints that PostgreSQL defers to the commit."""
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
def test_a_row_refers_only_to_existing_rows(
    world: World, model: type[models.Model], column: str, absent: str
) -> None:
    missing = 10**9 if absent == "entry" else Effect(id=world.project.id).id
    valid_row = VALID_ROWS[model](world)
    valid_row.pop(absent)
    with pytest.raises(DatabaseError), transaction.atomic():
        _write_and_check(model, {**valid_row, column: missing})
