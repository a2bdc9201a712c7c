"""A check that fails is a warning, and the pages of requests stay reachable."""

from typing import Any

import pytest
from django.urls import reverse

from approvals.checks import outliers, run_checks
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of


def fail(*_: Any) -> Any:
    raise OverflowError(34)


@pytest.mark.parametrize(
    ("module", "name"), [(run_checks, "find_contradictions"), (outliers, "find_outliers")]
)
def test_a_check_that_fails_is_a_warning(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    gate = inbox.gate(inbox.plan())
    monkeypatch.setattr(module, name, fail)
    reviewer = Reviewer(inbox)
    assert "not checked" in reviewer.page(reverse("inbox"))
    page = reviewer.page(url_of(gate))
    assert "A check failed on this request:" in page
    assert "1 warning" in " ".join(page.split())
