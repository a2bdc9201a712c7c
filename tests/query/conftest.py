"""Share fixtures among the tests of queries."""

import pytest

from tests.approvals.conftest import inbox, quiet
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.conftest import agent
from tests.query.incident import Scenario, build_scenario

__all__ = ["agent", "inbox", "quiet"]


@pytest.fixture
def scenario(inbox: InboxScenario) -> Scenario:
    """Create a project in which each audit question has an answer."""
    return build_scenario(inbox)
