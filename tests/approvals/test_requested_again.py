"""A request that was withdrawn or refused and comes again changed: the inbox shows the changes."""

import re
from html import unescape
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from approvals.models import Gate
from approvals.policies import policy_evaluation
from approvals.review import changed_requests, context
from db.compiled_query import CompiledQuerySet
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.approvals.test_erased_plans import erase_plan
from tests.approvals.test_inbox_flags import entry

STAGE: dict[str, Any] = {
    "tool": "git.push",
    "arguments": {"bucket": "halden-backups-stg", "older_than_days": 35, "dry_run": False},
    "target": {"repository": "infra", "environment": "staging", "resource": "s3/backups"},
}
PRD = STAGE | {"arguments": STAGE["arguments"] | {"bucket": "halden-backups-prd"}}
RESUBMITTED = "resubmitted with other arguments"


def ask(inbox: InboxScenario, key: str, session: str = "s-1", **fields: Any) -> Gate:
    inbox.agent.session(session)
    return inbox.gate(inbox.agent.plan(key, session, **fields))


def withdraw(inbox: InboxScenario, gate: Gate) -> None:
    assert inbox.agent.post(f"/effects/{gate.effect_id}/supersede").status_code == 200


def band(rita: Reviewer, gate: Gate) -> str:
    """The text of the part of a gate's page that shows what came before."""
    html = rita.page(url_of(gate))
    match = re.search(r'<section class="fact fact-1">(.*?)</section>', html, re.DOTALL)
    assert match
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", match[1])))


