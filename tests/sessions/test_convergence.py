"""Sessions, tasks and items are functions of facts too: any delivery of the same facts gives the
same rows."""

import random
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from accounts import repositories
from accounts.models import Agent
from journal import order_keys
from sessions import items, sessions, tasks
from sessions.models import Item, Session, Task
from tests.api.api_client import Caller
from tests.ledger.test_convergence import undone
from tests.matrices import count_examples, keep_orders
from tests.sessions.command_factories import report, touched
from tests.sessions.team_helpers import one_team

pytestmark = pytest.mark.django_db
SOME = settings(
    max_examples=count_examples(6, 15),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# Clocks of the server, journal positions and write counters depend on delivery and are no state.
NO_STATE: Final = {
    *(
        "id",
        "opened_position",
        "created_at_us",
        "updated_at_us",
        "seen_at_us",
        "changed_at_us",
        "version",
    ),
    "start_by_us",
}
Fact = dict[str, Any]


def stored() -> list[list[Fact]]:
    """Return all rows of the three tables, without columns that depend on delivery."""
    tables = (
        Session.objects.order_by("key"),
        Task.objects.order_by("session_id", "key"),
        Item.objects.order_by("task_id", "key"),
    )
    return [
        [
            {name: value for name, value in row.items() if name not in NO_STATE}
            for row in table.values()
        ]
        for table in tables
    ]


def deliveries(facts: Sequence[Fact], chance: random.Random) -> list[list[Fact]]:
    """Return batches of the facts: shuffled, partly repeated, split anywhere."""
    sent = [*facts, *chance.choices(facts, k=chance.randint(0, len(facts)))]
    chance.shuffle(sent)
    batches: list[list[Fact]] = [[]]
    for fact in sent:
        if batches[-1] and chance.random() < 0.4:
            batches.append([])
        batches[-1].append(fact)
    return batches


def _of(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Fact]:
    return st.fixed_dictionaries({"kind": st.just(kind)}, optional=fields)


TITLES = st.sampled_from(["one", "two", "nul \0 inside"])
STATES = st.sampled_from(["pending", "running", "blocked", "done", "failed"])
TASKS = st.sampled_from(["build", "ship"])
SESSION_FACTS: Final[tuple[st.SearchStrategy[Any], ...]] = (
    _of(
        "session.started",
        title=TITLES,
        repository=st.just("acme/x"),
        branch=st.just("main"),
        mode=st.sampled_from(["leased", "one_shot"]),
        parent=st.sampled_from(["t", "u"]),
        labels=st.just({"team": "x"}),
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("session.ended"),
            "status": st.sampled_from(["completed", "failed", "cancelled"]),
        }
    ),
    _of("session.waiting"),
    _of("session.resumed"),
    _of("session.suspended"),
)
TASK_FACTS: Final[tuple[st.SearchStrategy[Any], ...]] = (
    *(
        st.fixed_dictionaries(
            {"kind": st.just(kind), "task": TASKS},
            optional={
                "title": TITLES,
                "state": STATES,
                "priority": st.integers(-1, 1),
                "worker": st.just("w"),
                "branch_label": st.just("b"),
                "parent": st.sampled_from(["build", "never created"]),
            },
        )
        for kind in ("task.created", "task.changed")
    ),
    st.fixed_dictionaries({"kind": st.just("task.done"), "task": TASKS}),
    *(
        st.fixed_dictionaries(
            {"kind": st.just(kind), "task": TASKS, "item": st.sampled_from(["1", "2"])}
        )
        for kind in ("item.done", "item.failed")
    ),
)


@st.composite
def stories(
    draw: st.DrawFn, kinds: Sequence[st.SearchStrategy[Fact]] = (*SESSION_FACTS, *TASK_FACTS)
) -> list[Fact]:
    """Up to ten facts about two sessions, each with an id, a source and perhaps a sequence."""
    facts = []
    for number in range(draw(st.integers(2, 10))):
        fact = draw(st.one_of(*kinds))
        fact |= {
            "id": draw(st.sampled_from("abcdef")) + str(number),
            "session": draw(st.sampled_from(["s", "t"])),
            "source": draw(st.sampled_from(["tester", "tester/hook"])),
        }
        sequence, told_us = draw(st.none() | st.integers(0, 3)), draw(st.none() | st.integers(1, 5))
        fact |= {} if sequence is None else {"producer_seq": sequence}
        fact |= {} if told_us is None else {"occurred_us": told_us}
        facts.append(fact)
    return facts


def check(caller: Caller, facts: list[Fact], chance: random.Random) -> None:
    def after(batches: Sequence[Sequence[Fact]]) -> list[list[Fact]]:
        with undone():
            for batch in batches:
                answer = caller.report(list(batch))
                assert answer.status_code == 200, answer.text
            return stored()

    expected = after([facts])
    for _ in range(3):
        assert after(deliveries(facts, chance)) == expected


