"""Convergence on the database: the ledger's rows are the same for every delivery, batching and
repetition.

Through `ledger.store.writer.apply_effect_facts` and through the agents' endpoints. Between two deliveries everything
is rolled back, so the same session, with the same derived ids, meets the facts in another order.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import F
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from accounts import agents, projects, repositories
from accounts.models import Agent
from db.ids import derive_uuid
from journal import entries
from journal.entries import AppendStatus, Draft, Origin
from journal.models import Entry, Outbox
from ledger.fold import effect_state
from ledger.models import Attempt, Effect, Stop
from ledger.store import writer
from ledger.tools import registry
from ledger.tools.tools_yaml import ToolDeclaration
from sessions import lookup, sessions
from sessions.models import Session
from tests.api.api_client import Caller
from tests.ledger.fact_strategies import Said, deliveries, stories
from tests.matrices import count_examples, keep_orders
from tests.rows_with_entries import add_row
from tests.sessions.team_helpers import one_team

pytestmark = pytest.mark.django_db
# A failing example is not shrunk: that would take minutes on a database, and seconds in
# test_fold.py.
SOME = settings(
    max_examples=count_examples(8, 20),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# Independent of order except for the surrogate key of attempts, which counts rows.
NO_STATE = effect_state.DELIVERY_COLUMNS | {"id"}


@contextmanager
def undone() -> Iterator[None]:
    """Roll back everything inside. The endpoints need their own transaction, hence no `atomic`."""
    savepoint = transaction.savepoint()
    yield
    transaction.savepoint_rollback(savepoint)


def stored(session: str, *, clock: bool = False) -> dict[str, Any]:
    """Return all rows that facts about a session's effects wrote, without delivery columns.

    Deadlines are relative to the dispatch; with `clock` they are absolute, for facts that carry
    the server's clock.
    """
    identity = Session.objects.get(key=session).id
    rows = Effect.objects.filter(session=identity).order_by("effect_key").values()
    attempts = Attempt.objects.filter(effect__session=identity).order_by(
        "effect__effect_key", "number"
    )
    dispatches = attempts.filter(effect__state="dispatched", number=F("effect__attempt_count"))
    violations = Entry.objects.filter(session=identity, kind="integrity.violation")
    return {
        "effects": [
            {
                name: value
                for name, value in row.items()
                if name not in effect_state.DELIVERY_COLUMNS
            }
            for row in rows
        ],
        "attempts": [
            {name: value for name, value in row.items() if name not in NO_STATE}
            for row in attempts.values()
        ],
        "deadlines": list(
            dispatches.values_list(
                "effect__effect_key", F("effect__deadline_us") - F("received_us")
            )
            if not clock
            else dispatches.values_list("effect__effect_key", "effect__deadline_us", "received_us")
        ),
        "violations": sorted(violations.values_list("effect", "facts", "event_id")),
        "notifications": Outbox.objects.count(),
        "counted": Session.objects.get(id=identity).effect_count,
    }


# --- through ledger.store.writer.record ------------------------------------------------------------------------------------


@pytest.fixture
def tester() -> Agent:
    project = projects.create_project("convergence")
    registry.declare_tools(
        project, [ToolDeclaration("git.push", "idempotency_key", "reversible", 60, 60, "")]
    )
    return agents.ensure_agent(project, "tester")


def record(tester: Agent, batch: Sequence[Said]) -> None:
    """Store a batch as the evidence lane does: first the journal, then only the new entries."""
    session = lookup.derive_session_id(tester.project_id, "s")
    drafts = [
        Draft(
            project=tester.project_id,
            source=report.source,
            event_id=report.id,
            kind=report.kind,
            lane="evidence",
            actor="agent:7",
            text=repr(report),
        )
        for report in batch
    ]
    effect_facts = []
    for report, fate in zip(batch, entries.append_entries(drafts, 1), strict=True):
        if fate.status is not AppendStatus.CREATED:
            continue
        fact = report.fact(session, fate.position)
        fact.received_us = 1_000_000 * int.from_bytes(
            report.id.encode()
        )  # the same receipt time in every order
        keyed_facts = [(report.effect_key, fact)]
        if report.fields.get("compensates"):
            named = effect_state.Fact(
                "effect.named", fact.mark, fact.lane, fact.key, fact.position, 1, None, 1
            )
            keyed_facts.append((report.fields["compensates"], named))
        effect_facts += [
            writer.EffectFact(
                derive_uuid(session, key), tester.project_id, session, tester.id, key, effect_fact
            )
            for key, effect_fact in keyed_facts
        ]
    writer.apply_effect_facts(effect_facts)


def open_session(tester: Agent) -> None:
    """The session, stored as a stub."""
    origin = Origin(tester.project_id, tester.id, "tester", "agent:7", "evidence", "x", "{}", 1)
    sessions.touch_sessions(origin, {lookup.derive_session_id(tester.project_id, "s"): "s"}, 1)


def set_stop(tester: Agent, scope: str) -> None:
    """Set a stop that was in force from the start and still is."""
    user = User.objects.create(username="rita")
    subject = lookup.derive_session_id(tester.project_id, "s").hex if scope == "session" else ""
    stop = Stop(
        project=tester.project,
        scope=scope,
        subject=subject,
        set_by=user,
        set_at_us=0,
        opened_position=1,
    )
    add_row(stop)


@SOME
@given(
    reports=stories(),
    chance=st.randoms(use_true_random=False),
    stop=st.sampled_from(["", "project", "session"]),
)
def test_record_gives_one_state_for_every_delivery(
    tester: Agent, reports: list[Said], chance: random.Random, stop: str
) -> None:
    def after(batches: Sequence[Sequence[Said]]) -> dict[str, Any]:
        with undone():
            open_session(tester)
            if stop:
                set_stop(tester, stop)
            for batch in batches:
                record(tester, batch)
            return stored("s", clock=True)

    expected = after([reports])
    for _ in range(2):
        assert after(deliveries(reports, chance)) == expected


FOUR = [
    Said("d", "push", "effect.planned", producer_seq=1, fields={"tool": "git.push"}),
    Said(
        "c",
        "undo",
        "effect.planned",
        producer_seq=2,
        fields={"tool": "git.revert", "compensates": "push"},
    ),
    Said("b", "undo", "effect.acknowledged", fields={"outcome": "ok"}),
    Said("a", "push", "effect.acknowledged", fields={"outcome": "ok"}, attempt=2),
]


def test_a_compensation_converges_in_all_orders_of_its_four_facts(tester: Agent) -> None:
    """One fact per transaction in each of the 24 orders; test_fold.py tries all 2,520 without a
    database."""
    states = []
    for order in permutations(FOUR):
        with undone():
            open_session(tester)
            for report in order:
                record(tester, [report])
            states.append(stored("s", clock=True))
    assert all(state == states[0] for state in states)
    assert [row["state"] for row in states[0]["effects"]] == ["compensated", "acknowledged"]


def test_a_sample_of_the_orders_of_four_facts_sent_twice(tester: Agent) -> None:
    chance = random.Random(20_26)
    states = []
    for _ in range(20):
        sent = [*FOUR, *FOUR]
        chance.shuffle(sent)
        with undone():
            open_session(tester)
            for report in sent:
                record(tester, [report])
            states.append(stored("s", clock=True))
    assert all(state == states[0] for state in states)


def test_a_compensated_compensation_stays_acknowledged_in_every_order(tester: Agent) -> None:
    """The effect stays compensated when its compensation is itself compensated."""
    reports = [
        Said("p", "undo", "effect.planned", fields={"tool": "t", "compensates": "push"}),
        Said("q", "redo", "effect.planned", fields={"tool": "t", "compensates": "undo"}),
        Said("u", "undo", "effect.acknowledged", fields={"outcome": "ok"}),
        Said("r", "redo", "effect.acknowledged", fields={"outcome": "ok"}),
    ]
    for order in permutations(reports):
        with undone():
            open_session(tester)
            for report in order:
                record(tester, [report])
            states = dict(Effect.objects.values_list("effect_key", "state"))
        assert states == {"push": "compensated", "undo": "compensated", "redo": "acknowledged"}, (
            order
        )


DISPATCHED = [
    Said("d", "push", "effect.dispatched", occurred_us=20),
    Said("c", "push", "effect.dispatched", source="tester/hook"),
    Said("p", "push", "effect.planned", fields={"tool": "git.push"}),
    Said("o", "push", "effect.planned", producer_seq=1, fields={"tool": "deploy"}),
]


@pytest.mark.parametrize(
    ("reports", "deadline_s"), [(DISPATCHED[:3], 60), (DISPATCHED, 300)], ids=["one plan", "rivals"]
)
def test_a_deadline_counts_from_the_dispatch_by_the_tool_of_the_plan_in_every_order(
    tester: Agent, reports: list[Said], deadline_s: int
) -> None:
    """A plan in a later batch than its dispatch corrects the deadline that was set without it."""
    for order in permutations(reports):
        with undone():
            open_session(tester)
            for report in order:
                record(tester, [report])
            effect, attempt = Effect.objects.get(), Attempt.objects.get()
        assert attempt.received_us == 1_000_000 * ord("d")  # the winning dispatch
        assert effect.deadline_us == attempt.received_us + deadline_s * 1_000_000, order


NAMED = [
    Said("b", "undo", "effect.planned", fields={"tool": "t", "compensates": "push"}),
    Said("a", "undo", "effect.planned", fields={"tool": "t", "compensates": "edit"}),  # wins
    Said("c", "undo", "effect.acknowledged", fields={"outcome": "ok"}),
    Said("d", "push", "effect.acknowledged", fields={"outcome": "ok"}),
]
ANOTHER = [
    Said("e", "redo", "effect.planned", fields={"tool": "t", "compensates": "push"}),
    Said("f", "redo", "effect.acknowledged", fields={"outcome": "ok"}),
]


@pytest.mark.deepened
@pytest.mark.parametrize(
    ("reports", "push"),
    [(NAMED, "acknowledged"), ([*NAMED[:3], *ANOTHER], "compensated")],
    ids=["alone", "another"],
)
def test_only_the_target_of_the_winning_plan_is_compensated(
    tester: Agent, reports: list[Said], push: str
) -> None:
    """The losing plan's target is not compensated in any order, unless another effect does it."""
    for order in keep_orders(reports):
        with undone():
            open_session(tester)
            for report in order:
                record(tester, [report])
            states = dict(Effect.objects.values_list("effect_key", "state"))
        assert (states["edit"], states["push"]) == ("compensated", push), order
        assert states["undo"] == "acknowledged"


