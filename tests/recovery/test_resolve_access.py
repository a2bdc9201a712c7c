"""Who is asked what became of an effect, when, and what an answer takes; what the page costs, and
what is erased."""

import re

import orjson
import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from db.clock import now_us
from journal import erasures
from journal.models import Entry
from ledger import stops
from ledger.models import Effect
from ledger.tools import cache
from tests.approvals.inbox_scenario import Desk
from tests.pages.sample_data import done
from tests.recovery.resolver import ARGUMENTS, KNOWN, Resolver, mail, now, olga, sent, told, url_of

__all__ = ["mail", "olga"]


def test_reason_and_proof_are_asked(mail: Effect, olga: Resolver) -> None:
    assert olga.begin(mail, "happened", "because").status_code == 422
    assert olga.begin(mail, "perhaps").status_code == 422
    assert olga.begin(mail, "happened", reference="x\x1b[31m").status_code == 422
    assert olga.begin(mail, "happened", seen="forged").status_code == 409
    olga.begin(mail, "happened")
    assert "code does not match" in olga.confirm(mail, code="zzzz").content.decode()
    wrong = olga.confirm(mail, password="guess")
    assert (wrong.status_code, b"Wrong password" in wrong.content) == (422, True)
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
    for effect, why in (
        (looking, "deadline has not passed"),
        (planned, "never dispatched"),
        (ok, "acknowledged"),
    ):
        html = olga.page(effect)
        assert "No answer needed." in html
        assert why in html
        answer = olga.begin(effect, "abandoned", seen=looked if effect == ok else "none")
        assert answer.status_code == 409
    assert not Entry.objects.filter(kind="effect.resolved").exists()


def test_whoever_answers_although_the_table_can_settle_it_must_insist(
    quiet: Desk, olga: Resolver
) -> None:
    quiet.declare("look", "read", "read_only")
    looking = sent(quiet, "look", "look")
    assert "The verdict table can settle this without a person" in olga.page(looking)
    refused = olga.begin(looking, "abandoned")
    assert refused.status_code == 422
    assert "Tick “Record my answer anyway”" in refused.content.decode()
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
    assert (
        reverse("resolve", args=[mail.id])
        not in client.get(reverse("effect", args=[mail.id])).content.decode()
    )
    assert told(mail) == []


def test_projects_are_isolated_and_tokens_never_answer(
    mail: Effect, quiet: Desk, olga: Resolver
) -> None:
    looked, neighbour = olga.seen(mail), quiet.house.client("neighbour")
    for url in (url_of(mail), reverse("resolve_confirm", args=[mail.id])):
        assert neighbour.get(url).status_code == 404
        assert (
            neighbour.post(
                url, {"answer": "happened", "rationale": KNOWN, "seen": looked}
            ).status_code
            == 404
        )
        bearer = {"Authorization": f"Bearer {quiet.agent.token}"}
        assert Client().post(url, {"answer": "happened"}, headers=bearer).status_code == 302
        csrf = quiet.house.client("operator", csrf=True)
        assert (
            csrf.post(url, {"answer": "happened", "rationale": KNOWN, "seen": looked}).status_code
            == 403
        )
    adam = quiet.house.client("administrator")  # what one signed for themselves is nobody else's
    fields = {"answer": "happened", "rationale": KNOWN, "seen": looked}
    assert adam.post(url_of(mail), fields).status_code == 409
    said = {
        "kind": "effect.resolved",
        "id": "r-1",
        "session": "s-1",
        "effect_key": "mail",
        "answer": "abandoned",
    }
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


def test_the_table_of_verdicts_is_a_page_for_everybody(mail: Effect, quiet: Desk) -> None:
    viewer = quiet.house.client("viewer")
    html = viewer.get(reverse("effect", args=[mail.id])).content.decode()
    [row] = re.findall(
        r'<a class="chip [a-z-]+" href="(/verdicts/#[^"]+)"><b>NEEDS A PERSON</b> undecidable</a>',
        html,
    )
    table = viewer.get(reverse("verdicts")).content.decode()
    assert f'id="{row.partition("#")[2]}"' in table
    assert re.findall(r'id="row-([0-9a-z]+)"', table)[:3] == ["0", "1", "2"]


def test_a_stop_keeps_nobody_from_saying_what_was(
    mail: Effect, olga: Resolver, quiet: Desk
) -> None:
    with transaction.atomic():
        stops.set_stop(quiet.project, "tool", "mail.send", "because", quiet.user("reviewer"))
    assert "WAIT</b> stopped" in olga.page(mail)
    assert olga.say(mail, "happened").status_code == 302


def test_while_a_worker_holds_the_lease_one_must_insist(quiet: Desk, olga: Resolver) -> None:
    held = quiet.agent.session("held", mode="leased")
    lease = done(quiet.agent.post("/leases", {"session": held["id"], "process": "p-1"}))
    planned = quiet.agent.plan(
        "mail", held["id"], tool="mail.send", arguments=ARGUMENTS, lease_epoch=lease["epoch"]
    )
    sending = {
        "process": "p-1",
        "intent_digest": planned["intent_digest"],
        "lease_epoch": lease["epoch"],
    }
    done(quiet.agent.post(f"/effects/{planned['id']}/dispatch", sending))
    Effect.objects.filter(id=planned["id"]).update(deadline_us=now_us() - 1)
    effect = Effect.objects.get(id=planned["id"])
    assert "A live worker holds the lease" in olga.page(effect)
    assert olga.begin(effect, "happened").status_code == 422
    assert olga.say(effect, "happened", insists="1").status_code == 302


def test_the_page_asks_few_questions_of_the_database_however_often_it_was_tried(
    quiet: Desk, olga: Resolver, mail: Effect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cache, "CACHE_S", 3600
    )  # of seconds a busy machine takes as many between two pages
    olga.page(mail)  # the first page of a sign-in starts its clock
    with CaptureQueriesContext(connection) as few:
        olga.page(mail)
    facts = [
        {
            "id": f"p-{n}",
            "kind": "effect.failed",
            "session": "s-1",
            "effect_key": "mail",
            "reason": "timeout",
        }
        for n in range(60)
    ]
    assert quiet.agent.report(facts).status_code == 200
    with CaptureQueriesContext(connection) as many:
        olga.page(mail)
    assert len(many) == len(few) <= 18


def test_words_that_were_erased_are_gone_and_the_answer_stays(
    mail: Effect, olga: Resolver, quiet: Desk
) -> None:
    olga.say(mail, "happened", reference="msg-77")
    [entry] = told(mail)
    with transaction.atomic():
        erasures.erase_body(
            quiet.project.id, entry.position, reason="ticket 88", actor="tests", now_us=now_us()
        )
    page = olga.client.get(reverse("effect", args=[mail.id])).content.decode()
    assert "operator: it happened" in page
    assert "The text was erased." in page
    assert KNOWN not in page
