"""Agents with tokens, clients of the real WSGI application on the database of the test run."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, transaction

from accounts import agents, projects, tokens
from accounts.models import Project
from ledger.tools import cache
from tests.api.api_client import Caller
from tests.config.row_snapshot import Kept

Issue = Callable[..., str]


_TESTERS = Kept[str]()


@pytest.fixture
def issue(db: None) -> Issue:
    """Issue a token: `issue(agent="tester", project="default", scope="agent", expires_in=None)`."""
    cache.clear_tool_cache()

    def make(
        agent: str = "tester",
        project: str = "default",
        scope: str = "agent",
        expires_in: timedelta | None = None,
    ) -> str:
        with transaction.atomic():
            existing = (
                projects.ensure_default_project()
                if project == "default"
                else projects.find_project(project)
            )
            home = existing or projects.create_project(project)
            return tokens.issue_token(
                agents.ensure_agent(home, agent), scope=scope, expires_in=expires_in, actor="tests"
            )

    def make_or_put(*what: Any, **how: Any) -> str:
        # The first token of most tests, made once and restored from a snapshot.
        first = not what and not how and not Project.objects.exists()
        return _TESTERS.again(make) if first else make(*what, **how)

    return make_or_put


@pytest.fixture
def application(db: None) -> Iterator[Any]:
    """Return the WSGI application as served, in the transaction of the test."""
    from config.wsgi import application

    # At the end of a request Django would close the connection with the test's transaction.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield application
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def call(issue: Issue, application: Any) -> Callable[..., Caller]:
    """Make a client of the application; arguments as for `issue`."""
    return lambda *args, **kwargs: Caller(issue(*args, **kwargs), app=application)


@pytest.fixture
def agent(call: Callable[..., Caller]) -> Caller:
    """The agent "tester" of the project "default"."""
    return call()


@pytest.fixture
def stranger(call: Callable[..., Caller]) -> Caller:
    """An agent of another project."""
    return call("tester", "elsewhere")


@pytest.fixture
def importer(call: Callable[..., Caller]) -> Caller:
    """An agent whose token may import."""
    return call("importer", scope="import")
