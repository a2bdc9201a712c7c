"""The page of a gate: what it shows, what answers do, and what it shows afterwards."""

import re

import pytest
import time_machine
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.html import escape

from approvals.gates.statuses import VOTE_ANSWERS
from approvals.models import Gate, Vote
from approvals.review import card
from journal.models import Entry
from tests.api.api_client import code
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import REASON, Reviewer, url_of


def test_the_gate_page_has_the_seven_facts_in_order_with_their_sources(
    gate: Gate, rita: Reviewer
) -> None:
    html = rita.page(url_of(gate))
    heads = [
        "Exactly this will run",
        "claims, unverified",
        "What changes",
        "Blast radius",
        "Can it be undone?",
        "Why you are asked",
    ]
    heads += ["Similar decisions", "Before and after in this session"]
    places = [html.index(head) for head in heads]
    assert places == sorted(places)
    assert "verified by Gatebook: the arguments match the intent digest" in html
    assert "git push origin main" in html
    assert html.count("<b>Unknown.</b>") == 2  # what changes, the blast radius
    assert html.count("Assume the worst") == 1
    missing = html.partition("Not provided:")[2].partition("</p>")[0]
    assert re.findall(r"\w+(?=</span)", missing) == ["repository", "ref", "environment"]
    policy = reverse("policy_set", args=[gate.policy_set_id])
    assert f'<a href="{policy}">basic@1, rule push</a>: A push to a protected branch.' in html
    assert "<b>1 reviewer (not operator).</b>" in html  # the agent's owner is shown by their role
    assert "Because &lt;b&gt;I&lt;/b&gt; say so." in html
    claim = html.index("Because &lt;b&gt;")
    assert places[1] < claim < places[2], "the claim stands beside the arguments"
    assert "say so" not in html[html.index('class="answers"') :]


def test_the_card_is_equal_for_everybody_and_hashes_the_request(gate: Gate) -> None:
    first, second = (
        card.build_card(Gate.objects.get(id=gate.id)),
        card.build_card(Gate.objects.get(id=gate.id)),
    )
    assert first.sha256 == second.sha256
    assert first.complete
    assert first.verified == "equal"
    assert card.confirmation_code(first.intent) == gate.effect.intent_digest[3:7]


