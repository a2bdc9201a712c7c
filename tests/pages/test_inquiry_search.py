"""The search by fields and the box that takes any id: what they find, what they say of nonsense, and what it costs."""

import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from inquiry import search
from inquiry.fields import FIELDS, NAMES
from journal.clock import now_us
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Artifact, Session, Task
from tests.ingest.caller import Caller
from tests.pages.book import REFERENCE, REPORT, Book, many, pass_deadline
from tests.pages.people import House
from tests.pages.plans import explained

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(house: House) -> Client:
    """A browser of somebody who may only read."""
    return house.client("viewer")


def found(viewer: Client, book: Book, query: dict[str, Any] | str) -> set[str]:
    """The names of the effects that a search shows."""
    answer = viewer.get("/audit/", query) if isinstance(query, dict) else viewer.get(f"/audit/?{query}")
    assert answer.status_code == 200, answer.content
    page = answer.content.decode().partition("<tbody")[2]
    return {name for name, identity in book.effects.items() if f"/effects/{identity}/" in page}


NARROWED = [
    ("state=planned", {"planned"}),
    ("state=failed", {"rejected"}),
    ("state=unknown", {"unknown", "timeout", "dispatched"}),
    ("state=dispatched", set()),
    ("state=failed&state=unknown", {"rejected", "unknown", "timeout", "dispatched"}),
    ("state=failed&state=unknown&state=planned&state=compensated", {"rejected", "unknown", "timeout"}),
    ("state=awaiting", set()),
    ("outcome=error", {"error", "rejected"}),
    ("outcome=unknown", {"unknown", "timeout"}),
    ("tool=mail.send", {"dispatched", "superseded"}),
    ("tool=deploy.run&state=failed", {"rejected"}),
    ("agent=deploy-7&outcome=ok&tool=git.push", {"ok"}),
    ("agent=nobody", set()),
    ("session=deploy-web&state=planned", {"planned"}),
    ("repository=web", {"planned", "ok"}),
    ("repository=web&ref_class=production&state=acknowledged", {"ok"}),
    ("ref=main&environment=prod", {"planned", "ok"}),
    ("leave=granted", {"planned", "superseded"}),
    (f"reference={REFERENCE}", {"ok"}),
    ("key=rejected", {"rejected"}),
    ("key=rejected&session=deploy-web", {"rejected"}),
    ("violating=1", set()),
    ("tool=mail.send&since=1h", {"dispatched", "superseded"}),
    ("tool=mail.send&until=1h", set()),
    ("tool=mail.send&since=2026-01-01&until=2126-01-01T00:00:00Z", {"dispatched", "superseded"}),
]


def test_each_field_narrows(viewer: Client, book: Book) -> None:
    pass_deadline(book.effects["dispatched"])
    for query, names in NARROWED:
        others = {"planned", "dispatched", "compensated"} if "planned&state=compensated" in query else set()
        assert found(viewer, book, query) == names | others, query


def test_an_intent_is_found_by_its_digest(viewer: Client, book: Book) -> None:
    effect = Effect.objects.get(id=book.effects["ok"])
    assert found(viewer, book, {"intent": effect.intent_digest}) == {"ok"}


NONSENSE = [
    ("toll=x", "There is no field “toll”; did you mean “tool”?"),
    ("statee=failed", "did you mean “state”?"),
    ("zzzz=1", "There is no field “zzzz”."),
    ("state=odd", "State is one of: planned, awaiting"),
    ("leave=odd", "Leave is one of: held"),
    ("since=tomorrow", "A time is 2026-11-20T09:00"),
    ("since=1h&until=2h", "Until is earlier than since"),
    ("session=s_999999", "No session of this project has that handle, id or key."),
    ("tool=a&tool=b", "Tool takes one value."),
    ("before=x", "is the number of a journal position"),
    ("before=99999999999999999999999", "is the number of a journal position"),
    ("tool=a%00b", "cannot hold a NUL"),
    ("until=0001-01-01", ""),
    ("tool=" + "x" * 301, "at most 300 characters"),
]


def test_nonsense_is_told_in_place_and_nothing_is_searched(viewer: Client, book: Book) -> None:
    for query, sentence in NONSENSE:
        answer = viewer.get(f"/audit/?{query}")
        page = answer.content.decode()
        assert answer.status_code == (400 if sentence else 200)
        assert sentence in page
        assert "<tbody" not in page


