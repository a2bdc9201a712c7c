"""Fixtures of the recovery tests: agents at the API's endpoints, all of one team."""

from collections.abc import Callable
from typing import Any

import pytest

from accounts.models import Agent
from tests.api.api_client import Caller
from tests.api.conftest import agent as agent
from tests.api.conftest import application as application
from tests.api.conftest import importer as importer
from tests.api.conftest import issue as issue
from tests.api.conftest import stranger as stranger
from tests.approvals.conftest import inbox as inbox
from tests.approvals.conftest import quiet as quiet
from tests.rows_with_entries import change_agents


@pytest.fixture
def call(issue: Callable[..., str], application: Any) -> Callable[..., Caller]:
    """Return a factory of workers at the endpoints; its arguments are those of `issue`.

    All agents of a project are in one team, except strangers.
    """

    def make(agent: str = "tester", *args: Any, **kwargs: Any) -> Caller:
        caller = Caller(issue(agent, *args, **kwargs), app=application)
        if not agent.startswith("stranger"):
            change_agents(Agent.objects.filter(name=agent), team="crew")
        return caller

    return make
