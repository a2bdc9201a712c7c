"""A reviewer in the inbox, as tests play them: a browser without script that sends forms."""

import re
from typing import Any

from django.test import Client
from django.urls import reverse

from approvals.models import Gate
from tests.approvals.inbox_scenario import InboxScenario

TOKEN = re.compile(r'name="seen" value="([^"]+)"')
DRAFT = re.compile(r'name="seen_draft" value="([^"]+)"')
REASON = "agreed in INC-204"


class Reviewer:
    """A person at a browser without script, unless `settled`."""

    def __init__(self, inbox: InboxScenario, name: str = "reviewer") -> None:
        self.client: Client = inbox.organization.client(name)

    def page(self, url: str, status: int = 200, **query: str) -> str:
        """The text of a page."""
        answer = self.client.get(url, query)
        assert answer.status_code == status, (url, answer.status_code)
        return answer.content.decode()

    def answer(self, gate: Gate, answer: str = "approve", reason: str = REASON, **more: str) -> Any:
        """Open the gate's page, then send its form with `answer`, as the script would."""
        seen = more.pop("seen", None) or self.seen(gate)
        fields = {"answer": answer, "reason": reason, "seen": seen, "settled": "1", **more}
        return self.client.post(reverse("gate_vote", args=[gate.id]), fields)

    def confirm(self, gate: Gate, **more: str) -> Any:
        """Open the confirm page of a draft answer, then send its form."""
        url = reverse("gate_confirm", args=[gate.id])
        return self.client.post(url, {"seen_draft": self.draft(gate), **more})

    def draft(self, gate: Gate) -> str:
        """The token of the draft answer on the confirm page."""
        match = DRAFT.search(self.page(reverse("gate_confirm", args=[gate.id])))
        assert match, "the page has no form"
        return match[1]

    def seen(self, gate: Gate) -> str:
        match = TOKEN.search(self.page(url_of(gate)))
        assert match, "the page has no form"
        return match[1]


def url_of(gate: Gate) -> str:
    return reverse("gate", args=[gate.id])
