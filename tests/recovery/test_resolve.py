"""What people say of an effect of which nobody can know, through their pages: what it does, and what it never does."""

import re
from typing import Any

import orjson
import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from approvals import exemptions
from approvals.models import Gate, Vote
from journal import erasures
from journal.clock import now_us
from journal.models import Body, Entry
from ledger import holds
from ledger.models import Attempt, Effect
from sessions.people import pseudonym_of
from tests.approvals.story import Desk
from tests.pages.book import done
from tests.recovery.resolver import KNOWN, Resolver, url_of

ARGUMENTS = {"recipients": 412, "subject": "Your invoice"}


def now(effect: Effect) -> Effect:
    return Effect.objects.get(id=effect.id)


def told(effect: Effect, kind: str = "effect.resolved") -> list[Entry]:
    return list(Entry.objects.filter(effect=effect.id, kind=kind).order_by("position"))


def sent(desk: Desk, key: str = "mail", tool: str = "mail.send", *, late: bool = True) -> Effect:
    """A mail that was dispatched and of which nobody has heard since. Its tool is not declared, so it is opaque."""
    planned = desk.plan(key, tool=tool, arguments=ARGUMENTS)
    assert planned["answer"] == "proceed", planned
    desk.agent.dispatch(planned)
    effect = Effect.objects.filter(id=planned["id"])
    if late:
        effect.update(deadline_us=now_us() - 1)
    return effect.get()


@pytest.fixture
def mail(quiet: Desk) -> Effect:
    return sent(quiet)


@pytest.fixture
def olga(quiet: Desk) -> Resolver:
    return Resolver(quiet)


def test_the_page_says_all_that_is_known_and_why_nobody_can_know(mail: Effect, olga: Resolver) -> None:
    html = olga.page(mail)
    attempt = Attempt.objects.get(effect=mail)
    for words in ("HUMAN", "Nobody can know whether it happened", "What would change the verdict", "Your invoice",
                  attempt.remote_key, attempt.process, "no answer", "Undeclared", "Its compensation",
                  "What was heard since", "It did not happen, replay once"):  # fmt: skip
        assert words in html, words
    assert "I answer all the same" not in html  # its deadline has passed and no worker is known


def test_it_happened_is_an_acknowledgement_with_the_reference(mail: Effect, olga: Resolver, quiet: Desk) -> None:
    answer = olga.say(mail, "happened", reference="msg-77", evidence="https://mail.example/log?id=77")
    assert answer["Location"] == reverse("effect", args=[mail.id])
    row, attempt = now(mail), Attempt.objects.get(effect=mail)
    assert (row.state, row.outcome, row.external_reference, row.resolution) == (
        *("acknowledged", "ok", "msg-77", "happened"),
    )
    assert (attempt.is_open, attempt.acknowledged_mark) == (False, "")
    [entry] = told(mail)
    facts, body = orjson.loads(entry.facts), orjson.loads(Body.objects.get(entry=entry.position).text)
    assert (facts["answer"], facts["seen"], facts["row"], facts["step_up"]) == (
        *("happened", mail.version, "26", "typed_digest"),
    )
    assert (entry.actor, entry.lane, entry.attempt) == (pseudonym_of(quiet.user("operator")), "system", 1)
    assert (body["rationale"], body["reference"], body["evidence"]) == (
        *(KNOWN, "msg-77", "https://mail.example/log?id=77"),
    )
    assert KNOWN not in entry.facts
    page = olga.client.get(reverse("effect", args=[mail.id])).content.decode()
    assert "SKIP</b> done" in page
    assert "operator: it happened" in page
    assert "msg-77" in page
    assert quiet.agent.plan("mail", tool="mail.send", arguments=ARGUMENTS)["answer"] == "done"


def test_it_did_not_happen_is_good_for_exactly_one_attempt(mail: Effect, olga: Resolver, quiet: Desk) -> None:
    olga.say(mail, "not_happened")
    row, first = now(mail), Attempt.objects.get(effect=mail)
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
    assert now(mail).attempt_count == 2


