"""The timeline in lanes: which facts are drawn, and all views show the same rows."""

import re
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from display.keyset_pagination import Window
from journal.models import Entry
from ledger.models import Effect
from pages.timeline import svg_layout
from pages.timeline.bars import Bar
from pages.timeline.filtered_effects import EffectFilters
from pages.timeline.lanes import load_session_window
from sessions.models import Session
from tests.api.api_client import Caller, new_key
from tests.pages.people import Organization
from tests.pages.sample_data import SampleIds, many, pass_deadline

pytestmark = pytest.mark.django_db
MINUTE = 60_000_000
NOON = 1_795_262_400_000_000  # a noon, UTC


@pytest.fixture
def viewer(organization: Organization) -> Client:
    return organization.client("viewer")


def lanes(viewer: Client, session: Any, **query: str) -> str:
    answer = viewer.get(reverse("session_timeline", args=[session]), {"view": "lanes", **query})
    assert answer.status_code == 200, answer.status_code
    return answer.content.decode().partition("<main")[2].partition("</main>")[0]


def rows(viewer: Client, session: Any, **query: str) -> dict[str, Any]:
    answer = viewer.get(reverse("session_timeline", args=[session]), {"view": "json", **query})
    assert answer.status_code == 200
    timeline: dict[str, Any] = answer.json()
    return timeline


def report_effect(
    agent: Caller, session: str, key: str, steps: dict[str, int], **plan: Any
) -> None:
    """Report an effect whose facts occurred the given minutes after noon."""
    kinds = {"plan": "planned", "dispatch": "dispatched", "ok": "acknowledged"}
    items = []
    for step, minute in steps.items():
        fact = {
            "id": new_key(),
            "kind": f"effect.{kinds[step]}",
            "session": session,
            "effect_key": key,
        }
        fact["occurred_us"] = NOON + minute * MINUTE  # type: ignore[assignment]
        if step == "plan":
            fact |= {"tool": "git.push", "arguments": {"command": key}} | plan
        if step == "ok":
            fact["outcome"] = "ok"
        items.append(fact)
    assert agent.report(items).status_code == 200


def test_each_effect_is_one_bar_that_links_to_its_page(viewer: Client, sample: SampleIds) -> None:
    page = lanes(viewer, sample.session)
    svg = page.partition('<svg class="lanes ')[2].partition("</div>")[0]
    effects = Effect.objects.filter(session=sample.session)
    drawn = re.findall(r'<a href="([^"]+)"><title>', svg)
    assert sorted(drawn) == sorted(
        reverse("effect", args=[effect.id])
        for effect in effects
        if effect.planned_mark or effect.state != "planned"
    )
    assert "style=" not in page


def test_an_unknown_outcome_is_hatched_and_open_ended(viewer: Client, sample: SampleIds) -> None:
    assert (
        lanes(viewer, sample.session).count('class="open is-unknown" fill="url(#hatch-unknown)" x=')
        == 2
    )  # an outcome unknown, a time-out
    pass_deadline(sample.effects["dispatched"])
    assert (
        lanes(viewer, sample.session).count('class="open is-unknown" fill="url(#hatch-unknown)" x=')
        == 3
    )


def test_the_json_view_holds_each_fact_with_its_position(viewer: Client, sample: SampleIds) -> None:
    effects = {row["id"]: row for row in rows(viewer, sample.session)["effects"]}
    row = effects[str(sample.effects["rejected"])]
    asked_twice = ["planned", "dispatched", "failed", "planned", "granted", "dispatched", "failed"]
    assert [fact["what"] for fact in row["facts"]] == asked_twice
    stored = Entry.objects.filter(effect=sample.effects["rejected"]).order_by("position")
    assert [fact["position"] for fact in row["facts"]] == list(
        stored.values_list("position", flat=True)
    )
    assert row["state"] == "failed"
    assert row["attempts"] == 2


