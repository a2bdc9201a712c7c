"""Incidents through the pages: open, fill, change and annotate; then rows and journal."""

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
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import Organization
from tests.pages.sample_data import REFERENCE, SampleIds, fill

pytestmark = pytest.mark.django_db


def open_sample_incident(
    organization: Organization, title: str = "A push that nobody approved", **fields: str
) -> Incident:
    answer = organization.client("reviewer").post(
        reverse("open_incident"), {"title": title, **fields}
    )
    assert answer.status_code == 302, answer.text
    return Incident.objects.latest("opened_position")


def url(name: str, incident: Incident, *more: Any) -> str:
    return reverse(name, args=[incident.id, *more])


def text(client: Client, incident: Incident, **query: str) -> str:
    answer = client.get(url("incident", incident), query)
    assert answer.status_code == 200
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text.partition("<main")[2]).split())


def current_members(incident: Incident) -> list[tuple[str, int]]:
    rows = IncidentMember.objects.filter(incident=incident, removed_position__isnull=True)
    return list(rows.order_by("added_position").values_list("kind", "number"))


def recorded_kinds(incident: Incident) -> list[str]:
    at = IncidentEntry.objects.filter(incident=incident).values("position")
    return list(
        Entry.objects.filter(position__in=at).order_by("position").values_list("kind", flat=True)
    )


def test_an_incident_is_opened_from_a_session_and_accepts_any_reference(
    organization: Organization, agent: Caller, sample: SampleIds
) -> None:
    inbox = InboxScenario(organization, agent)
    inbox.rules()
    gate = inbox.gate(
        agent.plan("held", str(sample.session), tool="git.push", arguments={"ref": "main"})
    )
    reviewer = organization.client("reviewer")
    session = Session.objects.get(id=sample.session)
    page = reviewer.get(reverse("session", args=[session.id])).text
    assert f"{reverse('add_to_incident')}?thing={session}" in page
    assert (
        reverse("open_incident")
        in reviewer.get(reverse("add_to_incident"), {"thing": str(session)}).text
    )
    incident = open_sample_incident(organization, thing=str(session), reason="it pushed", key="k-1")
    assert (
        open_sample_incident(organization, thing=str(session), reason="it pushed", key="k-1")
        == incident
    )  # the form was sent twice
    ok, sent = (Effect.objects.get(id=sample.effects[name]) for name in ("ok", "dispatched"))
    fact = Entry.objects.filter(effect=sent.id).order_by("position")[0].position
    named = {
        REFERENCE: ("effect", ok.opened_position),
        f"http://x/effects/{sent.id}/": ("effect", sent.opened_position),
        f"http://x/effects/{sent.id}/?fact={fact}#p{fact}": ("entry", fact),
        str(gate): ("gate", gate.opened_position),
        str(sample.child): ("session", Session.objects.get(id=sample.child).opened_position),
    }
    for thing in named:
        answer = reviewer.post(
            url("add_to_this_incident", incident), {"thing": thing, "reason": "belongs here"}
        )
        assert answer.status_code == 302, (thing, answer.text)
    assert current_members(incident) == [("session", session.opened_position), *named.values()]
    reviewer.post(
        url("add_to_this_incident", incident), {"thing": str(gate), "reason": "once more"}
    )  # already a member
    assert recorded_kinds(incident) == ["incident.opened", *["incident.joined"] * 6]
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
    # in both directions
    assert url("incident", incident) in reviewer.get(reverse("session", args=[session.id])).text
    assert url("incident", incident) in reviewer.get(reverse("effect", args=[ok.id])).text
    assert reviewer.get("/search/jump/", {"id": str(incident)}).headers["Location"] == url(
        "incident", incident
    )
    # a removed member stays in the history with its reason
    member = IncidentMember.objects.get(incident=incident, kind="gate")
    remove = url("remove_member_of_incident", incident, member.id)
    assert reviewer.post(remove, {"reason": ""}).status_code == 422
    assert reviewer.post(remove, {"reason": "another matter"}).status_code == 302
    assert reviewer.get(remove).status_code == 404
    assert ("gate", gate.opened_position) not in current_members(incident)
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
    organization: Organization, agent: Caller, sample: SampleIds
) -> None:
    other = agent.session("elsewhere")
    agent.plan("lone", "elsewhere", tool="mail.send", arguments={"to": "<b>all</b>"})
    agent.plan("not in it", "elsewhere", tool="mail.read", arguments={})
    effect = Effect.objects.get(effect_key="lone")
    incident = open_sample_incident(
        organization, thing=str(Session.objects.get(id=sample.session)), reason="where it began"
    )
    viewer = organization.client("viewer")
    organization.client("operator").post(
        url("add_to_this_incident", incident), {"thing": str(effect), "reason": "then this"}
    )
    answer = viewer.get(url("incident", incident), {"view": "json"}).json()
    inside = {str(row) for row in Effect.objects.filter(session=sample.session)}
    assert {row["effect"] for row in answer["effects"]} == inside | {str(effect)}
    assert {row["session"] for row in answer["effects"]} == {str(sample.session), other["id"]}
    assert [row["name"] for row in answer["members"]] == [
        str(Session.objects.get(id=sample.session)),
        str(effect),
    ]
    assert all(
        fact["corrected_us"] is None or fact["agent_us"]
        for row in answer["effects"]
        for fact in row["facts"]
    )
    for view in ("lanes", "compact", "table"):
        page = viewer.get(url("incident", incident), {"view": view}).text
        assert reverse("effect", args=[effect.id]) in page
        assert "mail.read" not in page
        assert "<b>all</b>" not in page
        assert ('<svg class="lanes ' in page) == (view == "lanes")
    assert (
        "mail.send"
        not in text(viewer, incident, view="table", tool="git.push").partition("Timeline")[2]
    )


