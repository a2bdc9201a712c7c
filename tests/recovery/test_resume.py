"""Resume: whether a session can resume safely, from one function, in the API and on the page."""

import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import orjson
import pytest
from django.test import Client
from django.urls import reverse

from journal.models import Entry
from ledger.models import Effect
from ledger.tools import cache, registry
from ledger.tools.tools_yaml import ToolDeclaration
from recovery.resume_json import MAX_BYTES
from sessions.models import Session
from tests.api.api_client import Caller, new_key
from tests.pages.people import Organization
from tests.pages.sample_data import connect_agent, done, many

pytestmark = pytest.mark.django_db
SECTIONS = ["crash_recovery", "messages", "working_state"]


@pytest.fixture
def agent(organization: Organization) -> Iterator[Caller]:
    """The project's agent, which sends requests before and after a browser does."""
    with connect_agent(organization.agent) as caller:
        yield caller


@pytest.fixture
def viewer(organization: Organization) -> Client:
    return organization.client("viewer")


@pytest.fixture
def operator(organization: Organization) -> Client:
    return organization.client("operator")


@pytest.fixture
def session(agent: Caller, organization: Organization) -> UUID:
    """A session in a project with declared tools: git.push is probeable, mail.send is undeclared."""
    cache.clear_tool_cache()
    registry.declare_tools(
        organization.project,
        [
            ToolDeclaration("git.push", "probeable", "compensable", request_lifetime_s=60),
            ToolDeclaration("file.read", "read_only", "read"),
        ],
        actor="tests",
    )
    cache.clear_tool_cache()
    return UUID(agent.session("s-1")["id"])


def get_resume(agent: Caller, session: UUID, **query: str) -> dict[str, Any]:
    answer = agent.client.get(f"/sessions/{session}/resume", params=query)
    assert answer.status_code == 200, answer.text
    assert len(answer.content) <= MAX_BYTES
    body: dict[str, Any] = answer.json()
    return body


def page(browser: Client, session: UUID, name: str = "session") -> str:
    answer = browser.get(reverse(name, args=[session]))
    assert answer.status_code == 200
    return " ".join(answer.content.decode().partition("<main")[2].split())


def dispatch_effect(agent: Caller, session: UUID, tool: str, key: str = "") -> dict[str, Any]:
    effect = agent.plan(key or new_key(), str(session), tool=tool, arguments={"of": key})
    agent.dispatch(effect)
    return effect