# --- through POST /api/v1/events --------------------------------------------------------------------------------------


def post(caller: Caller, batch: Sequence[Said]) -> None:
    answer = caller.report([report.item("s") for report in batch])
    assert answer.status_code == 200, answer.text


@SOME
@given(reports=stories(keys=["push", "undo"], rich=True), chance=st.randoms(use_true_random=False))
def test_the_endpoint_gives_one_state_for_every_delivery(
    agent: Caller, reports: list[Said], chance: random.Random
) -> None:
    project = projects.ensure_default_project()
    with undone():
        repositories.ensure_repository(project, "acme/x")  # its id is random
        registry.declare_tools(
            project, [ToolDeclaration("git.push", "idempotency_key", "reversible", 60, 60, "")]
        )

        def after(batches: Sequence[Sequence[Said]]) -> dict[str, Any]:
            with undone():
                for batch in batches:
                    post(agent, batch)
                handles = list(Effect.objects.values_list("opened_position", flat=True))
                assert len(set(handles)) == len(handles), "two effects have the same handle"
                return stored("s")

        expected = after([reports])
        for _ in range(2):
            assert after(deliveries(reports, chance)) == expected


def test_no_field_of_a_losing_plan_is_stored_with_the_winning_one(agent: Caller) -> None:
    repositories.ensure_repository(projects.ensure_default_project(), "acme/x")
    target = {"repository": "acme/x", "ref": "main", "environment": "ci", "resource": "x"}
    plan = {"kind": "effect.planned", "session": "s", "effect_key": "e", "tool": "t"}
    winning: dict[str, Any] = {**plan, "id": "1"}
    losing: dict[str, Any] = {
        **plan,
        "id": "2",
        "target": target,
        "turn": "7",
        "task": "build",
        "parent_effect": "f",
    }
    states = []
    for order in ([winning, losing], [losing, winning]):
        with undone():
            for item in order:
                assert agent.report([item]).status_code == 200
            states.append(stored("s"))
    assert states[0] == states[1]
    (effect,) = states[0]["effects"]
    assert (effect["ref"], effect["repository_id"], effect["task_id"], effect["turn"]) == (
        "",
        None,
        None,
        "",
    )