def test_replay_once_is_never_leave(desk: Desk) -> None:
    """Where a policy holds it, others are asked; whoever said that it did not happen cannot approve it."""
    planned = desk.plan("push", arguments={"ref": "main"})
    desk.declare("nobody.knows")
    first = desk.gate(planned)
    desk.answer(first, "carol")
    desk.agent.dispatch(planned)
    Effect.objects.filter(id=planned["id"]).update(deadline_us=now_us() - 1)
    effect = desk.effect(planned)
    assert effect.leave == "used"
    adam = Resolver(desk, "administrator")  # who has no other part in it
    adam.say(effect, "not_happened", insists="1")
    assert now(effect).leave == "used"  # of the first attempt
    again = desk.agent.plan("push", arguments={"ref": "main"})
    assert again["answer"] == "wait"
    gate = desk.gate(planned)
    assert (gate.status, gate.id != first.id) == ("pending", True)
    html = adam.client.get(reverse("gate", args=[gate.id])).content.decode()
    assert "You said what became of it before" in html
    assert desk.answer(gate, "administrator").refusal == (
        "self_approval",
        "You said what became of it before, so this is asked on your word; somebody else must say yes.",
    )
    assert "administrator said" in html
    assert "of which nobody could know, did not happen" in html
    with pytest.raises(DatabaseError, match="vote_is_of_nobody_with_a_part_in_it"), transaction.atomic():
        Vote.objects.create(**yes_by_hand(gate, desk))
    assert not Vote.objects.filter(gate=gate).exists()
    assert desk.answer(gate, "carol").refusal is None
    assert desk.agent.dispatch(desk.agent.plan("push", arguments={"ref": "main"}), process="p-2")["attempt"] == 2


def yes_by_hand(gate: Gate, desk: Desk) -> dict[str, Any]:
    """A vote of the administrator that no verb would store."""
    user = desk.user("administrator")
    return {
        "project": desk.project, "gate": gate, "user": user, "actor": pseudonym_of(user), "answer": "approve",
        "card_sha256": "c" * 64, "shown_version": gate.version, "shown_digest": gate.digest, "shown_at_us": now_us(),
        "view_complete": True, "step_up": "typed_digest", "reason_characters": 20, "position": 1,
        "voted_at_us": now_us(),
    }  # fmt: skip


def test_no_exemption_of_theirs_lets_it_go_again(desk: Desk) -> None:
    planned = desk.plan("push", arguments={"ref": "main"})
    desk.answer(desk.gate(planned), "carol")
    desk.agent.dispatch(planned)
    Effect.objects.filter(id=planned["id"]).update(deadline_us=now_us() - 1)
    Resolver(desk, "administrator").say(desk.effect(planned), "not_happened", insists="1")
    until = now_us() + 10**9
    with transaction.atomic():
        exemptions.grant(
            desk.project, tool="git.*", reason="for the drill", ends_at_us=until, user=desk.user("administrator")
        )
    assert desk.agent.plan("other", arguments={"ref": "next"})["answer"] == "proceed"
    assert desk.agent.plan("push", arguments={"ref": "main"})["answer"] == "wait"


def test_compensate_tells_an_agent_to_plan_it(mail: Effect, olga: Resolver, quiet: Desk) -> None:
    olga.say(mail, "compensate")
    row = now(mail)
    assert (row.state, row.resolution) == ("dispatched", "compensate")
    page = olga.client.get(reverse("effect", args=[mail.id])).content.decode()
    assert "COMPENSATE</b> a person asked" in page
    verdict = quiet.agent.get(f"/effects/{mail.id}/verdict").json()
    assert (verdict["verdict"], verdict["row"], verdict["reason"]) == ("compensate", "11b", "RESOLVED")
    fields = {"effect_key": "sorry", "tool": "mail.apologise", "arguments": {"recipients": 412}}
    undoing = done(quiet.agent.post(f"/effects/{mail.id}/compensate", fields))
    quiet.agent.dispatch(undoing)
    assert "People are not asked" in olga.page(mail)  # its compensation is under way
    quiet.agent.acknowledge(undoing)
    assert now(mail).state == "compensated"


