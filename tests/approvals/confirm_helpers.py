"""The proof of a person who grants an exemption, and the two forms that ask for it."""

import re
from typing import Any

from django.test import Client
from django.urls import reverse

from db.clock import now_us
from tests.pages.people import PASSWORD


def proved() -> dict[str, Any]:
    """Code and password, given now, as the services take them."""
    return {"step_up": "typed_digest", "password_at_us": now_us()}


def code_in(page: str) -> str:
    """The code that a page asks for."""
    match = re.search(r"Type <code>([0-9a-f]{4})</code>", page)
    assert match is not None, page
    return match[1]


def grant(client: Client, **fields: str) -> Any:
    """Send the form of a grant, then its code and the password; return the last answer."""
    form = client.post(reverse("grant_exemption"), fields)
    assert form.status_code == 200, form.content.decode()
    return client.post(
        reverse("grant_exemption"), {**fields, "code": code_in(form.text), "password": PASSWORD}
    )
