"""What the tests of questions share."""

import pytest

from journal import settled_position
from journal.models import Entry
from tests.approvals.conftest import desk, quiet
from tests.approvals.inbox_scenario import Desk
from tests.pages.conftest import agent
from tests.query.incident import Told, tell

__all__ = ["agent", "desk", "quiet"]


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a test's transaction PostgreSQL calls nothing settled; tests/journal/test_horizon.py
    is about that."""

    def last() -> int:
        return Entry.objects.order_by("-position").values_list("position", flat=True).first() or 0

    monkeypatch.setattr(settled_position, "load_settled_position", last)


@pytest.fixture
def told(desk: Desk, settled: None) -> Told:
    """A project in which each of the seventeen questions has an answer."""
    return tell(desk)
