"""Declared tools, as agents read them."""

import pytest

from accounts.models import Project
from tests.api.api_client import Caller, code
from tests.recovery.remote import declare

pytestmark = pytest.mark.django_db


def test_a_declaration_is_shown_and_the_dispatch_names_the_request_lifetime(
    agent: Caller,
) -> None:
    declare(Project.objects.get(name="default"))
    answer = agent.get("/tools", name="git.push.slow")
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
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
    for _ in range(2):  # a repeated delivery gets the same answer
        assert agent.dispatch(planned, key="once")["request_lifetime_s"] == 600


def test_tools_that_are_undeclared_or_of_another_project_are_opaque(
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