def test_a_session_without_open_effects_can_resume(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    effect = dispatch_effect(agent, session, "mail.send")
    agent.acknowledge(effect)
    answer = get_resume(agent, session)
    assert (answer["safe"], answer["because"], answer["crash_recovery"]["open_effects"]) == (
        True,
        [],
        [],
    )
    assert answer["sentence"].startswith("Yes.")
    assert "Can it resume safely? <b>Yes.</b>" in page(viewer, session)


def test_mail_with_an_unknown_outcome_blocks_resume_and_is_listed_first(
    agent: Caller, viewer: Client, operator: Client, session: UUID
) -> None:
    push = dispatch_effect(agent, session, "git.push", "push")
    mail = dispatch_effect(agent, session, "mail.send", "mail")
    answer = get_resume(agent, session)
    assert answer["safe"] is False
    assert [
        (entry["effect"], entry["verdict"], entry["reason"]) for entry in answer["because"]
    ] == [(mail["id"], "escalate", "UNDECIDABLE")]
    assert list(answer)[:5] == [
        "session",
        "safe",
        "sentence",
        "because",
        "done",
    ]  # done effects come first: they must not be repeated
    verdicts = {
        entry["effect"]: entry["verdict"] for entry in answer["crash_recovery"]["open_effects"]
    }
    assert verdicts == {mail["id"]: "escalate", push["id"]: "probe"}
    assert answer["crash_recovery"]["open_effects"][0]["effect"] == mail["id"]
    handle = Effect.objects.get(id=mail["id"])
    for browser, may in ((viewer, False), (operator, True)):
        html = page(browser, session)
        assert (
            f'<b>No,</b> because of <a href="{reverse("effect", args=[mail["id"]])}">{handle}</a>'
            in html
        )
        assert (reverse("resolve", args=[mail["id"]]) in html) is may


def test_done_effects_are_listed_before_open_ones(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    """A new worker without context would give every call a new id."""
    mail, last = (
        dispatch_effect(agent, session, "mail.send", "ada"),
        agent.plan("bob", str(session), tool="mail.send"),
    )
    agent.acknowledge(mail)
    agent.dispatch(agent.plan("cat", str(session), tool="mail.send", arguments={"of": "cat"}))
    agent.dispatch(last)
    agent.acknowledge(last)
    agent.acknowledge(dispatch_effect(agent, session, "file.read", "harmless"))
    answer = get_resume(agent, session)
    assert [(entry["effect"], entry["unheard"]) for entry in answer["done"]] == [
        (last["id"], False),
        (mail["id"], False),
    ]
    assert answer["sentence"].endswith("Do not repeat the effects listed as done.")
    assert answer["done"][0]["intent_digest"] == last["intent_digest"]
    assert answer["done"][0]["sentence"] == f"{last['handle']}: completed; do not repeat it."
    html = page(viewer, session, "session_resume")
    assert html.index("Done: do not repeat") < html.index("1. Crash recovery")
    assert html.count("may have ended before it received the answer") == 0


def test_the_last_done_effects_are_marked_as_possibly_unheard(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    """A process found the effects done but was killed before its agent received the answer."""
    first, second = (dispatch_effect(agent, session, "git.push", key) for key in ("one", "two"))
    renamed = agent.plan("one-again", str(session), tool="git.push", arguments={"of": "one"})
    assert renamed["open_effect"] == first["id"]
    for effect in (first, second):
        done(agent.post(f"/effects/{effect['id']}/probe", {"attempt": 1, "result": "hit"}))
    assert [entry["unheard"] for entry in get_resume(agent, session)["done"]] == [True, True]
    done(agent.post(f"/effects/{renamed['id']}/supersede", {}))
    assert [entry["unheard"] for entry in get_resume(agent, session)["done"]] == [True, True]
    assert (
        page(viewer, session, "session_resume").count(
            "may have ended before it received the answer"
        )
        == 2
    )
    agent.plan("two-again", str(session), tool="git.push", arguments={"of": "two"})
    assert [entry["unheard"] for entry in get_resume(agent, session)["done"]] == [True, True]
    agent.plan("three", str(session), tool="git.push", arguments={"of": "three"})
    assert [entry["unheard"] for entry in get_resume(agent, session)["done"]] == [False, False]


def test_page_and_api_show_the_same_for_every_effect(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    for tool in ("git.push", "mail.send", "file.read"):
        dispatch_effect(agent, session, tool, tool)
    agent.plan("never", str(session), tool="mail.send", arguments={"n": 1})
    html = page(viewer, session, "session_resume")
    for entry in get_resume(agent, session)["crash_recovery"]["open_effects"]:
        words = entry["sentence"].removeprefix(
            f"{entry['handle']}: "
        )  # each row of the page begins with the handle
        # The page sets code without backquotes.
        assert (words[0].upper() + words[1:]).replace("`", "") in re.sub(r"</?code>", "", html)
        assert f"#row-{entry['row']}" in html


def test_the_sections_are_in_order_and_list_the_state_of_the_last_worker(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    at = f"/sessions/{session}"
    done(
        agent.post(
            f"{at}/decisions",
            {"key": "d1", "choice": "squash", "rationale": "one commit for the notes"},
        )
    )
    ended = done(agent.post(f"{at}/decisions", {"key": "d2", "choice": "rebase"}))
    done(agent.post(f"/decisions/{ended['id']}/conclude", {"outcome": "rebased", "status": "done"}))
    sections = {
        "in_progress": ["the hotfix"],
        "decided": ["squash"],
        "needs_attention": ["the mail provider"],
    }
    done(
        agent.post(
            f"{at}/handoffs", {**sections, "waits_on": [{"kind": "text", "text": "CI run 882"}]}
        )
    )
    done(
        agent.post(
            "/messages", {"to": "shared", "subject": "hold on", "body": "the freeze begins at noon"}
        )
    )
    done(agent.post(f"{at}/tasks", {"key": "push", "title": "Push it", "priority": 5}))
    done(
        agent.post(
            f"{at}/checkpoints", {"summary": "half-way", "cursor": "118", "pins": {"schema": "8"}}
        )
    )
    done(agent.post(f"{at}/facts", {"name": "head", "value": "9d02a77", "source": "git"}))
    answer = get_resume(agent, session)
    names = list(answer)
    assert [name for name in names if name in SECTIONS] == SECTIONS
    crash = answer["crash_recovery"]
    assert [item["choice"] for item in crash["incomplete_decisions"]] == ["squash"]
    assert crash["handoff"]["needs_attention"] == ["the mail provider"]
    assert [item["subject"] for item in answer["messages"]] == ["hold on"]
    state = answer["working_state"]
    assert [task["key"] for task in state["tasks"]] == ["push"]
    assert (state["checkpoint"]["summary"], state["checkpoint"]["cursor"]) == ("half-way", "118")
    assert [(fact["name"], fact["value"]) for fact in state["facts"]] == [("head", "9d02a77")]
    html = page(viewer, session, "session_resume")
    for words in ("squash", "the mail provider", "CI run 882", "half-way", "Push it", "9d02a77"):
        assert words in html
    places = [
        html.index(heading)
        for heading in ("Crash recovery", "Unread messages", "Working state", "History")
    ]
    assert places == sorted(places)


def test_done_accepted_and_read_items_are_not_listed(agent: Caller, session: UUID) -> None:
    at = f"/sessions/{session}"
    handoff = done(agent.post(f"{at}/handoffs", {"in_progress": ["x"]}))
    message = done(agent.post("/messages", {"to": "shared", "subject": "s", "body": "b"}))
    task = done(agent.post(f"{at}/tasks", {"key": "t"}))
    done(agent.post(f"/handoffs/{handoff['id']}/accept"))
    done(agent.post(f"/messages/{message['id']}/read"))
    done(agent.post(f"/tasks/{task['id']}/done"))
    answer = get_resume(agent, session)
    assert answer["crash_recovery"]["handoff"] is None
    assert (answer["messages"], answer["working_state"]["tasks"]) == ([], [])


def test_a_stopped_session_cannot_resume_even_without_open_effects(
    agent: Caller, operator: Client, viewer: Client, session: UUID
) -> None:
    fields = {"scope": "session", "subject": session.hex, "reason": "all hands off"}
    assert operator.post(reverse("stop"), fields).status_code == 302
    answer = get_resume(agent, session)
    assert (answer["safe"], answer["stopped"], answer["because"]) == (False, True, [])
    assert "<b>No:</b> a person stopped it" in page(viewer, session)


def test_with_more_open_effects_than_the_limit_resume_is_unknown(
    agent: Caller, viewer: Client, session: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recovery.resume.MAX_EVALUATED_EFFECTS", 3)
    for number in range(4):
        dispatch_effect(agent, session, "file.read", f"r{number}")
    answer = get_resume(agent, session)
    assert (answer["safe"], answer["too_many_open"]) == (False, True)
    assert "Unknown:" in answer["sentence"]
    assert "Unknown:" in page(viewer, session)


def test_the_answer_stays_within_its_limit_and_lists_what_was_cut(
    agent: Caller, session: UUID
) -> None:
    at, long = f"/sessions/{session}", "\u20ac" * 190
    for number in range(40):
        dispatch_effect(agent, session, "mail.send", f"{number}{long}"[:190])
        done(agent.post(f"{at}/tasks", {"key": f"t{number}", "title": long}))
        done(agent.post(f"{at}/facts", {"name": f"f{number}", "value": long * 4, "source": "s"}))
    for number in range(12):
        done(
            agent.post(
                f"{at}/decisions", {"key": f"d{number}", "choice": long, "rationale": long * 5}
            )
        )
        done(agent.post("/messages", {"to": "shared", "subject": long[:100], "body": long * 9}))
    done(
        agent.post(
            f"{at}/handoffs",
            {"in_progress": [long] * 10, "decided": [long] * 10, "can_wait": [long] * 10},
        )
    )
    done(agent.post(f"{at}/checkpoints", {"summary": long * 10, "state": "x" * 50_000}))
    answer = get_resume(agent, session)
    assert answer["cut"]
    assert answer["crash_recovery"]["open_effects_in_all"] == 40
    assert answer["safe"] is False
    assert answer["because"]


@pytest.mark.parametrize("fat", ["cache keys", "references to wait on"])
def test_large_checkpoints_and_handoffs_do_not_exceed_the_limit(
    agent: Caller, session: UUID, fat: str
) -> None:
    wide = "\U0001f600"
    for number in range(30):
        dispatch_effect(agent, session, f"{number}{wide * 90}", f"m-{number}")
    if fat == "cache keys":
        keys = [f"{number}{wide * 150}" for number in range(100)]
        done(agent.post(f"/sessions/{session}/checkpoints", {"cache_keys": keys}))
    else:
        things = [{"kind": "text", "text": f"{number}{wide * 599}"} for number in range(10)]
        done(agent.post(f"/sessions/{session}/handoffs", {"waits_on": things}))
    answer = get_resume(agent, session)
    assert answer["safe"] is False
    assert answer["because"]
    assert answer["crash_recovery"]["open_effects_in_all"] == 30
    assert "messages" not in answer["cut"]  # no messages exist
    assert len(answer["cut"]) == len(set(answer["cut"]))


def test_resume_changes_nothing(agent: Caller, viewer: Client, session: UUID) -> None:
    dispatch_effect(agent, session, "mail.send")
    before = Entry.objects.count()
    row = Session.objects.values().get(id=session)
    get_resume(agent, session)
    page(viewer, session, "session_resume")
    assert Entry.objects.exclude(kind__startswith="access.").count() == before
    assert Session.objects.values().get(id=session) == row


def test_it_costs_the_same_after_many_effects(
    agent: Caller, viewer: Client, session: UUID, django_assert_max_num_queries: Any
) -> None:
    dispatch_effect(agent, session, "git.push", "p")
    dispatch_effect(agent, session, "mail.send", "m")
    many(agent, str(session), 1000, answered=1000)
    with django_assert_max_num_queries(30):
        get_resume(agent, session)
    with django_assert_max_num_queries(30):
        page(viewer, session, "session_resume")


def test_a_session_of_another_project_is_not_found(
    agent: Caller, organization: Organization, session: UUID
) -> None:
    with connect_agent(organization.other_token.agent) as other:
        assert other.client.get(f"/sessions/{session}/resume").status_code == 404
    neighbour = organization.client("neighbour")
    assert neighbour.get(reverse("session_resume", args=[session])).status_code == 404
    unknown = agent.client.get(f"/sessions/{UUID(int=7)}/resume")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
    assert (
        agent.client.get(f"/sessions/{session}/resume", params={"process": "x" * 65}).status_code
        == 422
    )


def test_the_five_questions_are_answered_in_order(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    good, bad = (
        dispatch_effect(agent, session, "git.push", "good"),
        dispatch_effect(agent, session, "git.push", "bad"),
    )
    agent.acknowledge(good)
    agent.acknowledge(bad, outcome="error")
    dispatch_effect(agent, session, "mail.send", "mail")
    agent.plan("later", str(session), tool="git.push", arguments={"n": 1})
    html = page(viewer, session)
    questions = [
        "What was planned?",
        "What ran?",
        "What succeeded?",
        "What can be retried?",
        "What is the audit trail?",
    ]
    places = [html.index(question) for question in questions]
    assert places == sorted(places)
    assert "4 effects: 4 recorded before they ran, 0 reported afterwards." in html
    assert "3 effects in 3 attempts." in html
    assert "1 succeeded · 1 failed · 1 unknown." in html
    assert "Of 2 open effects, 1 may run for the first time, 1 a person must resolve." in html


def test_the_answer_is_json_of_a_known_shape(agent: Caller, session: UUID) -> None:
    answer = agent.client.get(f"/sessions/{session}/resume")
    assert answer.headers["Content-Type"] == "application/json"
    assert orjson.loads(answer.content)["session"]["id"] == str(session)
