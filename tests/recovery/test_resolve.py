"""Resolutions of effects whose outcome is unknown, through the pages: what they change and what
they never change."""

import re
from typing import Any

import orjson
import pytest
from django.db import DatabaseError, transaction
from django.urls import reverse

from accounts.people import ensure_pseudonym
from approvals import exemptions
from approvals.models import Gate, Vote
from db.clock import now_us
from investigation.history.moment import JournalCut
from journal.models import Body, Entry
from ledger.models import Attempt, Effect
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.test_asof_replay import differences, live, made_again
from tests.ledger.test_commands_then_reports import every_delivery
from tests.ledger.test_convergence import undone
from tests.pages.sample_data import done
from tests.recovery.resolver import (
    ARGUMENTS,
    RATIONALE,
    Resolver,
    entries_of,
    mail,
    olga,
    reload,
    send_mail,
)
from tests.rows_with_entries import add_row

__all__ = ["mail", "olga"]


def test_the_page_shows_all_evidence_and_why_the_outcome_is_unknown(
    mail: Effect, olga: Resolver
) -> None:
    html = olga.page(mail)
    attempt = Attempt.objects.get(effect=mail)
    for words in (
        "NEEDS A PERSON",
        "cannot tell whether it happened",
        "What would change the verdict",
        "Your invoice",
        attempt.remote_key,
        attempt.process,
        "no answer",
        "Undeclared",
        "Compensation",
        "Later evidence",
        "It did not happen, allow one more attempt",
    ):
        assert words in html, words
    assert "Record my answer anyway" not in html  # its deadline has passed and no worker is known


def test_happened_acknowledges_the_effect_with_the_reference(
    mail: Effect, olga: Resolver, quiet: InboxScenario
) -> None:
    answer = olga.resolve(
        mail, "happened", reference="msg-77", evidence="https://mail.example/log?id=77"
    )
    assert answer["Location"] == reverse("effect", args=[mail.id])
    row, attempt = reload(mail), Attempt.objects.get(effect=mail)
    assert (row.state, row.outcome, row.external_reference, row.resolution) == (
        *("acknowledged", "ok", "msg-77", "happened"),
    )
    assert (attempt.is_open, attempt.acknowledged_mark) == (False, "")
    [entry] = entries_of(mail)
    facts, body = (
        orjson.loads(entry.facts),
        orjson.loads(Body.objects.get(entry=entry.position).text),
    )
    assert (facts["answer"], facts["seen"], facts["row"], facts["step_up"]) == (
        *("happened", mail.version, "26", "typed_digest"),
    )
    # The agent sees the answer, the pseudonym and the position of the rationale, but not its text.
    response = quiet.agent.get(f"/effects/{mail.id}")
    assert response.json()["resolution"] == {
        "answer": "happened",
        "by": ensure_pseudonym(quiet.user("operator")),
        "at_us": entry.received_us,
        "attempt": 1,
        "position": entry.position,
    }
    assert RATIONALE not in response.text
    assert (entry.actor, entry.lane, entry.attempt) == (
        ensure_pseudonym(quiet.user("operator")),
        "system",
        1,
    )
    assert (body["rationale"], body["reference"], body["evidence"]) == (
        *(RATIONALE, "msg-77", "https://mail.example/log?id=77"),
    )
    assert RATIONALE not in entry.facts
    page = olga.client.get(reverse("effect", args=[mail.id])).content.decode()
    assert "SKIP</b> done" in page
    assert "operator: it happened" in page
    assert "msg-77" in page
    assert quiet.agent.plan("mail", tool="mail.send", arguments=ARGUMENTS)["answer"] == "done"


