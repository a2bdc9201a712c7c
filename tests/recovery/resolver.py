"""A person who resolves effects in a browser, and effects whose outcome is unknown."""

import re
from typing import Any, Final

import pytest
from django.test import Client
from django.urls import reverse

from approvals.review import card
from db.clock import now_us
from journal.models import Entry
from ledger.models import Effect
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import PASSWORD

RATIONALE: Final = "Read in the provider's log of that minute."
_TOKEN: Final = re.compile(r'name="seen" value="([^"]+)"')
_DRAFT: Final = re.compile(r'name="seen_draft" value="([^"]+)"')


class Resolver:
    """A person with a browser."""

    def __init__(self, inbox: InboxScenario, name: str = "operator") -> None:
        self.name = name
        self.client: Client = inbox.organization.client(name)

    def page(self, effect: Effect, status: int = 200) -> str:
        """Return the resolve page of the effect."""
        answer = self.client.get(url_of(effect))
        assert answer.status_code == status, answer.status_code
        return answer.content.decode()

    def begin(self, effect: Effect, answer: str, rationale: str = RATIONALE, **more: str) -> Any:
        """Load the page and submit its form; `seen` is the signature of an earlier page."""
        seen = more.pop("seen", None) or self.seen(effect)
        return self.client.post(
            url_of(effect), {"answer": answer, "rationale": rationale, "seen": seen, **more}
        )

    def confirm(self, effect: Effect, **more: str) -> Any:
        """Load the confirmation page and submit its form."""
        url = reverse("resolve_confirm", args=[effect.id])
        draft = _DRAFT.search(self.client.get(url).content.decode())
        assert draft, "the page has no form"
        proof = {"code": card.confirmation_code(effect.intent_digest), "password": PASSWORD}
        return self.client.post(url, {"seen_draft": draft[1], **proof, **more})

    def resolve(self, effect: Effect, answer: str, rationale: str = RATIONALE, **more: str) -> Any:
        """Submit both pages and return the response of the second."""
        begun = self.begin(effect, answer, rationale, **more)
        assert begun.status_code == 302, begun.content.decode()
        return self.confirm(effect)

    def seen(self, effect: Effect) -> str:
        """Return the signature in the form of the page."""
        match = _TOKEN.search(self.page(effect))
        assert match, "the page has no form"
        return match[1]


def url_of(effect: Effect) -> str:
    return reverse("resolve", args=[effect.id])


ARGUMENTS: Final = {"recipients": 412, "subject": "Your invoice"}


def reload(effect: Effect) -> Effect:
    return Effect.objects.get(id=effect.id)


def entries_of(effect: Effect, kind: str = "effect.resolved") -> list[Entry]:
    return list(Entry.objects.filter(effect=effect.id, kind=kind).order_by("position"))


def send_mail(
    inbox: InboxScenario, key: str = "mail", tool: str = "mail.send", *, late: bool = True
) -> Effect:
    """Dispatch a mail without a further report; its tool is not declared, so it is opaque."""
    planned = inbox.plan(key, tool=tool, arguments=ARGUMENTS)
    assert planned["answer"] == "proceed", planned
    inbox.agent.dispatch(planned)
    effect = Effect.objects.filter(id=planned["id"])
    if late:
        effect.update(deadline_us=now_us() - 1)
    return effect.get()


@pytest.fixture
def mail(quiet: InboxScenario) -> Effect:
    return send_mail(quiet)


@pytest.fixture
def olga(quiet: InboxScenario) -> Resolver:
    return Resolver(quiet)
