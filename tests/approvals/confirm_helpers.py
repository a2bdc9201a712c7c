"""What a person proves who grants an exemption, and the two forms in which they do."""

import re
from typing import Any

from django.test import Client
from django.urls import reverse

from db.clock import now_us
from tests.pages.people import PASSWORD


def proved() -> dict[str, Any]:
    """Code and password, given now, as the verbs take them."""
    return {"step_up": "typed_digest", "password_at_us": now_us()}


def code_in(page: str) -> str:
    """The code that a page asks for."""
    found = re.search(r"Type <code>([0-9a-f]{4})</code>", page)
    assert found is not None, page
    return found[1]


def grant(client: Client, **fields: str) -> Any:
    """Send the form of a grant, then its code and the password; the last answer."""
    asked = client.post(reverse("grant_exemption"), fields)
    assert asked.status_code == 200, asked.content.decode()
    return client.post(
        reverse("grant_exemption"), {**fields, "code": code_in(asked.text), "password": PASSWORD}
    )