def test_who_was_overtaken_while_writing_is_found_by_the_time_of_arrival(
    viewer: Client, agent: Caller, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions follow the order of writing, and of two requests the one that came first may be written last."""
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)  # after a quiet day

    def arrive(name: str, seconds: int) -> None:
        us = int((start + timedelta(seconds=seconds)).timestamp()) * 1_000_000
        monkeypatch.setattr("ingest.doors.now_us", lambda: us)
        planned = agent.plan(name, "deploy-web", tool="overtaken", arguments={"name": name})
        book.effects[name] = UUID(planned["id"])

    for name, seconds in {"quick": 2, "before": -1, "slow": 1, "after": 300, "slowest": 3}.items():
        arrive(name, seconds)
    times = {"since": f"{start:%Y-%m-%dT%H:%M:%SZ}", "until": f"{start + timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}"}
    among = {"quick", "slow", "slowest"}
    assert found(viewer, book, {"tool": "overtaken", **times}) == among
    assert found(viewer, book, {"tool": "overtaken", "since": times["since"]}) == among | {"after"}
    assert found(viewer, book, {"tool": "overtaken", "until": times["until"]}) == among | {"before"}
    assert found(viewer, book, {"session": "deploy-web", **times}) == among


def test_pages_of_a_search_meet_without_gap_or_overlap(viewer: Client, agent: Caller, book: Book) -> None:
    many(agent, "long", 130, answered=130)
    for query in ("/audit/?session=long", "/audit/?session=long&state=unknown&state=acknowledged"):
        url, seen = query, []
        for _ in range(9):
            page = viewer.get(url).content.decode()
            seen += re.findall(r'id="(e_\d+)"', page)
            older = re.search(r'rel="next" href="([^"]+)"', page)
            if older is None:
                break
            url = "/audit/" + older[1].replace("&amp;", "&")
        numbers = [int(handle[2:]) for handle in seen]
        assert len(numbers) == len(set(numbers)) == 130
        assert numbers == sorted(numbers, reverse=True)
        newer = re.search(r'rel="prev" href="([^"]+)"', page)
        assert newer
        back = re.findall(r'id="e_(\d+)"', viewer.get("/audit/" + newer[1].replace("&amp;", "&")).content.decode())
        assert [int(one) for one in back] == numbers[50:100]


def test_a_search_by_slow_fields_says_how_far_it_looked(
    viewer: Client, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SLOW_WINDOW", 5)
    first = Effect.objects.order_by("opened_position")[0].opened_position
    url, names, pages, before = "/audit/?environment=prod", set[str](), 0, first
    while before >= first:  # below there is nothing, and on PostgreSQL positions begin where the last test ended
        page = viewer.get(url).content.decode()
        names |= {name for name, identity in book.effects.items() if f"/effects/{identity}/" in page}
        further = re.search(r'href="(\?environment=prod&amp;before=(\d+))">Look further back', page)
        if further is None:
            break
        pages, before = pages + 1, int(further[2])
        url = "/audit/" + further[1].replace("&amp;", "&")
    assert names == {"planned", "ok"}
    assert pages > 3


# Combination -> the index that has to serve it, by what people ask most.
SERVED = {
    "tool=git.push&state=failed": "effect_failed_by_tool",
    "tool=git.push": "effect_by_tool",
    "state=failed": "effect_by_state",
    "outcome=error": "effect_by_bad_outcome",
    "outcome=unknown&tool=git.push": "effect_by_bad_outcome|effect_by_tool",
    "repository=web": "effect_by_repository",
    "ref_class=production": "effect_by_ref_class",
    "violating=1": "effect_violations",
    "session=deploy-web&state=failed": "effect_by_session|effect_open_intent|effect_failed_by_tool",
    "reference=x": "effect_by_reference",
    "key=ok&session=deploy-web": "sqlite_autoindex_ledger_effect_1|ledger_effect_pkey|effect_by_session",
    "state=unknown": "effect_by_bad_outcome|effect_by_state",
}

# What agents list -> the same.
LISTED = {
    "external_reference=x": "effect_by_reference",
    "external_reference=ok&tool=git.push": "effect_by_reference|effect_by_tool",
    "state=failed": "effect_by_state",
    "state=failed&tool=git.push": "effect_failed_by_tool|effect_by_state|effect_by_tool",
    "state=planned&session=deploy-web": "effect_by_session|effect_open_intent|effect_by_state",
    "outcome=error": "effect_by_bad_outcome",
    "outcome=unknown&state=acknowledged": "effect_by_bad_outcome",
    "effect_key=ok&session=deploy-web": "sqlite_autoindex_ledger_effect_1|ledger_effect_pkey|effect_by_session",
    "tool=git.push": "effect_by_tool",
}


def test_what_people_ask_most_is_served_by_an_index(house: House, agent: Caller, book: Book) -> None:
    many(agent, "bulk", 3000, answered=2800)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # SQLite goes by the figures of inquiry/planner.py
            cursor.execute("ANALYZE ledger_effect")
    for query, index in SERVED.items():
        asked = search.read(parse_qs(query), house.project, now_us())
        assert not asked.errors
        assert not asked.slow
        arms = [arm.only("id", "opened_position").order_by("-opened_position") for arm in search.arms(asked)]
        plan = "\n".join(arm[: search.SIZE].explain() for arm in arms)
        assert re.search(index, plan), f"{query}\n{plan}"
        assert "effect_by_opening" not in plan, f"{query}\n{plan}"
    for query, index in LISTED.items():
        with explained() as plans:
            assert agent.get(f"/effects?{query}").status_code == 200
        (plan,) = (plan for sql, plan in plans.items() if 'FROM "ledger_effect"' in sql)
        assert re.search(index, plan), f"{query}\n{plan}"
        assert "effect_by_opening" not in plan, f"{query}\n{plan}"


def test_every_field_says_what_serves_it() -> None:
    for field in FIELDS.values():
        assert field.index or search.is_slow(field.name), field.name
    assert {"agent", "on_behalf_of", "ref", "environment", "leave", "intent"} == {
        name for name in FIELDS if not FIELDS[name].index
    }
    assert set(NAMES) > set(FIELDS)


def goes_to(viewer: Client, text: object) -> str:
    answer = viewer.get("/go/", {"id": str(text)})
    assert answer.status_code == 302, answer.content.decode()
    parts = urlsplit(answer.headers["Location"])
    assert viewer.get(parts.path, parse_qs(parts.query)).status_code == 200
    return answer.headers["Location"]


def test_one_box_takes_any_id_and_goes_there(viewer: Client, book: Book) -> None:
    effect = Effect.objects.get(id=book.effects["ok"])
    session, task = Session.objects.get(id=book.session), Task.objects.get(id=book.task)
    artifact = Artifact.objects.get(id=book.unstored)
    text: object
    there = reverse("effect", args=[effect.id])
    for text in (effect, str(effect).upper(), effect.id, effect.id.hex, f"  {effect.id} ", REFERENCE, "ok"):
        assert goes_to(viewer, text) == there
    for text in (session, session.id, session.key):
        assert goes_to(viewer, text) == reverse("session", args=[session.id])
    assert goes_to(viewer, task) == goes_to(viewer, task.id) == reverse("task", args=[task.id])
    for text in (artifact, artifact.id, "ab" * 32, f"sha256:{'AB' * 32}"):
        assert goes_to(viewer, text).endswith(f"/artifacts/?at={artifact}#{artifact}")
    assert goes_to(viewer, hashlib.sha256(REPORT).hexdigest()).startswith(
        reverse("session_artifacts", args=[session.id])
    )
    entry = Entry.objects.filter(effect=effect.id, kind="effect.acknowledged").get()
    for text in (entry.position, f"{entry.position:,}".replace(",", " "), entry.event_id):
        assert goes_to(viewer, text) == f"{there}?fact={entry.position}#p{entry.position}"


def test_what_names_several_things_is_a_choice(viewer: Client, agent: Caller, book: Book) -> None:
    other = agent.plan("ok", "deploy-web/agent-1", arguments={"command": "git push origin again"})
    page = viewer.get("/go/", {"id": "ok"}).content.decode()
    assert page.count("effect with this key") == 2
    assert f"/effects/{other['id']}/" in page
    assert "it names 2 things" in page


NAMING_NOTHING = ["nothing", "e_999999", "s_0", "e_99999999999999999999", "é" * 300, "toolu_01", "-1", "..."]


def test_what_names_nothing_says_what_was_tried(viewer: Client, book: Book) -> None:
    for text in NAMING_NOTHING:
        answer = viewer.get("/go/", {"id": text})
        assert answer.status_code == 200
        page = answer.content.decode()
        assert "Nothing here is named" in page
        assert "it was looked up as" in page
        assert "Call ids have no index" in page


def test_an_intent_digest_leads_to_a_search(viewer: Client, book: Book) -> None:
    effect = Effect.objects.get(id=book.effects["error"])
    page = viewer.get("/go/", {"id": effect.intent_digest}).content.decode()
    link = re.search(r'href="(/audit/\?intent=[^"]+)"', page)
    assert link
    assert f"/effects/{effect.id}/" in viewer.get(link[1]).content.decode()


@pytest.mark.parametrize("text", ["", "  ", "x" * 301, "a\0b"])
def test_the_box_is_calm_about_nothing_and_too_much(viewer: Client, book: Book, text: str) -> None:
    answer = viewer.get("/go/", {"id": text})
    assert answer.status_code == 200
    assert "Go to an id" in answer.content.decode()