def test_two_agents_reports_of_one_effect_give_it_the_agent_of_its_plan(
    call: Callable[..., Caller],
) -> None:
    owner, other = call("tester"), call("watcher")
    one_team("tester", "watcher")
    planned = {"id": "1", "kind": "effect.planned", "session": "s", "effect_key": "e", "tool": "t"}
    seen = {"id": "2", "kind": "effect.dispatched", "session": "s", "effect_key": "e"}
    names = []
    for order in ([(owner, planned), (other, seen)], [(other, seen), (owner, planned)]):
        with undone():
            for caller, item in order:
                assert caller.report([item]).status_code == 200
            names.append(Effect.objects.get().agent.name)
    assert names == ["tester", "tester"]


def test_imported_and_live_evidence_meet_in_either_order(agent: Caller, importer: Caller) -> None:
    one_team("tester", "importer")
    live = {"id": "1", "kind": "effect.dispatched", "session": "s", "effect_key": "e"}
    imported = {**live, "id": "2", "kind": "effect.acknowledged", "outcome": "ok"}
    states = []
    for order in ([(agent, live), (importer, imported)], [(importer, imported), (agent, live)]):
        with undone():
            for caller, item in order:
                assert caller.report([item]).status_code == 200
            states.append(Effect.objects.values("state", "permission", "permission_basis").get())
    assert (
        states[0]
        == states[1]
        == {"state": "acknowledged", "permission": "observed", "permission_basis": "observe"}
    )


