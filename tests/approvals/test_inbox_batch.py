"""Several decided together: only harmless and unmarked requests, all shown, and no typed text
lost."""

import re
from html import unescape
from typing import Any

import pytest
from django.urls import reverse

from accounts import repositories
from approvals.models import Gate, Vote
from approvals.review import context
from ledger import stops
from sessions.models import Session
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer
from tests.approvals.test_step_up import redeclare_tool

SEEN = re.compile(r'name="(seen-\w{32})" value="([^"]+)"')
WORDS = "stale <since> March"
ALONE = (
    "Decide these alone: requests that are not reversible, above medium risk, or need a password."
)


def plain_ages(html: str) -> str:
    """Return a page with every age of some seconds as 0 s."""
    return re.sub(r"\d+ s ago", "0 s ago", html)


def close(inbox: InboxScenario, key: str, session: str = "s-1", **fields: Any) -> Gate:
    inbox.agent.session(session)
    defaults: dict[str, Any] = {
        "tool": "close",
        "arguments": {"issue": key},
        "target": {"repository": "web"},
    }
    return inbox.gate(inbox.agent.plan(key, session, **(defaults | fields)))


@pytest.fixture
def closings(inbox: InboxScenario) -> list[Gate]:
    """Three reversible requests of one shape."""
    inbox.declare("close", "reversible")
    return [close(inbox, f"c-{n}") for n in range(3)]


def choose(rita: Reviewer, *gates: Gate, status: int = 200) -> str:
    """Tick the gates in the inbox and return the page that lists them."""
    rita.client.post(reverse("batch"), {"gate": [str(gate.id) for gate in gates]})
    return rita.page(reverse("batch_confirm"), status)


def decide(rita: Reviewer, page: str, answer: str = "approve", reason: str = WORDS) -> Any:
    """Send the form of `page` with its ticks."""
    return rita.client.post(
        reverse("batch_confirm"),
        {
            **dict(SEEN.findall(page)),
            "gate": ticks_of(page),
            "answer": answer,
            "reason": reason,
        },
    )


def ticks_of(page: str) -> list[str]:
    """The requests that are ticked on a page."""
    boxes = re.findall(r'<input[^>]* name="gate"[^>]*>', page)
    return [re.findall(r'value="([^"]+)"', box)[0] for box in boxes if " checked" in box]


def typed(page: str) -> str:
    match = re.search(r'<textarea id="reason"[^>]*>([^<]*)</textarea>', page)
    assert match, "the page has no form"
    return unescape(match[1])


