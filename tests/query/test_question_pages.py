"""Each audit question by its form: where it leads, its page and its record."""

import re
from html import unescape
from typing import Any

import pytest
from django.db import transaction
from django.urls import reverse

from accounts.people import ensure_pseudonym
from approvals import exemptions
from approvals.models import Exemption
from db.clock import now_us
from investigation.saved_queries import builtin_questions
from journal.models import Entry
from ledger.models import Effect
from tests.api.api_client import Caller, new_key
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import Organization
from tests.query.incident import Scenario
from tests.query.test_seventeen import EFFECTS, GATES, GIVEN

pytestmark = pytest.mark.django_db

# Text on the page of an answer, in addition to the number of effects or gates.
SAYS = {
    1: ["<b>1 session</b>", "broken", "failed"],
    2: ["awaiting approval", "1 of the reviewers"],
    3: ["<b>1 group</b>", ">web</span></a>"],
    4: ["<b>2 groups</b>", "dan"],
    6: ["#unknown"],
    7: ["bypassed"],
    8: ["reviewer approved"],
    9: ["<b>1 group</b>", "reviewer"],
    10: ["<b>1 exemption</b>", "deploy"],
    11: ["<b>1 event</b>", "integrity.conflict"],
    12: ["<b>1 event</b>", "integrity.fenced"],
    13: ["administrator approved", "in 1 min"],
    16: ["<b>1 session</b>", 'data-label="Taken over" class="num">4'],
    17: ["gate.voted", ">reviewer</span>"],
}


def expected_text(number: int) -> list[str]:
    """Return the text that the page of a question must contain."""
    expected = EFFECTS.get(number) or GATES.get(number) or []
    word = "effect" if number in EFFECTS else "gate"
    counted = (
        [f"<b>{len(expected)} {word}{'s' if len(expected) > 1 else ''}</b>"] if expected else []
    )
    return [*counted, *SAYS.get(number, [])]


def test_each_question_is_a_page_of_its_answer(scenario: Scenario) -> None:
    client, urls = scenario.inbox.organization.client("viewer"), set()
    for number in builtin_questions.QUESTIONS_BY_NUMBER:
        given = {
            name: scenario.handle(text) if text in scenario.effects else text
            for name, text in GIVEN.get(number, {}).items()
        }
        answer = client.get(f"/search/questions/{number}/", given, follow=True)
        page = answer.content.decode()
        assert answer.status_code == 200, number
        assert answer.redirect_chain[0][0].startswith("/search/?q="), number
        urls.add(answer.redirect_chain[0][0])
        for words in expected_text(number):
            assert words in page, (number, words)
        for url in re.findall(r'data-label="(?!From)[^"]+"><a href="(/search/\?q=[^"]+)"', page):
            rows = client.get(unescape(url)).content.decode()  # a group links to its rows
            assert re.search(r"<b>[1-9][0-9]* (?:effect|gate|exemption)s?</b>", rows), url
            urls.add(unescape(url))
    viewer = ensure_pseudonym(scenario.inbox.user("viewer"))
    assert Entry.objects.filter(kind="access.searched", actor=viewer).count() == len(urls)
    assert client.get("/search/?q=stat:x").status_code == 400  # nothing was searched
    begun = client.get("/search/questions/").content.decode()
    for (
        word,
        number,
    ) in (
        builtin_questions.STARTING_POINTS
    ):  # each starting point runs its question, also from incidents
        link = f'<a href="/search/questions/{number}/">{word}</a>'
        assert (link in begun, f'<li id="q{number}">' in begun) == (True, True), word
        answer = client.get(f"/search/questions/{number}/")
        assert answer.headers["Location"].startswith("/search/?q="), word
        assert link in client.get("/incidents/").content.decode()
    assert Entry.objects.filter(kind="access.searched", actor=viewer).count() == len(urls)