def test_a_resolution_is_never_shown_as_a_report_of_the_agent(
    quiet: InboxScenario, olga: Resolver
) -> None:
    mail = send_mail(quiet, late=False)
    planned = {"id": str(mail.id), "intent_digest": mail.intent_digest}
    quiet.agent.acknowledge(planned, outcome="unknown")
    olga.resolve(reload(mail), "happened", reference="msg-77")
    assert (reload(mail).outcome, Attempt.objects.get(effect=mail).outcome) == ("ok", "unknown")
    page = olga.client.get(reverse("effect", args=[mail.id])).content.decode()
    words = re.sub(r"\s+", " ", re.sub("<[^>]*>", "", page))
    assert "Happened, as resolved by a person." in words
    assert re.search(r"Its agent acknowledged it at [^.]+(\.\d+)? with outcome unknown\.", words)
    assert "happened, resolved by a person" in words
    assert "with outcome ok" not in words


@pytest.mark.parametrize(("named", "expected"), [("msg-77", ["msg-77"]), ("", [""])])
def test_the_reference_of_the_person_is_used_if_the_report_has_none(
    mail: Effect, olga: Resolver, quiet: InboxScenario, named: str, expected: list[str]
) -> None:
    """The first report by its id counts in every order, and each moment is rebuilt as it was
    shown."""
    olga.resolve(mail, "happened", reference=named)
    fact = {"kind": "effect.acknowledged", "session": "s-1", "effect_key": "mail", "outcome": "ok"}
    reported = [{**fact, "id": "1"}, {**fact, "id": "2", "external_reference": "9f2"}]
    for batches in every_delivery(reported):
        with undone():
            moments = []
            for batch in batches:
                assert quiet.agent.report(batch).status_code == 200
                cut = JournalCut(Entry.objects.latest("position").position, now_us())
                moments.append((cut, live(cut.at_us)))
            references = [
                reload(mail).external_reference,
                *Attempt.objects.values_list("external_reference", flat=True),
            ]
            assert references == expected * 2, batches
            for cut, shown in moments:
                assert differences(made_again(quiet.project.id, cut), shown) == {}


@pytest.mark.parametrize("by_command", [True, False])
@pytest.mark.parametrize(("late", "is_shown"), [("forged-1", True), ("msg-77", False), ("", False)])
def test_a_late_reference_is_shown_but_does_not_replace_the_first(
    mail: Effect, olga: Resolver, quiet: InboxScenario, late: str, is_shown: bool, by_command: bool
) -> None:
    olga.resolve(mail, "happened", reference="msg-77")
    reported = {"outcome": "ok", **({"external_reference": late} if late else {})}
    if by_command:
        assert (
            quiet.agent.post(
                f"/effects/{mail.id}/acknowledge", {"attempt": 1, **reported}
            ).status_code
            == 202
        )
    else:
        fact = {"id": "1", "kind": "effect.acknowledged", "session": "s-1", "effect_key": "mail"}
        assert quiet.agent.report([{**fact, **reported}]).status_code == 200
    assert (
        reload(mail).external_reference
        == Attempt.objects.get(effect=mail).external_reference
        == "msg-77"
    )
    page = olga.client.get(reverse("effect", args=[mail.id])).content.decode()
    assert ("The agent named a different reference" in page) is is_shown
    assert ("forged-1" in page.partition("External reference")[2].partition("</dd>")[0]) is is_shown


def test_a_person_corrects_the_reference_of_an_agent_that_did_not_know(
    mail: Effect, olga: Resolver, quiet: InboxScenario
) -> None:
    unknown = {"attempt": 1, "outcome": "unknown", "external_reference": "guess-1"}
    assert quiet.agent.post(f"/effects/{mail.id}/acknowledge", unknown).status_code == 200
    olga.resolve(mail, "happened", reference="msg-77")
    assert reload(mail).external_reference == "msg-77"
    page = olga.client.get(reverse("effect", args=[mail.id])).content.decode()
    assert "The agent named a different reference" in page