def plainly(page: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", page)))


# --- which requests may be in a batch ---------------------------------------------------------------------------------


@pytest.mark.parametrize("now", ["compensable", "irreversible"])
def test_a_tool_declared_again_is_not_decided_in_a_batch(
    inbox: InboxScenario, closings: list[Gate], rita: Reviewer, now: str
) -> None:
    page = choose(rita, *closings)
    redeclare_tool("close", now)
    answer = decide(rita, page)
    assert answer.status_code == 409
    assert ALONE in answer.content.decode()
    assert ALONE in choose(rita, *closings, status=409)
    assert not Vote.objects.exists()
    html = rita.page(reverse("inbox"))
    assert 'name="gate"' not in html
    assert "similar request" not in html
    redeclare_tool("close", "read")  # and a laxer declaration changes nothing
    assert "2 similar requests" in rita.page(reverse("inbox"))


def test_a_ref_that_is_production_now_is_not_decided_in_a_batch(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.declare("close", "reversible")
    both = [close(inbox, f"c-{n}", target={"repository": "web", "ref": "topic"}) for n in range(2)]
    page = choose(rita, *both)
    repositories.change_ref_patterns(
        inbox.organization.repository, production="topic", protected="", actor="tests"
    )
    assert decide(rita, page).status_code == 409
    assert ALONE in choose(rita, *both, status=409)
    assert not Vote.objects.exists()


def takes(inbox: InboxScenario) -> Gate:
    return close(inbox, "trap", arguments={"command": "git push --force origin main"})


def plan_denied_again(inbox: InboxScenario) -> Gate:
    inbox.answer(close(inbox, "no", "s-0"), "carol", "deny", "still needed")
    return close(inbox, "trap", "s-2", arguments={"issue": "no"})


def before(inbox: InboxScenario) -> Gate:
    withdrawn = close(inbox, "scratch", arguments={"issue": "trap", "reason": "stale"})
    assert inbox.agent.post(f"/effects/{withdrawn.effect_id}/supersede").status_code == 200
    return close(inbox, "trap")


def reused(inbox: InboxScenario) -> Gate:
    gate = close(inbox, "trap")
    other = {
        "session": "s-1",
        "effect_key": "trap",
        "tool": "close",
        "arguments": {"issue": "another"},
    }
    assert (
        inbox.agent.post("/effects", {**other, "target": {"repository": "web"}}).status_code == 422
    )
    return gate


@pytest.mark.parametrize(
    ("make", "flag", "why"),
    [
        (takes, "forced push", "destructive by its own arguments"),
        (plan_denied_again, "denied 0 s ago", "denied 0 s ago"),
        (before, "resubmitted with other arguments", "resubmitted with changes"),
        (reused, "key sent with other content", "its key was sent with other content"),
    ],
)
def test_a_flagged_request_is_never_decided_in_a_batch(
    inbox: InboxScenario, closings: list[Gate], rita: Reviewer, make: Any, flag: str, why: str
) -> None:
    trap = make(inbox)
    html = rita.page(reverse("inbox"))
    assert flag in re.sub(r"\d+ s ago", "0 s ago", plainly(html))
    assert "2 similar requests" in html
    ticks = re.findall(r'name="gate" value="([^"]+)"', html)
    assert sorted(ticks) == sorted(str(gate.id) for gate in closings)
    refused = plain_ages(choose(rita, trap, status=409))
    assert f"{trap}: {why}" in refused  # a forced push lacks evidence, too
    assert "Decide each of these alone." in refused
    page = choose(rita, *closings, trap)
    assert why in plain_ages(page)
    assert sorted(ticks_of(page)) == sorted(str(gate.id) for gate in closings)
    assert f"seen-{trap.id.hex}" not in page
    tokens = dict(SEEN.findall(page))
    forged = {
        **tokens,
        "gate": [str(gate.id) for gate in (*closings, trap)],
        "answer": "approve",
        "reason": WORDS,
    }
    answer = rita.client.post(reverse("batch_confirm"), forged)
    assert answer.status_code == 409
    assert f"{trap}: {why}" in plain_ages(answer.content.decode())
    assert not Vote.objects.filter(gate__in=[*closings, trap]).exists()
    assert decide(rita, choose(rita, *closings)).status_code == 302
    assert Vote.objects.filter(gate__in=closings).count() == 3


def test_each_request_of_a_batch_shows_its_undo_unknowns_and_stops(
    inbox: InboxScenario, closings: list[Gate], rita: Reviewer
) -> None:
    other = close(inbox, "c-9", "s-9", preconditions={"head": "4be1c9e"})
    stops.set_stop(
        inbox.project, "session", other.session_id.hex, "it loops", inbox.user("operator")
    )
    text = plainly(choose(rita, closings[0], other))
    assert text.count("Yes, it can be put back.") == 2
    assert text.count("Ref unknown") == 2
    assert text.count("Environment unknown") == 2
    assert text.count("What changes: unknown") == 2
    assert text.count("Only while head is 4be1c9e agent, unverified") == 1
    stopped = "operator stopped its session. Approving runs nothing until"
    assert text.count(stopped) == 1
    assert text.index(str(other)) < text.index(stopped)


# --- text typed for a batch -------------------------------------------------------------------------------------------


def test_the_reason_of_a_batch_is_kept_when_a_gate_ends_before(
    inbox: InboxScenario, closings: list[Gate], rita: Reviewer
) -> None:
    page = choose(rita, *closings)
    inbox.answer(closings[0], "carol", "deny", "not this one")
    late = decide(rita, page)
    html = late.content.decode()
    assert late.status_code == 409
    assert f"{closings[0]} has ended: denied." in html
    assert typed(html) == WORDS
    assert ticks_of(html) == [str(gate.id) for gate in closings[1:]]
    assert Vote.objects.count() == 1
    assert typed(choose(rita, *closings[1:])) == WORDS
    fresh = close(inbox, "c-4", "s-4", target={"repository": "elsewhere"})
    assert (
        typed(choose(rita, closings[1], fresh)) == ""
    )  # typed for another request, not for this one


@pytest.mark.parametrize("reason", ["", "no"])
def test_an_answer_that_needs_a_reason_is_shown_again_with_all_input(
    closings: list[Gate], rita: Reviewer, reason: str
) -> None:
    refused = decide(rita, choose(rita, *closings), "deny", reason)
    html = refused.content.decode()
    assert refused.status_code == 409
    assert f"{', '.join(map(str, closings))}: Give a reason of at least" in html
    assert typed(html) == reason
    assert not Vote.objects.exists()
    assert decide(rita, html, "deny").status_code == 302
    votes = Vote.objects.filter(answer="deny")
    assert sorted(row.gate_id for row in votes) == sorted(row.id for row in closings)
    assert {context.load_reason(row.position) for row in votes} == {WORDS}
    assert rita.page(reverse("batch_confirm"), 409).count("Nothing is selected.") == 1  # done


def test_refused_gates_of_a_batch_stay_ticked_with_their_reason(
    inbox: InboxScenario, closings: list[Gate], rita: Reviewer
) -> None:
    inbox.agent.session("s-7")
    Session.objects.filter(key="s-7").update(owner=inbox.user("reviewer"))
    own = close(inbox, "own", "s-7")
    answer = decide(rita, choose(rita, *closings, own))
    assert answer["Location"] == reverse("batch_confirm")
    assert {vote.gate_id for vote in Vote.objects.all()} == {vote.id for vote in closings}
    page = rita.page(reverse("batch_confirm"))
    assert "3 answers are recorded, each with your reason." in page
    assert f"Not recorded. {own}: You own this session, so another person must approve." in page
    assert len(SEEN.findall(page)) == 1
    assert typed(page) == WORDS
    assert decide(rita, page, "deny")["Location"] == f"{reverse('inbox')}?open=none"
    assert Vote.objects.get(gate=own).answer == "deny"
