"""Each of the questions that ship by its form in the browser: where it leads, what stands there, what is on record."""

import re
from html import unescape

import pytest

from inquiry import shipped
from journal.models import Entry
from sessions.people import pseudonym_of
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
    for number in shipped.BY_NUMBER:
        given = {
            name: told.handle(text) if text in told.effects else text for name, text in GIVEN.get(number, {}).items()
        }
        answer = client.get(f"/audit/questions/{number}/", given, follow=True)
        page = answer.content.decode()
        assert answer.status_code == 200, number
        assert answer.redirect_chain[0][0].startswith("/audit/?q="), number
        asked.add(answer.redirect_chain[0][0])
        for words in says(number):
            assert words in page, (number, words)
        for url in re.findall(r'data-label="(?!From)[^"]+"><a href="(/audit/\?q=[^"]+)"', page):
            rows = client.get(unescape(url)).content.decode()  # a group leads to its rows
            assert re.search(r"<b>[1-9][0-9]* (?:effect|gate|exemption)s?</b>", rows), url
            asked.add(unescape(url))
    viewer = pseudonym_of(told.desk.user("viewer"))
    assert Entry.objects.filter(kind="access.searched", actor=viewer).count() == len(asked)
    assert client.get("/audit/?q=stat:x").status_code == 400  # nothing was searched
    assert Entry.objects.filter(kind="access.searched", actor=viewer).count() == len(asked)