def test_reported_work_is_placed_by_agent_time_or_by_arrival_on_request(
    viewer: Client, agent: Caller
) -> None:
    report_effect(agent, "r", "first", {"plan": 0, "dispatch": 1, "ok": 3})
    report_effect(agent, "r", "second", {"plan": 5})
    session = Session.objects.get(key="r")
    ours = rows(viewer, session.id)
    assert ours["clock"] == "agent"
    first = ours["effects"][0]["facts"]
    assert [fact["at_us"] - NOON for fact in first] == [0, MINUTE, 3 * MINUTE]
    server = rows(viewer, session.id, clock="server")["effects"][0]["facts"]
    assert [fact["at_us"] for fact in server] == [fact["server_us"] for fact in first]
    assert "12:02" in lanes(viewer, session.id)


def test_an_effect_of_a_live_session_stands_where_it_ran_if_it_was_reported_late(
    viewer: Client, agent: Caller
) -> None:
    session = agent.session("s-1")["id"]
    agent.plan("now")
    assert rows(viewer, session)["clock"] == "server"
    report_effect(agent, "s-1", "late", {"plan": 0, "dispatch": 1, "ok": 3})
    shown = rows(viewer, session)
    assert shown["clock"] == "agent"
    late = shown["effects"][1]["facts"]
    assert [fact["at_us"] - NOON for fact in late if fact["what"] == "dispatched"] == [MINUTE]
    page = lanes(viewer, session)
    assert "1 effect reported long after it ran." in " ".join(page.split())
    assert 'data-label="Ran"' in page
    assert 'title="reported by the agent, by its clock">by agent</span>' in page
    assert rows(viewer, session, clock="server")["clock"] == "server"
    assert "reported long after" not in lanes(viewer, session, clock="server")


def test_skipped_producer_numbers_are_shown_unless_another_session_has_them(
    viewer: Client, agent: Caller
) -> None:
    def say(session: str, number: int) -> None:
        fact = {
            "id": new_key(),
            "kind": "effect.planned",
            "session": session,
            "effect_key": f"e{number}",
            "tool": "git.push",
            "producer_seq": number,
            "source": "deploy-7",
        }
        assert agent.report([fact]).status_code == 200

    for number in (1, 2, 5, 9):
        say("gappy", number)
    say("other", 3)
    session = Session.objects.get(key="gappy")
    assert [(gap["first"], gap["last"]) for gap in rows(viewer, session.id)["missing_numbers"]] == [
        (4, 4),
        (6, 8),
    ]
    page = lanes(viewer, session.id)
    assert page.count('class="notch"') == 2
    assert "1 missing: 4" in page
    say("gappy", 4)
    for number in (6, 7, 8):
        say("other", number)
    assert rows(viewer, session.id)["missing_numbers"] == []
    assert 'class="notch"' not in lanes(viewer, session.id)


def test_the_compact_view_folds_repeats_and_loses_none(viewer: Client, agent: Caller) -> None:
    for number in range(12):
        report_effect(agent, "loop", f"e{number}", {"plan": number, "ok": number})
    report_effect(agent, "loop", "odd", {"plan": 20}, tool="deploy.run")
    session = Session.objects.get(key="loop")
    page = lanes(viewer, session.id, view="compact")
    assert page.count('<tr role="row">') == 3  # the head, and two groups
    assert "×12" in page
    assert '<svg class="lanes ' not in page


def test_a_window_is_cut_by_the_server_and_links_to_its_neighbours(
    viewer: Client, agent: Caller
) -> None:
    many(agent, "long", 700, answered=700)
    session = Session.objects.get(key="long")
    newest = rows(viewer, session.id, size="30")
    assert len(newest["effects"]) == 30
    assert newest["newer"] is None
    older = rows(viewer, session.id, size="30", before=str(newest["older"]))
    handles = [int(row["effect"][2:]) for row in older["effects"] + newest["effects"]]
    assert handles == sorted(handles)
    assert len(set(handles)) == 60
    widest = lanes(viewer, session.id, size="9999")
    assert widest.count('<a href="/effects/') <= 2 * svg_layout.MOST_ROWS * 500
    assert len(rows(viewer, session.id, size="9999")["effects"]) == 500
    bars = widest.partition("data-lanes")[2].partition("</svg>\n    </div>")[0]
    drawn_bars = bars.count('<a href="/effects/')
    assert 0 < drawn_bars <= svg_layout.MOST_DRAWN
    assert "calls, " in bars  # several in one, so that none is left out
    assert len(widest) < 130_000


