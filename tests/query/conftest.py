"""What the tests of questions share."""

import pytest

from tests.approvals.conftest import desk, quiet
from tests.approvals.story import Desk
from tests.pages.conftest import agent
from tests.query.incident import Told, tell

__all__ = ["agent", "desk", "quiet"]


@pytest.fixture
def told(desk: Desk) -> Told:
    """A project in which each of the seventeen questions has an answer."""
    return tell(desk)
