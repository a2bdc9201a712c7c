"""A person who says what became of an effect, as tests play them, and effects of which nobody can
know."""

import re
from typing import Any, Final

import pytest
from django.test import Client
from django.urls import reverse

from approvals.review import card
from db.clock import now_us
from journal.models import Entry
from ledger.models import Effect
from tests.approvals.inbox_scenario import Desk
from tests.pages.people import PASSWORD

KNOWN: Final = "Read in the provider's log of that minute."
_TOKEN: Final = re.compile(r'name="seen" value="([^"]+)"')
_DRAFT: Final = re.compile(r'name="seen_draft" value="([^"]+)"')


class Resolver:
    """One person at a browser."""

    def __init__(self, desk: Desk, name: str = "operator") -> None:
        self.name = name
        self.client: Client = desk.house.client(name)

    def page(self, effect: Effect, status: int = 200) -> str:
        """The page of the effect that asks."""
        answer = self.client.get(url_of(effect))
        assert answer.status_code == status, answer.status_code
        return answer.content.decode()

    def begin(self, effect: Effect, answer: str, rationale: str = KNOWN, **more: str) -> Any:
        """Look at the page and send its form; `seen` is what an earlier look signed."""
        seen = more.pop("seen", None) or self.seen(effect)
        return self.client.post(
            url_of(effect), {"answer": answer, "rationale": rationale, "seen": seen, **more}
        )

    def confirm(self, effect: Effect, **more: str) -> Any:
        """Look at the page that asks once more, and send its form."""
        url = reverse("resolve_confirm", args=[effect.id])
        draft = _DRAFT.search(self.client.get(url).content.decode())
        assert draft, "the page has no form"
        proof = {"code": card.confirmation_code(effect.intent_digest), "password": PASSWORD}
        return self.client.post(url, {"seen_draft": draft[1], **proof, **more})

    def say(self, effect: Effect, answer: str, rationale: str = KNOWN, **more: str) -> Any:
        """Both pages; the answer of the last."""
        begun = self.begin(effect, answer, rationale, **more)
        assert begun.status_code == 302, begun.content.decode()
        return self.confirm(effect)

    def seen(self, effect: Effect) -> str:
        """What the form of the page is signed with."""
        found = _TOKEN.search(self.page(effect))
        assert found, "the page has no form"
        return found[1]


def url_of(effect: Effect) -> str:
    return reverse("resolve", args=[effect.id])


ARGUMENTS: Final = {"recipients": 412, "subject": "Your invoice"}


def now(effect: Effect) -> Effect:
    return Effect.objects.get(id=effect.id)


def told(effect: Effect, kind: str = "effect.resolved") -> list[Entry]:
    return list(Entry.objects.filter(effect=effect.id, kind=kind).order_by("position"))


def sent(desk: Desk, key: str = "mail", tool: str = "mail.send", *, late: bool = True) -> Effect:
    """A mail that was dispatched and of which nobody has heard since. Its tool is not declared, so
    it is opaque."""
    planned = desk.plan(key, tool=tool, arguments=ARGUMENTS)
    assert planned["answer"] == "proceed", planned
    desk.agent.dispatch(planned)
    effect = Effect.objects.filter(id=planned["id"])
    if late:
        effect.update(deadline_us=now_us() - 1)
    return effect.get()


@pytest.fixture
def mail(quiet: Desk) -> Effect:
    return sent(quiet)


@pytest.fixture
def olga(quiet: Desk) -> Resolver:
    return Resolver(quiet)
