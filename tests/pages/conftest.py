"""Share fixtures among the tests of pages."""

from collections.abc import Iterator

import pytest

from tests.api.api_client import Caller
from tests.config.row_snapshot import Kept
from tests.pages.people import House
from tests.pages.sample_data import HOUSES_TOKEN, Book, doors, fill


@pytest.fixture
def agent(house: House) -> Iterator[Caller]:
    """Return the agent of the project "default" as an API client."""
    with doors(house.agent, kept=HOUSES_TOKEN) as caller:
        yield caller


@pytest.fixture
def book(agent: Caller) -> Book:
    """Write an object of each kind into the project "default"."""
    return _BOOK.again(lambda: fill(agent))


_BOOK = Kept[Book](for_s=120)  # shorter than the deadline of a dispatched effect