def test_an_approval_is_recorded_with_what_the_page_showed(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    answer = rita.answer(gate)
    assert (answer.status_code, answer["Location"]) == (302, url_of(gate))
    vote = Vote.objects.get(gate=gate)
    assert (vote.answer, vote.user.username, vote.shown_version, vote.view_complete) == (
        "approve",
        "reviewer",
        1,
        True,
    )
    assert vote.card_sha256 == card.build_card(gate).sha256
    assert inbox.effect({"id": str(gate.effect_id)}).permission == "granted"
    html = rita.page(url_of(gate))
    for words in (
        "approved, not yet used",
        REASON,
        "the same facts as shown here",
        "has not used the permission yet",
    ):
        assert words in html, words
    assert 'name="seen"' not in html


def test_the_permalink_shows_the_outcome(inbox: InboxScenario, rita: Reviewer) -> None:
    planned = inbox.plan(arguments={"command": "git push origin main"})
    gate = inbox.gate(planned)
    rita.answer(gate)
    inbox.agent.dispatch(planned)
    assert "approved and used" in rita.page(url_of(gate))
    inbox.agent.acknowledge(planned, outcome="error")
    html = rita.page(url_of(gate))
    assert "What happened afterwards" in html
    assert re.search(r"is-failed.>.*?acknowledged</span> error", html)


def test_a_page_names_the_answers_that_need_a_reason(
    inbox: InboxScenario, gate: Gate, final: Gate, rita: Reviewer
) -> None:
    prompts = re.compile(r'data-required-(\w+)="Add a reason to [\w ]+\."')
    html = rita.page(url_of(gate))
    assert prompts.findall(html) == ["deny", "deny_session", "request_changes"]
    assert re.search(r"Reason\s+required to deny</a>", html)
    html = rita.page(url_of(final))
    assert prompts.findall(html) == ["approve", "deny", "deny_session", "request_changes"]
    assert re.search(r"Reason\s+required</a>", html)


@pytest.mark.parametrize("answer", ["deny", "deny_session", "request_changes"])
def test_a_denial_needs_a_reason_and_keeps_it(gate: Gate, rita: Reviewer, answer: str) -> None:
    refused = rita.answer(gate, answer, "")
    assert refused.status_code == 409
    assert b"Add a reason to" in refused.content
    assert not Vote.objects.exists()
    assert rita.answer(gate, answer, "not on a Friday").status_code == 302
    gate.refresh_from_db()
    assert (
        gate.status
        == {
            "deny": "denied",
            "deny_session": "denied_session",
            "request_changes": "changes_requested",
        }[answer]
    )
    assert "not on a Friday" in rita.page(url_of(gate))


def test_the_buttons_send_every_answer_of_a_vote_and_no_other(gate: Gate, rita: Reviewer) -> None:
    buttons = re.findall(r'name="answer" value="(\w+)"', rita.page(url_of(gate)))
    in_dock = ["deny", "request_changes", "approve"]
    assert sorted(buttons) == sorted([*VOTE_ANSWERS, *in_dock])


def test_expired_is_never_approved(inbox: InboxScenario, gate: Gate, rita: Reviewer) -> None:
    seen = rita.seen(gate)
    with time_machine.travel(gate.decide_by_us / 1e6 + 1):
        rita.client.force_login(User.objects.get(username="reviewer"))
        late = rita.answer(gate, seen=seen)
        assert late.status_code == 409
        assert "expired" in late.content.decode()
        assert str(gate) not in rita.page(reverse("inbox"))
        assert url_of(gate) in rita.page(reverse("inbox"), state="expired")
    assert not Vote.objects.exists()


def test_a_party_may_only_deny(inbox: InboxScenario, gate: Gate) -> None:
    owner = Reviewer(inbox, "operator")  # owns the agent
    html = owner.page(url_of(gate))
    assert "You can still deny the request." in html
    assert 'value="approve"' not in html
    assert owner.answer(gate).status_code == 409
    assert not Vote.objects.exists()
    assert owner.answer(gate, "deny").status_code == 302


def test_more_time_is_given_by_a_button_and_recorded(gate: Gate, rita: Reviewer) -> None:
    answer = rita.client.post(reverse("gate_extend", args=[gate.id]))
    assert answer.status_code == 302
    later = Gate.objects.get(id=gate.id)
    assert later.decide_by_us == gate.decide_by_us + 15 * 60 * 1_000_000
    assert Entry.objects.filter(kind="gate.extended", subject=gate.id).count() == 1


def test_permission_is_revoked_until_it_is_used(inbox: InboxScenario, rita: Reviewer) -> None:
    planned = inbox.plan()
    gate = inbox.gate(planned)
    rita.answer(gate)
    revoke = reverse("gate_revoke", args=[gate.id])
    assert "has not been used" in rita.page(revoke)
    assert rita.client.post(revoke, {"reason": ""}).status_code == 409
    assert rita.client.post(revoke, {"reason": "INC-9: wrong branch"}).status_code == 302
    assert code(
        inbox.agent.post(
            f"/effects/{planned['id']}/dispatch", {"process": "p", "arguments": {"ref": "main"}}
        )
    )
    html = rita.page(url_of(gate))
    assert "approved, then revoked" in html
    assert "INC-9: wrong branch" in html
    used = inbox.plan("e-2", arguments={"ref": "next"})
    second = inbox.gate(used)
    rita.answer(second)
    inbox.agent.dispatch(used)
    late = rita.client.post(reverse("gate_revoke", args=[second.id]), {"reason": "too late"})
    assert late.status_code == 409
    assert "it cannot be revoked" in late.content.decode()


def test_a_view_is_recorded_once_for_each_version(inbox: InboxScenario, rita: Reviewer) -> None:
    gate = inbox.gate(inbox.plan(tool="deploy", arguments={"version": "1"}))
    for _ in range(3):
        rita.page(url_of(gate))
    views = Entry.objects.filter(kind="access.viewed", subject=gate.id)
    assert views.count() == 1
    inbox.answer(gate, "carol")
    rita.page(url_of(gate))
    assert views.count() == 2
    Reviewer(inbox, "viewer").page(url_of(gate))
    assert views.count() == 3
    assert not views.filter(actor__contains="reviewer").exists()  # a pseudonym


def test_an_edit_is_shown_as_a_complete_diff(inbox: InboxScenario, rita: Reviewer) -> None:
    old = "one\ntwo\nthree\n<b>four</b>\n"
    new = "one\n2\nthree\n<b>four</b>\nfive"
    arguments = {"file_path": "src/a.py", "old_string": old, "new_string": new}
    gate = inbox.gate(inbox.plan(tool="deploy", arguments=arguments))
    html = rita.page(url_of(gate))
    for sign, line in (
        ("del", "two"),
        ("add", "2"),
        ("add", "five"),
        ("", "three"),
        ("", escape("<b>four</b>")),
    ):
        pattern = rf'<tr class="{sign}">(?:(?!</tr>).)*>{re.escape(line)}</td></tr>'
        assert re.search(pattern, html), (sign, line)
    assert "+2 −1" in html


def test_the_box_goes_to_a_gate(gate: Gate, rita: Reviewer) -> None:
    assert rita.client.get(reverse("search_jump"), {"id": str(gate)})["Location"] == url_of(gate)
