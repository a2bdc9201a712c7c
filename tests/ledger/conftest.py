"""Fixtures of the ledger's tests."""

from collections.abc import Callable

import pytest
from django.db import transaction

from ledger import declared
from sessions import agents, projects, tokens
from sessions.models import Agent
from tests.ingest.caller import Caller
from tests.ingest.conftest import agent, application, call, importer, issue
from tests.journal.committed import committed
from tests.ledger.speaking import Lane

__all__ = ["agent", "application", "call", "committed", "importer", "issue"]


@pytest.fixture(autouse=True)
def _declarations_are_read_anew() -> None:
    """What the operator declared is kept for seconds; projects of tests live shorter."""
    declared.forget()


@pytest.fixture
def application_outside(committed: None) -> Callable[[str], Caller]:
    """Make an agent of a new project at the application's doors, outside of any transaction."""
    from config.wsgi import application as served

    def make(project: str) -> Caller:
        with transaction.atomic():
            token = tokens.issue(agents.ensure(projects.create(project), "tester"), expires_in=None, actor="tests")
        return Caller(token, app=served)

    return make


@pytest.fixture
def tester(db: None) -> Agent:
    """An agent of a project of its own, for verbs that are called without a door."""
    return agents.ensure(projects.create("of the tests"), "tester")


@pytest.fixture
def stranger(db: None) -> Agent:
    """An agent of another project."""
    return agents.ensure(projects.create("elsewhere"), "tester")


@pytest.fixture
def lane(tester: Agent) -> Lane:
    """The command lane of an open session of that agent."""
    return Lane(tester)
