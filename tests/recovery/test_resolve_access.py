"""Who may resolve an effect, when, and with which proof; the cost of the page, and erasure."""

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
from tests.approvals.inbox_scenario import InboxScenario
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
    url_of,
)

__all__ = ["mail", "olga"]


def test_a_resolution_needs_a_rationale_a_code_and_a_password(mail: Effect, olga: Resolver) -> None:
    assert olga.begin(mail, "happened", "because").status_code == 422
    assert olga.begin(mail, "perhaps").status_code == 422
    assert olga.begin(mail, "happened", reference="x\x1b[31m").status_code == 422
    assert olga.begin(mail, "happened", seen="forged").status_code == 409
    olga.begin(mail, "happened")
    assert "code does not match" in olga.confirm(mail, code="zzzz").content.decode()
    wrong = olga.confirm(mail, password="guess")
    assert (wrong.status_code, b"Wrong password" in wrong.content) == (422, True)
    assert entries_of(mail) == []
    assert reload(mail).version == mail.version
    assert olga.confirm(mail).status_code == 302


def test_a_reversible_effect_is_resolved_without_a_password(
    quiet: InboxScenario, olga: Resolver
) -> None:
    quiet.declare("note.write", "reversible", "opaque")
    note = send_mail(quiet, "note", "note.write")
    olga.begin(note, "happened")
    html = olga.client.get(reverse("resolve_confirm", args=[note.id])).content.decode()
    assert 'name="password"' not in html
    assert 'name="code"' not in html
    assert olga.confirm(note).status_code == 302


def test_an_effect_that_is_settled_or_in_flight_needs_no_resolution(
    quiet: InboxScenario, olga: Resolver
) -> None:
    quiet.declare("look", "read", "read_only")
    read_effect = send_mail(quiet, "look", "look", late=False)
    ok = send_mail(quiet, "ok")
    shown_token = olga.seen(ok)
    quiet.agent.acknowledge({"id": str(ok.id)})
    planned = quiet.effect(quiet.plan("later", tool="mail.send", arguments=ARGUMENTS))
    for effect, why in (
        (read_effect, "deadline has not passed"),
        (planned, "never dispatched"),
        (ok, "acknowledged"),
    ):
        html = olga.page(effect)
        assert "No answer needed." in html
        assert why in html
        answer = olga.begin(effect, "abandoned", seen=shown_token if effect == ok else "none")
        assert answer.status_code == 409
    assert not Entry.objects.filter(kind="effect.resolved").exists()


def test_a_resolution_must_insist_if_the_table_can_settle_the_effect(
    quiet: InboxScenario, olga: Resolver
) -> None:
    quiet.declare("look", "read", "read_only")
    read_effect = send_mail(quiet, "look", "look")
    assert "The verdict table can settle this without a person" in olga.page(read_effect)
    refused = olga.begin(read_effect, "abandoned")
    assert refused.status_code == 422
    assert "Tick “Record my answer anyway”" in refused.content.decode()
    olga.resolve(read_effect, "abandoned", insists="1")
    assert orjson.loads(entries_of(read_effect)[0].facts)["insists"] is True


def test_a_resolution_before_the_deadline_must_insist(quiet: InboxScenario, olga: Resolver) -> None:
    young = send_mail(quiet, "young", late=False)
    assert olga.begin(young, "happened").status_code == 422
    assert olga.resolve(young, "happened", insists="1").status_code == 302


@pytest.mark.parametrize("role", ["viewer", "reviewer"])
def test_only_operators_may_resolve(
    mail: Effect, quiet: InboxScenario, olga: Resolver, role: str
) -> None:
    shown_token, client = olga.seen(mail), quiet.organization.client(role)
    assert client.get(url_of(mail)).status_code == 403
    fields = {"answer": "happened", "rationale": RATIONALE, "seen": shown_token}
    assert client.post(url_of(mail), fields).status_code == 403
    assert (
        reverse("resolve", args=[mail.id])
        not in client.get(reverse("effect", args=[mail.id])).content.decode()
    )
    assert entries_of(mail) == []


