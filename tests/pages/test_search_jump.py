"""The box that accepts any id: where it leads, and what it shows for unknown text."""

import hashlib
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.urls import reverse

from journal.models import Entry
from ledger.models import Effect
from sessions.models import Artifact, Session, Task
from tests.api.api_client import Caller
from tests.pages.people import Organization
from tests.pages.sample_data import REFERENCE, REPORT, SampleIds

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(organization: Organization) -> Client:
    """Return a browser signed in as a viewer."""
    return organization.client("viewer")


def goes_to(viewer: Client, text: object) -> str:
    answer = viewer.get("/search/jump/", {"id": str(text)})
    assert answer.status_code == 302, answer.content.decode()
    parts = urlsplit(answer.headers["Location"])
    assert viewer.get(parts.path, parse_qs(parts.query)).status_code == 200
    return answer.headers["Location"]


def test_the_box_accepts_any_id_and_opens_its_page(viewer: Client, sample: SampleIds) -> None:
    effect = Effect.objects.get(id=sample.effects["ok"])
    session, task = Session.objects.get(id=sample.session), Task.objects.get(id=sample.task)
    artifact = Artifact.objects.get(id=sample.unstored)
    text: object
    effect_url = reverse("effect", args=[effect.id])
    for text in (
        effect,
        str(effect).upper(),
        effect.id,
        effect.id.hex,
        f"  {effect.id} ",
        REFERENCE,
    ):
        assert goes_to(viewer, text) == effect_url
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
        assert goes_to(viewer, text) == f"{effect_url}?fact={entry.position}#p{entry.position}"


def test_an_ambiguous_name_offers_a_choice(
    viewer: Client, agent: Caller, sample: SampleIds
) -> None:
    # A plain word that is a key may be a word of other effects as well.
    page = viewer.get("/search/jump/", {"id": "ok"}).content.decode()
    assert "1 result</span>" in page
    assert f"/effects/{sample.effects['ok']}/" in page
    assert '<a class="push" href="/search/?q=ok">Search for it as a word</a>' in page
    other = agent.plan("ok", "deploy-web/agent-1", arguments={"command": "git push origin again"})
    page = viewer.get("/search/jump/", {"id": "ok"}).content.decode()
    assert page.count("effect with this key") == 2
    assert f"/effects/{other['id']}/" in page
    assert "2 results" in page


NAMING_NOTHING = ["e_999999", "s_0", "00000000-0000-4000-8000-000000000000"]
WORDS = ["nothing", "é" * 300, "toolu_01", "-1", "...", "tool:git.push since:7d"]


def test_an_unknown_name_shows_what_was_tried(viewer: Client, sample: SampleIds) -> None:
    for text in NAMING_NOTHING:
        answer = viewer.get("/search/jump/", {"id": text})
        assert answer.status_code == 200
        page = answer.content.decode()
        assert "No ID matches “" in page
        assert "Gatebook searched this project for" in page
        assert f'href="/search/?q={text}"' in page


def test_a_number_that_is_no_id_is_searched_as_a_word(
    viewer: Client, agent: Caller, sample: SampleIds
) -> None:
    order = agent.plan("w1", "deploy-web/agent-1", tool="mail.send", arguments={"order": 88120099})
    for text in ("88120099", "88 120 099"):
        url = goes_to(viewer, text)
        assert url == "/search/?q=88120099"
    page = viewer.get(url).content.decode()
    assert "No object has the ID 88120099." in page
    assert f"/effects/{order['id']}/" in page
    # A number that is an ID is still a word in the box of the search page, which links the object.
    entry = Entry.objects.get(effect=sample.effects["ok"], kind="effect.acknowledged")
    page = viewer.get("/search/", {"q": str(entry.position)}).content.decode()
    assert f"?fact={entry.position}#p{entry.position}" in page
    assert "No object has the ID" not in page
    agent.plan("88120099", "deploy-web/agent-1", tool="mail.send", arguments={"order": 1})
    assert goes_to(viewer, "88120099").startswith("/effects/")


def test_words_are_searched(viewer: Client, sample: SampleIds) -> None:
    for text in WORDS:
        answer = viewer.get("/search/jump/", {"id": text})
        assert parse_qs(urlsplit(answer.headers["Location"]).query) == {"q": [text]}


def test_an_intent_digest_leads_to_a_search(viewer: Client, sample: SampleIds) -> None:
    effect = Effect.objects.get(id=sample.effects["error"])
    page = viewer.get("/search/jump/", {"id": effect.intent_digest}).content.decode()
    link = re.search(r'href="(/search/\?q=intent[^"]+)"', page)
    assert link
    assert f"/effects/{effect.id}/" in viewer.get(link[1]).content.decode()


@pytest.mark.parametrize("text", ["", "  ", "x" * 301, "a\0b"])
def test_the_box_accepts_empty_and_overlong_text(
    viewer: Client, sample: SampleIds, text: str
) -> None:
    answer = viewer.get("/search/jump/", {"id": text})
    assert answer.status_code == 200
    assert "Go to an ID" in answer.content.decode()
