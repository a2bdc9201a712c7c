"""Share fixtures among the tests of queries."""

import pytest

from journal import settled_position
from journal.models import Entry
from tests.approvals.conftest import inbox, quiet
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.conftest import agent
from tests.query.incident import Scenario, build_scenario

__all__ = ["agent", "inbox", "quiet"]


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count every entry as settled.

    PostgreSQL settles nothing inside a test's transaction; tests/journal/test_horizon.py tests the
    real horizon.
    """

    def last() -> int:
        return Entry.objects.order_by("-position").values_list("position", flat=True).first() or 0

    monkeypatch.setattr(settled_position, "load_settled_position", last)


@pytest.fixture
def scenario(inbox: InboxScenario, settled: None) -> Scenario:
    """Create a project in which each audit question has an answer."""
    return build_scenario(inbox)
