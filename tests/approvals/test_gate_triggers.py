"""The constraints of gates, votes, policies, exemptions and stops, each violated once in the
database."""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import F, Model

from approvals.gates.statuses import US
from approvals.models import Activation, Exemption, Gate, PolicySet, Vote
from db.clock import now_us
from ledger import stops
from ledger.models import Effect, Stop
from tests.approvals.inbox_scenario import InboxScenario
from tests.rows_with_entries import add_row, change_gates

pytestmark = pytest.mark.django_db


def refused(name: str, write: Callable[[], Any]) -> None:
    """Assert that the database refuses `write` by the constraint called `name`."""
    with pytest.raises((IntegrityError, DatabaseError), match=name), transaction.atomic():
        write()


@pytest.fixture
def gate(inbox: InboxScenario) -> Gate:
    return inbox.gate(inbox.plan())


def update(gate: Gate, **values: Any) -> Callable[[], Any]:
    return lambda: change_gates(Gate.objects.filter(id=gate.id), **values)


def vote(inbox: InboxScenario, gate: Gate, person: str, **values: Any) -> Callable[[], Any]:
    now = now_us()
    fields = {
        "project": inbox.project,
        "gate": gate,
        "user": inbox.person(person).user,
        "actor": "p_x",
        "answer": "approve",
        "card_sha256": "c" * 64,
        "shown_version": 1,
        "shown_digest": gate.digest,
        "shown_at_us": now,
        "view_complete": True,
        "position": 1,
        "voted_at_us": now,
    }
    return lambda: add_row(Vote(**{**fields, **values}))


def approval(gate: Gate) -> dict[str, Any]:
    now = gate.requested_at_us + 1
    return {
        "status": "approved",
        "decided_at_us": now,
        "permission_until_us": now + gate.valid_for_s * US,
    }


def test_a_gate_is_not_approved_without_the_votes_of_its_quorum(
    inbox: InboxScenario, gate: Gate
) -> None:
    refused("gate_is_approved_by_its_quorum", update(gate, **approval(gate)))
    vote(inbox, gate, "reviewer")()
    update(gate, **approval(gate))()


def test_two_votes_of_one_person_are_one(inbox: InboxScenario, gate: Gate) -> None:
    vote(inbox, gate, "reviewer")()
    if Vote._meta.constraints:
        refused(
            r"person_votes_once_on_a_gate|approvals_vote\.gate_id", vote(inbox, gate, "reviewer")
        )


def test_no_party_approves(inbox: InboxScenario, gate: Gate) -> None:
    refused("approver_is_not_a_party", vote(inbox, gate, "operator"))
    vote(inbox, gate, "operator", answer="deny")()


def test_an_approval_saw_everything(inbox: InboxScenario, gate: Gate) -> None:
    refused("approval_saw_everything", vote(inbox, gate, "reviewer", view_complete=False))
    refused(
        "vote_is_on_a_pending_gate_as_shown", vote(inbox, gate, "reviewer", shown_digest="v1:other")
    )
    refused("vote_follows_what_was_shown", vote(inbox, gate, "reviewer", voted_at_us=1))


def test_votes_stay_as_they_are(inbox: InboxScenario, gate: Gate) -> None:
    vote(inbox, gate, "reviewer")()
    refused("vote_never_changes", lambda: Vote.objects.update(answer="deny"))
    refused("vote_is_never_deleted", lambda: Vote.objects.all()._raw_delete("default"))


def test_a_gate_that_ended_takes_no_vote(inbox: InboxScenario, gate: Gate) -> None:
    inbox.answer(gate, "reviewer", "deny", "not now")
    refused("vote_is_on_a_pending_gate_as_shown", vote(inbox, gate, "administrator"))


@pytest.mark.parametrize("status", ["pending", "approved", "used", "expired_unused"])
def test_a_denied_gate_stays_denied(inbox: InboxScenario, gate: Gate, status: str) -> None:
    inbox.answer(gate, "reviewer", "deny", "not now")
    refused(
        "gate_status_follows_its_transitions|gate_is_approved_by|gate_that_ended",
        update(gate, status=status, ended_at_us=None),
    )


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("digest", "v1:other"),
        ("minimum", 0),
        ("minimum", 2),
        ("requirement_hash", "0" * 64),
        ("risk", "low"),
        ("self_approval", True),
        ("session_owner", None),
        ("agent_owner", None),
        ("requester", None),
        ("valid_for_s", 9),
        ("requested_at_us", 1),
        ("plan_position", 1),
        ("requirement", {"minimum": 1}),
        ("policy_set", None),
        ("rule", "reads"),
        ("tool", "file.read"),
        ("repository_name", "elsewhere"),
        ("step_up", "reauth"),
        ("reason_of_yes", 3),
    ],
)
def test_the_binding_of_a_gate_is_fixed(gate: Gate, column: str, value: Any) -> None:
    if getattr(gate, column) == value:
        value = gate.agent_owner_id if column in ("session_owner", "requester") else "high"
    refused("gate_terms_never_change|gate_needs", update(gate, **{column: value}))