def test_abandon_supersedes_for_good(mail: Effect, olga: Resolver, quiet: Desk) -> None:
    olga.say(mail, "abandoned")
    assert (now(mail).state, now(mail).superseded_mark) == ("superseded", "")
    assert quiet.agent.plan("mail", tool="mail.send", arguments=ARGUMENTS)["answer"] == "done"
    late = {"attempt": 1, "outcome": "ok"}
    assert quiet.agent.post(f"/effects/{mail.id}/acknowledge", late).status_code == 202
    assert now(mail).state == "superseded"


@pytest.mark.parametrize(
    ("answer", "late", "breach"),
    [
        ("not_happened", ("acknowledge", {"attempt": 1, "outcome": "ok"}), "happened_after_all"),
        ("happened", ("fail", {"attempt": 1, "reason": "rejected"}), "rejected_after_all"),
    ],
)
def test_a_late_word_against_a_person_is_a_violation_that_shows(
    mail: Effect, olga: Resolver, quiet: Desk, answer: str, late: tuple[str, dict[str, object]], breach: str
) -> None:
    olga.say(mail, answer)
    assert quiet.agent.post(f"/effects/{mail.id}/{late[0]}", late[1]).status_code == 202
    row = now(mail)
    assert (row.state, row.outcome, row.violates) == ("acknowledged", "ok", True)
    assert [orjson.loads(one.facts)["violation"] for one in told(mail, "integrity.violation")] == [breach]
    page = olga.client.get(reverse("effect", args=[mail.id])).content.decode()
    assert "A person said that" in page


def test_that_it_does_not_know_either_is_no_word_against_a_person(mail: Effect, olga: Resolver, quiet: Desk) -> None:
    olga.say(mail, "not_happened")
    unknown = {"attempt": 1, "outcome": "unknown"}
    assert quiet.agent.post(f"/effects/{mail.id}/acknowledge", unknown).status_code == 202
    assert (now(mail).state, now(mail).violates) == ("failed", False)


def test_of_two_people_one_is_heard_and_the_other_sees_who_and_keeps_the_words(
    mail: Effect, olga: Resolver, quiet: Desk
) -> None:
    adam = Resolver(quiet, "administrator")
    looked = adam.seen(mail)
    olga.say(mail, "happened", reference="msg-77")
    answer = adam.begin(mail, "not_happened", "The log of the gateway is empty.", seen=looked)
    html = answer.content.decode()
    assert answer.status_code == 409
    for words in ("Your answer was not recorded.", "operator: it happened", "The log of the gateway is empty.",
                  "<td>acknowledged</td>", "People are not asked"):  # fmt: skip
        assert words in html, words
    assert len(told(mail)) == 1


def test_one_who_was_overtaken_while_confirming_is_told_so(mail: Effect, olga: Resolver, quiet: Desk) -> None:
    adam = Resolver(quiet, "administrator")
    adam.begin(mail, "abandoned", "Nobody will ever find out.")
    olga.say(mail, "happened")
    answer = adam.confirm(mail)
    assert answer.status_code == 409
    assert "Nobody will ever find out." in answer.content.decode()
    assert [orjson.loads(one.facts)["answer"] for one in told(mail)] == ["happened"]


def test_what_moved_meanwhile_is_shown_and_the_form_is_there_again(mail: Effect, olga: Resolver, quiet: Desk) -> None:
    looked = olga.seen(mail)
    quiet.agent.fail({"id": str(mail.id)}, "timeout")
    answer = olga.begin(mail, "abandoned", seen=looked)
    html = answer.content.decode()
    assert answer.status_code == 409
    assert "<td>dispatched</td><td>failed</td>" in html
    assert f">{KNOWN}</textarea>".replace("'", "&#x27;") in html
    assert olga.say(mail, "abandoned").status_code == 302


