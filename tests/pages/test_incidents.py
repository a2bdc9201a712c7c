"""Incidents through the doors of people: opened, filled, changed, written in; then the rows and the
journal."""

import re
from typing import Any

import orjson
import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse

from accounts import people
from db.clock import now_us
from investigation.incidents import incidents
from investigation.models import Incident, IncidentEntry, IncidentMember
from journal import erasures
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Session
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import Desk
from tests.pages.people import House
from tests.pages.sample_data import REFERENCE, Book, fill

pytestmark = pytest.mark.django_db


def opened(house: House, title: str = "A push that nobody approved", **fields: str) -> Incident:
    answer = house.client("reviewer").post(reverse("open_incident"), {"title": title, **fields})
    assert answer.status_code == 302, answer.text
    return Incident.objects.latest("opened_position")


def url(name: str, incident: Incident, *more: Any) -> str:
    return reverse(name, args=[incident.id, *more])


def text(client: Client, incident: Incident, **query: str) -> str:
    answer = client.get(url("incident", incident), query)
    assert answer.status_code == 200
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text.partition("<main")[2]).split())


def present(incident: Incident) -> list[tuple[str, int]]:
    rows = IncidentMember.objects.filter(incident=incident, removed_position__isnull=True)
    return list(rows.order_by("added_position").values_list("kind", "number"))


def told(incident: Incident) -> list[str]:
    at = IncidentEntry.objects.filter(incident=incident).values("position")
    return list(
        Entry.objects.filter(position__in=at).order_by("position").values_list("kind", flat=True)
    )


def test_an_incident_is_opened_from_a_session_and_filled_by_whatever_names_a_thing(
    house: House, agent: Caller, book: Book
) -> None:
    desk = Desk(house, agent)
    desk.rules()
    gate = desk.gate(
        agent.plan("held", str(book.session), tool="git.push", arguments={"ref": "main"})
    )
    reviewer = house.client("reviewer")
    session = Session.objects.get(id=book.session)
    page = reviewer.get(reverse("session", args=[session.id])).text
    assert f"{reverse('add_to_incident')}?thing={session}" in page
    assert (
        reverse("open_incident")
        in reviewer.get(reverse("add_to_incident"), {"thing": str(session)}).text
    )
    incident = opened(house, thing=str(session), reason="it pushed", key="k-1")
    assert (
        opened(house, thing=str(session), reason="it pushed", key="k-1") == incident
    )  # the form was sent twice
    ok, sent = (Effect.objects.get(id=book.effects[name]) for name in ("ok", "dispatched"))
    fact = Entry.objects.filter(effect=sent.id).order_by("position")[0].position
    named = {
        REFERENCE: ("effect", ok.opened_position),
        f"http://x/effects/{sent.id}/": ("effect", sent.opened_position),
        f"http://x/effects/{sent.id}/?fact={fact}#p{fact}": ("entry", fact),
        str(gate): ("gate", gate.opened_position),
        str(book.child): ("session", Session.objects.get(id=book.child).opened_position),
    }
    for thing in named:
        answer = reviewer.post(
            url("add_to_this_incident", incident), {"thing": thing, "reason": "belongs here"}
        )
        assert answer.status_code == 302, (thing, answer.text)
    assert present(incident) == [("session", session.opened_position), *named.values()]
    reviewer.post(
        url("add_to_this_incident", incident), {"thing": str(gate), "reason": "once more"}
    )  # there already
    assert told(incident) == ["incident.opened", *["incident.joined"] * 6]
    for wrong, status in (("e_999999", 422), ("", 422), ("#99999999", 422), ("nobody's", 422)):
        answer = reviewer.post(
            url("add_to_this_incident", incident), {"thing": wrong, "reason": "why not"}
        )
        is_named = "Not found in this project" in answer.text or "No journal entry" in answer.text
        assert (answer.status_code, is_named) == (status, True)
    assert (
        reviewer.post(
            url("add_to_this_incident", incident), {"thing": str(ok), "reason": " "}
        ).status_code
        == 422
    )
    # both ways
    assert url("incident", incident) in reviewer.get(reverse("session", args=[session.id])).text
    assert url("incident", incident) in reviewer.get(reverse("effect", args=[ok.id])).text
    assert reviewer.get("/go/", {"id": str(incident)}).headers["Location"] == url(
        "incident", incident
    )
    # one is taken out, with a reason, and stays in the history
    member = IncidentMember.objects.get(incident=incident, kind="gate")
    remove = url("remove_member_of_incident", incident, member.id)
    assert reviewer.post(remove, {"reason": ""}).status_code == 422
    assert reviewer.post(remove, {"reason": "another matter"}).status_code == 302
    assert reviewer.get(remove).status_code == 404
    assert ("gate", gate.opened_position) not in present(incident)
    assert f"removed {gate}" in text(reviewer, incident)
    assert "another matter" in text(reviewer, incident)
    assert (
        reviewer.post(
            url("add_to_this_incident", incident), {"thing": str(gate), "reason": "after all"}
        ).status_code
        == 302
    )
    assert IncidentMember.objects.filter(incident=incident, kind="gate").count() == 2