def test_a_request_with_another_bucket_after_a_withdrawal_is_marked(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    first = ask(inbox, "prune", **STAGE)
    withdraw(inbox, first)
    second = ask(inbox, "prune-2", **PRD)
    assert f"{RESUBMITTED}: withdrawn" in entry(rita, second)
    assert f'<a class="flag" href="{url_of(first)}">' in rita.page(reverse("inbox"))
    text = band(rita, second)
    assert "Resubmitted with other arguments: " + str(first) in text
    assert "withdrawn" in text
    assert "bucket halden-backups-stg halden-backups-prd" in text
    assert "older_than_days 35 35" not in text
    assert "Resubmitted" not in band(rita, first)


def test_the_withdrawing_agent_is_shown_only_if_known(inbox: InboxScenario, rita: Reviewer) -> None:
    """Any agent may report an effect as withdrawn; only its own agent cancels a request."""
    reported = ask(inbox, "prune", **STAGE)
    fact = {"id": "r-1", "kind": "effect.superseded", "session": "s-1", "effect_key": "prune"}
    inbox.agent.report([fact])
    assert Gate.objects.get(id=reported.id).reason == "superseded"
    second = ask(inbox, "prune-2", **PRD)
    assert f"{RESUBMITTED}: withdrawn" in entry(rita, second)
    assert "by its agent" not in band(rita, second)
    assert inbox.agent.post(f"/gates/{second.id}/cancel").status_code == 200
    third = ask(inbox, "prune-3", **STAGE)
    assert f"{second} , withdrawn by its agent" in band(rita, third)


def test_of_many_that_came_before_the_newest_are_compared(
    inbox: InboxScenario, rita: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often an agent requests and withdraws, a page reads a bounded number of gates."""
    monkeypatch.setattr(changed_requests, "_KNOWN", 2)
    monkeypatch.setattr(
        changed_requests,
        "_ALONE",
        CompiledQuerySet(changed_requests._alone, project=UUID, since=int, until=int),
    )
    before = [
        ask(inbox, f"prune-{n}", **STAGE | {"arguments": {"bucket": f"b-{n}"}}) for n in range(4)
    ]
    for gate in before:
        withdraw(inbox, gate)
    last = ask(inbox, "prune-9", **PRD)
    (earlier,) = changed_requests.find_earlier_versions([last]).values()
    assert (str(earlier), earlier.others) == (str(before[3]), (str(before[2]),))
    with CaptureQueriesContext(connection) as queries:
        assert changed_requests.find_earlier_versions([before[0]]) == {}
    assert len([gate for gate in queries if '"approvals_gate"' in gate["sql"]]) == 2


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("deny", "denied"),
        ("deny_session", "denied for this session"),
        ("request_changes", "changes requested"),
    ],
)
def test_a_changed_request_after_a_denial_is_marked(
    inbox: InboxScenario, rita: Reviewer, answer: str, expected: str
) -> None:
    first = ask(inbox, "prune", **STAGE)
    inbox.answer(first, "carol", answer, "which bucket?")
    second = ask(inbox, "prune-2", **PRD)
    assert f"{RESUBMITTED}: {expected}" in entry(rita, second)
    assert f"{first} , {expected}" in band(rita, second)


def test_in_another_session_only_a_request_of_the_same_target_is_marked(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    withdraw(inbox, ask(inbox, "prune", **STAGE))
    assert RESUBMITTED in entry(rita, ask(inbox, "prune", "s-2", **PRD))
    elsewhere = PRD | {"target": {"repository": "web"}}
    assert RESUBMITTED not in entry(rita, ask(inbox, "prune", "s-3", **elsewhere))


def test_the_same_request_on_another_target_shows_the_target(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    withdraw(inbox, ask(inbox, "prune", **STAGE))
    second = ask(
        inbox, "prune-2", **STAGE | {"target": STAGE["target"] | {"environment": "production"}}
    )
    assert "resubmitted with another target: withdrawn" in entry(rita, second)
    assert "target: environment staging production" in band(rita, second)


REFUND: dict[str, Any] = {
    "tool": "git.push",
    "arguments": {"order": "A-1042", "amount": 50, "customer": "c-7"},
    "target": {"environment": "production", "resource": "shop"},
}


@pytest.mark.parametrize(
    ("changes", "is_marked"),
    [
        ({"arguments": {"order": "A-1042", "amount": 5, "customer": "c-7"}}, True),
        ({"arguments": {"order": "A-1042", "amount": 5}, "target": {}}, True),
        ({"arguments": {"order": "A-2000", "amount": 50, "customer": "c-7"}}, False),
        ({"arguments": {"amount": 5}, "target": {"resource": "warehouse"}}, True),
        ({"arguments": {"amount": 5}}, True),
        ({"arguments": {"customer": "c-8"}, "target": {}}, True),
    ],
)
def test_a_request_about_another_order_is_not_a_resubmission(
    inbox: InboxScenario, rita: Reviewer, changes: dict[str, Any], is_marked: bool
) -> None:
    inbox.answer(ask(inbox, "refund", **REFUND), "carol", "request_changes", "too much")
    second = ask(inbox, "refund-2", **REFUND | changes)
    assert ("resubmitted" in entry(rita, second)) is is_marked
    assert ("Resubmitted" in band(rita, second)) is is_marked


def test_an_erased_plan_is_compared_by_its_target_only(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.agent.session("s-1")
    planned = inbox.agent.plan("refund", "s-1", **REFUND)
    withdraw(inbox, inbox.gate(planned))
    second = ask(inbox, "r-2", **REFUND | {"arguments": {"order": "A-2000"}})
    assert "resubmitted" not in entry(rita, second)
    erase_plan(inbox, planned)
    assert "resubmitted" in entry(rita, second)


def test_an_approved_waiting_or_identical_request_is_not_a_resubmission(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    first = ask(inbox, "one", **STAGE)
    assert "resubmitted" not in entry(rita, ask(inbox, "two", **PRD))
    inbox.answer(first, "carol")
    assert "resubmitted" not in entry(
        rita, ask(inbox, "three", **PRD | {"arguments": {"bucket": "z"}})
    )
    fourth = ask(inbox, "four", tool="deploy", arguments={"version": "1"})
    withdraw(inbox, fourth)
    assert "resubmitted" not in entry(
        rita, ask(inbox, "five", tool="deploy", arguments={"version": "1"})
    )
    assert "resubmitted" not in entry(
        rita, ask(inbox, "six", **PRD | {"arguments": {"bucket": "x"}})
    )


def test_a_decoy_between_does_not_hide_the_first(inbox: InboxScenario, rita: Reviewer) -> None:
    first = ask(inbox, "prune", **STAGE)
    withdraw(inbox, first)
    decoy = ask(inbox, "decoy", **STAGE | {"arguments": {"bucket": "scratch"}})
    third = ask(inbox, "prune-2", **PRD)
    assert "resubmitted" in entry(rita, third)  # while the decoy still waits
    withdraw(inbox, decoy)
    withdraw(inbox, third)
    text = band(rita, ask(inbox, "prune-3", **PRD))
    assert f"{decoy} , withdrawn" in text
    assert f"before it {first}" in text
    assert f"{third} , withdrawn" not in text  # identical to the last request


def test_a_request_from_before_the_denial_is_not_a_resubmission(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    first, other_gate = ask(inbox, "prune", **STAGE), ask(inbox, "prune-2", **PRD)
    inbox.answer(first, "carol", "deny", "never")
    assert "resubmitted" not in entry(rita, other_gate)
    second, third = (
        ask(inbox, "a", tool="deploy", arguments={"v": 1}),
        ask(inbox, "b", tool="deploy", arguments={"v": 2}),
    )
    withdraw(inbox, second)  # only after the other was requested: still an exchange
    assert RESUBMITTED in entry(rita, third)
    earlier = changed_requests.find_earlier_versions([third])[third.id]
    same = changed_requests.GateRequest(
        third.id, third.opened_position, third.session_id, third.agent_id, 0, ("deploy", "v1:1")
    )
    at = earlier.ended_at_us - changed_requests.WITHDRAWAL_WINDOW_US
    assert [
        bool(
            changed_requests.find_earlier_requests(inbox.project.id, [same._replace(at_us=moment)])
        )
        for moment in (at, at - 1)
    ] == [True, False]


def test_only_requests_that_ended_within_a_day_are_shown(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    first = ask(inbox, "prune", **STAGE)
    withdraw(inbox, first)
    second = ask(inbox, "prune-2", **PRD)
    earlier = changed_requests.find_earlier_versions([second])[second.id]
    assert earlier.position == first.opened_position
    late = [
        changed_requests.GateRequest(
            second.id, second.opened_position, second.session_id, second.agent_id, at, earlier.same
        )
        for at in (
            earlier.ended_at_us + changed_requests.EARLIER_WINDOW_US,
            earlier.ended_at_us + changed_requests.EARLIER_WINDOW_US + 1,
        )
    ]
    other = [request._replace(same=("git.push", "v1:0", *earlier.same[2:])) for request in late]
    assert [
        bool(changed_requests.find_earlier_requests(inbox.project.id, [request]))
        for request in other
    ] == [True, False]
    assert changed_requests.find_earlier_requests(inbox.organization.other.id, other) == {}


def test_a_key_that_was_sent_with_other_arguments_is_shown_where_it_is_decided(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    first = ask(inbox, "prune", **STAGE)
    assert "key sent" not in entry(rita, first)
    refused = inbox.agent.post("/effects", {"session": "s-1", "effect_key": "prune", **PRD})
    assert (refused.status_code, refused.json()["code"]) == (422, "key_reuse")
    assert "key sent with other content" in entry(rita, first)
    text = band(rita, first)
    assert "Its key was sent again with other content, and refused." in text
    assert f"{first.effect} , this" in text
    assert "with different arguments" in text
    withdraw(inbox, first)
    second = ask(inbox, "prune-2", **PRD)
    assert "key sent with other content" in entry(rita, second)
    text = band(rita, second)
    assert "with exactly the arguments requested here" in text
    assert ", this" not in text
    assert "Its key was sent again" not in band(
        rita, ask(inbox, "else", tool="deploy", arguments={})
    )


def test_a_reported_conflict_is_shown_where_its_request_is_decided(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    first = ask(inbox, "prune", **STAGE)
    report = {
        "id": "r-1",
        "kind": "effect.planned",
        "session": "s-1",
        "effect_key": "prune",
        "tool": "git.push",
    }
    assert inbox.agent.report([report | {"arguments": {"bucket": "x"}}]).status_code == 200
    assert "Its effect key was used for another intent." in band(rita, first)


def test_differences_are_listed_by_name_and_long_ones_by_their_place() -> None:
    def diff(old: Any, new: Any) -> list[tuple[str, str | None, str | None]]:
        return [
            tuple(difference)  # type: ignore[misc]
            for difference in changed_requests.diff_plans({"arguments": old}, {"arguments": new})
        ]

    assert diff({"a": 1, "b": {"c": [1], "d": 2}}, {"a": 1, "b": {"c": [True], "d": 2}}) == [
        ("b.c", "[1]", "[true]")
    ]
    assert diff({"a": None}, {}) == [("a", "null", None)]
    assert diff({}, {"a": ""}) == [("a", None, "")]
    assert diff(["x"], ["y"]) == [("arguments", '["x"]', '["y"]')]
    assert diff(None, {"a": 1}) == [("arguments", "null", '{"a":1}')]
    same = "echo step\n" * 400
    ((name, old, new),) = diff({"sql": same + "end"}, {"sql": same + "rm -rf /"})
    assert (name, (old or "")[-3:], (new or "")[-8:]) == ("sql", "end", "rm -rf /")
    assert len(old or "") < 40
    assert (old or "").startswith("…")
    assert changed_requests.diff_plans({"target": {"ref": "a"}}, {}) == [("target: ref", "a", None)]


def test_the_difference_to_erased_arguments_is_unknown(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    first = ask(inbox, "prune", **STAGE)
    withdraw(inbox, first)
    second = ask(inbox, "prune-2", **PRD)
    plan = policy_evaluation.load_plan_body(second.plan_position)
    from tests.pages.sample_data import erase_plan

    erase_plan(first.effect_id)
    assert context.load_earlier_version(second, plan).erased
    assert "The earlier arguments are erased: the differences are unknown." in band(rita, second)
