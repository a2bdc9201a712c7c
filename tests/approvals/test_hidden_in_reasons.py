"""Hidden characters in what people typed, and in names that fields offer, are shown as tokens or
not offered."""

import re

from django.urls import reverse

from accounts import repositories
from approvals.models import Gate
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of

HIDDEN = "agreed \u202edeined\u202c by all"
TOKENS = '<span class="token" title="RIGHT-TO-LEFT OVERRIDE">[U+202E]</span>'


def test_a_reason_is_shown_with_its_hidden_characters(
    inbox: InboxScenario, rita: Reviewer, gate: Gate
) -> None:
    answer = rita.answer(gate, "deny", HIDDEN, settled="")
    assert answer.status_code == 302
    confirm = rita.page(reverse("gate_confirm", args=[gate.id]))
    assert TOKENS in confirm
    assert "\u202e" not in confirm
    assert rita.confirm(gate).status_code == 302
    page = rita.page(url_of(gate))
    assert TOKENS in page.partition('class="quorum"')[2]
    assert "\u202e" not in page
    other = inbox.gate(inbox.plan("other"))
    seen = rita.seen(other)
    inbox.answer(other, "sam", "approve", HIDDEN)
    late = rita.answer(other, "deny", HIDDEN, seen=seen).content.decode()
    assert "Your draft reason" in late
    assert "\u202e" not in late


def test_no_list_of_suggestions_offers_hidden_characters(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    repositories.ensure_repository(inbox.project, "w\u202eeb")
    inbox.agent.session("s-1", repository="plain")
    inbox.plan("e-1", tool="t\u202eool")
    session = str(inbox.effect(inbox.plan("e-1", tool="t\u202eool")).session_id)
    for url in (reverse("sessions"), reverse("session", args=[session]), reverse("questions")):
        for part in re.findall(r"<datalist.*?</datalist>", rita.page(url), re.DOTALL):
            assert "\u202e" not in part, url
    assert '<option value="plain">' in rita.page(reverse("sessions"))
