"""What the operator declared of a tool, as agents read it."""

import pytest

from accounts.models import Project
from tests.api.api_client import Caller, code
from tests.recovery.remote import declare

pytestmark = pytest.mark.django_db


def test_a_declaration_is_told_and_the_dispatch_tells_how_long_a_request_may_live(
    agent: Caller,
) -> None:
    declare(Project.objects.get(name="default"))
    told = agent.get("/tools", name="git.push.slow")
    assert told.status_code == 200, told.text
    assert told.json() == {
        "name": "git.push.slow",
        "declared": True,
        "class": "probeable",
        "reversibility": "irreversible",
        "deadline_s": 300,
        "request_lifetime_s": 600,
        "max_attempts": 3,
        "probe": True,
    }
    agent.session()
    planned = agent.plan(tool="git.push.slow")
    assert "request_lifetime_s" not in planned
    for _ in range(2):  # delivered twice, it is told twice
        assert agent.dispatch(planned, key="once")["request_lifetime_s"] == 600


def test_what_is_not_declared_or_another_projects_is_opaque(
    agent: Caller, stranger: Caller
) -> None:
    declare(Project.objects.get(name="default"))
    unknown = agent.get("/tools", name="who.knows").json()
    assert (unknown["declared"], unknown["class"], unknown["request_lifetime_s"]) == (
        False,
        "opaque",
        300,
    )
    assert stranger.get("/tools", name="git.push.slow").json() == unknown | {
        "name": "git.push.slow"
    }


@pytest.mark.parametrize("query", [{}, {"name": ""}, {"name": "x" * 301}, {"tool": "x"}])
def test_a_tool_has_to_be_named(agent: Caller, query: dict[str, str]) -> None:
    assert code(agent.get("/tools", **query))[0] == 422
