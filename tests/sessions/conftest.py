"""Fixtures of the tests of sessions, tasks, items and artifacts."""

import pytest

from accounts import agents, projects
from accounts.models import Agent
from tests.api.conftest import agent, application, call, importer, issue
from tests.journal.committed import committed

__all__ = ["agent", "application", "call", "committed", "importer", "issue"]


@pytest.fixture
def tester(db: None) -> Agent:
    """An agent of a separate project, for verbs called without an endpoint."""
    return agents.ensure_agent(projects.create_project("of the tests"), "tester")
