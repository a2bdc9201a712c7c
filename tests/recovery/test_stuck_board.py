"""The stuck board over HTTP: what stands there, right at the deadline, and what people may do about it."""

import re
from collections.abc import Iterator

import pytest
from django.test import Client

from tests.ingest.caller import Caller
from tests.pages.book import doors
from tests.pages.people import House
from tests.recovery.watching import leased, pass_by

pytestmark = pytest.mark.django_db


@pytest.fixture
def worker(house: House) -> Iterator[Caller]:
    """An agent of the house at the API's doors."""
    with doors(house.agent) as caller:
        yield caller


def shown(client: Client, url: str = "/stuck/") -> str:
    answer = client.get(url)
    assert answer.status_code == 200, answer.content.decode()[:2000]
    return " ".join(re.sub(r"<[^>]+>", " ", answer.content.decode()).split())


def test_a_dead_session_is_on_the_board_right_after_its_deadline(house: House, worker: Caller) -> None:
    leased(worker, title="Nightly bump")
    viewer = house.client("viewer")
    assert "Nothing is stuck." in shown(viewer)
    pass_by(119)
    assert "Nothing is stuck." in shown(viewer)
    pass_by(2)
    page = shown(viewer)
    assert "(1) Stuck" in page
    assert "Dead: lease over, nobody took it 1, S2" in page
    assert "no heartbeat since" in page