def test_not_happened_allows_exactly_one_attempt(
    mail: Effect, olga: Resolver, quiet: InboxScenario
) -> None:
    olga.resolve(mail, "not_happened")
    row, first = reload(mail), Attempt.objects.get(effect=mail)
    assert (row.state, row.failure_reason, row.outcome) == ("failed", "rejected", "error")
    assert (first.failure_reason, first.is_open) == ("rejected", False)
    again = quiet.agent.plan("mail", tool="mail.send", arguments=ARGUMENTS)
    assert again["answer"] == "proceed"
    second = quiet.agent.dispatch(again, process="p-2")
    assert second["attempt"] == 2
    assert second["remote_key"] != first.remote_key
    quiet.agent.fail(again, "rejected", 2)
    spent = quiet.agent.plan("mail", tool="mail.send", arguments=ARGUMENTS)
    assert spent["answer"] == "blocked"
    sending = {"process": "p-3", "intent_digest": spent["intent_digest"]}
    assert quiet.agent.post(f"/effects/{spent['id']}/dispatch", sending).status_code == 409
    assert reload(mail).attempt_count == 2


def test_replay_once_is_never_permission(inbox: InboxScenario) -> None:
    """If a policy requires approval, the person who resolved the attempt cannot approve."""
    planned = inbox.plan("push", arguments={"ref": "main"})
    inbox.declare("nobody.knows")
    first = inbox.gate(planned)
    inbox.answer(first, "carol")
    inbox.agent.dispatch(planned)
    Effect.objects.filter(id=planned["id"]).update(deadline_us=now_us() - 1)
    effect = inbox.effect(planned)
    assert effect.permission == "used"
    adam = Resolver(inbox, "administrator")  # not a party of the effect
    adam.resolve(effect, "not_happened", insists="1")
    assert reload(effect).permission == "used"  # the permission of the first attempt
    again = inbox.agent.plan("push", arguments={"ref": "main"})
    assert again["answer"] == "wait"
    gate = inbox.gate(planned)
    assert (gate.status, gate.id != first.id) == ("pending", True)
    html = adam.client.get(reverse("gate", args=[gate.id])).content.decode()
    assert "You resolved an earlier attempt of this effect" in html
    assert inbox.answer(gate, "administrator").refusal == (
        "self_approval",
        "You resolved an earlier attempt of this effect, so another person must approve.",
    )
    assert "administrator stated" in html
    assert re.search(r"that attempt 1\s+did not happen", html)
    with (
        pytest.raises(DatabaseError, match="approver_is_not_a_party"),
        transaction.atomic(),
    ):
        add_row(Vote(**vote_columns(gate, inbox)))
    assert not Vote.objects.filter(gate=gate).exists()
    assert inbox.answer(gate, "carol").refusal is None
    assert (
        inbox.agent.dispatch(inbox.agent.plan("push", arguments={"ref": "main"}), process="p-2")[
            "attempt"
        ]
        == 2
    )


def vote_columns(gate: Gate, inbox: InboxScenario) -> dict[str, Any]:
    """Return the columns of a vote that no verb would store."""
    user = inbox.user("administrator")
    return {
        "project": inbox.project,
        "gate": gate,
        "user": user,
        "actor": ensure_pseudonym(user),
        "answer": "approve",
        "card_sha256": "c" * 64,
        "shown_version": gate.version,
        "shown_digest": gate.digest,
        "shown_at_us": now_us(),
        "view_complete": True,
        "step_up": "typed_digest",
        "reason_characters": 20,
        "position": 1,
        "voted_at_us": now_us(),
    }


def test_an_exemption_of_the_resolver_does_not_permit_the_retry(inbox: InboxScenario) -> None:
    planned = inbox.plan("push", arguments={"ref": "main"})
    inbox.answer(inbox.gate(planned), "carol")
    inbox.agent.dispatch(planned)
    Effect.objects.filter(id=planned["id"]).update(deadline_us=now_us() - 1)
    Resolver(inbox, "administrator").resolve(inbox.effect(planned), "not_happened", insists="1")
    until = now_us() + 10**9
    with transaction.atomic():
        exemptions.create_exemption(
            inbox.project,
            tool="git.*",
            reason="for the drill",
            ends_at_us=until,
            user=inbox.user("administrator"),
            **proved(),
        )
    assert inbox.agent.plan("other", arguments={"ref": "next"})["answer"] == "proceed"
    assert inbox.agent.plan("push", arguments={"ref": "main"})["answer"] == "wait"