@SOME
@given(facts=stories(), chance=st.randoms(use_true_random=False))
def test_the_endpoint_gives_one_state_for_every_delivery(
    agent: Caller, facts: list[Fact], chance: random.Random
) -> None:
    with undone():
        _keep_the_repository()
        check(agent, facts, chance)


def _keep_the_repository() -> None:
    """Store the repository first, because its id is random."""
    from accounts import projects

    repositories.ensure_repository(projects.ensure_default_project(), "acme/x")


def last_to_arrive(mark: str, _other: str) -> bool:
    return bool(mark)


@pytest.mark.once
@pytest.mark.parametrize(
    ("module", "kinds"),
    [(sessions, SESSION_FACTS), (tasks, TASK_FACTS)],
    ids=["sessions", "tasks"],
)
def test_a_fold_that_takes_the_last_arrival_is_caught(
    agent: Caller,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    kinds: Sequence[st.SearchStrategy[Fact]],
) -> None:
    assert module.is_earlier_mark is order_keys.is_earlier_mark
    monkeypatch.setattr(module, "is_earlier_mark", last_to_arrive)

    @settings(SOME, max_examples=200, derandomize=True, database=None, phases=[Phase.generate])
    @given(facts=stories(kinds), chance=st.randoms(use_true_random=False))
    def property_of_the_mutant(facts: list[Fact], chance: random.Random) -> None:
        check(agent, facts, chance)

    with undone():
        _keep_the_repository()
        with pytest.raises(AssertionError):
            property_of_the_mutant()


@pytest.mark.deepened
def test_the_verb_for_sessions_gives_one_state_in_all_orders(tester: Agent) -> None:
    story = [
        ("session.started", "b", {"title": "first"}),
        ("session.started", "c", {"title": "second", "branch": "main"}),
        ("session.waiting", "d", {}),
        ("session.ended", "e", {"status": "failed"}),
        ("session.ended", "f", {"status": "completed"}),
    ]
    states = []
    for facts in keep_orders(story):
        with undone():
            session = touched(tester)
            for position, (kind, key, values) in enumerate(facts, 2):
                session_fact = sessions.SessionFact(
                    session, "s", report(tester, key), kind, position, dict(values)
                )
                sessions.apply_session_facts([session_fact], {})
            states.append(stored()[0])
    assert all(state == states[0] for state in states)
    (row,) = states[0]
    assert (row["title"], row["branch"], row["status"]) == ("first", "", "failed")


@pytest.mark.deepened
def test_the_verb_for_tasks_gives_one_state_in_all_orders(tester: Agent) -> None:
    story: list[tuple[str, str, dict[str, Any]]] = [
        ("task.created", "b", {"title": "first", "priority": 1}),
        ("task.created", "c", {"title": "second", "worker": "w", "parent": "p"}),
        ("task.changed", "d", {"title": "third", "state": "running"}),
        ("task.changed", "e", {"state": "blocked"}),
        ("task.done", "f", {}),
    ]
    states = []
    for facts in keep_orders(story):
        with undone():
            session = touched(tester)
            for position, (kind, key, values) in enumerate(facts, 2):
                tasks.apply_task_facts(
                    [tasks.TaskFact(session, "t", report(tester, key), kind, position, values)]
                )
            states.append(stored()[1])
    assert all(state == states[0] for state in states)
    (row,) = states[0]
    assert (row["title"], row["priority"], row["worker"], row["state"]) == ("third", 1, "w", "done")
    assert row["parent_id"] is None  # the first creation named none


def test_the_verb_for_items_gives_one_state_in_all_orders(tester: Agent) -> None:
    story = [
        ("a", None, "failed"),
        ("b", 2, "done"),
        ("c", 1, "failed"),
        ("ä", None, "done"),
        ("z", None, "failed"),
    ]
    states = []
    for facts in permutations(story):
        with undone():
            task = tasks.ensure_task(report(tester, "x"), touched(tester), "t", 1)
            for position, (key, sequence, state) in enumerate(facts, 2):
                fact = report(tester, key, producer_seq=sequence)
                items.apply_item_facts([items.ItemFact(task, "i", fact, state, position)])
            states.append(stored()[2])
    assert all(state == states[0] for state in states)
    # The latest by code point on both databases: "ä" sorts after "z" in Unicode, but in no
    # language.
    assert states[0][0]["state"] == "done"


def test_two_agents_reports_give_a_session_the_agent_of_its_start(
    call: Callable[..., Caller],
) -> None:
    tester, other = call("tester"), call("watcher")
    one_team("tester", "watcher")
    started = {"id": "1", "kind": "session.started", "session": "s", "title": "x"}
    seen = {"id": "2", "kind": "session.waiting", "session": "s"}
    names = []
    for facts in ([(tester, started), (other, seen)], [(other, seen), (tester, started)]):
        with undone():
            for caller, fact in facts:
                assert caller.report([fact]).status_code == 200
            names.append(Session.objects.get().agent.name)
    assert names == ["tester", "tester"]
