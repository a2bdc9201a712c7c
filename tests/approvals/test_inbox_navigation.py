"""Navigation in the inbox: back from the confirm page or a stop with nothing lost, and on to the
next request."""

import re
from urllib.parse import urlencode

import pytest
from django.urls import reverse

from approvals.gates import comments
from approvals.labels import REVERSIBILITY_RANKS
from approvals.models import Gate, Vote
from ledger import stops
from ledger.models import Tool
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import REASON, Reviewer, url_of
from tests.rows_with_entries import change_tools

LONG = "".join(f"echo {n}\n" for n in range(40))
TICKED = 'name="all_read" value="1" checked'


def plan_requests(inbox: InboxScenario, count: int) -> list[Gate]:
    """Requests of one kind, in the order of the list."""
    return [inbox.gate(inbox.plan(f"e-{n}", arguments={"n": n})) for n in range(count)]


def test_going_back_loses_neither_the_reason_nor_the_tick(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate = inbox.gate(inbox.plan(arguments={"command": LONG}))
    assert TICKED not in rita.page(url_of(gate))
    sent = rita.answer(gate, reason="words <b>typed</b> before", settled="", all_read="1")
    confirm = rita.page(sent["Location"])
    assert f'href="{url_of(gate)}">Go back</a>' in confirm
    page = rita.page(url_of(gate))
    assert "words &lt;b&gt;typed&lt;/b&gt; before</textarea>" in page
    assert TICKED in page
    assert TICKED not in Reviewer(inbox, "administrator").page(url_of(gate))
    change_tools(
        Tool.objects.filter(name="git.push"), reversibility="reversible"
    )  # another card than the one on the page
    page = rita.page(url_of(gate))
    assert "before</textarea>" in page
    assert TICKED not in page


def test_a_refusal_keeps_the_ticks_of_what_did_not_change(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate = inbox.gate(inbox.plan(arguments={"command": LONG + "\u202e"}))
    refused = rita.answer(gate, all_read="1")  # the hidden character was not ticked
    assert refused.status_code == 409
    assert TICKED in refused.content.decode()


def test_back_from_the_confirm_page_to_the_pane_where_the_answer_came_from(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate = inbox.gate(inbox.plan())
    more = {"from": "inbox", "list": "state=mine&next=//evil.example"}
    confirm = rita.page(rita.answer(gate, settled="", **more)["Location"])
    assert f'href="{reverse("inbox")}?state=mine&amp;open={gate.id}">Go back</a>' in confirm


def test_an_answer_in_the_pane_opens_the_next_and_keeps_the_list(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    first, two, three = plan_requests(inbox, 3)
    pane = rita.client.get(
        url_of(two),
        headers={
            "HX-Request": "true",
            "HX-Current-URL": "http://x/approvals/?state=mine&risk=&a=b",
        },
    )
    match = re.search(r'name="list" value="([^"]*)"', pane.content.decode())
    assert match
    assert match[1] == "state=mine"
    answered = rita.answer(two, **{"from": "inbox", "list": match[1]})
    assert answered["Location"] == f"{reverse('inbox')}?state=mine&open={three.id}"
    page = rita.page(answered["Location"])
    assert f'Your answer on <a href="{url_of(two)}">{two}</a> is recorded as entry' in page
    assert re.search(rf'aria-current="true">(?:(?!</li>).)*{url_of(three)}', page, re.S)
    last = rita.answer(three, **{"from": "inbox"})
    assert last["Location"] == f"{reverse('inbox')}?open={first.id}"  # the list begins again
    extended = rita.client.post(
        reverse("gate_extend", args=[first.id]), {"from": "inbox", "list": "risk=low"}
    )
    assert extended["Location"] == f"{reverse('inbox')}?risk=low&open={first.id}"
    end = rita.answer(first, **{"from": "inbox"})
    assert end["Location"] == f"{reverse('inbox')}?open=none"
    page = rita.page(end["Location"])
    assert "data-no-auto-open" in page
    assert "Nothing else waits for you." in page
    assert "Back to the list" not in page  # it is the list


def test_an_answer_on_a_page_of_the_list_opens_the_page_of_the_next(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate, after, last = plan_requests(inbox, 3)
    page = rita.page(f"{url_of(gate)}?risk=medium&from=list")
    assert '<input type="hidden" name="from" value="list">' in page
    assert '<input type="hidden" name="list" value="risk=medium">' in page
    sent = {"from": "list", "list": "risk=medium"}
    extended = rita.client.post(reverse("gate_extend", args=[last.id]), sent)
    assert extended["Location"] == f"{url_of(last)}?risk=medium&from=list"
    refused = rita.answer(gate, seen="stale", **sent)
    assert refused.status_code == 409
    assert '<input type="hidden" name="from" value="list">' in refused.content.decode()
    assert rita.answer(gate, **sent)["Location"] == f"{url_of(after)}?risk=medium&from=list"
    page = rita.page(f"{url_of(after)}?risk=medium&from=list")
    assert f'Your answer on <a href="{url_of(gate)}">{gate}</a> is recorded as entry' in page
    assert rita.answer(last, **sent)["Location"] == f"{url_of(after)}?risk=medium&from=list"
    assert rita.answer(after, **sent)["Location"] == f"{reverse('inbox')}?risk=medium&open=none"
    assert 'name="from"' not in rita.page(url_of(gate))
    assert 'name="from" value="x"' not in rita.page(f"{url_of(gate)}?from=x")


def read_shown(rita: Reviewer, **query: str) -> list[str]:
    """The links of the list, in the order shown, also of folded requests."""
    return re.findall(r'<h3><a href="([^"]+)"', rita.page(f"{reverse('inbox')}?{urlencode(query)}"))


def test_next_is_the_next_row_of_the_list_that_is_shown(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.declare("close", "reversible")
    usual = [
        inbox.gate(inbox.plan(f"v-{n}", tool="close", arguments={"environment": "staging", "n": n}))
        for n in range(6)
    ]
    odd = inbox.gate(
        inbox.plan("v-9", tool="close", arguments={"environment": "production", "n": 9})
    )
    final = inbox.gate(inbox.plan("d-1", tool="undeclared", arguments={"n": 1}))
    by_url = {url_of(gate): gate for gate in (*usual, odd, final)}
    shown = read_shown(rita, state="pending")
    assert set(shown) == set(by_url)
    assert shown.index(url_of(odd)) < shown.index(url_of(usual[0]))  # not by deadline
    url = shown[3]  # an answer may change the order, as a denial does
    while len(shown := read_shown(rita, state="pending")) > 1:
        sent = {"from": "list", "list": "state=pending"}
        target = rita.answer(by_url[url], "deny", **sent)["Location"]
        after = shown[(shown.index(url) + 1) % len(shown)]
        assert target == f"{after}?state=pending&from=list"
        url = after


def test_next_is_only_what_the_list_is_filtered_by(inbox: InboxScenario, rita: Reviewer) -> None:
    push, deploy = inbox.gate(inbox.plan()), inbox.gate(inbox.plan("d-1", tool="deploy"))
    target = rita.answer(push, **{"from": "list", "list": "tool=git.push"})["Location"]
    assert target == f"{reverse('inbox')}?tool=git.push&open=none"
    page = rita.page(target)
    assert "<b>1 left</b>" in page
    assert f'<a href="{reverse("inbox")}?state=mine">Show what waits for you</a>' in page
    assert url_of(deploy) in read_shown(rita, queue="me")


def test_next_goes_on_to_the_next_page_and_then_to_the_first(
    inbox: InboxScenario, rita: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("approvals.inbox.inbox_queries.INBOX_PAGE_SIZE", 2)
    gates = plan_requests(inbox, 9)
    pages = [list(pair) for pair in zip(gates[::2], gates[1::2], strict=False)]
    for gate in gates[2:6]:  # nothing on two pages waits for this person
        assert comments.assign_gate(gate, inbox.person("carol"), "carol") is not None
    page = rita.page(reverse("inbox"))
    match = re.search(r"amp;after=([\d-]+)", page)
    assert match
    first = rita.answer(pages[0][0], **{"from": "inbox", "list": ""})["Location"]
    assert first == f"{reverse('inbox')}?open={gates[1].id}"
    beyond = rita.answer(gates[1], **{"from": "inbox", "list": ""})["Location"]
    assert re.fullmatch(rf"{reverse('inbox')}\?after=[\d-]+&open={gates[6].id}", beyond)
    assert read_shown(rita, after=beyond.partition("after=")[2].partition("&")[0])[0] == url_of(
        gates[6]
    )
    last = gates[8]
    key = (
        f"{REVERSIBILITY_RANKS[last.reversibility]}-{last.decide_by_us}-{last.opened_position - 1}"
    )
    again = rita.answer(last, **{"from": "list", "list": f"after={key}"})["Location"]
    assert again.startswith(f"{url_of(gates[6])}?after=")


def test_a_kept_draft_says_so_and_can_be_discarded(inbox: InboxScenario, rita: Reviewer) -> None:
    gate, _ = plan_requests(inbox, 2)
    discard = reverse("gate_discard_draft", args=[gate.id])
    notice = re.compile(
        r'<p class="draft-back">\s*<span class="is-near">Your draft\s+from <time [^>]+>'
        r"\d\d:\d\d UTC</time>\s+is back\.</span>"
    )
    assert '<p class="draft-back" hidden>' in rita.page(url_of(gate))
    rita.client.post(reverse("gate_extend", args=[gate.id]), {"reason": "half a thought"})
    page = rita.page(url_of(gate))
    assert notice.search(page)
    assert f'formaction="{discard}">Discard</button>' in page
    assert rita.client.get(discard).status_code == 405
    assert rita.client.post(discard)["Location"] == url_of(gate)
    page = rita.page(url_of(gate))
    assert "half a thought" not in page
    assert '<p class="draft-back" hidden>' in page
    back = rita.client.post(discard, {"from": "inbox", "list": "risk=low"})
    assert back["Location"] == f"{reverse('inbox')}?risk=low&open={gate.id}"


def test_a_page_that_is_answered_leads_on(inbox: InboxScenario, rita: Reviewer) -> None:
    first, two = plan_requests(inbox, 2)
    assert "Next request" not in rita.page(url_of(two))
    assert rita.answer(two)["Location"] == f"{url_of(first)}?from=list"
    page = rita.page(url_of(first))
    assert f"recorded as entry {Vote.objects.get(gate=two).position}: " in page
    assert "<b>1 left</b>" in page
    assert f'href="{reverse("inbox")}?open=none">Back to the list</a>' in page
    assert "<b>1 left</b>" not in rita.page(url_of(first))
    assert rita.page(url_of(two)).count(f'href="{url_of(first)}">Next request</a>') == 1
    rita.answer(first, "deny")
    assert "Next request" not in rita.page(url_of(first))
    assert "Next request" not in Reviewer(inbox, "viewer").page(url_of(first))


def test_a_stop_links_back_to_the_request_it_was_set_from(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    match = re.search(r'href="([^"]+)"\s*>Stop the agent</a>', rita.page(url_of(gate)))
    assert match
    url = match[1].replace("&amp;", "&")
    form = rita.page(url)
    assert f'href="{url_of(gate)}">Go back</a>' in form
    sent = {"scope": "agent", "subject": gate.agent_id.hex, "gate": str(gate.id), "reason": REASON}
    assert rita.client.post(reverse("stop"), sent)["Location"] == url_of(gate)
    assert "Stopped." in rita.page(url_of(gate))
    assert len(stops.load_stops(inbox.project.id)) == 1
    rita.page(url.replace(str(gate.id), "x"))  # any other value leads nowhere


def test_more_time_costs_neither_the_reason_nor_the_tick(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate = inbox.gate(inbox.plan(arguments={"command": LONG}))
    extend, confirm = (reverse(f"gate_{name}", args=[gate.id]) for name in ("extend", "confirm"))
    page = rita.page(url_of(gate))
    assert f'form="decide" formaction="{extend}">Extend 15 min</button>' in page
    assert page.index("Enter submits nothing") < page.index(
        "Extend 15 min"
    )  # which Enter on a tick would press
    sent = {"seen": rita.seen(gate), "reason": "words <b>typed</b> before", "all_read": "1"}
    assert rita.client.post(extend, sent)["Location"] == url_of(gate)
    page = rita.page(url_of(gate))
    assert "words &lt;b&gt;typed&lt;/b&gt; before</textarea>" in page
    assert TICKED in page
    assert rita.client.get(confirm)["Location"] == url_of(
        gate
    )  # no answer exists that it could ask about
    assert rita.client.post(confirm, {"seen_draft": ""}).status_code == 409
    listed = rita.client.post(
        extend, {**sent, "seen": rita.seen(gate), "reason": "other words", "from": "inbox"}
    )
    page = rita.page(listed["Location"])
    assert "other words</textarea>" in page
    assert TICKED in page
    inbox.answer(gate, "carol", "deny", "mine")
    late = rita.client.post(extend, {**sent, "reason": "too late"})
    assert late.status_code == 409
    assert "too late" in late.content.decode()


def test_a_voter_can_still_extend_the_deadline(inbox: InboxScenario, rita: Reviewer) -> None:
    gate = inbox.gate(inbox.plan(tool="deploy", arguments={"version": "4.18"}))
    rita.answer(gate)
    extend = reverse("gate_extend", args=[gate.id])
    page = rita.page(url_of(gate))
    assert f'action="{extend}"' in page
    assert 'form="decide"' not in page
    assert rita.client.post(extend)["Location"] == url_of(gate)
