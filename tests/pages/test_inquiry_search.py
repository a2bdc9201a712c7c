"""The search page: results, errors, empty results and costs."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from urllib.parse import parse_qs
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client

from db.clock import now_us
from investigation.query import execute
from ledger.models import Effect
from tests.api.api_client import Caller
from tests.pages.people import Organization
from tests.pages.plans import explained
from tests.pages.sample_data import REFERENCE, SampleIds, many, pass_deadline

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(organization: Organization) -> Client:
    """Return a browser signed in as a viewer."""
    return organization.client("viewer")


def page_of(viewer: Client, text: str, **more: str) -> str:
    """Return the page of results for a query."""
    answer = viewer.get("/search/", {"q": text, **more})
    assert answer.status_code == 200, (text, answer.content)
    return answer.content.decode()


def find_names(viewer: Client, sample: SampleIds, text: str) -> set[str]:
    """Return the names of the effects that a query finds."""
    page = page_of(viewer, text).partition("<tbody")[2]
    return {name for name, identity in sample.effects.items() if f"/effects/{identity}/" in page}


# Queries and the effects that each finds.
NARROWED = [
    ("state:planned", {"planned"}),
    ("state:failed", {"rejected"}),
    ("state:unknown", {"unknown", "timeout", "dispatched"}),
    ("state:dispatched", set()),
    ("state:[failed,unknown]", {"rejected", "unknown", "timeout", "dispatched"}),
    ("outcome:error", {"error", "rejected"}),
    ("tool:mail.send", {"dispatched", "superseded"}),
    ("state:failed tool:deploy.run", {"rejected"}),
    ("outcome:ok tool:git.push agent:deploy-7", {"ok"}),
    ("state:planned session:deploy-web", {"planned"}),
    ("repository:web ref_class:production", {"planned", "ok"}),
    ("ref:main environment:prod", {"planned", "ok"}),
    ("permission:granted", {"planned", "superseded"}),
    (f"reference:{REFERENCE}", {"ok"}),
    ("key:rejected", {"rejected"}),
    ("is:violating", set()),
    ("tool:mail.send since:1h", {"dispatched", "superseded"}),
    ("tool:mail.send until:1h", set()),
    ('agent:"two words"', set()),
]


def test_a_query_narrows(viewer: Client, sample: SampleIds) -> None:
    pass_deadline(sample.effects["dispatched"])
    for text, names in NARROWED:
        assert find_names(viewer, sample, text) == names, text
    effect = Effect.objects.get(id=sample.effects["ok"])
    assert find_names(viewer, sample, f"intent:{effect.intent_digest}") == {"ok"}
    for typed in (f" {effect} ", str(effect.id), REFERENCE):  # a lone id redirects to its page
        assert viewer.get("/search/", {"q": typed}).headers["Location"] == f"/effects/{effect.id}/"


# Query string, error sentence, and the 1-based character; 0 means the whole query string.
NONSENSE = [
    ("q=toll:x", "“toll” is not a field of an effect; did you mean “tool”?", 1),
    ("q=tool:x state:odd", "Use one of planned, awaiting", 14),
    ("q=tool:x since:tomorrow", "“tomorrow” is not a time. Use a time such as 2026-11-20", 14),
    ("q=tool:x (state:failed", "The parenthesis is not closed. Add a closing parenthesis.", 8),
    ("q=tool:x OR", "The query ends too early. Add a condition.", 9),
    ("q=session tool:x", "“tool” is not a field of a session; it is a field of effects", 9),
    ("q=tool:a%00b", "A query cannot hold a NUL character.", 7),
    ("q=" + "x" * 2001, "A query can have at most 2,000 characters.", 2001),
    ("q=tool:" + "x" * 301, "at most 300 characters", 6),
    ("befor=1", "There is no field “befor”; did you mean “before”?", 0),
    ("zzzz=1", "There is no field “zzzz”.", 0),
    ("q=tool:a&before=x", "“before” must be a journal position.", 0),
    ("q=tool:a&before=99999999999999999999999", "“before” must be a journal position.", 0),
]


def test_an_error_names_its_position_and_nothing_is_searched(
    viewer: Client, sample: SampleIds
) -> None:
    for query_string, sentence, character in NONSENSE:
        with explained() as plans:
            answer = viewer.get(f"/search/?{query_string}")
        page = unescape(re.sub(r"<span[^>]*>|</span>", "", answer.content.decode()))
        assert answer.status_code == 400, query_string
        assert sentence in page, query_string
        assert "Nothing was searched." in page
        assert "<tbody" not in page
        assert not [sql for sql in plans if 'FROM "ledger_effect"' in sql]
        assert (f"At character {character:,}".replace(",", "\u202f") in page) == bool(character), (
            query_string
        )
        text = parse_qs(query_string).get("q", [""])[0]
        assert f'value="{text}"' in page or "\0" in text, query_string
    page = viewer.get("/search/?q=tool:x state:odd").content.decode()
    assert re.search(r"<mark\s*><span", page)
    assert ">odd</span></mark>" in page


def test_an_overtaken_write_is_found_by_its_time_of_arrival(
    viewer: Client, agent: Caller, sample: SampleIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Order positions by the time of writing, which may differ from the order of arrival."""
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)  # after a quiet day

    def arrive(name: str, seconds: int) -> None:
        us = int((start + timedelta(seconds=seconds)).timestamp()) * 1_000_000
        monkeypatch.setattr("api.endpoint.now_us", lambda: us)
        planned = agent.plan(name, "deploy-web", tool="overtaken", arguments={"name": name})
        sample.effects[name] = UUID(planned["id"])

    for name, seconds in {"quick": 2, "before": -1, "slow": 1, "after": 300, "slowest": 3}.items():
        arrive(name, seconds)
    # The search is journalled too; its entry must not precede these entries.
    monkeypatch.setattr(
        "display.access_log.now_us", lambda: int(start.timestamp() + 400) * 1_000_000
    )
    since, until = (
        f"since:{start:%Y-%m-%dT%H:%M:%SZ}",
        f"until:{start + timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}",
    )
    among = {"quick", "slow", "slowest"}
    assert find_names(viewer, sample, f"tool:overtaken {since} {until}") == among
    assert find_names(viewer, sample, f"tool:overtaken {since}") == among | {"after"}
    assert find_names(viewer, sample, f"tool:overtaken {until}") == among | {"before"}
    assert find_names(viewer, sample, f"session:deploy-web {since} {until}") == among