def test_reason_and_proof_are_asked(mail: Effect, olga: Resolver) -> None:
    assert olga.begin(mail, "happened", "because").status_code == 422
    assert olga.begin(mail, "perhaps").status_code == 422
    assert olga.begin(mail, "happened", reference="x\x1b[31m").status_code == 422
    assert olga.begin(mail, "happened", seen="forged").status_code == 409
    olga.begin(mail, "happened")
    assert b"not the code of the intent" in olga.confirm(mail, code="zzzz").content
    wrong = olga.confirm(mail, password="guess")
    assert (wrong.status_code, b"not your password" in wrong.content) == (422, True)
    assert told(mail) == []
    assert now(mail).version == mail.version
    assert olga.confirm(mail).status_code == 302


def test_what_can_be_undone_takes_no_password(quiet: Desk, olga: Resolver) -> None:
    quiet.declare("note.write", "reversible", "opaque")
    note = sent(quiet, "note", "note.write")
    olga.begin(note, "happened")
    html = olga.client.get(reverse("resolve_confirm", args=[note.id])).content.decode()
    assert 'name="password"' not in html
    assert 'name="code"' not in html
    assert olga.confirm(note).status_code == 302


def test_people_are_not_asked_what_is_known_or_under_way(quiet: Desk, olga: Resolver) -> None:
    quiet.declare("look", "read", "read_only")
    looking = sent(quiet, "look", "look", late=False)
    ok = sent(quiet, "ok")
    looked = olga.seen(ok)
    quiet.agent.acknowledge({"id": str(ok.id)})
    planned = quiet.effect(quiet.plan("later", tool="mail.send", arguments=ARGUMENTS))
    for effect, why in ((looking, "deadline has not passed"), (planned, "never dispatched"), (ok, "acknowledged")):
        html = olga.page(effect)
        assert "People are not asked" in html
        assert why in html
        answer = olga.begin(effect, "abandoned", seen=looked if effect == ok else "none")
        assert answer.status_code == 409
    assert not Entry.objects.filter(kind="effect.resolved").exists()


def test_whoever_answers_although_the_table_can_settle_it_must_insist(quiet: Desk, olga: Resolver) -> None:
    quiet.declare("look", "read", "read_only")
    looking = sent(quiet, "look", "look")
    assert "The table can settle this without people" in olga.page(looking)
    refused = olga.begin(looking, "abandoned")
    assert refused.status_code == 422
    assert "Tick that you answer all the same" in refused.content.decode()
    olga.say(looking, "abandoned", insists="1")
    assert orjson.loads(told(looking)[0].facts)["insists"] is True


def test_in_the_first_seconds_one_must_insist_too(quiet: Desk, olga: Resolver) -> None:
    young = sent(quiet, "young", late=False)
    assert olga.begin(young, "happened").status_code == 422
    assert olga.say(young, "happened", insists="1").status_code == 302


@pytest.mark.parametrize("role", ["viewer", "reviewer"])
def test_only_operators_are_asked(mail: Effect, quiet: Desk, olga: Resolver, role: str) -> None:
    looked, client = olga.seen(mail), quiet.house.client(role)
    assert client.get(url_of(mail)).status_code == 403
    fields = {"answer": "happened", "rationale": KNOWN, "seen": looked}
    assert client.post(url_of(mail), fields).status_code == 403
    assert reverse("resolve", args=[mail.id]) not in client.get(reverse("effect", args=[mail.id])).content.decode()
    assert told(mail) == []


