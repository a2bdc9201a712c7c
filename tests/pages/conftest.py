"""What the tests of pages share."""

from collections.abc import Iterator

import pytest

from tests.api.api_client import Caller
from tests.config.row_snapshot import Kept
from tests.pages.people import House
from tests.pages.sample_data import HOUSES_TOKEN, Book, doors, fill


@pytest.fixture
def agent(house: House) -> Iterator[Caller]:
    """The agent of the project "default" at the API's doors."""
    with doors(house.agent, kept=HOUSES_TOKEN) as caller:
        yield caller


@pytest.fixture
def book(agent: Caller) -> Book:
    """One of everything in the project "default"."""
    return _BOOK.again(lambda: fill(agent))


_BOOK = Kept[Book](for_s=120)  # within the deadline of what was dispatched