def test_pages_of_a_search_meet_without_gap_or_overlap(
    viewer: Client, agent: Caller, sample: SampleIds
) -> None:
    many(agent, "long", 130, answered=130)
    for query in (
        "/search/?q=session:long",
        "/search/?q=session:long+state:[unknown,acknowledged]",
    ):
        url, seen = query, []
        for _ in range(9):
            page = viewer.get(url).content.decode()
            assert "<b>130 effects</b>" in page
            seen += re.findall(r'id="(e_\d+)"', page)
            older = re.search(r'rel="next" href="([^"]+)"', page)
            if older is None:
                break
            url = "/search/" + unescape(older[1])
        numbers = [int(handle[2:]) for handle in seen]
        assert len(numbers) == len(set(numbers)) == 130
        assert numbers == sorted(numbers, reverse=True)
        newer = re.search(r'rel="prev" href="([^"]+)"', page)
        assert newer
        back = re.findall(
            r'id="e_(\d+)"', viewer.get("/search/" + unescape(newer[1])).content.decode()
        )
        assert [int(number) for number in back] == numbers[50:100]


def test_a_search_by_unindexed_fields_shows_how_far_it_searched(
    viewer: Client, sample: SampleIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "SLOW_WINDOW", 5)
    first = Effect.objects.order_by("opened_position")[0].opened_position
    url, names, pages, before = "/search/?q=environment:prod", set[str](), 0, first
    while before >= first:  # no entries below; on PostgreSQL positions continue from the last test
        page = viewer.get(url).content.decode()
        names |= {
            name for name, identity in sample.effects.items() if f"/effects/{identity}/" in page
        }
        further = re.search(
            r'href="(\?q=environment%3Aprod&amp;before=(\d+))">Search older entries', page
        )
        if further is None:
            break
        pages, before = pages + 1, int(further[2])
        url = "/search/" + unescape(further[1])
    assert names == {"planned", "ok"}
    assert pages > 3


