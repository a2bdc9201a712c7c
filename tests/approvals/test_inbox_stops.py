"""Stops set and lifted from pages, and what the pages of effects show of permission."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts import agents
from approvals.models import Gate
from ledger import stops
from ledger.models import Effect, Stop
from sessions.models import Session
from tests.api.api_client import code
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of


def test_stop_takes_two_clicks_and_a_reason_and_is_lifted_with_one(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    match = re.search(
        r'href="(/approvals/stops/new/\?scope=session[^"]+)"', rita.page(url_of(gate))
    )
    assert match
    form = match[1].replace("&amp;", "&")
    assert "Stop the session" in rita.page(form)
    fields = {"scope": "session", "subject": gate.session_id.hex}
    assert rita.client.post(reverse("stop"), {**fields, "reason": ""}).status_code == 422
    assert not Stop.objects.exists()
    assert rita.client.post(reverse("stop"), {**fields, "reason": "it loops"}).status_code == 302
    assert stops.find_stop(
        gate.project_id, gate.session_id, gate.agent_id, gate.tool, gate.effect_id
    )
    assert "Approving runs nothing until the stop is lifted." in rita.page(url_of(gate))
    assert "it loops" in rita.page(reverse("stops"))
    rita.answer(gate)
    dispatch = {"process": "p", "intent_digest": gate.effect.intent_digest}
    assert code(inbox.agent.post(f"/effects/{gate.effect_id}/dispatch", dispatch)) == (
        409,
        "STOPPED",
    )
    lift = reverse("lift", args=[Stop.objects.get().id])
    assert rita.client.post(lift, {"reason": ""}).status_code == 422
    assert rita.client.post(lift, {"reason": "it was me"}).status_code == 302
    assert not stops.load_stops(gate.project_id)
    assert inbox.agent.post(f"/effects/{gate.effect_id}/dispatch", dispatch).status_code == 200


@pytest.mark.usefixtures("remembered")
def test_the_list_of_stops_takes_as_many_queries_for_many_as_for_one_of_each(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    def stopped(number: int) -> None:
        planned = inbox.gate(inbox.plan(f"e-{number}", arguments={"n": number}))
        inbox.agent.session(f"other-{number}")
        session = Session.objects.get(key=f"other-{number}")
        things = {
            "effect": planned.effect_id.hex,
            "session": session.id.hex,
            "agent": agents.ensure_agent(inbox.project, f"agent-{number}").id.hex,
            "tool": f"tool-{number}",
        }
        for scope, subject in things.items():
            fields = {"scope": scope, "subject": subject, "reason": f"{scope} number {number}"}
            assert rita.client.post(reverse("stop"), fields).status_code == 302

    def cost() -> int:
        rita.page(reverse("stops"))
        with CaptureQueriesContext(connection) as queries:
            rita.page(reverse("stops"))
        return len(queries)

    stopped(0)
    one_of_each = cost()
    for number in range(1, 4):
        stopped(number)
    assert cost() == one_of_each
    page = rita.page(reverse("stops"))
    for number in range(4):
        effect = Effect.objects.get(effect_key=f"e-{number}")
        session = Session.objects.get(key=f"other-{number}")
        for name in (
            f"{effect} git.push",
            f"{session} other-{number}",
            f"agent-{number}",
            f"tool-{number}",
        ):
            assert f">{name}<" in page
        for scope in ("effect", "session", "agent", "tool"):
            assert f"{scope} number {number}" in page


def test_a_stopped_project_shows_the_stop_on_every_page(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    rita.client.post(reverse("stop"), {"scope": "project", "subject": "", "reason": "incident"})
    assert "Project stopped:" in rita.page("/tools/")


@pytest.mark.parametrize("scope", ["effect", "session", "agent", "tool", "project", "basic", ""])
def test_nothing_of_another_project_is_stopped(
    inbox: InboxScenario, rita: Reviewer, scope: str
) -> None:
    foreign = {"agent": inbox.organization.other_token.agent_id.hex, "tool": "", "project": "x"}
    query = {"scope": scope, "subject": foreign.get(scope, "0" * 32)}
    if scope == "project":
        return
    rita.page(reverse("stop"), 404, **query)
    assert rita.client.post(reverse("stop"), {**query, "reason": "because"}).status_code == 404
    assert not Stop.objects.exists()


def test_the_effect_page_names_its_gate_and_the_rule(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    page = reverse("effect", args=[gate.effect_id])
    html = " ".join(rita.page(page).split())
    assert f'<a href="{url_of(gate)}">{gate}</a>' in html
    assert "requires approval, <span" in html
    assert "basic@1/push" in html
    assert "not enforced" not in html
    assert 'rel="next"' not in rita.page(url_of(gate))
    later = inbox.gate(inbox.plan("e-2", arguments={"ref": "next"}))
    assert f'<a href="{reverse("effect", args=[later.effect_id])}" rel="next">' in rita.page(
        url_of(gate)
    )
    inbox.rules(mode="observe")
    seen = inbox.plan("seen", arguments={"ref": "seen"})
    assert "<b>not enforced</b>" in rita.page(reverse("effect", args=[seen["id"]]))


def test_an_effect_without_approval_is_marked_on_its_page_and_searchable(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    report = {"id": "r-1", "kind": "effect.dispatched", "session": "s-1", "effect_key": "e-1"}
    assert inbox.agent.report([report]).status_code == 200
    handle = str(inbox.effect({"id": str(gate.effect_id)}))
    assert "Ran without approval:" in rita.page(reverse("effect", args=[gate.effect_id]))
    assert "1 violation" in rita.page(reverse("session", args=[gate.session_id]))
    for query in ("is:violating", "permission:bypassed", "policy_outcome:ask"):
        assert handle in rita.page(reverse("search"), 200, q=query), query
    assert handle not in rita.page(reverse("search"), q="policy_outcome:not_enforced")


@pytest.mark.parametrize("scope", ["effect", "session", "agent", "tool"])
def test_everything_is_stopped_where_it_is_shown(
    inbox: InboxScenario, gate: Gate, scope: str
) -> None:
    pages = {
        "effect": reverse("effect", args=[gate.effect_id]),
        "session": reverse("session", args=[gate.session_id]),
        "agent": reverse("tokens"),
        "tool": reverse("tools"),
    }
    administrator = Reviewer(inbox, "administrator")
    html = administrator.page(pages[scope])
    subject = "git.push" if scope == "tool" else "[0-9a-f]{32}"
    match = re.search(
        rf'href="(/approvals/stops/new/\?scope={scope}&amp;subject={subject}[^"]*)"', html
    )
    assert match
    form = match[1].replace("&amp;", "&")
    assert 'name="reason"' in administrator.page(form)
    query = dict(part.split("=") for part in form.partition("?")[2].split("&"))
    assert (
        administrator.client.post(reverse("stop"), {**query, "reason": "INC-9"}).status_code == 302
    )
    assert stops.find_stop(
        gate.project_id, gate.session_id, gate.agent_id, gate.tool, gate.effect_id
    )
    assert "Stopped." in administrator.page(pages["effect"])
    viewer = Reviewer(inbox, "viewer").page(pages["effect"])
    assert "/approvals/stops/new/" not in viewer
