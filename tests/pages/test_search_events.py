"""Search results: groups, facets, histogram, empty results and completion."""

import re
from html import unescape

import pytest
from django.test import Client

from accounts import repositories
from approvals import exemptions
from db.clock import now_us
from journal.models import Entry
from ledger.models import Effect
from tests.api.api_client import Caller
from tests.approvals.confirm_helpers import proved
from tests.pages.people import Organization
from tests.pages.sample_data import SampleIds, many, pass_deadline
from web.templatetags.gatebook import grouped

pytestmark = pytest.mark.django_db
HOSTILE = "<script>pwned=1</script>\u202egpj"


@pytest.fixture
def viewer(organization: Organization) -> Client:
    """Return a browser signed in as a viewer."""
    return organization.client("viewer")


def page_of(viewer: Client, text: str, **more: str) -> str:
    """Return the page of results for a query."""
    answer = viewer.get("/search/", {"q": text, **more})
    assert answer.status_code == 200, (text, answer.content)
    return answer.content.decode()


def links(page: str) -> list[str]:
    """Return the URLs of the queries that a part of a page links to."""
    return [unescape(url) for url in re.findall(r'href="([^"]*\?q=[^"]*)"', page)]


def test_every_entity_is_found_and_grouped(
    viewer: Client, organization: Organization, sample: SampleIds
) -> None:
    user = organization.members["operator"].user
    for tool in ("mail.*", "<script>pwned=1</script>"):
        exemptions.create_exemption(
            organization.project,
            tool=tool,
            reason="for the drill",
            ends_at_us=now_us() + 10**9,
            user=user,
            **proved(),
        )
    assert "Deploy the web shop" in page_of(viewer, "session key:deploy-web")
    page = page_of(viewer, "exemption granter:operator is:live")
    assert "<b>2 exemptions</b>" in page
    assert "in force" in page
    assert "<script>pwned" not in page
    page = page_of(viewer, "event kind:exemption.granted actor:operator")
    assert "<b>2 events</b>" in page
    assert ">operator</span></td>" in page
    assert re.search(
        r'aria-current="true">\s*<span>[^×]*operator', page
    )  # the facet resolves the name to a person
    page = page_of(viewer, "event session:deploy-web kind:effect.sniffed")
    assert f"/effects/{sample.effects['ok']}/?fact=" in page
    assert ">deploy-7<" in page
    assert "No gates yet" in page_of(viewer, "gate")
    page = page_of(viewer, "-tool:git.push | group tool,outcome | count, max(attempts), p95(took)")
    counted = dict.fromkeys(
        re.findall(r'rowheader" scope="row" data-label="Tool">\s*<a href="([^"]+)"', page)
    )
    assert len(counted) > 4
    for link in list(counted)[::3]:
        rows = viewer.get(unescape(link)).content.decode()
        assert '<th role=rowheader scope=row data-label="Effect">' in rows
    assert f"<b>{len(counted)} groups</b>" in page
    pass_deadline(sample.effects["dispatched"])  # shown and grouped as unknown from now on
    for text in (
        "effect | group state",
        "effect | group policy_outcome | distinct(state), p95(took), count",
        "session | group status",
    ):
        page = page_of(viewer, text).partition("<tbody")[2]
        counts = re.findall(r'(?s)scope="row"[^>]*>\s*<a href="([^"]+)".*?(\d+)</td>\s*</tr>', page)
        assert counts
        for url, number in counts:
            assert f"<b>{number} " in viewer.get(unescape(url)).content.decode(), (text, url)


