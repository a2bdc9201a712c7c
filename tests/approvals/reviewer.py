"""A person at the desk, as tests play them: a browser without script that sends what a form would."""

import re
from typing import Any

from django.test import Client
from django.urls import reverse

from approvals.models import Gate
from tests.approvals.story import Desk

TOKEN = re.compile(r'name="seen" value="([^"]+)"')
REASON = "agreed in INC-204"


class Reviewer:
    """A person at a browser without script, unless `settled`."""

    def __init__(self, desk: Desk, name: str = "reviewer") -> None:
        self.client: Client = desk.house.client(name)

    def page(self, url: str, status: int = 200, **query: str) -> str:
        """The text of a page."""
        answer = self.client.get(url, query)
        assert answer.status_code == status, (url, answer.status_code)
        return answer.content.decode()

    def answer(self, gate: Gate, answer: str = "approve", reason: str = REASON, **more: str) -> Any:
        """Look at the gate's page, then send its form with `answer`, as the script would."""
        seen = more.pop("seen", None) or self.seen(gate)
        fields = {"answer": answer, "reason": reason, "seen": seen, "settled": "1", **more}
        return self.client.post(reverse("gate_answer", args=[gate.id]), fields)

    def seen(self, gate: Gate) -> str:
        found = TOKEN.search(self.page(url_of(gate)))
        assert found, "the page has no form"
        return found[1]


def url_of(gate: Gate) -> str:
    return reverse("gate", args=[gate.id])