def test_filters_narrow_every_view(viewer: Client, sample: SampleIds) -> None:
    for view in ("lanes", "compact"):
        page = lanes(viewer, sample.session, view=view, state="failed")
        assert "deploy.run" in page
        assert "git.push" not in page.partition("<table")[2]
    assert {row["state"] for row in rows(viewer, sample.session, state="failed")["effects"]} == {
        "failed"
    }


def test_another_projects_session_has_no_timeline(
    organization: Organization, sample: SampleIds
) -> None:
    stranger = organization.client("neighbour")
    for view in ("lanes", "compact", "json"):
        assert (
            stranger.get(
                reverse("session_timeline", args=[sample.session]), {"view": view}
            ).status_code
            == 404
        )


def test_each_view_costs_the_same_few_queries(
    viewer: Client, sample: SampleIds, agent: Caller, django_assert_max_num_queries: Any
) -> None:
    many(agent, "long", 300)
    for session in (sample.session, Session.objects.get(key="long").id):
        for view in ("lanes", "compact", "json"):
            with django_assert_max_num_queries(12):
                viewer.get(
                    reverse("session_timeline", args=[session]), {"view": view, "size": "500"}
                )


def test_agent_names_are_inert_in_a_drawing(viewer: Client, agent: Caller) -> None:
    report_effect(
        agent, "evil", "e", {"plan": 0}, tool="</text><script>x</script>\u202e", task="<b>\u200b"
    )
    page = lanes(viewer, Session.objects.get(key="evil").id)
    assert "<script>x" not in page
    assert "\u202e" not in page
    assert "[U+202E]" in page


def test_a_session_without_effects_shows_a_message(viewer: Client, agent: Caller) -> None:
    opened = agent.session("empty")
    for view in ("lanes", "compact"):
        assert "No effect has been planned" in lanes(viewer, UUID(opened["id"]), view=view)


def test_leases_heartbeats_and_checkpoints_are_drawn_with_the_effects(
    viewer: Client, agent: Caller
) -> None:
    opened = agent.session("leased", mode="leased")
    lease = agent.post("/leases", {"session": opened["id"], "process": "w1"}).json()
    heartbeat = {"heartbeats": [{"lease": lease["id"], "epoch": lease["epoch"], "progress": "1"}]}
    assert agent.client.post("/heartbeats", json=heartbeat).status_code == 200
    agent.plan("one", "leased", lease_epoch=lease["epoch"])
    written = agent.post(
        f"/sessions/{opened['id']}/checkpoints",
        {"summary": "half-way", "lease_epoch": lease["epoch"]},
    )
    assert written.status_code == 201
    taken = agent.post(
        "/leases", {"session": opened["id"], "process": "w2", "takeover": True}
    ).json()
    page = lanes(viewer, opened["id"])
    assert [f"epoch {epoch}" in page for epoch in (lease["epoch"], taken["epoch"])] == [True, True]
    assert page.count('class="lease"') == 2
    assert page.count('"pin is-failed crash"') == 1  # the first lease was lost
    assert page.count('class="heartbeat') >= 1
    assert "#checkpoint" in page
    facts = {event["kind"] for event in rows(viewer, opened["id"])["session_events"]}
    assert {"lease.acquired", "lease.lost", "checkpoint.written"} <= facts
    session_page = viewer.get(reverse("session", args=[opened["id"]])).content.decode()
    assert f"w2, epoch {taken['epoch']}" in re.sub(r"<[^>]+>", "", session_page)


def test_a_repeated_plan_stays_where_the_effect_ran(viewer: Client, agent: Caller) -> None:
    """Plan a completed effect again, as a restarted worker does; its answer keeps its time."""
    report_effect(agent, "again", "one", {"plan": 0, "dispatch": 1, "ok": 2})
    report_effect(agent, "again", "two", {"plan": 9, "dispatch": 10, "ok": 11})
    report_effect(agent, "again", "one", {"plan": 20})
    session = Session.objects.get(key="again")
    bar = next(
        candidate for candidate in read_bars(session) if candidate.effect.effect_key == "one"
    )
    assert [step.what for step in bar.steps] == ["planned", "dispatched", "acknowledged", "planned"]
    assert [step.what for step in bar.moves] == ["planned", "dispatched", "acknowledged"]
    drawn = lanes(viewer, session.id).split("<a href=")
    first = next(candidate for candidate in drawn if f"{bar.effect} " in candidate)
    assert first.count('class="wait') == 1  # from plan to dispatch, none after the answer