def test_a_gate_that_ended_stays_as_it_is(inbox: InboxScenario, gate: Gate) -> None:
    inbox.answer(gate, "reviewer", "deny")
    for values in ({"decide_by_us": gate.decide_by_us + 1}, {"reason": "by_agent"}, {"version": 9}):
        refused("gate_that_ended_never_changes", update(gate, **values))


def test_gates_and_rules_are_never_deleted(inbox: InboxScenario, gate: Gate) -> None:
    refused("gate_is_never_deleted", lambda: Gate.objects.all()._raw_delete("default"))
    refused("policy_set_never_changes", lambda: PolicySet.objects.update(text="rules: []"))
    refused("policy_set_is_never_deleted", lambda: PolicySet.objects.all()._raw_delete("default"))


@pytest.mark.parametrize("recursive", ["ON", "OFF"])
@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite has INSERT OR REPLACE")
def test_no_insert_overwrites_a_human_decision(
    inbox: InboxScenario, gate: Gate, recursive: str
) -> None:
    """REPLACE removes a row, and fires no DELETE trigger on a connection without recursive
    triggers."""
    inbox.answer(gate, "reviewer", "deny", "not now")
    vote(
        inbox, inbox.gate(inbox.plan("e-2", arguments={"ref": "topic"})), "reviewer", answer="deny"
    )()
    add_row(
        Exemption(
            project=inbox.project,
            tool="git.push",
            granted_by=inbox.user("reviewer"),
            opened_position=1,
            granted_at_us=now_us(),
            ends_at_us=now_us() + US,
        )
    )
    stop(inbox)
    tables = [
        model._meta.db_table for model in (Gate, Vote, PolicySet, Activation, Exemption, Stop)
    ]
    twice = set(tables) - {"approvals_exemption"}  # tables with further unique columns
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA recursive_triggers = {recursive}")
        for table in tables:
            before = cursor.execute(f"SELECT * FROM {table}").fetchall()
            names = [column[0] for column in cursor.description]
            assert before
            new = "hex(randomblob(16))" if table != "approvals_activation" else "id + 1000"
            for rowid, identity in (
                ("NULL", "id"),
                ("rowid", new),
                *((("NULL", new),) if table in twice else ()),
            ):
                values = ", ".join(identity if name == "id" else name for name in names)
                given = f"INSERT OR REPLACE INTO {table} (rowid, {', '.join(names)}) SELECT {rowid}, {values}"
                with pytest.raises((IntegrityError, DatabaseError)), transaction.atomic():
                    cursor.execute(f"{given} FROM {table}")
            with pytest.raises((IntegrityError, DatabaseError)), transaction.atomic():
                cursor.execute(f"UPDATE OR REPLACE {table} SET rowid = rowid + 1")
            assert cursor.execute(f"SELECT * FROM {table}").fetchall() == before
        cursor.execute("PRAGMA recursive_triggers = ON")


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL has TRUNCATE")
@pytest.mark.parametrize("model", [Gate, Vote, PolicySet, Activation, Exemption, Stop])
def test_no_table_of_human_decisions_is_truncated(
    inbox: InboxScenario, gate: Gate, model: type[Model]
) -> None:
    table = model._meta.db_table

    def truncate() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # a deferred check would refuse it too
            cursor.execute(f"TRUNCATE {table} CASCADE")

    refused("is never truncated", truncate)


def test_the_clocks_of_a_gate_are_the_schemas(inbox: InboxScenario, gate: Gate) -> None:
    vote(inbox, gate, "reviewer")()
    late = {"decided_at_us": F("decide_by_us") + 1}
    late["permission_until_us"] = F("decide_by_us") + 1 + F("valid_for_s") * US
    refused("gate_is_approved_before_its_deadline", update(gate, status="approved", **late))
    refused(
        "gate_permission_has_an_end",
        update(gate, **{**approval(gate), "permission_until_us": gate.decide_by_us * 2}),
    )
    month = gate.requested_at_us + 31 * 24 * 3600 * US
    refused("gate_is_decided_within_thirty_days", update(gate, decide_by_us=month))
    early = {"status": "expired", "ended_at_us": gate.decide_by_us - 1}
    refused("gate_expires_after_its_deadline", update(gate, **early))
    refused("gate_has_ended_or_is_open", update(gate, ended_at_us=1))
    update(gate, **approval(gate))()
    used = {"status": "used", "used_attempt": 1, "ended_at_us": gate.decide_by_us}
    too_late = gate.requested_at_us + 2 * gate.valid_for_s * US
    refused("gate_is_used_while_its_permission_lasts", update(gate, used_at_us=too_late, **used))
    refused("gate_is_used_once", update(gate, used_attempt=1))
    update(gate, used_at_us=gate.requested_at_us + 2, **used)()


