"""Convergence on the database: whatever the delivery, batching and repetition, the ledger's rows
are the same.

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
from accounts.origin import Origin
from approvals import gated_commands
from db.ids import derive_uuid
from journal import entries
from journal.entries import AppendStatus, Draft
from journal.models import Entry, Outbox
from ledger.fold import apply
from ledger.models import Attempt, Effect, Stop
from ledger.store import writer
from ledger.tools import registry
from ledger.tools.tools_yaml import ToolDeclaration
from sessions import lookup, sessions
from sessions.models import Session
from tests.api.api_client import Caller
from tests.ledger.fact_strategies import Said, deliveries, stories
from tests.sessions.team_helpers import one_team

pytestmark = pytest.mark.django_db
# A failing story is told as found: making it smaller would take minutes on a database, and seconds
# in test_fold.py.
SOME = settings(
    max_examples=20,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# Order-free but for the surrogate key of attempts, which counts rows.
NO_STATE = apply.DELIVERY_COLUMNS | {"id"}


@contextmanager
def undone() -> Iterator[None]:
    """Whatever happens inside never was. The endpoints insist on a transaction of their own, hence no
    `atomic`."""
    savepoint = transaction.savepoint()
    yield
    transaction.savepoint_rollback(savepoint)


def stored(session: str, *, clock: bool = False) -> dict[str, Any]:
    """Everything that facts about a session's effects left behind, but what follows delivery.

    A deadline is told from the dispatch on; with `clock` also as it stands, for facts that bring
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
            {name: value for name, value in row.items() if name not in apply.DELIVERY_COLUMNS}
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
    """Keep a batch as the evidence lane does: journal first, then only what is new there."""
    session = lookup.derive_session_id(tester.project_id, "s")
    drafts = [
        Draft(
            project=tester.project_id,
            source=said.source,
            event_id=said.id,
            kind=said.kind,
            lane="evidence",
            actor="agent:7",
            text=repr(said),
        )
        for said in batch
    ]
    reports = []
    for said, fate in zip(batch, entries.append_entries(drafts, 1), strict=True):
        if fate.status is not AppendStatus.CREATED:
            continue
        fact = said.fact(session, fate.position)
        fact.received_us = 1_000_000 * int.from_bytes(
            said.id.encode()
        )  # as if each had come at one moment, always
        spoken = [(said.effect_key, fact)]
        if said.fields.get("compensates"):
            named = apply.Fact(
                "effect.named", fact.mark, fact.lane, fact.key, fact.position, 1, None, 1
            )
            spoken.append((said.fields["compensates"], named))
        reports += [
            writer.EffectFact(
                derive_uuid(session, key), tester.project_id, session, tester.id, key, one
            )
            for key, one in spoken
        ]
    writer.apply_effect_facts(reports, gated_commands.classify_observation)


def opened(tester: Agent) -> None:
    """The session, stored as a stub."""
    origin = Origin(tester.project_id, tester.id, "tester", "agent:7", "evidence", "x", "{}", 1)
    sessions.touch_sessions(origin, {lookup.derive_session_id(tester.project_id, "s"): "s"}, 1)


def stopped(tester: Agent, scope: str) -> None:
    """A stop that was in force from the beginning of time and still is."""
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
    stop.save(force_insert=True)


@SOME
@given(
    told=stories(),
    chance=st.randoms(use_true_random=False),
    stop=st.sampled_from(["", "project", "session"]),
)
def test_record_gives_one_state_for_every_delivery(
    tester: Agent, told: list[Said], chance: random.Random, stop: str
) -> None:
    def after(batches: Sequence[Sequence[Said]]) -> dict[str, Any]:
        with undone():
            opened(tester)
            if stop:
                stopped(tester, stop)
            for batch in batches:
                record(tester, batch)
            return stored("s", clock=True)

    expected = after([told])
    for _ in range(2):
        assert after(deliveries(told, chance)) == expected


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
    """One fact a transaction, each of the 24 orders; the whole of 2,520 is tried without a database
    in test_fold.py."""
    states = []
    for order in permutations(FOUR):
        with undone():
            opened(tester)
            for said in order:
                record(tester, [said])
            states.append(stored("s", clock=True))
    assert all(state == states[0] for state in states)
    assert [row["state"] for row in states[0]["effects"]] == ["compensated", "acknowledged"]


