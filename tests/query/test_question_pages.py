"""Each of the questions that ship by its form in the browser: where it leads, what stands there,
what is on record."""

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
from tests.approvals.inbox_scenario import Desk
from tests.pages.people import House
from tests.query.incident import Told
from tests.query.test_seventeen import EFFECTS, GATES, GIVEN

pytestmark = pytest.mark.django_db

# What the page of an answer says, beside how many effects or gates it found.
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


def says(number: int) -> list[str]:
    """What the page of a question's answer must say."""
    found = EFFECTS.get(number) or GATES.get(number) or []
    word = "effect" if number in EFFECTS else "gate"
    counted = [f"<b>{len(found)} {word}{'s' if len(found) > 1 else ''}</b>"] if found else []
    return [*counted, *SAYS.get(number, [])]


def test_each_question_is_a_page_of_its_answer(told: Told) -> None:
    client, asked = told.desk.house.client("viewer"), set()
    for number in builtin_questions.QUESTIONS_BY_NUMBER:
        given = {
            name: told.handle(text) if text in told.effects else text
            for name, text in GIVEN.get(number, {}).items()
        }
        answer = client.get(f"/search/questions/{number}/", given, follow=True)
        page = answer.content.decode()
        assert answer.status_code == 200, number
        assert answer.redirect_chain[0][0].startswith("/search/?q="), number
        asked.add(answer.redirect_chain[0][0])
        for words in says(number):
            assert words in page, (number, words)
        for url in re.findall(r'data-label="(?!From)[^"]+"><a href="(/search/\?q=[^"]+)"', page):
            rows = client.get(unescape(url)).content.decode()  # a group leads to its rows
            assert re.search(r"<b>[1-9][0-9]* (?:effect|gate|exemption)s?</b>", rows), url
            asked.add(unescape(url))
    viewer = ensure_pseudonym(told.desk.user("viewer"))
    assert Entry.objects.filter(kind="access.searched", actor=viewer).count() == len(asked)
    assert client.get("/search/?q=stat:x").status_code == 400  # nothing was searched
    begun = client.get("/search/questions/").content.decode()
    for (
        word,
        number,
    ) in (
        builtin_questions.STARTING_POINTS
    ):  # what people know leads to the question that finds it, also from incidents
        way = f'<a href="/search/questions/#q{number}">{word}</a>'
        assert (way in begun, f'<li id="q{number}">' in begun) == (True, True), word
        assert way in client.get("/incidents/").content.decode()
    assert Entry.objects.filter(kind="access.searched", actor=viewer).count() == len(asked)


def test_an_exemption_used_after_its_end_leads_to_what_ran_after_it(told: Told) -> None:
    client, exemption = told.desk.house.client("viewer"), told.exemption
    assert exemption is not None
    found = client.get("/search/questions/10/", follow=True).content.decode()
    assert "2 ran" in found
    page, handle = reverse("exemption", args=[exemption.id]), f"x_{exemption.opened_position}"
    assert f'href="{page}">{handle}' in found
    assert client.get("/go/", {"id": handle}).headers["Location"] == page
    shown = client.get(page).content.decode()
    assert "2 ran after the exemption ended" in " ".join(shown.split())
    rows = {
        name: shown.partition(f">{told.handle(name)}<")[2].partition("</tr>")[0]
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
    assert told.handle("in-time") in used
    assert "after the exemption ended" not in " ".join(used.split())
    # As of the moment at which permission was given, nothing had run; before the grant it was not there.
    given = (
        Entry.objects.filter(kind="exemption.used", subject=exemption.id)
        .order_by("-position")[0]
        .position
    )
    then = client.get(page, {"asof": f"#{given}"}).content.decode()
    assert told.handle("later") in then
    assert "1 ran after the exemption ended" in " ".join(then.split())
    assert client.get(page, {"asof": f"#{exemption.opened_position - 1}"}).status_code == 404
    assert told.desk.house.client("neighbour").get(page).status_code == 404
    # Of one that was revoked before its end, what ran since ran after it.
    with transaction.atomic():
        assert exemptions.end_exemption(in_time, told.desk.user("administrator"))
        Effect.objects.filter(effect_key="in-time").update(dispatched_at_us=now_us())
    both = client.get("/search/questions/10/", follow=True).content.decode()
    assert ["2 ran" in both, "1 ran" in both, "<b>2 exemptions</b>" in both] == [True] * 3
    page = " ".join(client.get(reverse("exemption", args=[in_time.id])).content.decode().split())
    assert "1 ran after the exemption ended" in page


def test_what_ran_where_a_project_only_observes_is_found_without_a_violation(
    house: House, agent: Caller
) -> None:
    desk = Desk(house, agent)
    desk.rules(mode="observe")
    push: dict[str, Any] = {"tool": "git.push", "arguments": {"ref": "main"}}
    agent.dispatch(desk.plan("commanded", **push))
    desk.plan("planned", tool="git.push", arguments={"ref": "next"})
    of = {"session": "s-1", "effect_key": "told"}
    told = [{"kind": "effect.planned", **push, **of}, {"kind": "effect.dispatched", **of}]
    assert agent.report([{"id": new_key(), **one} for one in told]).status_code == 200
    client = house.client("viewer")
    page = client.get("/search/").content.decode()
    (link,) = re.findall(r'href="([^"]+)">See what the rules would have blocked</a>', page)
    found = client.get(link, follow=True).content.decode()
    assert "<b>2 effects</b>" in found
    for key, there in (("commanded", True), ("told", True), ("planned", False)):
        assert (f">{Effect.objects.get(effect_key=key)}</a>" in found) is there, key
    nothing = client.get("/search/questions/7/", follow=True).content.decode()
    assert "No results" in nothing
    for way in ("saved", "link", "export"):  # which is an answer to be kept, too
        assert f'href="/search/{way}/?q=effect%20permission%3Abypassed"' in nothing
