"""What was read from agents' texts is kept for one request only: a text may be erased afterwards."""

from collections.abc import Callable
from typing import Any

import pytest

from approvals.checks.claims.claim_words import recognize_claims
from approvals.checks.claims.identifier_claims import read_identifiers
from approvals.diff import path_classes
from approvals.diff.path_classes import classify_path
from approvals.templatetags.approvals import environment_label
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.approvals.test_inbox_flags import ask

CLAIM = "Docs only: see OPS-77 for ticket 4711."


def count_kept(read: Callable[..., Any]) -> int:
    size: int = read.cache_info().currsize  # type: ignore[attr-defined]
    return size


def test_a_page_leaves_nothing_of_a_text_in_memory(inbox: InboxScenario) -> None:
    gate = ask(inbox, "s-1", why=CLAIM, target={"repository": "web", "environment": "eu-staging"})
    reads: list[Callable[..., Any]] = [recognize_claims, read_identifiers, environment_label]
    assert recognize_claims(CLAIM)
    read_identifiers(CLAIM)
    environment_label("eu-staging")
    classify_path("docs/private name.md")
    reads.append(path_classes._classify_name)
    assert all(map(count_kept, reads))
    page = Reviewer(inbox).page(url_of(gate))
    assert "OPS-77" in page
    assert "eu-staging" in page
    assert not any(map(count_kept, reads))


@pytest.mark.parametrize("times", [1, 3])
def test_a_text_is_read_once_within_a_request(times: int) -> None:
    for _ in range(times):
        recognize_claims(f"Only {times} files change.")
    info = recognize_claims.cache_info()  # type: ignore[attr-defined]
    assert info.hits >= times - 1
    assert info.currsize >= 1
