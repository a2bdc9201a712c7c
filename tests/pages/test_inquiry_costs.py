"""Costs of the reading pages: constant query counts, small pages, no failing query string."""

import re
import string
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config import middleware
from evaluation.bench.workload import Writer
from investigation.query import docs
from ledger.models import Effect
from ledger.tools import cache
from sessions.models import Session
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import InboxScenario
from tests.matrices import count_examples, keep_core
from tests.pages.people import Organization
from tests.pages.sample_data import SampleIds, fill, many

pytestmark = [pytest.mark.django_db, pytest.mark.once]
MOST = 12
MOST_OF_SESSION = 15  # its page draws the effects of its table, with the entries that move them


@pytest.fixture(autouse=True)
def _no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock: periodic reads and writes are not costs of a page."""
    monkeypatch.setattr(cache, "CACHE_S", 10.0**9)
    monkeypatch.setattr(middleware, "SEEN_PRECISION_S", 10**9)


@pytest.fixture
def viewer(organization: Organization) -> Client:
    """Return a browser signed in as a viewer."""
    return organization.client("viewer")


def measure_page(viewer: Client, url: str) -> tuple[int, bytes]:
    """Return the number of queries of a page, and its content."""
    with CaptureQueriesContext(
        connection,
    ) as queries:
        answer = viewer.get(url)
    assert answer.status_code == 200, url
    return len(queries), answer.content


def pages(sample: SampleIds) -> list[str]:
    effect = Effect.objects.get(id=sample.effects["ok"])
    return [
        "/sessions/",
        "/sessions/?status=running&agent=deploy-7&text=d",
        reverse("session", args=[sample.session]),
        reverse("session", args=[sample.session]) + "?state=unknown&tool=test.run",
        reverse("session", args=[sample.session]) + f"?at={effect}",
        reverse("session_timeline", args=[sample.session]),
        reverse("session_tasks", args=[sample.session]),
        reverse("session_artifacts", args=[sample.session]),
        reverse("task", args=[sample.task]),
        reverse("effect", args=[sample.effects["ok"]]),
        reverse("effect", args=[sample.effects["rejected"]]),
        "/search/",
        "/search/?q=state:[failed,unknown]+tool:deploy.run+since:7d+until:0m",
        "/search/?q=agent:deploy-7+environment:prod+since:7d&facets=1",
        "/search/?q=key:ok+permission:used",
        "/search/?q=event",
        "/search/?q=session+agent:deploy-7+|+group+status,agent",
        "/search/jump/?id=e_99999999",
        "/search/?q=99999999",  # a number is looked up as an ID too
        "/search/jump/?id=00000000-0000-4000-8000-000000000000",
        f"/search/jump/?id={'0' * 64}",
    ]


def test_queries_are_few_and_do_not_grow_with_the_journal(
    organization: Organization, viewer: Client, agent: Caller, sample: SampleIds
) -> None:
    viewer.get(
        reverse("session", args=[sample.session])
    )  # the first page after a sign-in starts the sign-in's clock
    many(agent, "apart", 5)
    effect = Effect.objects.filter(session__key="apart").earliest("opened_position")
    member = {"title": "x", "thing": "apart", "reason": "why"}
    incident = organization.client("reviewer").post(reverse("open_incident"), member)["Location"]
    urls = [reverse("effect_chain", args=[effect.id]), incident]
    for url in (*pages(sample), *urls):  # hourly access records are not counted
        viewer.get(url)
    before = {url: measure_page(viewer, url)[0] for url in (*pages(sample), *urls)}
    session_page = reverse("session", args=[sample.session])
    for url, number in before.items():
        is_session = url.startswith(session_page) and "/timeline/" not in url
        assert number <= (MOST_OF_SESSION if is_session else MOST), before
    grow(agent, sample)
    many(agent, "apart", 95, start=5)
    after = {url: measure_page(viewer, url)[0] for url in before}
    grown = {url: (before[url], after[url]) for url in before if after[url] > before[url]}
    assert grown == {}


def test_chains_and_incidents_cost_the_same_whatever_their_size(
    organization: Organization, agent: Caller, sample: SampleIds
) -> None:
    inbox, reviewer = InboxScenario(organization, agent), organization.client("reviewer")
    inbox.rules()
    inbox.declare("deploy")
    effect = inbox.plan("one", tool="deploy")
    gate = inbox.gate(effect)
    for person in ("rita", "sam"):
        inbox.answer(gate, person)
    agent.dispatch(effect)
    agent.post(
        f"/sessions/{effect['session']}/decisions",
        {"key": "d", "choice": "now", "effect_key": "one"},
    )
    many(agent, "s-1", 30, answered=30)
    middle = inbox.effect(effect)
    line = list(
        Effect.objects.filter(session=middle.session)
        .exclude(id=middle.id)
        .order_by("opened_position")
    )
    for link in (
        "parent_effect",
        "compensates",
    ):  # eight ancestors, one child, three grandchildren
        above, below, line = line[:8], line[8:12], line[12:]
        for named, linked in zip(above, [middle, *above], strict=False):
            Effect.objects.filter(id=linked.id).update(**{link: named})
        for linked, named in zip(below, [middle, *[below[0]] * 3], strict=True):
            Effect.objects.filter(id=linked.id).update(**{link: named})
    incident = reviewer.post(
        reverse("open_incident"), {"title": "x", "thing": "s-1", "reason": "why"}
    )["Location"]
    for thing in (
        str(Session.objects.get(id=sample.session)),
        str(middle),
        str(gate),
        f"#{middle.plan_position}",
    ):
        added = reviewer.post(f"{incident}members/", {"thing": thing, "reason": "why"})
        assert added.status_code == 302, thing
    change = {"title": "x", "state": "open", "owner": "reviewer", "reason": "mine", "version": "1"}
    assert reviewer.post(f"{incident}change/", change).status_code == 302
    chain = reverse("effect_chain", args=[middle.id])
    shown = reviewer.get(f"{chain}?view=json").json()
    assert (len(shown["links"]), len(shown["gates"][0]["votes"]), len(shown["decisions"])) == (
        25,
        2,
        1,
    )
    assert any(
        "compensated, 8 steps back" in description for description in shown["links"].values()
    )
    for url in (chain, incident):
        for view in ("lanes", "table"):
            address = f"{url}?view={view}&clock=corrected"
            reviewer.get(address)
            number, content = measure_page(reviewer, address)
            assert number <= MOST, address
    assert b"owner is <b>reviewer</b>" in content


def grow(agent: Caller, sample: SampleIds, number: int = 100) -> None:
    """Add effects and items, and sixty sessions, tasks, artifacts and facts."""
    session = str(sample.session)
    many(agent, session, number, answered=number)
    items = [{"key": f"item-{n}", "state": "done"} for n in range(number)]
    assert agent.post(f"/tasks/{sample.task}/items", {"items": items}).status_code == 200
    facts: list[dict[str, Any]] = []
    for n in range(60):
        facts.append(
            {
                "id": f"s-{n}",
                "kind": "session.started",
                "session": f"other-{n}",
                "title": f"Session {n}",
            }
        )
        facts.append(
            {
                "id": f"t-{n}",
                "kind": "task.created",
                "session": session,
                "task": f"task-{n}",
                "title": f"Task {n}",
            }
        )
        facts.append(
            {"id": f"x-{n}", "kind": "effect.sniffed", "session": session, "effect_key": "ok"}
        )
        facts.append(
            {
                "id": f"f-{n}",
                "kind": "artifact.recorded",
                "session": session,
                "effect_key": "ok",
                "type": "log",
                "name": f"log-{n}",
                "sha256": f"{n + 1:064x}",
                "size": n,
                "media_type": "text/plain",
            }
        )
    answer = agent.report(facts)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("number", keep_core([600, 5_000], [600]))
def test_a_session_of_many_effects_is_a_light_page(
    viewer: Client, agent: Caller, sample: SampleIds, number: int
) -> None:
    grow(agent, sample, number // 5)
    viewer.get(reverse("session", args=[sample.session]))
    many(agent, str(sample.session), number * 4 // 5, start=number // 5, answered=200)
    number, content = measure_page(viewer, reverse("session", args=[sample.session]))
    assert number <= MOST_OF_SESSION
    assert content.count(b'data-label="Effect"') == 50
    assert len(content) < 150_000, len(content)
    oldest = Effect.objects.filter(session=sample.session).order_by("opened_position")[0]
    number, content = measure_page(
        viewer, reverse("session", args=[sample.session]) + f"?at={oldest}"
    )
    assert number <= MOST_OF_SESSION
    assert f'id="{oldest}"'.encode() in content
    assert len(measure_page(viewer, "/search/")[1]) < 100_000
    # Rows as the benchmark writes: each with a task, a skewed agent clock and its attempts.
    (batch,) = Writer("measured", sessions=1, rich=True).mixed(1)
    assert agent.raw("/events", batch.body).status_code == 200
    url = reverse("session", args=[Session.objects.get(key="bench-measured-0").id])
    viewer.get(url)  # the first view of an hour is recorded
    number, content = measure_page(viewer, url)
    assert number <= MOST_OF_SESSION
    assert content.count(b'data-label="Effect"') == content.count(b"data-label=Task ") == 50
    assert len(content) < 145_000, len(content)


def test_paging_a_timeline_shows_every_row_once(
    viewer: Client, agent: Caller, sample: SampleIds
) -> None:
    many(agent, "long", 133)
    sessions = viewer.get("/sessions/?text=long").content.decode()
    link = re.search(r'href="(/sessions/[0-9a-f-]+/)"', sessions)
    assert link
    url, seen = link[1], list[str]()
    while True:
        page = viewer.get(url).content.decode()
        seen += re.findall(r'id="(e_\d+)"', page)
        older = re.search(r'rel="next" href="([^"#]+)', page)
        if older is None:
            break
        url = link[1] + older[1].replace("&amp;", "&")
    assert len(seen) == len(set(seen)) == 133


HOSTILE = [
    "<script>window.pwned=1</script>",
    "\"><img src=x onerror='window.pwned=1'>",
    "{{ 7*7 }}{% now 'Y' %}",
    "javascript:alert(1)",
    "<div hx-get='/sign-out/' hx-trigger='load'>",
    "\u202egnp.exe\u200b\u0000\u001b[31m",
]


ALONE = [word for word in HOSTILE if "\u0000" not in word]
TOGETHER = " ".join(word for word in ALONE if not word.startswith("javascript:"))


@pytest.mark.matrix
@pytest.mark.parametrize("words", keep_core([TOGETHER, *ALONE], [TOGETHER, "javascript:alert(1)"]))
def test_agent_text_stays_text_in_every_field(
    organization: Organization, agent: Caller, words: str
) -> None:
    sample = fill(agent, words)
    viewer = organization.client("viewer")
    for url in pages(sample):
        page = viewer.get(url).content.decode()
        inside = page.partition("<main")[2].partition("</main>")[0]
        for markup in ("<script", "<img", "<div hx-get='", "onerror='", "49"):
            assert markup not in inside or markup == "49", (url, markup)
        assert not re.search(r'href="\s*javascript:', inside), url
        for region in re.findall(r'class="[^"]*untrusted"[^>]*>', inside):
            assert "hx-disable" in region
            assert "hx-ignore" in region
            assert 'dir="ltr"' in region


def test_hidden_characters_are_shown(viewer: Client, agent: Caller, sample: SampleIds) -> None:
    words = HOSTILE[-1]
    effect = agent.plan(
        "hidden", str(sample.session), tool="shell", arguments={"command": words}, why=words
    )
    for url in (
        reverse("effect", args=[effect["id"]]),
        reverse("session", args=[sample.session]),
        "/search/",
    ):
        page = viewer.get(url).content.decode()
        assert "[U+202E]" in page
        assert "[U+200B]" in page
        for character in "\u202e\u200b\u001b\u0000":
            assert character not in page


LISTS = ("/sessions/", "/search/", "/search/jump/", "SESSION", "TIMELINE", "TASK", "EFFECT")
VALUES = st.one_of(
    st.sampled_from(
        [
            "",
            "failed",
            "unknown",
            "1",
            "s_1",
            "e_2",
            "24h",
            "2026-11-20",
            "0",
            "-1",
            "9" * 30,
            "%",
            "_",
            "'",
        ]
    ),
    st.text(max_size=20),
    st.text(alphabet=string.printable, max_size=20),
    st.integers().map(str),
    st.lists(st.sampled_from(docs.all_examples()), min_size=1, max_size=3).map(" ".join),
)
QUERIES = st.lists(
    st.tuples(
        st.one_of(
            st.sampled_from(
                [
                    *(
                        "q",
                        "q",
                        "q",
                        "facets",
                        "add",
                        "before",
                        "after",
                        "at",
                        "id",
                        "status",
                        "mode",
                    ),
                    *(
                        "state",
                        "outcome",
                        "tool",
                        "agent",
                        "session",
                        "repository",
                        "ref",
                        "permission",
                        "until",
                    ),
                    *("text", "parent", "fact", "since"),
                ]
            ),
            st.text(max_size=12),
            st.sampled_from(
                [
                    "agent__owner__password__startswith",
                    "_connector",
                    "session__key__regex",
                    "order_by",
                ]
            ),
        ),
        VALUES,
    ),
    max_size=5,
)


@settings(
    max_examples=count_examples(50, 150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(path=st.sampled_from(LISTS), query=QUERIES)
def test_no_query_string_breaks_a_page(
    viewer: Client, sample: SampleIds, path: str, query: list[tuple[str, str]]
) -> None:
    named = {
        "SESSION": reverse("session", args=[sample.session]),
        "TIMELINE": reverse("session_timeline", args=[sample.session]),
        "TASK": reverse("task", args=[sample.task]),
        "EFFECT": reverse("effect", args=[sample.effects["ok"]]),
    }
    encoded = urlencode([(name, value.encode("utf-8", "replace")) for name, value in query])
    with CaptureQueriesContext(connection) as queries:
        answer = viewer.get(f"{named.get(path, path)}?{encoded}")
    assert answer.status_code in (200, 302, 400)
    for statement in queries:
        for forbidden in ("password", "REGEXP", "regex"):
            assert forbidden not in statement["sql"].partition(" WHERE ")[2].partition("=")[0]