def test_compensate_makes_the_verdict_compensate(
    mail: Effect, olga: Resolver, quiet: InboxScenario
) -> None:
    olga.resolve(mail, "compensate")
    row = reload(mail)
    assert (row.state, row.resolution) == ("dispatched", "compensate")
    page = olga.client.get(reverse("effect", args=[mail.id])).content.decode()
    assert "COMPENSATE</b> a person asked" in page
    verdict = quiet.agent.get(f"/effects/{mail.id}/verdict").json()
    assert (verdict["verdict"], verdict["row"], verdict["reason"]) == (
        "compensate",
        "11b",
        "RESOLVED",
    )
    fields = {"effect_key": "sorry", "tool": "mail.apologise", "arguments": {"recipients": 412}}
    compensation = done(quiet.agent.post(f"/effects/{mail.id}/compensate", fields))
    quiet.agent.dispatch(compensation)
    assert "No answer needed." in olga.page(mail)  # its compensation is under way
    quiet.agent.acknowledge(compensation)
    assert reload(mail).state == "compensated"


def test_abandoned_supersedes_the_effect_permanently(
    mail: Effect, olga: Resolver, quiet: InboxScenario
) -> None:
    olga.resolve(mail, "abandoned")
    assert (reload(mail).state, reload(mail).superseded_mark) == ("superseded", "")
    assert quiet.agent.plan("mail", tool="mail.send", arguments=ARGUMENTS)["answer"] == "done"
    late = {"attempt": 1, "outcome": "ok"}
    assert quiet.agent.post(f"/effects/{mail.id}/acknowledge", late).status_code == 202
    assert (reload(mail).state, reload(mail).violates) == ("superseded", True)
    page = olga.client.get(reverse("effect", args=[mail.id])).content.decode()
    assert "Abandoned by a person, but it had happened:" in page


@pytest.mark.parametrize(
    ("answer", "late", "violation"),
    [
        ("not_happened", ("acknowledge", {"attempt": 1, "outcome": "ok"}), "happened_after_all"),
        ("happened", ("fail", {"attempt": 1, "reason": "rejected"}), "rejected_after_all"),
    ],
)
def test_a_late_report_against_a_resolution_is_a_violation_on_the_page(
    mail: Effect,
    olga: Resolver,
    quiet: InboxScenario,
    answer: str,
    late: tuple[str, dict[str, object]],
    violation: str,
) -> None:
    olga.resolve(mail, answer)
    assert quiet.agent.post(f"/effects/{mail.id}/{late[0]}", late[1]).status_code == 202
    row = reload(mail)
    assert (row.state, row.outcome, row.violates) == ("acknowledged", "ok", True)
    assert [
        orjson.loads(entry.facts)["violation"] for entry in entries_of(mail, "integrity.violation")
    ] == [violation]
    page = olga.client.get(reverse("effect", args=[mail.id])).content.decode()
    assert "Resolved as " in page


def test_a_late_unknown_outcome_does_not_contradict_a_resolution(
    mail: Effect, olga: Resolver, quiet: InboxScenario
) -> None:
    olga.resolve(mail, "not_happened")
    unknown = {"attempt": 1, "outcome": "unknown"}
    assert quiet.agent.post(f"/effects/{mail.id}/acknowledge", unknown).status_code == 202
    assert (reload(mail).state, reload(mail).violates) == ("failed", False)


def test_of_two_resolutions_one_counts_and_the_other_keeps_its_text(
    mail: Effect, olga: Resolver, quiet: InboxScenario
) -> None:
    adam = Resolver(quiet, "administrator")
    shown_token = adam.seen(mail)
    olga.resolve(mail, "happened", reference="msg-77")
    answer = adam.begin(mail, "not_happened", "The log of the gateway is empty.", seen=shown_token)
    html = " ".join(answer.content.decode().split())
    assert answer.status_code == 409
    overtaken = "It no longer needs an answer. Latest resolution: operator"
    for words in (
        "Your answer was not recorded.",
        "operator: it happened",
        "The log of the gateway is empty.",
        "<td>acknowledged</td>",
        "No answer needed.",
        overtaken,
    ):
        assert words in html, words
    assert "then answer" not in html  # the page has no form
    assert len(entries_of(mail)) == 1