def test_the_wall_stands_and_tokens_never_answer(mail: Effect, quiet: Desk, olga: Resolver) -> None:
    looked, neighbour = olga.seen(mail), quiet.house.client("neighbour")
    for url in (url_of(mail), reverse("resolve_confirm", args=[mail.id])):
        assert neighbour.get(url).status_code == 404
        assert neighbour.post(url, {"answer": "happened", "rationale": KNOWN, "seen": looked}).status_code == 404
        bearer = {"Authorization": f"Bearer {quiet.agent.token}"}
        assert Client().post(url, {"answer": "happened"}, headers=bearer).status_code == 302
        csrf = quiet.house.client("operator", csrf=True)
        assert csrf.post(url, {"answer": "happened", "rationale": KNOWN, "seen": looked}).status_code == 403
    adam = quiet.house.client("administrator")  # what one signed for themselves is nobody else's
    fields = {"answer": "happened", "rationale": KNOWN, "seen": looked}
    assert adam.post(url_of(mail), fields).status_code == 409
    said = {"kind": "effect.resolved", "id": "r-1", "session": "s-1", "effect_key": "mail", "answer": "abandoned"}
    assert quiet.agent.report([said]).status_code == 200
    assert (now(mail).resolution, now(mail).state) == ("", "dispatched")


def test_looking_changes_nothing_and_hostile_words_stay_words(quiet: Desk, olga: Resolver) -> None:
    hostile = "<img src=x onerror=pwned=1>\u202egpj"
    planned = quiet.plan("x", tool="mail" + hostile[:12], arguments={"to": hostile}, why=hostile)
    quiet.agent.dispatch(planned)
    effect = Effect.objects.get(id=planned["id"])
    Effect.objects.filter(id=effect.id).update(deadline_us=now_us() - 1)
    entries, version = Entry.objects.count(), effect.version
    html = olga.page(now(effect))
    assert "<img" not in html
    assert "\u202e" not in html
    assert (Entry.objects.count(), now(effect).version) == (entries, version)
    olga.say(now(effect), "happened", "I saw it: " + hostile, evidence=hostile + "\0")
    page = olga.client.get(reverse("effect", args=[effect.id])).content.decode()
    assert "<img" not in page
    assert re.search(r"I saw it: .{0,60}&lt;img", page)


@pytest.mark.parametrize(("answer", "reason"), [("happened", "happened"), ("abandoned", "superseded")])
def test_a_request_that_still_waits_ends_with_the_word(desk: Desk, answer: str, reason: str) -> None:
    """Rejected, it was said, and leave for another attempt asked for; then an earlier word: it timed out."""
    planned = desk.plan("push", arguments={"ref": "main"})
    desk.answer(desk.gate(planned), "carol")
    desk.agent.dispatch(planned)
    failed = {"kind": "effect.failed", "session": "s-1", "effect_key": "push"}
    desk.agent.report([{**failed, "id": "r-1", "reason": "rejected"}])
    assert desk.agent.plan("push", arguments={"ref": "main"})["answer"] == "wait"
    desk.agent.report([{**failed, "id": "r-2", "reason": "timeout", "producer_seq": 1}])
    assert desk.gate(planned).status == "pending"
    Resolver(desk).say(desk.effect(planned), answer, insists="1")
    gate, effect = desk.gate(planned), desk.effect(planned)
    assert (gate.status, gate.reason) == ("cancelled", reason)
    assert (effect.state, effect.leave) == (
        ("acknowledged", "used") if answer == "happened" else ("superseded", "held")
    )


def test_the_table_of_verdicts_is_a_page_for_everybody(mail: Effect, quiet: Desk) -> None:
    viewer = quiet.house.client("viewer")
    html = viewer.get(reverse("effect", args=[mail.id])).content.decode()
    [row] = re.findall(r'<a class="chip [a-z-]+" href="(/verdicts/#[^"]+)"><b>HUMAN</b> undecidable</a>', html)
    table = viewer.get(reverse("verdicts")).content.decode()
    assert f'id="{row.partition("#")[2]}"' in table
    assert re.findall(r'id="row-([0-9a-z]+)"', table)[:3] == ["0", "1", "2"]