def test_facets_and_bars_only_edit_the_query(
    viewer: Client, agent: Caller, organization: Organization, sample: SampleIds
) -> None:
    many(agent, "long", 60, answered=60)
    repositories.ensure_repository(organization.other, "theirs")
    plain = page_of(viewer, "session:long")
    assert 'class="histogram"' not in plain  # loaded after the page if there are many rows
    (part,) = re.findall(r'hx-get="([^"]+)"', plain.partition("<main")[2])
    fragment = viewer.get(
        "/search/" + unescape(part), headers={"HX-Request": "true"}
    ).content.decode()
    assert "<tbody" not in fragment.partition("</details>")[2]
    assert "<html" not in fragment
    assert "<html" in viewer.get("/search/" + unescape(part)).content.decode()
    full_page = page_of(viewer, "session:long", facets="1")
    for page in (fragment, full_page):
        bars = [
            int(number)
            for number in re.findall(
                r"UTC: (\d+) effects", page.partition('class="histogram"')[2].partition("</svg>")[0]
            )
        ]
        assert sum(bars) == 60
        facets = page.partition('id="facets"')[2].partition("</nav>")[0]
        assert "tool.3" in facets
        assert "theirs" not in facets
    seen = 0
    for url in list(dict.fromkeys(links(facets)))[::3]:
        answer = viewer.get(url)
        seen += "<b>60 effects</b>" not in answer.content.decode()
        assert answer.status_code == 200
    assert seen > 3  # each link narrows the query
    narrowed = page_of(viewer, "session:long tool:tool.3 state:[acknowledged,unknown]")
    (chosen,) = re.findall(
        r'<a href="([^"]+)"\s+aria-current="true">\s*<span>[^×]*tool\.3', narrowed
    )
    assert unescape(chosen) == "/search/?q=session%3Along+state%3A%5Backnowledged%2Cunknown%5D"
    bar = next(
        link for link in links(full_page.partition('<svg class="histogram"')[2]) if "since" in link
    )
    assert "<b>60 effects</b>" in viewer.get(bar).content.decode()


def test_an_empty_result_shows_entries_read_and_the_excluding_condition(
    viewer: Client, sample: SampleIds
) -> None:
    page = page_of(viewer, "tool:mail.send state:failed -agent:deploy-7")
    assert "Effects where tool is mail.send and state is failed and not agent is deploy-7." in page
    assert "No single condition excludes all results." in page
    page = page_of(
        viewer, "(tool:mail.send AND state:failed) AND (permission:bypassed OR tool:none) since:7d"
    )
    blamed = page.partition('class="prose section no-results"')[2]
    assert links(blamed) == ["/search/?q=effect"]  # no single condition excludes all results
    page = page_of(viewer, "tool:mail.receive")
    assert "condition excludes all results" not in page  # there is only one
    fixed = viewer.get("/search/", {"q": "state:failed OR stat:unknown"}).content.decode()
    assert "/search/?q=state%3Afailed+OR+state%3Aunknown" in links(fixed)
    page = page_of(viewer, "tool:mail.send AND state:failed AND since:7d")
    blamed = page.partition('class="prose section no-results"')[2]
    assert links(blamed) == [
        "/search/?q=tool%3Amail.send+since%3A7d",
        "/search/?q=state%3Afailed+since%3A7d",
    ]
    page = page_of(viewer, "agent:nobody")
    assert "“nobody” is not the name of an agent in this project" in page
    answer = viewer.get("/search/", {"q": "tool:a | group agent", "add": "state:[failed,unknown]"})
    assert unescape(answer.headers["Location"]).endswith(
        "tool%3Aa+state%3A%5Bfailed%2Cunknown%5D+%7C+group+agent"
    )


# Text with the cursor (|), the first option, and the text after choosing that option.
COMPLETED = [
    ("to|", "tool:", "tool:"),
    ("session sta|tus:x", "status:", "session status:x"),
    ("tool:git|", "git.push ", "tool:git.push "),
    ("state:[failed,un|]", "unknown", "state:[failed,unknown]"),
    ("agent:dep|", "deploy-7 ", "agent:deploy-7 "),
    ("-is:fen|", "fenced ", "-is:fenced "),
    ("session any(effect: outc|", "outcome:", "session any(effect: outcome:"),
    ("session any(eff|", "effect: ", "session any(effect: "),
    ("intent:!@app|", "!@approved_intent ", "intent:!@approved_intent "),
    ("| group re|", "repository", "| group repository"),
    ("| group tool | ma|", "max(", "| group tool | max("),
    (
        "seq(effect.planned -> !effect.ack|",
        "effect.acknowledged",
        "seq(effect.planned -> !effect.acknowledged",
    ),
    ("stat:fai|", "state:", "state:fai"),
    ("gate requester:view|", "viewer ", "gate requester:viewer "),
]