# Common queries -> the index that must serve each.
SERVED = {
    "tool:tool.3 state:failed": "effect_failed_by_tool",
    "tool:git.push": "effect_by_tool",
    "state:failed": "effect_by_state",
    "outcome:error": "effect_by_bad_outcome",
    "outcome:unknown tool:git.push": "effect_by_bad_outcome|effect_by_tool",
    "repository:web": "effect_by_repository",
    "ref_class:production": "effect_by_ref_class",
    "is:violating": "effect_violations",
    "session:deploy-web state:failed": "effect_by_session|effect_open_intent|effect_failed_by_tool",
    "reference:x": "effect_by_reference",
    "resource:x": "effect_by_resource",
    "key:ok "
    "session:deploy-web": "sqlite_autoindex_ledger_effect_2|effect_key_is_unique_in_session|effect_by_session",
    "state:unknown": "effect_by_bad_outcome|effect_by_state",
}
# Queries whose count must not fetch rows: for many rows the fetch dominates the page.
COUNTED = ("tool:tool.3 state:failed", "tool:git.push", "outcome:error", "state:unknown")

# Lists that agents request -> the index that must serve each.
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


def test_what_people_ask_most_is_served_by_an_index(
    organization: Organization, agent: Caller, sample: SampleIds
) -> None:
    many(agent, "bulk", 3000, answered=2200)
    # Enough failed effects that leftovers of other tests do not decide PostgreSQL's choice of
    # index.
    failed = {"kind": "effect.failed", "session": "bulk", "reason": "rejected"}
    reports = [
        {**failed, "id": f"f-{number}", "effect_key": f"e-{number}"} for number in range(800)
    ]
    assert agent.report(reports).json()["accepted"] == len(reports)
    with connection.cursor() as cursor:
        if (
            connection.vendor == "postgresql"
        ):  # SQLite uses the statistics of db/sqlite/planner_statistics.py
            cursor.execute("ANALYZE ledger_effect")
    for query, index in SERVED.items():
        compiled = execute.compile_query(query, organization.project, now_us())
        assert not compiled.slow
        arms = [
            arm.only("id", "opened_position").order_by("-opened_position")
            for arm in execute.disjoint_querysets(compiled)
        ]
        plan = "\n".join(arm[: execute.PAGE_SIZE].explain() for arm in arms)
        assert re.search(index, plan), f"{query}\n{plan}"
        assert "effect_by_opening" not in plan, f"{query}\n{plan}"
        if (
            query in COUNTED and connection.vendor == "sqlite"
        ):  # PostgreSQL plans small tables differently
            counts = [
                arm.values_list("opened_position")[: execute.COUNT_LIMIT].explain()
                for arm in execute.disjoint_querysets(compiled)
            ]
            assert all("USING COVERING INDEX" in plan for plan in counts), f"{query}\n{counts}"
    for query, index in LISTED.items():
        with explained() as plans:
            assert agent.get(f"/effects?{query}").status_code == 200
        (plan,) = (plan for sql, plan in plans.items() if 'FROM "ledger_effect"' in sql)
        assert re.search(index, plan), f"{query}\n{plan}"
        assert "effect_by_opening" not in plan, f"{query}\n{plan}"
