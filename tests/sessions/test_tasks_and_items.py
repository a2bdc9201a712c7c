"""The verbs of tasks and their items."""

import pytest

from accounts.models import Agent
from journal.entries import RepeatedKey
from journal.models import Entry
from sessions import items, tasks
from sessions.models import Item, Session, Task
from tests.sessions.command_factories import opened, origin, report, touched

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(tester: Agent) -> Session:
    return opened(tester)


@pytest.fixture
def task(tester: Agent, session: Session) -> Task:
    return tasks.add_task(origin(tester), session, {"key": "t", "title": "build", "priority": 2})[0]


def test_a_task_is_created_once(tester: Agent, session: Session, task: Task) -> None:
    again, created = tasks.add_task(origin(tester), session, {"key": "t", "title": "another"})
    assert (again.id, created, again.title) == (task.id, False, "build")
    assert Entry.objects.get(kind="task.created").position == task.opened_position
    with pytest.raises(tasks.UnknownParentTask):
        tasks.add_task(origin(tester), session, {"key": "u", "parent": "nobody"})


def test_a_parent_is_named_by_key_or_id(tester: Agent, session: Session, task: Task) -> None:
    for key, parent in (("u", "t"), ("v", str(task.id))):
        assert (
            tasks.add_task(origin(tester), session, {"key": key, "parent": parent})[0].parent_id
            == task.id
        )


def test_the_last_accepted_change_counts_whatever_its_key(tester: Agent, task: Task) -> None:
    for key, state in (("z", "running"), ("m", "blocked"), ("a", "running"), ("k", "failed")):
        assert tasks.update_task(origin(tester, key), task, {"state": state}).state == state
    stored = Task.objects.get()
    assert (stored.state, stored.title, stored.priority) == ("failed", "build", 2)


def test_a_change_keeps_the_fields_that_it_does_not_name(tester: Agent, task: Task) -> None:
    tasks.update_task(origin(tester), task, {"worker": "w-1"})
    stored = Task.objects.get()
    assert (stored.title, stored.priority, stored.worker, stored.state) == (
        "build",
        2,
        "w-1",
        "pending",
    )


def test_what_was_reported_done_stays_done(tester: Agent, task: Task) -> None:
    tasks.complete_task(origin(tester), task)
    assert (
        tasks.update_task(origin(tester), task, {"state": "running", "title": "still named"}).state
        == "done"
    )
    assert Task.objects.get().title == "still named"


def test_a_tasks_key_is_used_once(tester: Agent, task: Task) -> None:
    tasks.complete_task(origin(tester, "k"), task)
    with pytest.raises(RepeatedKey):
        tasks.complete_task(origin(tester, "k"), task)
    with pytest.raises(RepeatedKey):
        tasks.update_task(origin(tester, "k"), task, {"state": "running"})


def test_a_mentioned_task_gets_its_name_from_its_creation(tester: Agent) -> None:
    identity = tasks.ensure_task(report(tester, "a"), touched(tester), "t", 3)
    before = Task.objects.get(id=identity)
    assert (before.title, before.state, before.opened_position) == ("", "pending", 3)
    session = Session.objects.get()
    task, created = tasks.add_task(origin(tester), session, {"key": "t", "title": "build"})
    assert (task.id, created, task.title, task.opened_position) == (identity, True, "build", 3)


def _states() -> dict[str, str]:
    return dict(Item.objects.order_by("key").values_list("key", "state"))


def test_items_show_exactly_which_are_done(tester: Agent, task: Task) -> None:
    counts = items.set_item_states(
        origin(tester), task, {"1": "pending", "2": "pending", "3": "pending"}
    )
    assert counts == {"pending": 3, "done": 0, "failed": 0}
    assert items.set_item_states(origin(tester), task, {"1": "done", "3": "failed"}) == {
        "pending": 1,
        "done": 1,
        "failed": 1,
    }
    assert _states() == {"1": "done", "2": "pending", "3": "failed"}


def test_the_last_accepted_report_of_an_item_counts_whatever_its_key(
    tester: Agent, task: Task
) -> None:
    for key, state in (
        ("z", "pending"),
        ("y", "failed"),
        ("m", "done"),
        ("a", "pending"),
        ("k", "failed"),
    ):
        items.set_item_states(origin(tester, key), task, {"1": state})
        assert _states() == {"1": state}


def test_an_item_declared_by_command_may_be_reported_done(tester: Agent, task: Task) -> None:
    for _ in range(2):  # sending the same list again adds nothing
        items.set_item_states(origin(tester), task, {"1": "pending", "2": "pending"})
    items.apply_item_facts([items.ItemFact(task.id, "1", report(tester, "a"), "done", 9)])
    assert _states() == {"1": "done", "2": "pending"}


def test_a_command_may_open_a_reported_item_again(tester: Agent, task: Task) -> None:
    items.apply_item_facts([items.ItemFact(task.id, "1", report(tester, "a"), "done", 9)])
    items.set_item_states(origin(tester), task, {"1": "pending"})
    assert _states() == {"1": "pending"}


def test_a_task_holds_ten_thousand_items(
    tester: Agent, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert items.MAX_TASK_ITEMS == 10_000
    monkeypatch.setattr(items, "MAX_TASK_ITEMS", 3)
    items.set_item_states(origin(tester), task, {"1": "done", "2": "done", "3": "done"})
    with pytest.raises(items.TooManyItems):
        items.set_item_states(origin(tester), task, {"4": "done"})


def test_an_empty_report_changes_nothing() -> None:
    items.apply_item_facts([])
    assert tasks.apply_task_facts([]) == {}
    assert items.count_items_by_state([]) == {}
