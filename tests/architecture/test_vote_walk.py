"""A vote with step-up runs through the functions that docs/architecture.md lists."""

import pytest
from django.urls import reverse

from approvals.models import Gate
from approvals.review import card
from tests.approvals.conftest import final, inbox, quiet
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer
from tests.architecture.walk import assert_walk
from tests.pages.people import PASSWORD

__all__ = ["final", "inbox", "quiet"]  # fixtures

pytestmark = pytest.mark.django_db


@pytest.mark.once
def test_a_vote_runs_through_its_walk(inbox: InboxScenario, final: Gate) -> None:
    reviewer = Reviewer(inbox)
    seen = reviewer.seen(final)
    reviewer.answer(final, seen=seen)
    proof = {
        "seen_draft": reviewer.draft(final),
        "code": card.confirmation_code(final.intent_digest),
        "password": PASSWORD,
    }

    def vote() -> None:
        reviewer.answer(final, seen=seen)
        sent = reviewer.client.post(reverse("gate_confirm", args=[final.id]), proof)
        assert sent.status_code == 302

    assert_walk("Vote on a gate", vote)
    final.refresh_from_db()
    assert final.status == "approved"