def test_a_conflicting_change_is_refused_and_shows_the_current_values(
    organization: Organization,
) -> None:
    incident = open_sample_incident(organization)
    rita, oscar = organization.client("reviewer"), organization.client("operator")
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
    assert "nothing &lt;b&gt;to&lt;/b&gt; it</textarea>" in late.text  # the typed text is kept
    assert 'name="version" value="2"' in late.text
    row = Incident.objects.get(id=incident.id)
    assert (row.state, row.owner, row.version, row.closed_at_us) == (
        "contained",
        organization.members["operator"].user,
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
    )  # no change
    assert recorded_kinds(incident) == ["incident.opened", "incident.changed", "incident.changed"]
    changes = [
        orjson.loads(entry.facts)
        for entry in Entry.objects.filter(kind="incident.changed").order_by("position")
    ]
    operator = people.ensure_pseudonym(organization.members["operator"].user)
    assert [
        (entry.get("state"), entry.get("owner", "-"), entry["titled"]) for entry in changes
    ] == [
        ("contained", operator, False),
        ("closed", None, True),
    ]
    assert "A push" in text(rita, incident)
    assert not any(
        "push" in entry.facts for entry in Entry.objects.filter(kind__startswith="incident.")
    )
    listed = rita.get(reverse("incidents"), {"state": "closed"}).text
    assert url("incident", incident) in listed
    assert url("incident", incident) not in rita.get(reverse("incidents"), {"state": "open"}).text


def test_a_note_can_be_erased_but_its_record_stays(organization: Organization) -> None:
    incident = open_sample_incident(organization)
    rita = organization.client("reviewer")
    for _ in range(2):  # the form was sent twice
        assert (
            rita.post(
                url("note_incident", incident), {"text": "Ann's\nlaptop <img>", "key": "k"}
            ).status_code
            == 302
        )
    assert recorded_kinds(incident) == ["incident.opened", "incident.noted"]
    assert "&lt;img&gt;" in rita.get(url("incident", incident)).text
    assert rita.post(url("note_incident", incident), {"text": " "}).status_code == 422
    long = "x" * (incidents.MAX_NOTE + 1)
    assert rita.post(url("note_incident", incident), {"text": long}).status_code == 422
    with transaction.atomic():
        for position in IncidentEntry.objects.filter(incident=incident).values_list(
            "position", flat=True
        ):
            erasures.erase_body(
                organization.project.id,
                position,
                reason="ticket 88",
                actor="tests",
                now_us=now_us(),
            )
    for page in (text(rita, incident), " ".join(rita.get(reverse("incidents")).text.split())):
        assert "laptop" not in page
        assert "nobody approved" not in page
        assert "title erased" in page
    assert text(rita, incident).count("Text erased.") == 2
    assert rita.get(url("incident", incident), {"view": "json"}).json()["title"] is None


def test_viewers_change_nothing_and_neighbours_see_nothing(
    organization: Organization, agent: Caller, sample: SampleIds
) -> None:
    incident = open_sample_incident(
        organization, thing=str(Session.objects.get(id=sample.session)), reason="because"
    )
    member = IncidentMember.objects.get()
    endpoints = {
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
    viewer, neighbour = organization.client("viewer"), organization.client("neighbour")
    entries = Entry.objects.count()
    for endpoint, sent in endpoints.items():
        assert viewer.post(endpoint, sent).status_code == 403, endpoint
        assert Client().post(endpoint, sent).status_code == 302, endpoint
        if endpoint != reverse("open_incident"):
            assert neighbour.post(endpoint, sent).status_code == 404, endpoint
    assert Entry.objects.count() == entries
    assert "<textarea" not in viewer.get(url("incident", incident)).text
    assert neighbour.get(url("incident", incident)).status_code == 404
    assert str(incident) not in neighbour.get(reverse("incidents")).text
    assert "nowhere" not in neighbour.get("/search/jump/", {"id": str(incident)}).headers
    # objects of another project cannot be added by any reference
    from tests.pages.sample_data import connect_agent as at_the_doors

    with at_the_doors(organization.other_token.agent) as stranger:
        foreign_book = fill(stranger)
    foreign = Effect.objects.get(id=foreign_book.effects["ok"])
    names = [
        str(foreign),
        str(foreign.id),
        f"/effects/{foreign.id}/",
        f"#{foreign.plan_position}",
        str(foreign_book.session),
    ]
    for name in names:
        sent = {"thing": name, "reason": "theirs"}
        assert (
            organization.client("reviewer")
            .post(url("add_to_this_incident", incident), sent)
            .status_code
            == 422
        ), name
    assert current_members(incident) == [
        ("session", Session.objects.get(id=sample.session).opened_position)
    ]
