"""Share fixtures among the tests of pages."""

from collections.abc import Iterator

import pytest

from tests.api.api_client import Caller
from tests.config.row_snapshot import Kept
from tests.pages.people import Organization
from tests.pages.sample_data import ORGANIZATIONS_TOKEN, SampleIds, connect_agent, fill


@pytest.fixture
def agent(organization: Organization) -> Iterator[Caller]:
    """Return the agent of the project "default" as an API client."""
    with connect_agent(organization.agent, kept=ORGANIZATIONS_TOKEN) as caller:
        yield caller


@pytest.fixture
def sample(agent: Caller) -> SampleIds:
    """Write an object of each kind into the project "default"."""
    return _BOOK.again(lambda: fill(agent))


_BOOK = Kept[SampleIds](for_s=120)  # shorter than the deadline of a dispatched effect
