"""If-Match: a request for another version is refused with the current object."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from journal.models import Entry
from sessions.models import Item, Session, Task
from tests.api.api_client import Caller, code
from tests.journal.committed import committed as committed
from tests.journal.committed import together
from tests.ledger.conftest import application_outside as application_outside

# Each endpoint that changes a row: its path, a request body, and the field that shows the row.
ENDPOINTS: list[tuple[str, dict[str, Any], str]] = [
    ("/sessions/{session}/change", {"cursor": "x"}, "session"),
    ("/sessions/{session}/merged", {"into": "other"}, "session"),
    ("/sessions/{session}/end", {"status": "completed"}, "session"),
    ("/tasks/{task}/change", {"state": "running"}, "task"),
    ("/tasks/{task}/done", {}, "task"),
    ("/tasks/{task}/items", {"items": [{"key": "i", "state": "done"}]}, "task"),
    ("/decisions/{decision}/conclude", {"status": "done", "outcome": "x"}, "decision"),
    ("/handoffs/{handoff}/accept", {}, "handoff"),
]
CHANGES = (
    "session.changed",
    "session.merged",
    "session.ended",
    "task.changed",
    "task.done",
    "item.done",
)


@pytest.fixture
def rows(agent: Caller) -> dict[str, dict[str, Any]]:
    agent.session("other")
    session = agent.session()
    path = f"/sessions/{session['id']}"
    return {
        "session": session,
        "task": agent.post(f"{path}/tasks", {"key": "t"}).json(),
        "decision": agent.post(f"{path}/decisions", {"key": "d", "choice": "left"}).json(),
        "handoff": agent.post(f"{path}/handoffs").json(),
    }


@pytest.mark.parametrize(
    ("endpoint", "body", "name"),
    ENDPOINTS,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_version_is_refused_with_the_current_object(
    agent: Caller, rows: dict[str, dict[str, Any]], endpoint: str, body: dict[str, Any], name: str
) -> None:
    path = endpoint.format(**{kind: row["id"] for kind, row in rows.items()})
    seen = rows[name]["version"]
    for malformed in ("", "x", 'W/"1"', '"1", "2"', "-1", "1.0", "12345678901"):
        refused = agent.post(path, body, headers={"If-Match": malformed})
        assert code(refused) == (400, "if_match_invalid"), malformed
    refused = agent.post(path, body, headers={"If-Match": f'"{seen + 1}"'})
    assert code(refused) == (409, "VERSION_CHANGED")
    assert refused.json()[name]["version"] == seen
    assert not Entry.objects.filter(
        kind__in=[*CHANGES, "decision.concluded", "handoff.accepted"]
    ).exists()

    done = agent.post(path, body, key="k", headers={"If-Match": f'"{seen}"'})
    assert done.status_code == 200, done.text
    assert done.json()["version"] == seen + 1
    # A repeated command gets its stored response, although the version is outdated by now.
    again = agent.post(path, body, key="k", headers={"If-Match": f'"{seen}"'})
    assert (again.status_code, again.json(), again.headers["idempotent-replay"]) == (
        200,
        done.json(),
        "true",
    )
    late = agent.post(path, body, headers={"If-Match": f'"{seen}"'})
    assert code(late) == (409, "VERSION_CHANGED")


def test_of_many_requests_for_one_version_one_succeeds(
    application_outside: Callable[[str], Caller],
) -> None:
    agent = application_outside("races")
    session = agent.session()
    task = agent.post(f"/sessions/{session['id']}/tasks", {"key": "t"}).json()
    application = agent.client._transport.app  # type: ignore[attr-defined]  # that of WSGITransport
    for round_ in range(3):
        headers = {"If-Match": str(Task.objects.get().version)}
        senders = [Caller(agent.token, app=application) for _ in range(6)]
        path = f"/tasks/{task['id']}/change"
        words = [{"worker": f"w-{round_}-{n}"} for n in range(6)]
        answers = together(
            *(
                partial(sender.post, path, word, headers=headers)
                for sender, word in zip(senders, words, strict=True)
            )
        )
        assert sorted(answer.status_code for answer in answers) == [200] + [409] * 5
        (winner,) = [
            word for word, answer in zip(words, answers, strict=True) if answer.status_code == 200
        ]
        assert Task.objects.get().worker == winner["worker"]
    assert Task.objects.get().version == task["version"] + 3


def test_a_report_of_an_item_changes_the_version_of_its_task(
    agent: Caller, rows: dict[str, dict[str, Any]]
) -> None:
    agent.report([{"id": "f", "kind": "item.done", "session": "s-1", "task": "t", "item": "i"}])
    path = f"/tasks/{rows['task']['id']}/items"
    late = agent.post(
        path, {"items": [{"key": "i", "state": "pending"}]}, headers={"If-Match": "1"}
    )
    assert code(late) == (409, "VERSION_CHANGED")
    assert Item.objects.get().state == "done"


def test_a_plan_does_not_change_the_version_of_a_session(
    agent: Caller, rows: dict[str, dict[str, Any]]
) -> None:
    agent.dispatch(agent.plan())
    assert Session.objects.get(key="s-1").version == rows["session"]["version"]