def test_the_timeline_holds_the_effects_of_all_members_in_four_views(
    house: House, agent: Caller, book: Book
) -> None:
    other = agent.session("elsewhere")
    agent.plan("lone", "elsewhere", tool="mail.send", arguments={"to": "<b>all</b>"})
    agent.plan("not in it", "elsewhere", tool="mail.read", arguments={})
    lone = Effect.objects.get(effect_key="lone")
    incident = opened(
        house, thing=str(Session.objects.get(id=book.session)), reason="where it began"
    )
    viewer = house.client("viewer")
    house.client("operator").post(
        url("add_to_this_incident", incident), {"thing": str(lone), "reason": "then this"}
    )
    found = viewer.get(url("incident", incident), {"view": "json"}).json()
    inside = {str(one) for one in Effect.objects.filter(session=book.session)}
    assert {one["effect"] for one in found["effects"]} == inside | {str(lone)}
    assert {one["session"] for one in found["effects"]} == {str(book.session), other["id"]}
    assert [one["name"] for one in found["members"]] == [
        str(Session.objects.get(id=book.session)),
        str(lone),
    ]
    assert all(
        fact["corrected_us"] is None or fact["agent_us"]
        for one in found["effects"]
        for fact in one["facts"]
    )
    for view in ("lanes", "compact", "table"):
        page = viewer.get(url("incident", incident), {"view": view}).text
        assert reverse("effect", args=[lone.id]) in page
        assert "mail.read" not in page
        assert "<b>all</b>" not in page
        assert ('<svg class="lanes"' in page) == (view == "lanes")
    assert (
        "mail.send"
        not in text(viewer, incident, view="table", tool="git.push").partition("Timeline")[2]
    )


def test_who_changes_what_another_changed_meanwhile_is_told_what_stands(house: House) -> None:
    incident = opened(house)
    rita, oscar = house.client("reviewer"), house.client("operator")
    typed = {
        "title": "A push that nobody approved",
        "version": "1",
        "owner": "operator",
        "reason": "mine to look at",
    }
    assert (
        oscar.post(url("change_incident", incident), {**typed, "state": "contained"}).status_code
        == 302
    )
    late = rita.post(
        url("change_incident", incident),
        {**typed, "state": "closed", "reason": "nothing <b>to</b> it"},
    )
    assert late.status_code == 409
    assert "State contained, owner operator" in late.text
    assert "nothing &lt;b&gt;to&lt;/b&gt; it</textarea>" in late.text  # what was typed is kept
    assert 'name="version" value="2"' in late.text
    row = Incident.objects.get(id=incident.id)
    assert (row.state, row.owner, row.version, row.closed_at_us) == (
        "contained",
        house.members["operator"].user,
        2,
        None,
    )
    again = {**typed, "version": "2", "state": "closed", "owner": "", "title": "A push"}
    assert (
        rita.post(url("change_incident", incident), {**again, "state": "gone"}).status_code == 422
    )
    assert (
        rita.post(url("change_incident", incident), {**again, "owner": "viewer"}).status_code == 422
    )
    assert rita.post(url("change_incident", incident), {**again, "reason": ""}).status_code == 422
    assert rita.post(url("change_incident", incident), again).status_code == 302
    row = Incident.objects.get(id=incident.id)
    assert (row.state, row.owner, row.version, row.closed_at_us is None) == (
        "closed",
        None,
        3,
        False,
    )
    assert (
        rita.post(url("change_incident", incident), {**again, "version": "3"}).status_code == 302
    )  # nothing differs
    assert told(incident) == ["incident.opened", "incident.changed", "incident.changed"]
    changes = [
        orjson.loads(one.facts)
        for one in Entry.objects.filter(kind="incident.changed").order_by("position")
    ]
    operator = people.ensure_pseudonym(house.members["operator"].user)
    assert [(one.get("state"), one.get("owner", "-"), one["titled"]) for one in changes] == [
        ("contained", operator, False),
        ("closed", None, True),
    ]
    assert "A push" in text(rita, incident)
    assert not any(
        "push" in one.facts for one in Entry.objects.filter(kind__startswith="incident.")
    )
    listed = rita.get(reverse("incidents"), {"state": "closed"}).text
    assert url("incident", incident) in listed
    assert url("incident", incident) not in rita.get(reverse("incidents"), {"state": "open"}).text