def test_separate_commits_give_the_state_of_one_batch(
    committed: None, application_outside: Any
) -> None:
    """No rollback and no surrounding transaction: each batch is its own commit."""
    chance = random.Random(7)
    reports = [
        Said("1", "push", "effect.planned", fields={"tool": "git.push", "turn": "t"}),
        Said("2", "push", "effect.planned", producer_seq=1, fields={"tool": "git.push"}),
        Said("3", "push", "effect.dispatched"),
        Said("4", "push", "effect.acknowledged", fields={"outcome": "ok"}),
        Said("5", "push", "effect.acknowledged", source="tester/hook", fields={"outcome": "error"}),
        Said("6", "undo", "effect.planned", fields={"tool": "git.revert", "compensates": "push"}),
        Said("7", "undo", "effect.acknowledged", fields={"outcome": "ok"}),
        Said("8", "undo", "effect.superseded"),
    ]
    states = []
    for number in range(4):
        caller = application_outside(f"project {number}")
        for batch in deliveries(reports, chance):
            post(caller, batch)
        rows = Effect.objects.filter(project__name=f"project {number}").order_by("effect_key")
        columns = (
            "effect_key",
            "state",
            "outcome",
            "tool",
            "turn",
            "planned_mark",
            "compensated",
            "permission",
            "violates",
        )
        states.append(list(rows.values(*columns)))
        assert connection.in_atomic_block is False
    assert all(state == states[0] for state in states)
    assert [(row["effect_key"], row["state"]) for row in states[0]] == [
        *(
            ("push", "compensated"),
            ("undo", "acknowledged"),
        )  # an acknowledged effect is not superseded
    ]
