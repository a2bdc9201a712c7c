"""What was read from agents' texts is kept for a minute at most: a text may be erased afterwards."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from approvals.checks.claims.claim_words import recognize_claims
from approvals.checks.claims.identifier_claims import read_identifiers
from approvals.checks.contradiction_facts import _read_call
from approvals.diff.path_classes import _classify_name
from approvals.templatetags.approvals import environment_label
from db.clock import now_us
from journal import erasures, text_caches
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.test_inbox_flags import ask

CLAIM = "Docs only: see OPS-77 for ticket 4711."
READS: list[Callable[..., Any]] = [
    recognize_claims,
    read_identifiers,
    environment_label,
    _classify_name,
    _read_call,
]


def count_kept(read: Callable[..., Any]) -> int:
    size: int = read.cache_info().currsize  # type: ignore[attr-defined]
    return size


@pytest.fixture
def texts() -> None:
    """Texts that were read, and nothing is due to be cleared."""
    text_caches.clear_text_caches()
    assert recognize_claims(CLAIM)
    read_identifiers(CLAIM)
    environment_label("eu-staging")
    _classify_name("docs/private name.md")
    _read_call("bash", '{"arguments": {"command": "pytest"}}')
    assert all(map(count_kept, READS))


def test_the_end_of_a_request_clears_what_is_a_minute_old(
    texts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    client.get("/healthz")
    assert all(map(count_kept, READS))
    monkeypatch.setattr(text_caches, "_clear_at", {"s": 0.0})
    client.get("/healthz")
    assert not any(map(count_kept, READS))


def test_an_erasure_clears_them_at_once(
    texts: None, inbox: InboxScenario, django_capture_on_commit_callbacks: Any
) -> None:
    gate = ask(inbox, "s-1", why=CLAIM)
    recognize_claims(CLAIM)
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        erasures.erase_body(
            inbox.project.id, gate.plan_position, reason="r-1", actor="p_1", now_us=now_us()
        )
    assert not any(map(count_kept, READS))
