"""The walk of the search flow in docs/architecture.md."""

import pytest

from tests.architecture.walk import assert_walk
from tests.pages.people import Organization
from tests.pages.sample_data import connect_agent

pytestmark = pytest.mark.django_db


def test_a_search_runs_through_the_steps_of_its_walk(organization: Organization) -> None:
    with connect_agent(organization.agent) as agent:
        agent.session("deploy")
        agent.plan("push", "deploy", tool="git.push")
    viewer = organization.client("viewer")

    def search() -> None:
        answer = viewer.get("/search/", {"q": "tool:git.push agent:deploy-7 since:7d"})
        assert answer.status_code == 200
        assert "<b>1 effect</b>" in answer.content.decode()

    assert_walk("Search", search)
