"""Can it resume safely? The answer for the next worker, through the API and on the page, from one
function."""

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
from tests.pages.people import House
from tests.pages.sample_data import done, doors, many

pytestmark = pytest.mark.django_db
CHAIN = ["crash_recovery", "messages", "working_state"]


@pytest.fixture
def agent(house: House) -> Iterator[Caller]:
    """The project's agent, who may speak before and after a browser does."""
    with doors(house.agent) as caller:
        yield caller


@pytest.fixture
def viewer(house: House) -> Client:
    return house.client("viewer")


@pytest.fixture
def operator(house: House) -> Client:
    return house.client("operator")


@pytest.fixture
def session(agent: Caller, house: House) -> UUID:
    """A session of an agent whose tools are declared: one that can be looked up, and mail, which
    cannot."""
    cache.clear_tool_cache()
    registry.declare_tools(
        house.project,
        [
            ToolDeclaration("git.push", "probeable", "compensable", request_lifetime_s=60),
            ToolDeclaration("file.read", "read_only", "read"),
        ],
        actor="tests",
    )
    cache.clear_tool_cache()
    return UUID(agent.session("s-1")["id"])


def resumed(agent: Caller, session: UUID, **query: str) -> dict[str, Any]:
    answer = agent.client.get(f"/sessions/{session}/resume", params=query)
    assert answer.status_code == 200, answer.text
    assert len(answer.content) <= MAX_BYTES
    found: dict[str, Any] = answer.json()
    return found


def page(browser: Client, session: UUID, name: str = "session") -> str:
    answer = browser.get(reverse(name, args=[session]))
    assert answer.status_code == 200
    return " ".join(answer.content.decode().partition("<main")[2].split())


def dispatched(agent: Caller, session: UUID, tool: str, key: str = "") -> dict[str, Any]:
    effect = agent.plan(key or new_key(), str(session), tool=tool, arguments={"of": key})
    agent.dispatch(effect)
    return effect