def test_a_resolution_overtaken_before_its_confirmation_is_refused(
    mail: Effect, olga: Resolver, quiet: InboxScenario
) -> None:
    adam = Resolver(quiet, "administrator")
    adam.begin(mail, "abandoned", "Nobody will ever find out.")
    olga.resolve(mail, "happened")
    answer = adam.confirm(mail)
    assert answer.status_code == 409
    assert "Nobody will ever find out." in answer.content.decode()
    assert [orjson.loads(entry.facts)["answer"] for entry in entries_of(mail)] == ["happened"]


def test_changes_since_the_page_was_loaded_are_shown_with_the_form(
    mail: Effect, olga: Resolver, quiet: InboxScenario
) -> None:
    shown_token = olga.seen(mail)
    quiet.agent.fail({"id": str(mail.id)}, "timeout")
    answer = olga.begin(mail, "abandoned", seen=shown_token)
    html = answer.content.decode()
    assert answer.status_code == 409
    assert "<td>dispatched</td><td>failed</td>" in html
    assert "Check the changes, then answer." in html
    assert "Latest resolution" not in html  # no resolution yet
    assert f">{RATIONALE}</textarea>".replace("'", "&#x27;") in html
    assert olga.resolve(mail, "abandoned").status_code == 302


@pytest.mark.parametrize(
    ("answer", "reason"), [("happened", "happened"), ("abandoned", "superseded")]
)
def test_a_resolution_cancels_a_pending_gate(
    inbox: InboxScenario, answer: str, reason: str
) -> None:
    """A report of a rejection opens a gate for the next attempt; then an earlier report says that
    the attempt timed out."""
    planned = inbox.plan("push", arguments={"ref": "main"})
    inbox.answer(inbox.gate(planned), "carol")
    inbox.agent.dispatch(planned)
    failed = {"kind": "effect.failed", "session": "s-1", "effect_key": "push"}
    inbox.agent.report([{**failed, "id": "r-1", "reason": "rejected"}])
    assert inbox.agent.plan("push", arguments={"ref": "main"})["answer"] == "wait"
    inbox.agent.report([{**failed, "id": "r-2", "reason": "timeout", "producer_seq": 1}])
    assert inbox.gate(planned).status == "pending"
    Resolver(inbox).resolve(inbox.effect(planned), answer, insists="1")
    gate, effect = inbox.gate(planned), inbox.effect(planned)
    assert (gate.status, gate.reason) == ("cancelled", reason)
    assert (effect.state, effect.permission) == (
        ("acknowledged", "used") if answer == "happened" else ("superseded", "none")
    )


def test_resolving_a_compensation_as_happened_compensates_its_target(
    quiet: InboxScenario, olga: Resolver
) -> None:
    mail = send_mail(quiet)
    quiet.agent.acknowledge({"id": str(mail.id)})
    fields = {"effect_key": "sorry", "tool": "mail.apologise", "arguments": {"recipients": 412}}
    compensation = done(quiet.agent.post(f"/effects/{mail.id}/compensate", fields))
    quiet.agent.dispatch(compensation)
    quiet.agent.fail(compensation, "timeout")
    olga.resolve(quiet.effect(compensation), "happened", reference="msg-78")
    assert (reload(mail).state, quiet.effect(compensation).state) == ("compensated", "acknowledged")


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("happened", "it happened. Skip it"),
        ("not_happened", "it did not happen. Plan it again"),
        ("compensate", "Whether or not it happened, plan its compensation"),
        ("abandoned", "Do not repeat it and do not undo it."),
    ],
)
def test_the_agent_gets_a_message_about_the_resolution(
    mail: Effect, olga: Resolver, quiet: InboxScenario, answer: str, sentence: str
) -> None:
    olga.resolve(mail, answer)
    [message] = quiet.agent.get("/messages", unread=1, box="mine").json()["items"]
    assert (message["subject"].split(":")[0], message["session"]) == (
        str(mail),
        str(mail.session_id),
    )
    assert sentence in message["body"]
    assert str(mail.id) in message["body"]
    assert RATIONALE not in message["body"]
