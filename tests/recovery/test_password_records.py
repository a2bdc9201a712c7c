"""Resolutions and exemptions record whether the password was typed for them or before."""

import json

import time_machine
from django.urls import reverse

from approvals import exemptions
from approvals.gates.statuses import US
from approvals.models import Exemption
from db.clock import now_us
from journal.models import Entry
from ledger.models import Effect
from tests.approvals.confirm_helpers import code_in, grant
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.test_inbox_facts import plainly
from tests.recovery.resolver import Resolver, entries_of, mail, olga, send_mail

__all__ = ["mail", "olga"]
FOR_THIS = "Password given for this answer"
BEFORE = "not for this answer; it counts for 5 minutes"


def test_a_resolution_says_whether_its_password_was_typed_for_it(
    quiet: InboxScenario, mail: Effect, olga: Resolver
) -> None:
    other = send_mail(quiet, "other", "letter.send")
    began = now_us() // US + 1  # after both deadlines
    with time_machine.travel(began, tick=False):
        assert olga.resolve(mail, "happened").status_code == 302
    with time_machine.travel(began + 120, tick=False):
        olga.begin(other, "happened")
        confirm = olga.client.get(reverse("resolve_confirm", args=[other.id])).content.decode()
        assert 'name="password"' not in confirm
        assert "You already gave your password; it counts until" in plainly(confirm)
        assert olga.confirm(other).status_code == 302
    (first,), (second,) = entries_of(mail), entries_of(other)
    for entry, password_for in ((first, "this"), (second, "earlier")):
        facts = json.loads(entry.facts)
        assert (facts["password_for"], facts["password_at_us"]) == (password_for, began * US)
    pages = [
        plainly(olga.client.get(reverse("effect", args=[effect.id])).content.decode())
        for effect in (mail, other)
    ]
    assert FOR_THIS in pages[0]
    assert BEFORE in pages[1]


def test_an_exemption_says_whether_its_password_was_typed_for_it(quiet: InboxScenario) -> None:
    client = quiet.organization.client("operator")
    fields = {"hours": "1", "reason": "The release train, INC-204."}
    began = now_us() // US
    with time_machine.travel(began, tick=False):
        assert grant(client, tool="first", **fields).status_code == 302
    with time_machine.travel(began + 120, tick=False):
        form = client.post(reverse("grant_exemption"), {"tool": "second", **fields})
        assert 'name="password"' not in form.text
        assert "You already gave your password; it counts until" in plainly(form.text)
        code = code_in(form.text)
        sent = client.post(reverse("grant_exemption"), {"tool": "second", **fields, "code": code})
        assert sent.status_code == 302
    first, second = Exemption.objects.order_by("opened_position")
    assert [exemptions.load_grantors(row)[0].password_for for row in (first, second)] == [
        "this",
        "earlier",
    ]
    facts = json.loads(Entry.objects.get(position=second.opened_position).facts)
    assert facts["password_for"] == "earlier"
    pages = [
        plainly(client.get(reverse("exemption", args=[row.id])).content.decode())
        for row in (first, second)
    ]
    assert FOR_THIS in pages[0]
    assert BEFORE in pages[1]