def test_words_can_be_erased_and_that_they_were_said_cannot(house: House) -> None:
    incident = opened(house)
    rita = house.client("reviewer")
    for _ in range(2):  # the form was sent twice
        assert (
            rita.post(
                url("note_incident", incident), {"text": "Ann's\nlaptop <img>", "key": "k"}
            ).status_code
            == 302
        )
    assert told(incident) == ["incident.opened", "incident.noted"]
    assert "&lt;img&gt;" in rita.get(url("incident", incident)).text
    assert rita.post(url("note_incident", incident), {"text": " "}).status_code == 422
    long = "x" * (incidents.MAX_NOTE + 1)
    assert rita.post(url("note_incident", incident), {"text": long}).status_code == 422
    with transaction.atomic():
        for position in IncidentEntry.objects.filter(incident=incident).values_list(
            "position", flat=True
        ):
            erasures.erase_body(
                house.project.id, position, reason="ticket 88", actor="tests", now_us=now_us()
            )
    for page in (text(rita, incident), " ".join(rita.get(reverse("incidents")).text.split())):
        assert "laptop" not in page
        assert "nobody approved" not in page
        assert "title erased" in page
    assert text(rita, incident).count("Text erased.") == 2
    assert rita.get(url("incident", incident), {"view": "json"}).json()["title"] is None


def test_who_may_only_read_changes_nothing_and_neighbours_see_nothing(
    house: House, agent: Caller, book: Book
) -> None:
    incident = opened(house, thing=str(Session.objects.get(id=book.session)), reason="because")
    member = IncidentMember.objects.get()
    doors = {
        reverse("open_incident"): {"title": "mine"},
        reverse("add_to_incident"): {
            "incident": str(incident.id),
            "thing": "s_1",
            "reason": "mine",
        },
        url("note_incident", incident): {"text": "mine"},
        url("add_to_this_incident", incident): {"thing": "s_1", "reason": "mine"},
        url("change_incident", incident): {
            "title": "mine",
            "state": "closed",
            "version": "1",
            "reason": "mine",
        },
        url("remove_member_of_incident", incident, member.id): {"reason": "mine"},
    }
    viewer, neighbour = house.client("viewer"), house.client("neighbour")
    entries = Entry.objects.count()
    for door, sent in doors.items():
        assert viewer.post(door, sent).status_code == 403, door
        assert Client().post(door, sent).status_code == 302, door
        if door != reverse("open_incident"):
            assert neighbour.post(door, sent).status_code == 404, door
    assert Entry.objects.count() == entries
    assert "<textarea" not in viewer.get(url("incident", incident)).text
    assert neighbour.get(url("incident", incident)).status_code == 404
    assert str(incident) not in neighbour.get(reverse("incidents")).text
    assert "nowhere" not in neighbour.get("/go/", {"id": str(incident)}).headers
    # what is theirs cannot be added here, by any name
    from tests.pages.sample_data import doors as at_the_doors

    with at_the_doors(house.other_token.agent) as stranger:
        theirs = fill(stranger)
    foreign = Effect.objects.get(id=theirs.effects["ok"])
    names = [
        str(foreign),
        str(foreign.id),
        f"/effects/{foreign.id}/",
        f"#{foreign.plan_position}",
        str(theirs.session),
    ]
    for name in names:
        sent = {"thing": name, "reason": "theirs"}
        assert (
            house.client("reviewer").post(url("add_to_this_incident", incident), sent).status_code
            == 422
        ), name
    assert present(incident) == [("session", Session.objects.get(id=book.session).opened_position)]
