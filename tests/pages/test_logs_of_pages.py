"""Logs of failing pages: the place of the error, and none of the page's content."""

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
from tests.pages.people import Organization

PAYLOAD = "the customer's diagnosis is confidential"
FAULT = "{{ exchange|default:nothing_of_that_name }}"


@pytest.fixture
def log() -> Iterator[StringIO]:
    """Collect what Django logs of requests, in the format of the log."""
    written = StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JSONFormatter())
    logger = logging.getLogger("django.request")
    logger.addHandler(handler)
    yield written
    logger.removeHandler(handler)


@pytest.fixture
def raised() -> Iterator[list[str]]:
    """Collect the complete messages of the exceptions that pages raise."""
    messages: list[str] = []

    def note(sender: object, **_: object) -> None:
        messages.append(str(sys.exc_info()[1]))

    got_request_exception.connect(note)
    yield messages
    got_request_exception.disconnect(note)


def break_template(settings: Settings, folder: Path, fault: str) -> int:
    """Add `fault` as the last line of the effect page; return its line number."""
    page = folder / "pages" / "effects" / "effect.html"
    page.parent.mkdir(parents=True)
    shutil.copy(current.BASE_DIR / "templates" / "pages" / "effects" / "effect.html", page)
    lines = page.read_text().replace("{% endblock content %}", fault + "\n{% endblock content %}")
    page.write_text(lines)
    settings.TEMPLATES = [
        {**current.TEMPLATES[0], "DIRS": [folder, current.BASE_DIR / "templates"]}
    ]
    return lines[: lines.index(fault)].count("\n") + 1


def load_logged_exception(organization: Organization, effect: str, log: StringIO) -> dict[str, Any]:
    """Return the last exception logged for an answer of 500."""
    client = organization.client("viewer")
    client.raise_request_exception = False
    answer = client.get(f"/effects/{effect}/")
    assert answer.status_code == 500
    assert PAYLOAD not in answer.text
    (line,) = log.getvalue().splitlines()
    exception: dict[str, Any] = json.loads(line)["exception"][0]
    return exception


def test_a_template_error_is_logged_with_its_line_and_without_page_content(
    organization: Organization,
    agent: Caller,
    settings: Settings,
    tmp_path: Path,
    log: StringIO,
    raised: list[str],
) -> None:
    effect = agent.plan(
        "e", agent.session("s")["id"], tool="mail.send", arguments={"text": PAYLOAD}
    )["id"]
    number = break_template(settings, tmp_path, FAULT)
    exception = load_logged_exception(organization, effect, log)
    assert "diagnosis" in raised[0], (
        "the trap this test is about: the message quotes the whole context"
    )
    assert exception["type"] == "django.template.base.VariableDoesNotExist"
    assert exception["message"] == "no nothing_of_that_name"
    assert exception["template"] == f"pages/effects/effect.html:{number}"
    assert any("pages/effects/views.py" in place for place in exception["at"])
    assert "diagnosis" not in log.getvalue()


def test_no_exception_message_from_a_template_call_is_logged(
    organization: Organization,
    agent: Caller,
    settings: Settings,
    tmp_path: Path,
    log: StringIO,
    raised: list[str],
) -> None:
    effect = agent.plan("e", agent.session("s")["id"], tool=PAYLOAD)["id"]
    number = break_template(settings, tmp_path, "{% url 'effect' effect.tool %}")
    exception = load_logged_exception(organization, effect, log)
    assert "diagnosis" in raised[0]
    assert exception["type"] == "django.urls.exceptions.NoReverseMatch"
    assert exception["template"] == f"pages/effects/effect.html:{number}"
    assert "message" not in exception
    assert "diagnosis" not in log.getvalue()
