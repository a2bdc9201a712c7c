"""A body that is gone excuses the rows that its entry gave, and no others."""

from typing import Any

import pytest
from django.db import transaction

from db.clock import now_us
from journal import erasures
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Item, ObservedFact, Session, Task
from tests.approvals.inbox_scenario import InboxScenario
from tests.rebuild.test_forged_rows import forge, run
from tests.rebuild.test_misplaced_rows import copy_row, list_named, name_added
from tests.rebuild.test_rebuilt_stories import list_differences

pytestmark = pytest.mark.django_db
FACT = {"name": "head", "value": "4f2a", "source": "ci"}


def report(inbox: InboxScenario, session: str, *items: dict[str, Any]) -> None:
    """Let the agent report facts of a session, each with an id of its own."""
    first = Entry.objects.count()
    inbox.agent.report(
        [
            {"id": f"r-{first}-{number}", "session": session, **item}
            for number, item in enumerate(items)
        ]
    )


def record_work(inbox: InboxScenario, session: str) -> None:
    """Record tasks that plans name, their items, and a fact."""
    identity = inbox.agent.session(session)["id"]
    for key in ("a", "b"):
        plan = {"kind": "effect.planned", "tool": "file.read", "task": key}
        report(inbox, session, {"effect_key": key, **plan})
    report(inbox, session, {"kind": "item.done", "task": "a", "item": "linux"})
    task = Task.objects.get(session=identity, key="b")
    items = {"items": [{"key": "mac", "state": "done"}]}
    assert inbox.agent.post(f"/tasks/{task.id}/items", items).status_code == 200
    answer = inbox.agent.post(f"/sessions/{identity}/facts", FACT)
    assert answer.status_code in (200, 201)


def erase_bodies(inbox: InboxScenario, entries: Any) -> None:
    """Destroy the bodies of entries, as a retention does."""
    with transaction.atomic():
        for position in entries.values_list("position", flat=True):
            erasures.erase_body(
                inbox.project.id, position, reason="t-1", actor="p_1", now_us=now_us()
            )


def test_lost_bodies_excuse_the_rows_of_their_own_entries_only(inbox: InboxScenario) -> None:
    for session in ("s-1", "s-2"):
        record_work(inbox, session)
    first, second = Session.objects.order_by("opened_position")
    assert list_differences() == []
    erase_bodies(inbox, Entry.objects.filter(session=first.id).exclude(kind="session.started"))
    assert list_differences() == []
    task, item = (
        Task.objects.get(session=first, key="a"),
        Item.objects.get(key="linux", task__session=first),
    )
    fact = ObservedFact.objects.get(session=first)
    own = Task.objects.get(session=second, key="a")
    added = [
        # of the other session, and of this one but of no entry without a body
        copy_row(Task, task, session=second, key="forged"),
        copy_row(Task, task, key="forged", opened_position=first.opened_position),
        copy_row(Item, item, task=own, key="forged"),
        copy_row(Item, item, key="forged", changed_at_us=item.changed_at_us + 1),
        copy_row(ObservedFact, fact, session=second, source="forged"),
        copy_row(ObservedFact, fact, source="forged", position=first.opened_position),
    ]
    assert list_named() == name_added(*added)


def test_a_plan_without_a_body_may_have_named_a_task_first(inbox: InboxScenario) -> None:
    session = inbox.agent.session("s-1")["id"]
    for number in range(2):
        report(
            inbox,
            "s-1",
            {
                "effect_key": f"e-{number}",
                "kind": "effect.planned",
                "tool": "file.read",
                "task": "a",
            },
        )
    plan = Entry.objects.filter(session=session, kind="effect.planned").order_by("position")
    erase_bodies(inbox, Entry.objects.filter(position=plan[0].position))
    code, text = run("--check")
    assert (code, "a version that did not record it" in text) == (0, False), text
    assert "redactions of 1 rows: no entry has the number of redactions of a reported plan" in text
    # The task comes back, although it is not known when it was opened.
    forge(("UPDATE ledger_effect SET task_id = NULL", "DELETE FROM agent_sessions_task"))
    assert {(row["difference"], row["table"]) for row in list_differences()} == {
        ("missing", "agent_sessions_task"),
        ("changed", "ledger_effect"),
    }
    code, text = run()
    assert code == 0, text
    assert Task.objects.count() == 1
    assert Effect.objects.filter(task=None).count() == 1  # of the plan without a body