def read_bars(session: Session) -> list[Bar]:
    """Return the bars of a session's newest window by agent time."""
    return load_session_window(
        session, EffectFilters(), Window(), NOON, size=30, clock="agent"
    ).bars


def test_a_worker_has_a_short_label_and_its_full_name_as_title(
    viewer: Client, agent: Caller
) -> None:
    full_name = "793cf4220c917b85386088659b1a2c3d"
    opened = agent.session("named")
    body = {
        "key": "build",
        "title": "Build the fix and everything that depends on it",
        "worker": full_name,
    }
    assert agent.post(f"/sessions/{opened['id']}/tasks", body).status_code == 201
    agent.plan("one", "named", task="build", arguments={"command": "git push origin main"})
    page = lanes(viewer, opened["id"])
    assert f'<small title="{full_name}">793cf422…</small>' in page
    assert f'<b title="{body["title"]}">Build the fix and eve…</b>' in page
    assert page.count(full_name) == 1
    assert ">git push origin main</text>" in page  # and not "git.push git push"
    tree = viewer.get(reverse("session", args=[opened["id"]])).content.decode()
    assert f'<span title="{full_name}">' in tree
    assert tree.count(full_name) == 2  # in the drawing and in the table of tasks


def test_zooming_widens_the_drawing_or_takes_more_effects(viewer: Client, agent: Caller) -> None:
    many(agent, "zoomed", 40)
    session = Session.objects.get(key="zoomed").id

    def zooms(**query: str) -> dict[str, str]:
        found_links = re.findall(
            r'href="([^"]+)#lanes" data-zoom="(in|out)"', lanes(viewer, session, **query)
        )
        return {name: link for link, name in found_links}

    assert zooms() == {"in": "?view=lanes&amp;zoom=2"}
    assert zooms(zoom="16") == {"out": "?view=lanes&amp;zoom=8"}
    assert 'class="lanes is-zoom-16"' in lanes(viewer, session, zoom="16")
    assert "size=60" in zooms(size="30")["out"]  # there are more effects than are drawn


def test_an_unsuccessful_answer_has_no_tick(viewer: Client, agent: Caller) -> None:
    agent.session("answered")
    for outcome in ("ok", "error", "unknown"):
        effect = agent.plan(outcome, "answered", tool=f"say.{outcome}")
        agent.dispatch(effect)
        agent.acknowledge(effect, outcome=outcome)
    drawn = lanes(viewer, Session.objects.get(key="answered").id).split("<a href=")
    shapes = {}
    for outcome in ("ok", "error", "unknown"):
        bar = next(
            fragment for fragment in drawn if f"say.{outcome}" in fragment and "<title>" in fragment
        ).partition("</a>")[0]
        shapes[outcome] = set(re.findall(r'href="#m-(ack|failed|unknown)"', bar))
        assert ("acknowledged with an error" in bar) == (outcome == "error")
    assert shapes == {"ok": {"ack"}, "error": {"failed"}, "unknown": {"unknown"}}


def test_gatebook_kinds_reported_by_an_agent_are_not_drawn(viewer: Client, agent: Caller) -> None:
    session = agent.session("s-1")["id"]
    agent.plan()
    forged = ("lease.lost", "session.stuck", "control.fired", "integrity.fenced")
    items = [{"id": f"f-{n}", "kind": kind, "session": session} for n, kind in enumerate(forged)]
    assert agent.report(items).json()["accepted"] == len(forged)
    assert Entry.objects.filter(lane="evidence", kind__in=forged).count() == len(forged)
    assert {event["kind"] for event in rows(viewer, session)["session_events"]} == {
        "session.started"
    }
