"""What a page that fails leaves in the log: where it failed, and nothing of what it was to show."""

import json
import logging
import shutil
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as current
from django.core.signals import got_request_exception
from pytest_django import Settings

from config.logging import JSONFormatter
from tests.api.api_client import Caller
from tests.pages.people import House

PAYLOAD = "the customer's diagnosis is confidential"
FAULT = "{{ exchange|default:nothing_of_that_name }}"


@pytest.fixture
def log() -> Iterator[StringIO]:
    """What Django logs of requests meanwhile, in the form it is logged in."""
    written = StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JSONFormatter())
    logger = logging.getLogger("django.request")
    logger.addHandler(handler)
    yield written
    logger.removeHandler(handler)


@pytest.fixture
def raised() -> Iterator[list[str]]:
    """The messages of what pages raised, whole."""
    messages: list[str] = []

    def note(sender: object, **_: object) -> None:
        messages.append(str(sys.exc_info()[1]))

    got_request_exception.connect(note)
    yield messages
    got_request_exception.disconnect(note)


def broken(settings: Settings, folder: Path, fault: str) -> int:
    """Serve the effect page with `fault` put in as its last line; the number of that line."""
    page = folder / "pages" / "effects" / "effect.html"
    page.parent.mkdir(parents=True)
    shutil.copy(current.BASE_DIR / "templates" / "pages" / "effects" / "effect.html", page)
    lines = page.read_text().replace("{% endblock content %}", fault + "\n{% endblock content %}")
    page.write_text(lines)
    settings.TEMPLATES = [
        {**current.TEMPLATES[0], "DIRS": [folder, current.BASE_DIR / "templates"]}
    ]
    return lines[: lines.index(fault)].count("\n") + 1


def failed(house: House, effect: str, log: StringIO) -> dict[str, Any]:
    """The last exception that an answer of 500 was logged with."""
    client = house.client("viewer")
    client.raise_request_exception = False
    answer = client.get(f"/effects/{effect}/")
    assert answer.status_code == 500
    assert PAYLOAD not in answer.text
    (line,) = log.getvalue().splitlines()
    told: dict[str, Any] = json.loads(line)["exception"][0]
    return told


def test_a_fault_in_a_template_is_logged_by_its_line_and_without_what_the_page_shows(
    house: House,
    agent: Caller,
    settings: Settings,
    tmp_path: Path,
    log: StringIO,
    raised: list[str],
) -> None:
    effect = agent.plan(
        "e", agent.session("s")["id"], tool="mail.send", arguments={"text": PAYLOAD}
    )["id"]
    number = broken(settings, tmp_path, FAULT)
    told = failed(house, effect, log)
    assert "diagnosis" in raised[0], (
        "the trap this test is about: the message quotes the whole context"
    )
    assert told["type"] == "django.template.base.VariableDoesNotExist"
    assert told["message"] == "no nothing_of_that_name"
    assert told["template"] == f"pages/effects/effect.html:{number}"
    assert any("pages/effects/views.py" in place for place in told["at"])
    assert "diagnosis" not in log.getvalue()


def test_no_message_of_what_a_template_called_is_logged(
    house: House,
    agent: Caller,
    settings: Settings,
    tmp_path: Path,
    log: StringIO,
    raised: list[str],
) -> None:
    effect = agent.plan("e", agent.session("s")["id"], tool=PAYLOAD)["id"]
    number = broken(settings, tmp_path, "{% url 'effect' effect.tool %}")
    told = failed(house, effect, log)
    assert "diagnosis" in raised[0]
    assert told["type"] == "django.urls.exceptions.NoReverseMatch"
    assert told["template"] == f"pages/effects/effect.html:{number}"
    assert "message" not in told
    assert "diagnosis" not in log.getvalue()