def test_an_exemption_used_after_its_end_leads_to_what_ran_after_it(scenario: Scenario) -> None:
    client, exemption = scenario.inbox.organization.client("viewer"), scenario.exemption
    assert exemption is not None
    listing = client.get("/search/questions/10/", follow=True).content.decode()
    assert "2 ran" in listing
    page, handle = reverse("exemption", args=[exemption.id]), f"x_{exemption.opened_position}"
    assert f'href="{page}">{handle}' in listing
    assert client.get("/search/jump/", {"id": handle}).headers["Location"] == page
    shown = client.get(page).content.decode()
    assert "2 ran after the exemption ended" in " ".join(shown.split())
    rows = {
        name: shown.partition(f">{scenario.handle(name)}<")[2].partition("</tr>")[0]
        for name in ("late", "later")
    }
    assert [
        "1 h after" in rows["later"],
        "after</span>" in rows["later"],
        "after</span>" in rows["late"],
    ] == [
        False,
        True,
        True,
    ]
    in_time = Exemption.objects.exclude(id=exemption.id).get()
    used = client.get(reverse("exemption", args=[in_time.id])).content.decode()
    assert scenario.handle("in-time") in used
    assert "after the exemption ended" not in " ".join(used.split())
    # As of the moment at which permission was given, nothing had run; before the grant it was not there.
    given = (
        Entry.objects.filter(kind="exemption.used", subject=exemption.id)
        .order_by("-position")[0]
        .position
    )
    then = client.get(page, {"asof": f"#{given}"}).content.decode()
    assert scenario.handle("later") in then
    assert "1 ran after the exemption ended" in " ".join(then.split())
    assert client.get(page, {"asof": f"#{exemption.opened_position - 1}"}).status_code == 404
    assert scenario.inbox.organization.client("neighbour").get(page).status_code == 404
    # After a revocation before the end, later runs count as after the end.
    with transaction.atomic():
        assert exemptions.end_exemption(in_time, scenario.inbox.user("administrator"))
        Effect.objects.filter(effect_key="in-time").update(dispatched_at_us=now_us())
    both = client.get("/search/questions/10/", follow=True).content.decode()
    assert ["2 ran" in both, "1 ran" in both, "<b>2 exemptions</b>" in both] == [True] * 3
    page = " ".join(client.get(reverse("exemption", args=[in_time.id])).content.decode().split())
    assert "1 ran after the exemption ended" in page


def test_runs_in_observe_mode_are_found_without_a_violation(
    organization: Organization, agent: Caller
) -> None:
    inbox = InboxScenario(organization, agent)
    inbox.rules(mode="observe")
    push: dict[str, Any] = {"tool": "git.push", "arguments": {"ref": "main"}}
    agent.dispatch(inbox.plan("commanded", **push))
    inbox.plan("planned", tool="git.push", arguments={"ref": "next"})
    effect_fields = {"session": "s-1", "effect_key": "told"}
    facts = [
        {"kind": "effect.planned", **push, **effect_fields},
        {"kind": "effect.dispatched", **effect_fields},
    ]
    assert agent.report([{"id": new_key(), **fact} for fact in facts]).status_code == 200
    client = organization.client("viewer")
    page = client.get("/search/").content.decode()
    questions = client.get("/search/questions/").text
    assert "It ran without being held" in questions
    assert "Nobody was asked" not in questions
    (link,) = re.findall(r'href="([^"]+)">See what the rules would have blocked</a>', page)
    listing = client.get(link, follow=True).content.decode()
    assert "<b>2 effects</b>" in listing
    for key, listed in (("commanded", True), ("told", True), ("planned", False)):
        assert (f">{Effect.objects.get(effect_key=key)}</a>" in listing) is listed, key
    empty_page = client.get("/search/questions/7/", follow=True).content.decode()
    assert "No results" in empty_page
    for action in ("saved", "link", "exports"):  # an empty answer can be saved too
        assert f'href="/search/{action}/?q=effect%20permission%3Abypassed"' in empty_page
