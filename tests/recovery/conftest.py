"""What the tests of recovery share: agents at the endpoints, as the tests of the endpoints have them, and
all of one team."""

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
from tests.approvals.conftest import desk as desk
from tests.approvals.conftest import quiet as quiet


@pytest.fixture
def call(issue: Callable[..., str], application: Any) -> Callable[..., Caller]:
    """A worker at the endpoints; arguments as for `issue`. Those of one project are one team, but for
    strangers."""

    def make(agent: str = "tester", *args: Any, **kwargs: Any) -> Caller:
        caller = Caller(issue(agent, *args, **kwargs), app=application)
        if not agent.startswith("stranger"):
            Agent.objects.filter(name=agent).update(team="crew")
        return caller

    return make