def test_the_box_completes_at_the_cursor(
    viewer: Client, organization: Organization, agent: Caller, sample: SampleIds
) -> None:
    repositories.ensure_repository(organization.project, f"web {HOSTILE}")
    for typed, first, became in COMPLETED:
        before, _, after = typed.rpartition("|")
        page = viewer.get(
            "/search/complete/", {"q": before + after, "at": str(len(before))}
        ).content.decode()
        options = [unescape(option) for option in re.findall(r'data-text="([^"]*)"', page)]
        assert options[:1] == [first], (typed, options)
        assert len(options) <= 12
        begun, ended = (int(number) for number in re.findall(r'data-(?:from|to)="(\d+)"', page))
        assert (before + after)[:begun] + options[0] + (before + after)[ended:] == became
    for typed in ("repository:", "agent:", "gate requester:"):
        page = viewer.get("/search/complete/", {"q": typed, "at": str(len(typed))}).content.decode()
        assert not re.search("ledger|build-4|neighbour", page)  # of another project
        assert "<script" not in page
        assert "\u202e" not in re.sub(r'data-text="[^"]*"', "", page)
    for odd in ("\0", "((((", '"', "x" * 3000, "tool:[", "|||", "a..", "@@"):
        assert viewer.get("/search/complete/", {"q": odd, "at": "77777"}).status_code == 200
        assert viewer.get("/search/complete/", {"q": odd, "at": "-1"}).status_code == 200


def test_matched_words_are_marked(viewer: Client, agent: Caller, sample: SampleIds) -> None:
    text = (
        "the <b>quarterly</b> ledger of \u202egnp was <script>pwned=1</script> printed "
        + "x " * 400
    )
    agent.plan("printed", "deploy-web", tool="print.run", arguments={"document": text})
    page = page_of(viewer, "quarterly ledg* tool:print.run")
    assert "<b>1 effect</b>" in page
    marked = [
        re.sub(r"<[^>]+>", "", fragment) for fragment in re.findall(r"<mark>(.*?)</mark>", page)
    ]
    assert marked == ["quarterly", "ledger"]
    assert "<script>pwned" not in page
    assert "[U+202E]" in page
    assert "No results" in page_of(viewer, "quarterlies")
    assert "<mark>" not in page_of(viewer, "tool:print.run -quarterlies")


def test_distinguishing_values_are_listed_with_counts(
    viewer: Client, agent: Caller, sample: SampleIds
) -> None:
    many(
        agent, "long", 70, answered=70
    )  # tools 0 to 6 in turn; outcomes ok, error, unknown in turn
    agent.plan("one more", "long", tool="tool.1", arguments={})
    page = page_of(viewer, "session:long tool:tool.1", apart="2")
    section = page.partition('id="distinguishing-values"')[2].partition("</section>")[0]
    assert "11 with <code>" in section
    assert ">60 without</a>" in section
    assert "planned" not in section  # a single occurrence is not significant
    assert (
        "<th"
        not in page_of(viewer, "session:long", apart="7").partition('id="distinguishing-values"')[2]
    )
    narrowed = page_of(
        viewer, "session:long (state:planned OR outcome:unknown) since:1h", apart="3"
    )
    assert "No other results to compare with." in narrowed
    unknown = (
        page_of(viewer, "session:long outcome:unknown", apart="2")
        .partition('id="distinguishing-values"')[2]
        .partition("</section>")[0]
    )
    counts = re.findall(
        r"(?s)State</span>\s*<a[^>]*>.*?unknown.*?>(\d+) of\s+23\s*<.*?>0 of\s+48\s*<.*?>\s*only "
        r"in these\s*<",
        unknown,
    )
    assert counts == ["23"]
    (link,) = [url for url in links(unknown) if "state%3Aunknown" in url]
    assert "<b>23 effects</b>" in viewer.get(link).content.decode()


def test_facets_bars_and_links_as_of_a_moment_are_of_that_moment(
    viewer: Client, agent: Caller, sample: SampleIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = Entry.objects.order_by("-position").values_list("position", flat=True)
    position = newest[0]
    effect = Effect.objects.get(id=sample.effects["planned"])
    agent.dispatch({"id": str(effect.id), "intent_digest": effect.intent_digest})
    page = page_of(viewer, f"tool:deploy.run asof:#{position}", facets="1")
    assert f"as of position {grouped(position)}," in page
    (handle,) = re.findall(rf'href="(/effects/{effect.id}/\?asof=[^"]+)"', page)
    assert "planned" in viewer.get(unescape(handle)).content.decode()
    facets = page.partition('id="facets"')[2]
    assert "#planned" in facets
    assert "#dispatched" not in facets
    assert (
        "#dispatched" in page_of(viewer, "tool:deploy.run", facets="1").partition('id="facets"')[2]
    )
    assert "/search/?q=tool%3Adeploy.run&facets=1" in links(page)  # back to now
