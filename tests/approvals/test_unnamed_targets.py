"""Targets that name nothing: a denial covers what may be the same, and two empty targets are not
called equal."""

from typing import Any

import pytest

from approvals.models import Gate
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of

pytestmark = pytest.mark.django_db
WEB: dict[str, Any] = {"repository": "web", "ref": "main", "environment": "staging"}


@pytest.mark.parametrize(
    ("denied", "requested", "refused"),
    [
        (WEB, WEB, True),
        (WEB, None, True),
        (WEB, {"repository": "web"}, True),
        (WEB, {"ref": "refs/heads/main"}, True),
        (WEB, {**WEB, "resource": "x"}, True),
        (WEB, {**WEB, "ref": "--all"}, True),
        (WEB, {**WEB, "ref": "topic"}, False),
        (WEB, {**WEB, "environment": "production"}, False),
        (WEB, {"repository": "other"}, False),
        (None, None, True),
        (None, WEB, True),
        ({"resource": "a"}, {"resource": "b"}, False),
    ],
)
def test_a_denial_for_the_session_covers_what_may_be_the_same(
    inbox: InboxScenario,
    denied: dict[str, Any] | None,
    requested: dict[str, Any] | None,
    refused: bool,
) -> None:
    def plan(key: str, target: dict[str, Any] | None) -> dict[str, Any]:
        return inbox.plan(key, **({"target": target} if target is not None else {}))

    first = plan("e-1", denied)
    inbox.answer(inbox.gate(first), "reviewer", "deny_session", "never in this session")
    inbox.agent.post(f"/effects/{first['id']}/supersede")
    again = plan("e-2", requested)
    assert again["answer"] == ("blocked" if refused else "wait")
    assert Gate.objects.count() == (1 if refused else 2)


def test_two_requests_without_a_target_are_not_shown_as_equal_targets(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    for key, target in (("a", None), ("b", {"resource": "x"})):
        fields = {} if target is None else {"target": target}
        first = inbox.plan(f"{key}-1", arguments={"command": f"ls {key}"}, **fields)
        inbox.answer(inbox.gate(first), "reviewer", "deny", "not now")
        inbox.agent.post(f"/effects/{first['id']}/supersede")
        same = inbox.gate(inbox.plan(f"{key}-2", arguments={"command": f"ls {key}"}, **fields))
        kind = inbox.gate(
            inbox.plan(f"{key}-3", arguments={"command": f"ls {key} other"}, **fields)
        )
        words = "Same arguments, no target named" if target is None else "Same arguments and target"
        assert words in rita.page(url_of(same))
        assert ("Same target" in rita.page(url_of(kind))) is (target is not None)