def test_projects_are_isolated_and_tokens_never_answer(
    mail: Effect, quiet: InboxScenario, olga: Resolver
) -> None:
    shown_token, neighbour = olga.seen(mail), quiet.organization.client("neighbour")
    for url in (url_of(mail), reverse("resolve_confirm", args=[mail.id])):
        assert neighbour.get(url).status_code == 404
        assert (
            neighbour.post(
                url, {"answer": "happened", "rationale": RATIONALE, "seen": shown_token}
            ).status_code
            == 404
        )
        bearer = {"Authorization": f"Bearer {quiet.agent.token}"}
        assert Client().post(url, {"answer": "happened"}, headers=bearer).status_code == 302
        csrf = quiet.organization.client("operator", csrf=True)
        assert (
            csrf.post(
                url, {"answer": "happened", "rationale": RATIONALE, "seen": shown_token}
            ).status_code
            == 403
        )
    adam = quiet.organization.client("administrator")  # a form is signed for one person
    fields = {"answer": "happened", "rationale": RATIONALE, "seen": shown_token}
    assert adam.post(url_of(mail), fields).status_code == 409
    report = {
        "kind": "effect.resolved",
        "id": "r-1",
        "session": "s-1",
        "effect_key": "mail",
        "answer": "abandoned",
    }
    assert quiet.agent.report([report]).status_code == 200
    assert (reload(mail).resolution, reload(mail).state) == ("", "dispatched")


def test_reading_the_page_changes_nothing_and_hostile_text_is_escaped(
    quiet: InboxScenario, olga: Resolver
) -> None:
    hostile = "<img src=x onerror=pwned=1>\u202egpj"
    planned = quiet.plan("x", tool="mail" + hostile[:12], arguments={"to": hostile}, why=hostile)
    quiet.agent.dispatch(planned)
    effect = Effect.objects.get(id=planned["id"])
    Effect.objects.filter(id=effect.id).update(deadline_us=now_us() - 1)
    entries, version = Entry.objects.count(), effect.version
    html = olga.page(reload(effect))
    assert "<img" not in html
    assert "\u202e" not in html
    assert (Entry.objects.count(), reload(effect).version) == (entries, version)
    olga.resolve(reload(effect), "happened", "I saw it: " + hostile, evidence=hostile + "\0")
    page = olga.client.get(reverse("effect", args=[effect.id])).content.decode()
    assert "<img" not in page
    assert re.search(r"I saw it: .{0,60}&lt;img", page)


def test_the_verdict_table_is_a_page_for_all_roles(mail: Effect, quiet: InboxScenario) -> None:
    viewer = quiet.organization.client("viewer")
    html = viewer.get(reverse("effect", args=[mail.id])).content.decode()
    [row] = re.findall(
        r'<a class="chip [a-z-]+" href="(/verdicts/#[^"]+)"><b>NEEDS A PERSON</b> undecidable</a>',
        html,
    )
    table = viewer.get(reverse("verdicts")).content.decode()
    assert f'id="{row.partition("#")[2]}"' in table
    assert re.findall(r'id="row-([0-9a-z]+)"', table)[:3] == ["0", "1", "2"]


def test_a_stopped_effect_can_be_resolved(
    mail: Effect, olga: Resolver, quiet: InboxScenario
) -> None:
    with transaction.atomic():
        stops.set_stop(quiet.project, "tool", "mail.send", "because", quiet.user("reviewer"))
    assert "WAIT</b> stopped" in olga.page(mail)
    assert olga.resolve(mail, "happened").status_code == 302


def test_a_resolution_must_insist_while_a_worker_holds_the_lease(
    quiet: InboxScenario, olga: Resolver
) -> None:
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
    assert olga.resolve(effect, "happened", insists="1").status_code == 302


def test_the_page_costs_the_same_queries_after_many_attempts(
    quiet: InboxScenario, olga: Resolver, mail: Effect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "CACHE_S", 3600)  # a slow machine may need seconds between two pages
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


def test_an_erased_rationale_is_gone_and_the_answer_stays(
    mail: Effect, olga: Resolver, quiet: InboxScenario
) -> None:
    olga.resolve(mail, "happened", reference="msg-77")
    [entry] = entries_of(mail)
    with transaction.atomic():
        erasures.erase_body(
            quiet.project.id, entry.position, reason="ticket 88", actor="tests", now_us=now_us()
        )
    page = olga.client.get(reverse("effect", args=[mail.id])).content.decode()
    assert "operator: it happened" in page
    assert "The text was erased." in page
    assert RATIONALE not in page