def test_a_session_in_which_nothing_is_open_may_go_on(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    effect = dispatched(agent, session, "mail.send")
    agent.acknowledge(effect)
    found = resumed(agent, session)
    assert (found["safe"], found["because"], found["crash_recovery"]["open_effects"]) == (
        True,
        [],
        [],
    )
    assert found["sentence"].startswith("Yes.")
    assert "Can it resume safely? <b>Yes.</b>" in page(viewer, session)


def test_mail_of_which_nobody_knows_stops_it_and_is_named_first(
    agent: Caller, viewer: Client, operator: Client, session: UUID
) -> None:
    push = dispatched(agent, session, "git.push", "push")
    mail = dispatched(agent, session, "mail.send", "mail")
    found = resumed(agent, session)
    assert found["safe"] is False
    assert [(one["effect"], one["verdict"], one["reason"]) for one in found["because"]] == [
        (mail["id"], "escalate", "UNDECIDABLE")
    ]
    assert list(found)[:5] == [
        "session",
        "safe",
        "sentence",
        "because",
        "done",
    ]  # first: what must not be done again
    open_ones = {one["effect"]: one["verdict"] for one in found["crash_recovery"]["open_effects"]}
    assert open_ones == {mail["id"]: "escalate", push["id"]: "probe"}
    assert found["crash_recovery"]["open_effects"][0]["effect"] == mail["id"]
    handle = Effect.objects.get(id=mail["id"])
    for browser, may in ((viewer, False), (operator, True)):
        said = page(browser, session)
        assert (
            f'<b>No,</b> because of <a href="{reverse("effect", args=[mail["id"]])}">{handle}</a>'
            in said
        )
        assert (reverse("resolve", args=[mail["id"]]) in said) is may


def test_what_is_done_is_told_before_anything_that_may_be_done(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    """Read by a worker that knows nothing and would give every call a new id."""
    heard, last = (
        dispatched(agent, session, "mail.send", "ada"),
        agent.plan("bob", str(session), tool="mail.send"),
    )
    agent.acknowledge(heard)
    agent.dispatch(agent.plan("cat", str(session), tool="mail.send", arguments={"of": "cat"}))
    agent.dispatch(last)
    agent.acknowledge(last)
    agent.acknowledge(dispatched(agent, session, "file.read", "harmless"))
    found = resumed(agent, session)
    assert [(one["effect"], one["unheard"]) for one in found["done"]] == [
        (last["id"], False),
        (heard["id"], False),
    ]
    assert found["sentence"].endswith("Do not repeat the effects listed as done.")
    assert found["done"][0]["intent_digest"] == last["intent_digest"]
    assert found["done"][0]["sentence"] == f"{last['handle']}: completed; do not repeat it."
    said = page(viewer, session, "session_resume")
    assert said.index("Done: do not repeat") < said.index("1. Crash recovery")
    assert said.count("may have ended before it received the answer") == 0


def test_what_nothing_was_begun_after_may_never_have_been_heard_of(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    """Found by one process, which was killed before its agent heard, and had named the call anew."""
    first, second = (dispatched(agent, session, "git.push", key) for key in ("one", "two"))
    renamed = agent.plan("one-again", str(session), tool="git.push", arguments={"of": "one"})
    assert renamed["open_effect"] == first["id"]
    for effect in (first, second):
        done(agent.post(f"/effects/{effect['id']}/probe", {"attempt": 1, "result": "hit"}))
    assert [one["unheard"] for one in resumed(agent, session)["done"]] == [True, True]
    done(agent.post(f"/effects/{renamed['id']}/supersede", {}))
    assert [one["unheard"] for one in resumed(agent, session)["done"]] == [True, True]
    assert (
        page(viewer, session, "session_resume").count(
            "may have ended before it received the answer"
        )
        == 2
    )
    agent.plan("two-again", str(session), tool="git.push", arguments={"of": "two"})
    assert [one["unheard"] for one in resumed(agent, session)["done"]] == [True, True]
    agent.plan("three", str(session), tool="git.push", arguments={"of": "three"})
    assert [one["unheard"] for one in resumed(agent, session)["done"]] == [False, False]


def test_page_and_api_say_the_same_of_every_effect(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    for tool in ("git.push", "mail.send", "file.read"):
        dispatched(agent, session, tool, tool)
    agent.plan("never", str(session), tool="mail.send", arguments={"n": 1})
    said = page(viewer, session, "session_resume")
    for one in resumed(agent, session)["crash_recovery"]["open_effects"]:
        words = one["sentence"].removeprefix(
            f"{one['handle']}: "
        )  # the row of the page begins with the handle
        assert words[0].upper() + words[1:] in said
        assert f"#row-{one['row']}" in said


def test_the_chain_is_in_order_and_tells_what_the_last_worker_left(
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
    found = resumed(agent, session)
    names = list(found)
    assert [name for name in names if name in CHAIN] == CHAIN
    crash = found["crash_recovery"]
    assert [one["choice"] for one in crash["incomplete_decisions"]] == ["squash"]
    assert crash["handoff"]["needs_attention"] == ["the mail provider"]
    assert [one["subject"] for one in found["messages"]] == ["hold on"]
    state = found["working_state"]
    assert [task["key"] for task in state["tasks"]] == ["push"]
    assert (state["checkpoint"]["summary"], state["checkpoint"]["cursor"]) == ("half-way", "118")
    assert [(fact["name"], fact["value"]) for fact in state["facts"]] == [("head", "9d02a77")]
    said = page(viewer, session, "session_resume")
    for words in ("squash", "the mail provider", "CI run 882", "half-way", "Push it", "9d02a77"):
        assert words in said
    places = [
        said.index(heading)
        for heading in ("Crash recovery", "Unread messages", "Working state", "History")
    ]
    assert places == sorted(places)


def test_what_is_done_accepted_and_read_is_told_no_more(agent: Caller, session: UUID) -> None:
    at = f"/sessions/{session}"
    handoff = done(agent.post(f"{at}/handoffs", {"in_progress": ["x"]}))
    message = done(agent.post("/messages", {"to": "shared", "subject": "s", "body": "b"}))
    task = done(agent.post(f"{at}/tasks", {"key": "t"}))
    done(agent.post(f"/handoffs/{handoff['id']}/accept"))
    done(agent.post(f"/messages/{message['id']}/read"))
    done(agent.post(f"/tasks/{task['id']}/done"))
    found = resumed(agent, session)
    assert found["crash_recovery"]["handoff"] is None
    assert (found["messages"], found["working_state"]["tasks"]) == ([], [])


def test_a_stop_is_a_no_even_where_nothing_is_open(
    agent: Caller, operator: Client, viewer: Client, session: UUID
) -> None:
    fields = {"scope": "session", "subject": session.hex, "reason": "all hands off"}
    assert operator.post(reverse("stop"), fields).status_code == 302
    found = resumed(agent, session)
    assert (found["safe"], found["stopped"], found["because"]) == (False, True, [])
    assert "<b>No:</b> a person stopped it" in page(viewer, session)


def test_nobody_says_yes_where_more_is_open_than_is_looked_at(
    agent: Caller, viewer: Client, session: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recovery.resume.MAX_EVALUATED_EFFECTS", 3)
    for number in range(4):
        dispatched(agent, session, "file.read", f"r{number}")
    found = resumed(agent, session)
    assert (found["safe"], found["too_many_open"]) == (False, True)
    assert "Unknown:" in found["sentence"]
    assert "Unknown:" in page(viewer, session)


def test_the_answer_never_grows_beyond_its_limit_and_says_what_it_left_out(
    agent: Caller, session: UUID
) -> None:
    at, long = f"/sessions/{session}", "\u20ac" * 190
    for number in range(40):
        dispatched(agent, session, "mail.send", f"{number}{long}"[:190])
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
    found = resumed(agent, session)
    assert found["cut"]
    assert found["crash_recovery"]["open_effects_in_all"] == 40
    assert found["safe"] is False
    assert found["because"]


@pytest.mark.parametrize("fat", ["cache keys", "what is waited for"])
def test_nothing_that_a_worker_leaves_makes_the_answer_larger(
    agent: Caller, session: UUID, fat: str
) -> None:
    wide = "\U0001f600"
    for number in range(30):
        dispatched(agent, session, f"{number}{wide * 90}", f"m-{number}")
    if fat == "cache keys":
        keys = [f"{number}{wide * 150}" for number in range(100)]
        done(agent.post(f"/sessions/{session}/checkpoints", {"cache_keys": keys}))
    else:
        things = [{"kind": "text", "text": f"{number}{wide * 599}"} for number in range(10)]
        done(agent.post(f"/sessions/{session}/handoffs", {"waits_on": things}))
    found = resumed(agent, session)
    assert found["safe"] is False
    assert found["because"]
    assert found["crash_recovery"]["open_effects_in_all"] == 30
    assert "messages" not in found["cut"]  # there were none
    assert len(found["cut"]) == len(set(found["cut"]))


def test_it_reads_and_changes_nothing(agent: Caller, viewer: Client, session: UUID) -> None:
    dispatched(agent, session, "mail.send")
    before = Entry.objects.count()
    row = Session.objects.values().get(id=session)
    resumed(agent, session)
    page(viewer, session, "session_resume")
    assert Entry.objects.exclude(kind__startswith="access.").count() == before
    assert Session.objects.values().get(id=session) == row


def test_it_costs_the_same_after_many_effects(
    agent: Caller, viewer: Client, session: UUID, django_assert_max_num_queries: Any
) -> None:
    dispatched(agent, session, "git.push", "p")
    dispatched(agent, session, "mail.send", "m")
    many(agent, str(session), 1000, answered=1000)
    with django_assert_max_num_queries(30):
        resumed(agent, session)
    with django_assert_max_num_queries(30):
        page(viewer, session, "session_resume")


def test_another_projects_session_is_not_there(agent: Caller, house: House, session: UUID) -> None:
    with doors(house.other_token.agent) as other:
        assert other.client.get(f"/sessions/{session}/resume").status_code == 404
    neighbour = house.client("neighbour")
    assert neighbour.get(reverse("session_resume", args=[session])).status_code == 404
    unknown = agent.client.get(f"/sessions/{UUID(int=7)}/resume")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
    assert (
        agent.client.get(f"/sessions/{session}/resume", params={"process": "x" * 65}).status_code
        == 422
    )


def test_the_five_questions_are_answered_in_their_order(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    good, bad = (
        dispatched(agent, session, "git.push", "good"),
        dispatched(agent, session, "git.push", "bad"),
    )
    agent.acknowledge(good)
    agent.acknowledge(bad, outcome="error")
    dispatched(agent, session, "mail.send", "mail")
    agent.plan("later", str(session), tool="git.push", arguments={"n": 1})
    said = page(viewer, session)
    questions = [
        "What was planned?",
        "What ran?",
        "What succeeded?",
        "What can be retried?",
        "What is the audit trail?",
    ]
    places = [said.index(question) for question in questions]
    assert places == sorted(places)
    assert "4 effects: 4 recorded before they ran, 0 reported afterwards." in said
    assert "3 effects in 3 attempts." in said
    assert "1 succeeded · 1 failed · 1 unknown." in said
    assert "Of 2 open effects, 1 may run for the first time, 1 a person must resolve." in said


def test_the_answer_is_json_of_a_known_shape(agent: Caller, session: UUID) -> None:
    answer = agent.client.get(f"/sessions/{session}/resume")
    assert answer.headers["Content-Type"] == "application/json"
    assert orjson.loads(answer.content)["session"]["id"] == str(session)
