"""Who refused the same, or something about the same thing: what a card says above its facts."""

import re
from html import unescape
from typing import Any

import pytest
from django.db import transaction
from django.urls import reverse

from approvals.models import Gate
from approvals.review import plan_digests
from approvals.review.identities import find_identities
from db.clock import now_us
from journal import erasures
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of

MAIL = {"to": "billing@northwind.com", "attachment": "customers-2026-11.csv", "subject": "Sample"}


@pytest.fixture
def rita(inbox: InboxScenario) -> Reviewer:
    return Reviewer(inbox)


def ask_mail(inbox: InboxScenario, session: str, agent: Any = None, **changed: Any) -> Gate:
    """Request a mail in its own session; `changed` are other arguments."""
    caller = agent or inbox.agent
    caller.session(session)
    plan = caller.plan(f"e-{session}", session, tool="mail.send", arguments={**MAIL, **changed})
    return inbox.gate(plan)


def read_words(rita: Reviewer, gate: Gate) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", rita.page(url_of(gate)))))


def test_a_denied_file_is_named_with_its_words_when_the_recipient_changes(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    first = ask_mail(inbox, "s-1")
    inbox.answer(first, "carol", "deny", "Customer exports go through the vault.")
    second = ask_mail(inbox, "s-2", to="audit@other.example", subject="November")
    text = read_words(rita, second)
    assert re.search(
        r"Denied \d+ s ago by carol: “Customer exports go through the vault.” "
        r"Same file: customers-2026-11.csv. " + str(first),
        text,
    ), text
    assert re.search(r"denied \d+ s ago", rita.page(reverse("inbox")))
    same_recipient = ask_mail(inbox, "s-3", attachment="notes.txt")
    assert "Same recipient: billing@northwind.com." in read_words(rita, same_recipient)


def test_a_request_about_other_things_says_nothing(inbox: InboxScenario, rita: Reviewer) -> None:
    inbox.answer(ask_mail(inbox, "s-1"), "carol", "deny", "not by mail")
    other = ask_mail(inbox, "s-2", to="x@acme.example", attachment="notes.txt", subject="Sample")
    assert "by carol" not in read_words(rita, other)
    missing = ask_mail(inbox, "s-3", to="", attachment="", subject="Sample")
    assert "by carol" not in read_words(rita, missing)


def test_an_approval_of_the_same_file_is_no_denial(inbox: InboxScenario, rita: Reviewer) -> None:
    inbox.declare("mail.send", "reversible")
    assert inbox.answer(ask_mail(inbox, "s-1"), "carol", "approve").refusal is None
    second = ask_mail(inbox, "s-2", to="audit@other.example")
    text = read_words(rita, second)
    assert "Denied" not in text
    assert re.search(r"Same file: g_\d+ 1 approved", text)
    assert "Same recipient: none" in text


def test_the_same_arguments_have_the_same_recipient(inbox: InboxScenario, rita: Reviewer) -> None:
    inbox.declare("mail.send", "reversible")
    first = ask_mail(inbox, "s-1")
    assert inbox.answer(first, "carol", "approve").refusal is None
    text = read_words(rita, ask_mail(inbox, "s-2"))
    assert f"Same arguments, no target named: {first} 1 approved" in text
    assert f"Same recipient: {first} 1 approved" in text
    assert "none" not in text.partition("Similar decisions")[2].partition("Before and after")[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"to": "Ann <Ann@X.example>, bob@y.example"}, {"recipient": {"ann@x.example", "bob@y.example"}}),
        ({"dsn": "postgres://ops@pg-1.acme.example/billing"}, {}),
        ({"to": "#general"}, {"recipient": {"#general"}}),
        ({"text": "write to ann@x.example"}, {"recipient": {"ann@x.example"}}),
        ({"order_id": 88}, {"order": {"88"}}),
        ({"refund": {"order": "88-4120", "dry_run": False}}, {"order": {"88-4120"}}),
        ({"sql": "DELETE FROM billing.invoices WHERE x IN (SELECT id FROM old)"}, {"table": {"billing.invoices", "old"}}),
        ({"query": "drop table if exists Invoices_2019"}, {"table": {"invoices_2019"}}),
        ({"text": "select a gift from the table"}, {"table": {"the"}}),
        ({"note": "we update the page"}, {}),
        ({"path": "a.py", "content": "x" * 400}, {"file": {"a.py"}}),
        ({"path": "x" * 400}, {}),
        ({"to": None, "order": "", "file": []}, {}),
        ({"files": ["a", "b"], "force": True}, {"file": {"a", "b"}}),
        ("rm -rf build", {}),
        (None, {}),
    ],
)  # fmt: skip
def test_identifiers_are_read_from_arguments(arguments: Any, expected: dict[str, Any]) -> None:
    assert {kind: set(values) for kind, values in find_identities(arguments).items()} == expected


def test_a_target_is_an_identifier_and_an_empty_one_is_none() -> None:
    target = {"repository": "web", "ref": "refs/heads/main", "resource": "pod/a"}
    assert find_identities({}, target) == {
        "branch": frozenset({"web refs/heads/main"}),
        "target": frozenset({"pod/a"}),
    }
    assert find_identities({}, {"repository": "", "ref": "", "resource": ""}) == {}


def erase_plan(inbox: InboxScenario, gate: Gate) -> None:
    with transaction.atomic():
        erasures.erase_body(
            inbox.project.id, gate.plan_position, reason="r-1", actor="p_1", now_us=now_us()
        )


def test_nothing_is_said_about_a_denied_plan_after_its_erasure(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    first = ask_mail(inbox, "s-1")
    inbox.answer(first, "carol", "deny", "not by mail")
    second = ask_mail(inbox, "s-2", to="audit@other.example", subject="November")
    words = read_words(rita, second)
    assert "Same file: customers-2026-11.csv." in words
    assert f"Same file: {first} 1 denied" in words
    erase_plan(inbox, first)
    checked, _, similar = read_words(rita, second).partition("Similar")
    assert "Same file" not in checked
    assert "Same file: none" in similar


def test_memory_keeps_no_text_of_denied_plans(inbox: InboxScenario, rita: Reviewer) -> None:
    first = ask_mail(inbox, "s-1")
    inbox.answer(first, "carol", "deny", "not by mail")
    read_words(rita, ask_mail(inbox, "s-2", subject="November"))
    kept = list(plan_digests._kept_digests.values())
    assert kept
    assert all(
        isinstance(digest, bytes) and len(digest) == 12
        for plan in kept
        for digests in (*plan.identities.values(), {plan.kind})
        for digest in digests
    )
    assert all(value not in repr(kept) for value in MAIL.values())


def test_a_denied_plan_is_read_once_in_a_process(
    inbox: InboxScenario, rita: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ask_mail(inbox, "s-1")
    inbox.answer(first, "carol", "deny", "not by mail")
    second = ask_mail(inbox, "s-2", subject="November")
    digested: list[str] = []
    read_plan = plan_digests.digest_plan_head

    def count_reads(tool: str, head: str) -> plan_digests.PlanDigest:
        digested.append(head)
        return read_plan(tool, head)

    monkeypatch.setattr(plan_digests, "digest_plan_head", count_reads)
    for _ in range(2):
        assert "Same file" in read_words(rita, second)
    assert len(digested) == len(set(digested)) == 2  # the refused one, and the one that waits
    monkeypatch.setattr(plan_digests, "MAX_KEPT", 0)
    inbox.answer(second, "carol", "deny", "not by mail")
    assert "Same file" in read_words(rita, ask_mail(inbox, "s-3", subject="December"))
