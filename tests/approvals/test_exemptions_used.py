"""Every effect that passes by an exemption is a use of it: counted, journaled, and linked."""

from typing import Any

import pytest
from django.db import transaction

from approvals import exemptions
from approvals.gates.statuses import US
from approvals.models import Exemption, Gate
from db.clock import now_us
from journal.models import Entry
from tests.api.api_client import code
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import RULES, InboxScenario
from tests.sessions.command_factories import origin

pytestmark = pytest.mark.django_db
FROZEN = RULES.replace("id: push", "id: freeze")


def granted(inbox: InboxScenario, rule: str, seconds: int = 60) -> Exemption:
    with transaction.atomic():
        return exemptions.create_exemption(
            inbox.project,
            tool="git.push",
            rule=rule,
            reason="a release is going on",
            ends_at_us=now_us() + seconds * US,
            user=inbox.user("administrator"),
            **proved(),
        )


def dispatch(inbox: InboxScenario, effect: dict[str, Any]) -> Any:
    body = {"process": "p-1", "intent_digest": effect["intent_digest"]}
    return inbox.agent.post(f"/effects/{effect['id']}/dispatch", body)


def uses() -> dict[str, int]:
    """How often each exemption was used, by its rule; the journal and the counter agree."""
    counted = {exemption.id: exemption.uses for exemption in Exemption.objects.all()}
    entries = Entry.objects.filter(kind="exemption.used")
    assert {identity: entries.filter(subject=identity).count() for identity in counted} == counted
    return dict(Exemption.objects.values_list("rule", "uses"))


def test_another_exemption_that_covers_the_rule_that_asks_now_is_used(inbox: InboxScenario) -> None:
    granted(inbox, "push")
    planned = inbox.plan()
    assert (planned["permission_basis"], uses()) == ("exemption", {"push": 1})
    other = granted(inbox, "freeze", 30)
    inbox.rules(FROZEN)
    assert dispatch(inbox, planned).status_code == 200
    effect = inbox.effect(planned)
    assert (effect.permission, effect.permission_basis, effect.permission_ref) == (
        "used",
        "exemption",
        other.id.hex,
    )
    assert effect.permission_until_us == other.ends_at_us
    assert uses() == {"push": 1, "freeze": 1}
    assert not Gate.objects.exists()


def test_the_same_exemption_that_still_covers_the_rule_is_used_once(inbox: InboxScenario) -> None:
    whole = granted(inbox, "")
    planned = inbox.plan()
    inbox.rules(FROZEN)
    assert dispatch(inbox, planned).status_code == 200
    assert (inbox.effect(planned).permission_ref, uses()) == (whole.id.hex, {"": 1})


def test_an_exemption_that_covers_no_rule_that_asks_now_is_not_used(inbox: InboxScenario) -> None:
    granted(inbox, "push")
    planned = inbox.plan()
    granted(inbox, "deploy")
    inbox.rules(FROZEN)
    assert code(dispatch(inbox, planned)) == (409, "GATE_GONE")
    assert uses() == {"push": 1, "deploy": 0}


def test_every_attempt_is_a_use_of_its_own(inbox: InboxScenario) -> None:
    granted(inbox, "push")
    for number in (1, 2):
        planned = inbox.plan()
        assert dispatch(inbox, planned).status_code == 200
        assert uses() == {"push": number}
        inbox.agent.fail(planned, "rejected", number)


def test_a_use_belongs_to_an_attempt_and_not_to_a_request_key(inbox: InboxScenario) -> None:
    exemption = granted(inbox, "push")
    effect = inbox.effect(inbox.plan())
    request = origin(inbox.organization.agent, "one", received_us=now_us())
    for attempts in (0, 1, 1):
        with transaction.atomic():
            assert exemptions.use_exemption(
                exemption, request, effect.id, effect.session_id, attempts
            )
    assert uses() == {"push": 3}  # by the plan's own key, and by another key twice