def test_a_sample_of_the_orders_of_four_facts_sent_twice(tester: Agent) -> None:
    chance = random.Random(20_26)
    states = []
    for _ in range(40):
        sent = [*FOUR, *FOUR]
        chance.shuffle(sent)
        with undone():
            opened(tester)
            for said in sent:
                record(tester, [said])
            states.append(stored("s", clock=True))
    assert all(state == states[0] for state in states)


def test_what_was_undone_and_done_again_is_still_compensated_in_every_order(tester: Agent) -> None:
    """The compensation of a compensation: what was acknowledged stays so, whatever became of it
    later."""
    told = [
        Said("p", "undo", "effect.planned", fields={"tool": "t", "compensates": "push"}),
        Said("q", "redo", "effect.planned", fields={"tool": "t", "compensates": "undo"}),
        Said("u", "undo", "effect.acknowledged", fields={"outcome": "ok"}),
        Said("r", "redo", "effect.acknowledged", fields={"outcome": "ok"}),
    ]
    for order in permutations(told):
        with undone():
            opened(tester)
            for said in order:
                record(tester, [said])
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
    ("told", "deadline_s"), [(DISPATCHED[:3], 60), (DISPATCHED, 300)], ids=["one plan", "rivals"]
)
def test_a_deadline_counts_from_the_dispatch_by_the_tool_of_the_plan_in_every_order(
    tester: Agent, told: list[Said], deadline_s: int
) -> None:
    """A plan that comes in a later batch than its dispatch finds a deadline that was set without
    it."""
    for order in permutations(told):
        with undone():
            opened(tester)
            for said in order:
                record(tester, [said])
            effect, attempt = Effect.objects.get(), Attempt.objects.get()
        assert attempt.received_us == 1_000_000 * ord("d")  # the dispatch that won
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


@pytest.mark.parametrize(
    ("told", "push"),
    [(NAMED, "acknowledged"), ([*NAMED[:3], *ANOTHER], "compensated")],
    ids=["alone", "another"],
)
def test_only_what_the_winning_plan_names_is_compensated(
    tester: Agent, told: list[Said], push: str
) -> None:
    """The loser's target is not, in whatever order they come, unless something else compensates it."""
    for order in permutations(told):
        with undone():
            opened(tester)
            for said in order:
                record(tester, [said])
            states = dict(Effect.objects.values_list("effect_key", "state"))
        assert (states["edit"], states["push"]) == ("compensated", push), order
        assert states["undo"] == "acknowledged"


# --- through POST /api/v1/events --------------------------------------------------------------------------------------


def post(caller: Caller, batch: Sequence[Said]) -> None:
    answer = caller.report([said.item("s") for said in batch])
    assert answer.status_code == 200, answer.text


@SOME
@given(told=stories(keys=["push", "undo"], rich=True), chance=st.randoms(use_true_random=False))
def test_the_endpoint_gives_one_state_for_every_delivery(
    agent: Caller, told: list[Said], chance: random.Random
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
                assert len(set(handles)) == len(handles), "no two effects have one handle"
                return stored("s")

        expected = after([told])
        for _ in range(2):
            assert after(deliveries(told, chance)) == expected


def test_what_a_losing_plan_said_never_shows_through_the_winning_one(agent: Caller) -> None:
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
    one, other = call("tester"), call("watcher")
    one_team("tester", "watcher")
    planned = {"id": "1", "kind": "effect.planned", "session": "s", "effect_key": "e", "tool": "t"}
    seen = {"id": "2", "kind": "effect.dispatched", "session": "s", "effect_key": "e"}
    names = []
    for order in ([(one, planned), (other, seen)], [(other, seen), (one, planned)]):
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
    """No rollback and no surrounding transaction: each batch is a commit of its own."""
    chance = random.Random(7)
    told = [
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
        for batch in deliveries(told, chance):
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
        *(("push", "compensated"), ("undo", "acknowledged"))  # what happened is not withdrawn
    ]