def test_a_stop_keeps_nobody_from_saying_what_was(mail: Effect, olga: Resolver, quiet: Desk) -> None:
    with transaction.atomic():
        holds.put(quiet.project, "tool", "mail.send", "because", quiet.user("reviewer"))
    assert "WAIT</b> on hold" in olga.page(mail)
    assert olga.say(mail, "happened").status_code == 302


def test_while_a_worker_holds_the_lease_one_must_insist(quiet: Desk, olga: Resolver) -> None:
    held = quiet.agent.session("held", mode="leased")
    lease = done(quiet.agent.post("/leases", {"session": held["id"], "process": "p-1"}))
    planned = quiet.agent.plan("mail", held["id"], tool="mail.send", arguments=ARGUMENTS, lease_epoch=lease["epoch"])
    sending = {"process": "p-1", "intent_digest": planned["intent_digest"], "lease_epoch": lease["epoch"]}
    done(quiet.agent.post(f"/effects/{planned['id']}/dispatch", sending))
    Effect.objects.filter(id=planned["id"]).update(deadline_us=now_us() - 1)
    effect = Effect.objects.get(id=planned["id"])
    assert "A worker that is alive holds the lease" in olga.page(effect)
    assert olga.begin(effect, "happened").status_code == 422
    assert olga.say(effect, "happened", insists="1").status_code == 302


def test_that_a_compensation_happened_settles_what_it_compensates(quiet: Desk, olga: Resolver) -> None:
    mail = sent(quiet)
    quiet.agent.acknowledge({"id": str(mail.id)})
    fields = {"effect_key": "sorry", "tool": "mail.apologise", "arguments": {"recipients": 412}}
    undoing = done(quiet.agent.post(f"/effects/{mail.id}/compensate", fields))
    quiet.agent.dispatch(undoing)
    quiet.agent.fail(undoing, "timeout")
    olga.say(quiet.effect(undoing), "happened", reference="msg-78")
    assert (now(mail).state, quiet.effect(undoing).state) == ("compensated", "acknowledged")


def test_the_page_asks_few_questions_of_the_database_however_often_it_was_tried(
    quiet: Desk, olga: Resolver, mail: Effect
) -> None:
    olga.page(mail)  # the first page of a sign-in starts its clock
    with CaptureQueriesContext(connection) as few:
        olga.page(mail)
    facts = [
        {"id": f"p-{n}", "kind": "effect.failed", "session": "s-1", "effect_key": "mail", "reason": "timeout"}
        for n in range(60)
    ]
    assert quiet.agent.report(facts).status_code == 200
    with CaptureQueriesContext(connection) as many:
        olga.page(mail)
    assert len(many) == len(few) <= 18


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("happened", "it happened. Skip it"),
        ("not_happened", "it did not happen. Plan it again"),
        ("compensate", "Whether or not it happened: plan what undoes it"),
        ("abandoned", "Neither do it again nor undo it."),
    ],
)
def test_the_agent_is_told_by_a_message(mail: Effect, olga: Resolver, quiet: Desk, answer: str, told: str) -> None:
    olga.say(mail, answer)
    [message] = quiet.agent.get("/messages", unread=1, box="mine").json()["items"]
    assert (message["subject"].split(":")[0], message["session"]) == (str(mail), str(mail.session_id))
    assert told in message["body"]
    assert str(mail.id) in message["body"]
    assert KNOWN not in message["body"]


def test_words_that_were_erased_are_gone_and_the_answer_stays(mail: Effect, olga: Resolver, quiet: Desk) -> None:
    olga.say(mail, "happened", reference="msg-77")
    [entry] = told(mail)
    with transaction.atomic():
        erasures.erase(quiet.project.id, entry.position, reason="ticket 88", actor="tests", now_us=now_us())
    page = olga.client.get(reverse("effect", args=[mail.id])).content.decode()
    assert "operator: it happened" in page
    assert "Their words were erased." in page
    assert KNOWN not in page
