"""A plan and its dispatch run through the functions that docs/architecture.md lists."""

import pytest

from tests.approvals.conftest import inbox, quiet
from tests.approvals.inbox_scenario import InboxScenario
from tests.architecture.walk import assert_walk

__all__ = ["inbox", "quiet"]  # fixtures

pytestmark = pytest.mark.django_db


def test_a_plan_runs_through_its_walk(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1")
    assert_walk("Plan an effect", lambda: inbox.agent.plan("e-1", tool="git.push"))


def test_a_dispatch_runs_through_its_walk(inbox: InboxScenario) -> None:
    planned = inbox.plan("e-1", tool="git.push")
    inbox.answer(inbox.gate(planned), "rita")
    body = {"process": "p-1", "intent_digest": planned["intent_digest"]}

    def dispatch() -> None:
        response = inbox.agent.post(f"/effects/{planned['id']}/dispatch", body)
        assert response.status_code == 200, response.text

    assert_walk("Dispatch an effect", dispatch)
