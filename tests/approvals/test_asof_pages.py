"""The pages of an effect, a gate and a session as of a past moment."""

from datetime import UTC, datetime, timedelta
from urllib.parse import quote
from uuid import UUID

import pytest
import time_machine
from django.db import transaction
from django.test import Client
from django.urls import reverse

from db.clock import now_us
from investigation.history import moment as cuts
from journal import erasures
from journal.models import Entry
from ledger.models import Effect, Tool
from ledger.tools import cache
from tests.approvals.inbox_scenario import InboxScenario
from tests.rows_with_entries import add_row

pytestmark = pytest.mark.django_db


def last_position() -> int:
    return Entry.objects.latest("position").position


def page(client: Client, name: str, identity: UUID, asof: object, status: int = 200) -> str:
    answer = client.get(f"{reverse(name, args=[identity])}?asof={quote(str(asof))}", follow=True)
    assert answer.status_code == status, answer.content.decode()
    return answer.content.decode().partition("<main")[2].partition("</main>")[0]


def test_the_three_pages_show_the_past_state_and_no_actions(inbox: InboxScenario) -> None:
    before = last_position()
    planned = inbox.plan(arguments={"command": "git push origin main"}, why="because")
    gate, effect = inbox.gate(planned), inbox.effect(planned)
    requested = last_position()
    inbox.answer(gate, "reviewer", reason="looks right to me")
    inbox.agent.dispatch(planned)
    sent = last_position()
    inbox.agent.acknowledge(planned, external_reference="run-77")
    assert (
        inbox.agent.post(f"/sessions/{effect.session_id}/end", {"status": "completed"}).status_code
        == 200
    )
    assert effect.plan_position is not None
    with transaction.atomic():
        erasures.erase_body(
            inbox.project.id,
            effect.plan_position,
            reason="ticket 88",
            actor="tests",
            now_us=now_us() + 1,
        )
    client = inbox.organization.client("reviewer")

    waiting = page(client, "effect", effect.id, f"#{requested}")
    assert "Planned" in waiting
    assert "it waits for approval" in waiting
    assert "erased later" in waiting
    assert "run-77" not in waiting
    under_way = page(client, "effect", effect.id, sent)
    assert "no result reported" in under_way
    received = Entry.objects.get(position=sent).received_us
    assert (
        f'data-form="fixed">{datetime.fromtimestamp(received // 10**6, UTC):%Y-%m-%d %H:%M:%S} '
        "UTC</time>" in under_way
    )
    assert "run-77" not in under_way
    assert "run-77" in page(client, "effect", effect.id, last_position())

    unruled = page(client, "gate", gate.id, requested)
    assert "No votes." in unruled
    assert "looks right to me" not in unruled
    ruled = page(client, "gate", gate.id, sent)
    assert "looks right to me" in ruled
    assert "1 of 1 approved" in ruled

    session = page(client, "session", effect.session_id, requested)
    assert "awaiting approval" in session
    assert "running" in session
    assert "completed" not in session
    assert "completed" in page(client, "session", effect.session_id, last_position())

    for shown in (waiting, under_way, unruled, ruled, session):
        assert 'method="post"' not in shown
        assert "hx-get" not in shown.partition("<main")[2]
        assert ">current state</a>" in shown
        assert "As of</b>" in shown
    gone = page(client, "effect", effect.id, before, status=404)
    assert f"did not exist yet: it was first seen in entry #{effect.opened_position}" in gone
    neighbour = inbox.organization.client("neighbour")
    for name, identity in (
        ("effect", effect.id),
        ("gate_history", gate.id),
        ("session", effect.session_id),
    ):
        assert (
            neighbour.get(f"{reverse(name, args=[identity])}?asof={requested}").status_code == 404
        )


def test_a_dispatch_is_unknown_as_of_a_time_past_its_deadline(inbox: InboxScenario) -> None:
    add_row(Tool(project=inbox.project, name="file.read", tool_class="idempotent", deadline_s=60))
    cache.clear_tool_cache()
    planned = inbox.plan(tool="file.read")
    inbox.agent.dispatch(planned)
    sent, effect = last_position(), inbox.effect(planned)
    began = datetime.fromtimestamp((effect.dispatched_at_us or 0) / 1e6, UTC)
    with time_machine.travel(began + timedelta(hours=1), tick=False):
        client = inbox.organization.client("viewer")
        inbox.agent.acknowledge(planned)
        early, late = began + timedelta(seconds=30), began + timedelta(seconds=90)
        assert "no answer yet" in page(client, "effect", effect.id, early.isoformat())
        overdue = page(client, "effect", effect.id, f"{sent}@{late.isoformat()}")
        assert "Its deadline passed" in overdue
        assert "unknown" in page(client, "session", effect.session_id, "58m")
        assert "unknown" not in page(client, "session", effect.session_id, "59m")


def test_a_text_that_names_no_moment_is_refused_in_a_sentence(inbox: InboxScenario) -> None:
    effect = inbox.effect(inbox.plan())
    client = inbox.organization.client("viewer")
    for unfit, words in {
        "soon": "is not a moment",
        "2026-13-01": "is not a valid time",
        "2999-01-01T00:00Z": "is in the future",
        f"#{last_position() + 100}": "does not exist yet",
        f"{last_position()}@2999-01-01": "is in the future",
        "\0": "The moment is not valid",
    }.items():
        assert words in page(client, "effect", effect.id, unfit, status=400)
    live = client.get(f"{reverse('effect', args=[effect.id])}?asof=+")
    assert live["Location"] == reverse("effect", args=[effect.id])


def test_a_moment_by_age_is_the_one_by_position(inbox: InboxScenario) -> None:
    inbox.plan()
    project, now = inbox.project.id, now_us()
    by_age, by_position = (
        cuts.parse_cut("0s", project, now),
        cuts.parse_cut(str(last_position()), project, now),
    )
    assert by_age.position == by_position.position == last_position()
    assert by_position.at_us == Entry.objects.latest("position").received_us
    assert cuts.parse_cut(by_age.text, project, now + 10**9) == by_age


def test_arguments_of_a_replaced_plan_are_its_own_or_erased(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1")
    report = {
        "kind": "effect.planned",
        "session": "s-1",
        "effect_key": "e-9",
        "tool": "git.tag",
        "arguments": {},
    }
    reported = {**report, "id": "z-1", "target": {"repository": "web", "ref": "release-9"}}
    assert inbox.agent.report([reported]).status_code == 200
    first = last_position()
    assert (
        inbox.agent.report(
            [{**report, "id": "a-1", "target": {"environment": "staging"}}]
        ).status_code
        == 200
    )
    effect = Effect.objects.get(effect_key="e-9")
    client = inbox.organization.client("viewer")
    then = page(client, "effect", effect.id, first)
    assert "release-9" in then
    assert "staging" not in then
    assert "staging" in page(client, "effect", effect.id, last_position())
    position = Entry.objects.get(event_id="z-1").position
    with transaction.atomic():
        erasures.erase_body(
            inbox.project.id, position, reason="ticket 89", actor="tests", now_us=now_us() + 1
        )
    erased = page(client, "effect", effect.id, first)
    assert "release-9" not in erased.split('id="facts"')[0]
    assert erased.count("erased later") >= 2
