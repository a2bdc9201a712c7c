"""Every session and effect has its own handle, also when another fact named it first."""

from typing import Any

import pytest

from journal.models import Body, Entry
from ledger.models import Effect
from sessions.models import Session
from tests.api.api_client import Caller

SUB_AGENT = {"id": "a1", "kind": "session.started", "session": "S/a1", "parent": "S"}
MAIN = {"id": "m", "kind": "session.started", "session": "S", "title": "the main file"}
UNDO = {
    "id": "u",
    "kind": "effect.planned",
    "session": "S",
    "effect_key": "undo",
    "tool": "t",
    "compensates": "push",
}
PUSH = {"id": "p", "kind": "effect.planned", "session": "S", "effect_key": "push", "tool": "t"}


def pages(agent: Caller, path: str) -> list[str]:
    """Return the handles of a list, read in pages of one."""
    handles: list[str] = []
    after: dict[str, Any] = {}
    while True:
        body = agent.get(path, limit=1, **after).json()
        handles += [item["handle"] for item in body["items"]]
        if body["next"] is None:
            return handles
        after = {"after": body["next"]}


def named(kind: str) -> Entry:
    """Return the only entry of `kind`, recorded by Gatebook."""
    entry = Entry.objects.get(kind=kind)
    assert (entry.lane, entry.source, entry.actor) == ("system", "gatebook", "gatebook")
    return entry


def test_a_sub_agent_reported_before_its_main_session_has_its_own_handle(
    agent: Caller,
) -> None:
    answer = agent.report([SUB_AGENT])
    assert answer.json()["accepted"] == len(answer.json()["results"]) == 1
    child, parent = Session.objects.get(key="S/a1"), Session.objects.get(key="S")
    assert child.opened_position == Entry.objects.get(event_id="a1").position
    entry = named("session.named")
    assert (entry.position, entry.session) == (parent.opened_position, parent.id)
    assert pages(agent, "/sessions") == [str(parent), str(child)]
    assert Body.objects.get(entry=entry).text == f'{{"session":"{parent.id}"}}'

    agent.report([MAIN, {**SUB_AGENT, "id": "a2", "session": "S/a2"}])
    agent.report([SUB_AGENT])
    assert named("session.named") == entry, "recorded once"
    assert Session.objects.get(key="S").opened_position == parent.opened_position, (
        "the handle that was shown stays"
    )
    assert len(set(pages(agent, "/sessions"))) == Session.objects.count() == 3


def test_a_compensation_reported_before_its_effect_has_its_own_handle(
    agent: Caller,
) -> None:
    answer = agent.report([UNDO])
    assert answer.json()["accepted"] == len(answer.json()["results"]) == 1
    undo, push = Effect.objects.get(effect_key="undo"), Effect.objects.get(effect_key="push")
    assert undo.opened_position == Entry.objects.get(event_id="u").position
    entry = named("effect.named")
    assert (entry.position, entry.effect, entry.session) == (
        push.opened_position,
        push.id,
        push.session_id,
    )
    assert pages(agent, "/effects") == [str(push), str(undo)]

    agent.report([PUSH, {**UNDO, "id": "u2", "effect_key": "undo-2"}])
    agent.report([UNDO])
    assert named("effect.named") == entry, "recorded once"
    assert Effect.objects.get(effect_key="push").opened_position == push.opened_position
    assert (
        Effect.objects.get(effect_key="push").plan_position
        == Entry.objects.get(event_id="p").position
    )
    assert (
        len(set(pages(agent, "/effects")))
        == Effect.objects.count()
        == Session.objects.get().effect_count
        == 3
    )


@pytest.mark.parametrize(
    ("first", "then"), [(SUB_AGENT, MAIN), (UNDO, PUSH)], ids=["session", "effect"]
)
@pytest.mark.parametrize("order", [1, -1])
def test_objects_of_the_same_batch_can_be_named_without_an_entry(
    agent: Caller, first: dict[str, Any], then: dict[str, Any], order: int
) -> None:
    agent.report([first, then][::order])
    assert not Entry.objects.filter(kind__endswith=".named").exists()
    rows = Effect.objects.all() if "tool" in first else Session.objects.all()
    opened = (
        Entry.objects.filter(lane="evidence")
        .order_by("-position")
        .values_list("position", flat=True)
    )
    assert list(
        rows.order_by("-opened_position").values_list("opened_position", flat=True)
    ) == list(opened)


def test_many_named_at_once_have_a_handle_each(agent: Caller) -> None:
    agent.report(
        [{**SUB_AGENT, "id": f"s{n}", "session": f"a{n}", "parent": f"b{n}"} for n in range(40)]
    )
    agent.report(
        [{**UNDO, "id": f"u{n}", "effect_key": f"u{n}", "compensates": f"p{n}"} for n in range(40)]
    )
    for rows in (Session.objects.all(), Effect.objects.all()):
        assert len({row.opened_position for row in rows}) == rows.count() >= 80
    assert Entry.objects.filter(kind__endswith=".named").count() == 80
