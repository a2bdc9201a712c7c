"""Lone words of a query: they are looked for in the text of effects, and reach what belongs to
these."""

import pytest
from django.test import Client

from tests.api.api_client import Caller
from tests.pages.people import House
from tests.pages.sample_data import Book

pytestmark = pytest.mark.django_db


def test_words_find_effects_and_what_belongs_to_them(
    house: House, agent: Caller, book: Book
) -> None:
    viewer: Client = house.client("viewer")
    session = agent.session("with-words")
    asked = agent.plan(
        "w1",
        session["id"],
        tool="mail.send",
        arguments={"subject": "Rounding of Ćevapčići invoices"},
    )
    agent.dispatch(asked)
    agent.acknowledge(asked, result={"text": "queued as Zebra-77"})

    def found(text: str) -> str:
        answer = viewer.get("/search/", {"q": text})
        assert answer.status_code == 200, (text, answer.content)
        return answer.content.decode()

    for text in (
        "ćevapčići",
        '"invoices rounding" zebra',
        "round* tool:mail.send",
        "zebra 77",
        'effect "mail send" 77',
    ):
        assert "<b>1 effect</b>" in found(text), text
        assert f"/effects/{asked['id']}/" in found(text), text
    assert "<b>1 session</b>" in found("session zebra")
    assert "<b>1 event</b>" in found("event kind:effect.dispatched zebra")
    for text in (
        "ebra",
        "zebra -mail*",
        "zebra outcome:error",
    ):  # whole words, and every condition counts
        assert "No results" in found(text), text
        assert f"/effects/{asked['id']}/" not in found(text), text
    for text, says in (
        ('"-"', "contains no word"),
        ("exemption zebra", "have no searchable text"),
        ("z*", "at least 2 letters"),
        (" ".join(f"w{number}" for number in range(33)), "at most 32 words"),
    ):
        answer = viewer.get("/search/", {"q": text})
        assert answer.status_code == 400
        assert says in answer.content.decode(), text
