"""Fixtures of the ledger's tests."""

from collections.abc import Callable

import pytest
from django.db import transaction

from accounts import agents, projects, tokens
from accounts.models import Agent
from ledger.tools import cache
from tests.api.api_client import Caller
from tests.api.conftest import agent, application, call, importer, issue
from tests.journal.committed import committed
from tests.ledger.command_factories import Lane

__all__ = ["agent", "application", "call", "committed", "importer", "issue"]


@pytest.fixture(autouse=True)
def _declarations_are_read_again() -> None:
    """Clear the cache of tool declarations, which outlives the projects of tests."""
    cache.clear_tool_cache()


@pytest.fixture
def application_outside(committed: None) -> Callable[[str], Caller]:
    """Return a factory of agents of new projects, outside of any transaction."""
    from config.wsgi import application as served

    def make(project: str) -> Caller:
        with transaction.atomic():
            token = tokens.issue_token(
                agents.ensure_agent(projects.create_project(project), "tester"),
                expires_in=None,
                actor="tests",
            )
        return Caller(token, app=served)

    return make


@pytest.fixture
def tester(db: None) -> Agent:
    """An agent of its own project, for tests that call the verbs without an endpoint."""
    return agents.ensure_agent(projects.create_project("of the tests"), "tester")


@pytest.fixture
def stranger(db: None) -> Agent:
    """An agent of another project."""
    return agents.ensure_agent(projects.create_project("elsewhere"), "tester")


@pytest.fixture
def lane(tester: Agent) -> Lane:
    """The command lane of an open session of that agent."""
    return Lane(tester)
