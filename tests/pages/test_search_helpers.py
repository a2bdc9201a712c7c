"""The search page helps to write a query: builder, dates, columns, explanation, mended queries."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import transaction
from django.http import QueryDict
from django.test import Client
from django.urls import reverse

from accounts.people import ensure_pseudonym
from db.clock import now_us
from investigation.query import compiler
from investigation.saved_queries import builtin_questions
from journal import erasures
from journal.models import Entry
from ledger.models import Attempt, Effect
from pages.search import query_builder
from pages.search.search_request import RedirectTo, parse_search_request
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import Organization
from tests.pages.sample_data import SampleIds


def redirected(query_string: str) -> str:
    answer = parse_search_request(QueryDict(query_string), accepts_fragment=False)
    assert isinstance(answer, RedirectTo)
    return parse_qs(urlsplit(answer.url).query)["q"][0]


@pytest.mark.parametrize(
    "text",
    [
        "tool:git.push",
        "-tool:git.push",
        "tool:git.*",
        "state:[failed,unknown]",
        "attempts:>=3",
        "has:reference",
        "-has:reference",
        'resource:"two words"',
        "is:unknown",
        '"invoice rounding"',
        "since:7d",
    ],
)
def test_the_builder_keeps_a_condition(text: str) -> None:
    (row,) = query_builder.list_builder_rows(compiler.parse_query(text))
    assert row.is_simple
    sent = QueryDict(mutable=True)
    sent.update({"f": row.name, "o": row.operator, "v": row.value, "entity": "effect"})
    assert query_builder.compose_query(sent) == text


def test_the_builder_keeps_what_it_cannot_edit() -> None:
    text = "session any(effect: tool:x) (status:failed OR resumes:>2) mode:leased | group agent"
    query = compiler.parse_query(text)
    rows = query_builder.list_builder_rows(query)
    assert [row.is_simple for row in rows] == [False, False, True]
    assert rows[0].without == "session (status:failed OR resumes:>2) mode:leased | group agent"
    sent = QueryDict(mutable=True)
    sent.setlist("rest", [row.text for row in rows[:2]])
    sent.setlist("f", ["mode", "status", ""])
    sent.setlist("o", ["is", "is", "is"])
    sent.setlist("v", ["leased", "running", "lost"])
    sent.update({"entity": "session", "tail": "| group agent"})
    assert query_builder.compose_query(sent) == text.replace("leased", "leased status:running")


def test_forms_only_edit_the_text() -> None:
    assert (
        redirected("q=tool:x+since:7d&from=2026-11-01&to=2026-11-02")
        == "tool:x since:2026-11-01T00:00Z until:2026-11-03T00:00Z"
    )
    assert (
        redirected("q=tool:x+ran:7d&from=1000000&to=61000000&by=ran")
        == "tool:x ran:>=1970-01-01T00:00:01Z ran:<1970-01-01T00:01:01Z"
    )
    answer = parse_search_request(
        QueryDict("q=tool:x&col=tool&col=ran&dense=1"), accepts_fragment=False
    )
    assert isinstance(answer, RedirectTo)
    assert parse_qs(urlsplit(answer.url).query) == {
        "q": ["tool:x"],
        "cols": ["tool,ran"],
        "dense": ["1"],
    }


@pytest.mark.django_db
def test_the_page_explains_mends_and_shows_columns(
    organization: Organization, agent: Caller, sample: SampleIds
) -> None:
    viewer: Client = organization.client("viewer")

    def page(text: str, **more: str) -> str:
        return viewer.get("/search/", {"q": text, **more}).content.decode()

    assert "Effects where tool is mail.send." in page("tool:mail.send")
    for wrong, mended in (
        ('tool:"mail.send', 'tool:"mail.send"'),
        ("(tool:mail.send OR (state:failed", "(tool:mail.send OR (state:failed))"),
        ("state:[failed,unknown", "state:[failed,unknown]"),
        ("stat:failed", "state:failed"),
        ("state:faild", "state:failed"),
        ("is:failed since:yesterday OR", "state:failed since:"),
        ("state=failed", "state:failed"),
    ):
        end = "" if mended.endswith("since:") else "</code>"
        assert f"<code>{mended}{end}".replace('"', "&quot;") in page(wrong).replace(
            '<span class="untrusted" hx-disable hx-ignore dir="ltr">', ""
        ).replace("</span></code>", "</code>"), wrong
    assert 'q=tool%3Amail.send"' in page("tool:mail.sned")  # the nearest existing tool
    name = Effect.objects.get(id=sample.effects["ok"]).agent.name
    assert f"q=tool%3Amail.send+agent%3A{name}" in page(f"tool:mail.send agent:{name}x")
    options = viewer.get("/search/complete/", {"q": "tool:mai", "at": "8"}).text
    assert "of the newest 1,000 effects" in options
    shown = page("effect", cols="ran,attempts,tool", dense="1")
    assert "data-label=Ran>" in shown
    assert "Arguments" not in shown.partition("is-chosen")[2].partition("</table>")[0]
    assert "is-dense" in shown
    both = page("effect", cols="effect,tool").partition("is-chosen")[2].partition("</table>")[0]
    heads = re.findall(r'scope="col"[^>]*>([^<]+)<', both)
    assert heads == ["Effect", "Tool"]  # the handle begins each row, chosen or not
    assert "tool:mail.send&amp;" not in page("effect")  # links keep no view that is not chosen
    person = ensure_pseudonym(organization.members["viewer"].user)
    landing = page("")
    assert "Your recent queries" in landing
    assert person not in landing


@pytest.mark.django_db
def test_effects_are_found_by_when_they_ran(
    organization: Organization, agent: Caller, sample: SampleIds
) -> None:
    viewer: Client = organization.client("viewer")
    past_us = now_us() - 40 * 86_400_000_000
    ran = Attempt.objects.filter(lane="command", received_us__isnull=False).first()
    assert ran is not None
    Attempt.objects.filter(pk=ran.pk).update(lane="evidence", dispatched_at_us=past_us)
    effect = Effect.objects.get(pk=ran.effect_id)
    for text in (f"ran:<2126-01-01 id:{effect}", f"-ran:30d has:ran id:{effect}"):
        answer = viewer.get("/search/", {"q": text})
        assert f"/effects/{effect.pk}/" in answer.content.decode(), text
    assert f"/effects/{effect.pk}/" not in viewer.get("/search/", {"q": "ran:30d"}).text
    waiting = Effect.objects.filter(attempt_count=0).first()
    assert waiting is not None
    assert f"/effects/{waiting.pk}/" in viewer.get("/search/", {"q": "-has:ran"}).text
    assert (
        viewer.get("/search/", {"q": f"ran:30d asof:#{effect.opened_position}"}).status_code == 400
    )
    bars = viewer.get("/search/", {"q": "effect", "time": "ran"}).text
    assert "when it ran" in bars
    assert "ran%3A%3E%3D" in bars


@pytest.mark.django_db
def test_a_bare_name_finds_what_an_agent_did_and_a_person_decided(
    organization: Organization, agent: Caller, sample: SampleIds
) -> None:
    inbox = InboxScenario(organization, agent)
    inbox.rules()
    held = agent.plan("held", str(sample.session), tool="git.push", arguments={"ref": "main"})
    assert inbox.answer(inbox.gate(held), "reviewer", "deny").refusal is None
    viewer: Client = organization.client("viewer")
    reviewer = inbox.user("reviewer").get_username()
    name = Effect.objects.get(id=held["id"]).agent.name
    decided = viewer.get("/search/", {"q": reviewer}).text
    assert "<b>1 effect</b>" in decided
    assert f"/effects/{held['id']}/" in decided
    assert "decided on it" in decided
    assert "<b>1 gate</b>" in viewer.get("/search/", {"q": f"gate {reviewer}"}).text
    effects = Effect.objects.filter(agent__name=name)
    others = effects.exclude(tool="git.push")
    assert f"<b>{effects.count()} effects</b>" in viewer.get("/search/", {"q": f'"{name}"'}).text
    without = viewer.get("/search/", {"q": f"{name} -tool:git.push"}).text
    assert f"<b>{others.count()} effects</b>" in without
    answer = agent.get(f"/search?q={reviewer}").json()  # a token that may not read who decided
    assert answer["rows"] == []


def test_an_empty_search_offers_own_recent_and_popular_queries(
    organization: Organization, agent: Caller, sample: SampleIds
) -> None:
    shared, private = "effect state:failed", "effect tool:mail.send"
    for role, queries in {"viewer": [shared, private], "reviewer": [shared]}.items():
        client = organization.client(role)
        for query in queries:
            assert client.get(reverse("search"), {"q": query}).status_code == 200

    def read_lists(role: str) -> tuple[str, str]:
        page = organization.client(role).get(reverse("search")).content.decode()
        section = page.partition('id="recent-heading"')[2]
        recent, _, rest = section.partition('id="popular-heading"')
        return recent, rest.partition("</section>")[0]

    # Below the empty box are also what people know at the start, each a link to its question.
    page = organization.client("viewer").get(reverse("search")).content.decode()
    for word, number in builtin_questions.STARTING_POINTS:
        assert f'<a href="{reverse("question", args=[number])}">{word}</a>' in page
    searched = organization.client("viewer").get(reverse("search"), {"q": shared})
    assert "What happened?" not in searched.content.decode()
    recent, popular = read_lists("viewer")
    assert recent.index("tool:mail.send") < recent.index("state:failed")  # the latest first
    assert "2 people" in " ".join(popular.split())
    assert "state:failed" in popular
    assert "mail.send" not in popular
    others_recent, others_popular = read_lists("reviewer")
    assert "mail.send" not in others_recent + others_popular  # one person's searches stay theirs
    for erased in Entry.objects.filter(kind="access.searched", project=organization.project.id):
        with transaction.atomic():
            erasures.erase_body(
                erased.project, erased.position, reason="t", actor="t", now_us=erased.received_us
            )
    page = organization.client("viewer").get(reverse("search")).content.decode()
    assert (
        "state:failed" not in page.partition('class="past-queries"')[2].partition("</details>")[0]
    )