def test_an_effect_has_one_open_gate(gate: Gate) -> None:
    gate.pk = Effect.objects.get().id
    refused(
        r"effect_has_at_most_one_open_gate|approvals_gate\.effect_id",
        lambda: gate.save(force_insert=True),
    )


def test_a_gate_opens_pending_and_no_self_approval_is_of_high_risk(gate: Gate) -> None:
    change_gates(Gate.objects.filter(id=gate.id), status="cancelled", ended_at_us=1)
    gate.pk, gate.status = Effect.objects.get().id, "approved"
    refused("gate_starts_pending", lambda: gate.save(force_insert=True))
    gate.status, gate.self_approval, gate.risk, gate.step_up = (
        "pending",
        True,
        "high",
        "typed_digest",
    )
    refused("self_approval_needs_low_risk", lambda: gate.save(force_insert=True))


def test_one_policy_is_in_force(inbox: InboxScenario) -> None:
    current = Activation.objects.get()
    current.pk = None
    refused(r"project_has_one_policy_in_force|approvals_activation\.project_id", current.save)
    current.mode, current.is_current = "off", False
    refused("activation_mode_is_known", current.save)
    refused("activation_only_ends", lambda: Activation.objects.update(mode="observe"))


def test_an_exemption_ends(inbox: InboxScenario) -> None:
    now = now_us()
    fields = {
        "project": inbox.project,
        "tool": "git.push",
        "granted_by": inbox.user("reviewer"),
        "opened_position": 1,
        "granted_at_us": now,
        "ends_at_us": now + 31 * 24 * 3600 * US,
    }
    refused("exemption_ends_within_thirty_days", lambda: add_row(Exemption(**fields)))
    fields["ends_at_us"] = now + US
    refused("exemption_names_a_tool", lambda: add_row(Exemption(**{**fields, "tool": ""})))
    made = add_row(Exemption(**fields))
    late = {"used_at_us": made.ends_at_us + 1}
    refused(
        "exemption_is_used_before_it_ends",
        lambda: Exemption.objects.filter(id=made.id).update(**late),
    )


def test_a_stop_names_its_subject_and_the_person_who_lifted_it(inbox: InboxScenario) -> None:
    fields = {
        "project": inbox.project,
        "set_by": inbox.user("reviewer"),
        "set_at_us": 1,
        "opened_position": 1,
        "scope": "tool",
        "subject": "git.push",
    }
    add_row(Stop(**fields))
    refused(r"subject_is_stopped_once|ledger_stop\.project_id", lambda: add_row(Stop(**fields)))
    refused("stop_names_what_it_stops", lambda: add_row(Stop(**{**fields, "subject": ""})))
    refused("stop_scope_is_known", lambda: add_row(Stop(**{**fields, "scope": "planet"})))
    refused("stop_is_lifted_by_a_person", lambda: Stop.objects.update(lifted_at_us=1))


def stop(inbox: InboxScenario) -> Stop:
    with transaction.atomic():
        return stops.set_stop(
            inbox.project, "tool", "git.push", "it deletes too much", inbox.user("reviewer")
        )


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("scope", "project"),
        ("subject", "git.tag"),
        ("project", "other"),
        ("set_by", "operator"),
        ("set_at_us", 1),
        ("opened_position", 1),
        ("id", UUID(int=1)),
    ],
)
def test_a_stop_stays_as_it_was_set(inbox: InboxScenario, column: str, value: Any) -> None:
    stop(inbox)
    value = {"project": inbox.organization.other, "set_by": inbox.user("operator")}.get(
        column, value
    )
    changed = {column: value, **({"subject": ""} if value == "project" else {})}
    refused("stop_is_only_lifted_and_once", lambda: Stop.objects.update(**changed))
    refused("stop_is_never_deleted", lambda: Stop.objects.all()._raw_delete("default"))
    assert stops.load_stops(inbox.project.id)


def test_a_stop_is_lifted_once(inbox: InboxScenario) -> None:
    stop_row = stop(inbox)
    assert stops.lift_stop(stop_row, "looked into it", inbox.user("reviewer"))
    at_us = Stop.objects.get().lifted_at_us
    assert at_us is not None
    changes: list[dict[str, Any]] = [
        {"lifted_at_us": None, "lifted_by": None},
        {"lifted_at_us": at_us - 1},
        {"lifted_by": inbox.user("operator")},
        {"subject": "git.tag"},
    ]
    for changed in changes:
        refused("stop_is_only_lifted_and_once", partial(Stop.objects.update, **changed))
    refused("stop_is_never_deleted", lambda: Stop.objects.all()._raw_delete("default"))
    assert stop(inbox).id != stop_row.id  # the same is stopped again by another
