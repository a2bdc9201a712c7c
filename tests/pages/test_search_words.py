"""Search words of a query in the text of effects, and reach related objects."""

import pytest
from django.test import Client

from tests.api.api_client import Caller
from tests.pages.people import Organization
from tests.pages.sample_data import SampleIds

pytestmark = pytest.mark.django_db


def test_words_find_effects_and_what_belongs_to_them(
    organization: Organization, agent: Caller, sample: SampleIds
) -> None:
    viewer: Client = organization.client("viewer")
    session = agent.session("with-words")
    effect = agent.plan(
        "w1",
        session["id"],
        tool="mail.send",
        arguments={"subject": "Rounding of Ćevapčići invoices"},
        why="The release train of Friday waits for it",
    )
    agent.dispatch(effect)
    agent.acknowledge(effect, result={"text": "queued as Zebra-77"})

    def search_page(text: str) -> str:
        answer = viewer.get("/search/", {"q": text})
        assert answer.status_code == 200, (text, answer.content)
        return answer.content.decode()

    for text in (
        "ćevapčići",
        '"invoices rounding" zebra',
        "round* tool:mail.send",
        "zebra 77",
        'effect "mail send" 77',
        '"release train"',
    ):
        assert "<b>1 effect</b>" in search_page(text), text
        assert f"/effects/{effect['id']}/" in search_page(text), text
    assert "<b>1 session</b>" in search_page("session zebra")
    assert "<b>1 event</b>" in search_page("event kind:effect.dispatched zebra")
    for text in (
        "ebra",
        "zebra -mail*",
        "zebra outcome:error",
    ):  # only complete words match, and every condition applies
        assert "No results" in search_page(text), text
        assert "Words search the tool, target, arguments, results" in search_page(text), text
        assert f"/effects/{effect['id']}/" not in search_page(text), text
    snippet = search_page('"release train"')
    assert "agent’s reason" in snippet
    assert ">train</" in snippet.partition("<mark>")[2]
    assert "Words search" not in search_page("state:failed tool:none.such")
    for text, sentence in (
        ('"-"', "contains no word"),
        ("exemption zebra", "have no searchable text"),
        ("z*", "at least 2 letters"),
        (" ".join(f"w{number}" for number in range(33)), "at most 32 words"),
    ):
        answer = viewer.get("/search/", {"q": text})
        assert answer.status_code == 400
        assert sentence in answer.content.decode(), text
