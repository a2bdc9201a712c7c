"""Flags in the inbox: requested again after a denial, a new tool, outside working hours."""

import re
from datetime import UTC, datetime
from html import unescape
from typing import Any

import pytest
from django.db import connection, transaction
from django.urls import reverse

from accounts import agents
from accounts.models import Project
from approvals import pending_counts
from approvals.inbox import inbox_queries
from approvals.labels import REVERSIBILITY_RANKS
from approvals.models import Gate
from approvals.policies.working_hours import WEEKDAYS, WorkingHours
from approvals.review import warnings
from db.clock import now_us
from ledger.models import Effect
from tests.approvals.inbox_scenario import RULES, InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.pages.sample_data import connect_agent
from tests.rows_with_entries import change_gates

ALWAYS = "{zone: Europe/Berlin, days: [mon, tue, wed, thu, fri, sat, sun], from: 00:00, to: 24:00}"
REPEATED = "The same request."


def entry(rita: Reviewer, gate: Gate) -> str:
    """The text of a gate in the inbox."""
    html = rita.page(reverse("inbox"))
    entry_html = next(
        part
        for part in html.split('<li class="entry')
        if f'href="{url_of(gate)}" data-gate' in part
    )
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", entry_html)))


def words(rita: Reviewer, gate: Gate) -> str:
    """The text of a gate's own page."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", rita.page(url_of(gate)))))


def ask(inbox: InboxScenario, session: str, **fields: object) -> Gate:
    """A push in another session, the same each time unless `fields` differ."""
    inbox.agent.session(session)
    defaults = {
        "arguments": {"command": "git push origin main"},
        "target": {"repository": "web", "ref": "main"},
    }
    return inbox.gate(inbox.agent.plan(f"e-{session}", session, **(defaults | fields)))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("deny", "denied"),
        ("deny_session", "denied for this session"),
        ("request_changes", "changes requested"),
    ],
)
def test_the_same_request_in_another_session_shows_who_denied_it_and_when(
    inbox: InboxScenario, rita: Reviewer, answer: str, expected: str
) -> None:
    first = ask(inbox, "s-1")
    inbox.answer(first, "carol", answer, "rewrites released history")
    second = ask(inbox, "s-2")
    assert re.search(rf"{expected} \d+ s ago", entry(rita, second))
    text = words(rita, second)
    assert re.search(
        rf"{expected.capitalize()} \d+ s ago by carol: “rewrites released history” The same request",
        text,
    )
    assert f'href="/search/jump/?id={first}"' in rita.page(url_of(second))
    assert "in all" not in text


def test_a_repeated_request_is_never_decided_in_a_batch(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.declare("close", "reversible")
    same: dict[str, Any] = {"tool": "close", "target": {"repository": "web"}}
    first = ask(inbox, "s-1", **same)
    inbox.answer(first, "carol", "deny", "still needed")
    both = [ask(inbox, "s-2", **same), ask(inbox, "s-3", **same, arguments={"issue": 7})]
    assert 'name="gate"' not in rita.page(reverse("inbox"))
    rita.client.post(reverse("batch"), {"gate": [str(item.id) for item in both]})
    html = rita.page(reverse("batch_confirm"), 409)
    assert f"{both[0]}: denied 0 s ago." in re.sub(r"\d+ s ago", "0 s ago", html)
    assert f"{both[1]}: resubmitted with changes." in html


def test_every_earlier_denial_is_counted_and_the_last_is_shown(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    first, second = ask(inbox, "s-1"), ask(inbox, "s-2")
    inbox.answer(second, "carol", "deny", "not on a Friday")
    inbox.answer(first, "reviewer", "deny", "nor on a Saturday")
    third = ask(inbox, "s-3")
    text = words(rita, third)
    assert re.search(r"Denied \d+ s ago by carol: “not on a Friday”", text)  # which came last
    assert "Refused 2 times in all." in text
    assert "The same request." not in words(rita, first)
    # When it was requested, the first was open: its denial is shown since.
    assert re.search(r"Denied \d+ s ago by reviewer: “nor on a Saturday”", words(rita, second))


def test_the_same_effect_planned_again_after_a_denial_is_a_repeat(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    first = ask(inbox, "s-1")
    inbox.answer(first, "reviewer", "request_changes", "name the commit")
    second = ask(inbox, "s-1")
    assert (second.effect_id, second.id != first.id) == (first.effect_id, True)
    assert REPEATED in words(rita, second)
    assert "changes requested" in entry(rita, second)


@pytest.mark.parametrize(
    "other",
    [
        {"arguments": {"command": "git push origin next"}},
        {"target": {"repository": "api", "ref": "main"}},
        {"target": {"repository": "web", "ref": "next"}},
        {"target": {"repository": "web", "ref": "main", "environment": "staging"}},
        {"tool": "deploy"},
    ],
)
def test_another_intent_or_target_is_not_the_same(
    inbox: InboxScenario, rita: Reviewer, other: dict[str, object]
) -> None:
    inbox.answer(ask(inbox, "s-1"), "reviewer", "deny", "never this")
    assert REPEATED not in words(rita, ask(inbox, "s-2", **other))


def test_an_approved_expired_or_foreign_request_is_no_denial(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.answer(ask(inbox, "s-1"), "reviewer")
    late = ask(inbox, "s-2")
    change_gates(
        Gate.objects.filter(id=late.id),
        status="expired",
        decide_by_us=late.requested_at_us + 1,
        ended_at_us=now_us(),
    )
    gate = ask(inbox, "s-3")
    assert REPEATED not in words(rita, gate)
    same = tuple(getattr(gate.effect, name) for name in warnings.REQUEST_IDENTITY)
    asks = [warnings.RequestIdentity(gate.id, gate.opened_position, same)]
    inbox.answer(ask(inbox, "s-4"), "reviewer", "deny", "never this")
    last = ask(inbox, "s-5")
    asked_last = [warnings.RequestIdentity(last.id, last.opened_position, same)]
    assert last.id in warnings.find_last_refusals(inbox.project.id, asked_last)
    assert warnings.find_last_refusals(inbox.project.id, asks) == {}  # that denial came later
    assert warnings.find_last_refusals(inbox.organization.other.id, asked_last) == {}


def test_a_tool_is_new_once_in_the_project_and_once_for_each_agent(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    first = ask(inbox, "s-1")
    assert "new tool" in entry(rita, first)
    assert "New tool in this project: the journal has no earlier effect of this tool." in words(
        rita, first
    )
    second = ask(inbox, "s-2")
    assert "new tool" not in entry(rita, second)
    assert "has requested approval for this tool before." in words(rita, second)
    with transaction.atomic():
        other = agents.ensure_agent(inbox.project, "fresh-hand", None)
    with connect_agent(other) as caller:
        third = ask(InboxScenario(inbox.organization, caller), "s-3")
    assert "agent’s first request for this tool" in entry(rita, third)
    assert (
        "First request of this agent: fresh-hand never requested approval for this tool before."
        in words(rita, third)
    )


def test_a_reported_effect_makes_its_tool_known(inbox: InboxScenario, rita: Reviewer) -> None:
    inbox.agent.session("s-1")
    report = {
        "id": "r-1",
        "kind": "effect.planned",
        "session": "s-1",
        "effect_key": "seen",
        "tool": "git.push",
    }
    assert inbox.agent.report([report | {"arguments": {}}]).status_code == 200
    assert "new tool" not in entry(rita, ask(inbox, "s-2"))


def hours_without_today() -> str:
    """Hours of a day that is neither today nor next to it, in any zone."""
    day = WEEKDAYS[(datetime.now(UTC).weekday() + 3) % 7]
    return f"{{zone: Europe/Berlin, days: [{day}], from: 08:00, to: 18:00}}"


def test_a_request_outside_the_working_hours_is_flagged(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    within = ask(inbox, "s-1")
    assert "outside hours" not in entry(rita, within)  # no hours are declared: nothing is guessed
    inbox.rules(RULES.replace("name: basic", f"name: basic\nhours: {ALWAYS}"))
    within = ask(inbox, "s-2")
    assert "outside hours" not in entry(rita, within)
    inbox.rules(RULES.replace("name: basic", f"name: basic\nhours: {hours_without_today()}"))
    late = ask(inbox, "s-3")
    assert re.search(r"outside hours, (Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d\d:\d\d", entry(rita, late))
    assert re.search(r"outside hours \(\w{3} \d\d:\d\d, Europe/Berlin\)", words(rita, late))
    assert "outside hours" not in entry(rita, within)  # each follows the rules that asked
    assert "08:00 to 18:00, Europe/Berlin" in rita.page(reverse("policies"))
    assert "08:00 to 18:00, Europe/Berlin" in rita.page(
        reverse("policy_set", args=[late.policy_set_id])
    )


@pytest.mark.parametrize(
    ("moment", "outside"),
    [
        ("2026-11-20T07:00+00:00", ""),  # Friday, 08:00 in Berlin
        ("2026-11-20T06:59:59+00:00", "Fri 07:59"),
        ("2026-11-20T16:59:59+00:00", ""),
        ("2026-11-20T17:00+00:00", "Fri 18:00"),
        ("2026-11-21T09:00+00:00", "Sat 10:00"),
        ("2026-11-22T23:30+00:00", "Mon 00:30"),  # Sunday still, in Greenwich
        ("2026-07-17T06:00+00:00", ""),  # in summer eight o'clock comes an hour earlier
        ("2026-07-17T16:00+00:00", "Fri 18:00"),
    ],
)
def test_hours_are_those_of_the_zone(moment: str, outside: str) -> None:
    fields = {
        "zone": "Europe/Berlin",
        "days": ["mon", "tue", "wed", "thu", "fri"],
        "from": "08:00",
        "to": "18:00",
    }
    hours = WorkingHours.of({"hours": fields})
    assert hours is not None
    assert hours.outside(int(datetime.fromisoformat(moment).timestamp() * 1_000_000)) == outside
    assert str(hours) == "Mon to Fri, 08:00 to 18:00, Europe/Berlin"
    assert WorkingHours.of({}) is WorkingHours.of({"hours": None}) is None


def test_the_inbox_reads_by_its_indexes(inbox: InboxScenario) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL goes by what it has seen of the rows")

    def plan(rows: object) -> str:
        return str(rows.explain())  # type: ignore[attr-defined]

    rows = Gate.objects.filter(project=inbox.project)
    waiting = "gate_waiting (project_id=? AND reversibility=? AND decide_by_us>?)"
    assert waiting in plan(
        Project.objects.annotate(
            waits=pending_counts.build_pending_gates_subquery(inbox.project.id, 1)
        )
    )
    with connection.cursor() as cursor:
        cursor.execute(
            f"EXPLAIN QUERY PLAN {inbox_queries._FIRST_PAGE_SQL}",
            [inbox.project.id.hex, 1] * len(REVERSIBILITY_RANKS),
        )
        steps = [str(row[-1]) for row in cursor.fetchall() if "approvals_gate" in str(row[-1])]
    assert len(steps) == len(REVERSIBILITY_RANKS)
    assert all(waiting in step for step in steps), steps
    assert "gate_by_decision" in plan(
        rows.filter(decided_at_us__isnull=False).order_by("-decided_at_us")[:50]
    )
    assert "gate_unanswered" in plan(rows.filter(inbox_queries._IS_UNDECIDED, status="expired"))
    firsts = plan(
        rows.annotate(agent_is=warnings.FIRST_OF_AGENT, project_is=warnings.FIRST_IN_PROJECT)
    )
    assert "gate_by_agent" in firsts
    assert "effect_by_tool" in firsts
    refused = Effect.objects.exclude(permission_ref="").filter(
        project=inbox.project, intent_digest__in=["v1:0"]
    )
    assert "effect_asked_about" in plan(refused)
