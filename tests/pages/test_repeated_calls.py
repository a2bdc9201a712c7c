"""Two effects that repeat each other in different sessions name each other, also once settled."""

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from investigation.fulltext import indexer
from ledger.models import Effect, Tool
from ledger.tools import cache
from sessions.models import Session
from tests.api.api_client import Caller
from tests.pages.people import Organization
from tests.rows_with_entries import add_row

pytestmark = pytest.mark.django_db
MAIL = {"tool": "mail.send", "arguments": {"to": "ann@example.org", "subject": "Invoice 17"}}
MOST_QUERIES = {"effect": 14, "session": 17, "session_resume": 25}


@pytest.fixture(autouse=True)
def _kept_declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is cached for seconds: a slow machine needs them between two pages."""
    monkeypatch.setattr(cache, "CACHE_S", 3600)


@pytest.fixture
def viewer(organization: Organization) -> Client:
    return organization.client("viewer")


def send_mail(agent: Caller, session: str, key: str = "mail", **plan: object) -> Effect:
    agent.session(session)
    planned = agent.plan(key, session, **{**MAIL, **plan})
    agent.dispatch(planned)
    agent.acknowledge(planned)
    return Effect.objects.get(id=planned["id"])


def read_words(client: Client, name: str, identity: object, section: str = "<main") -> str:
    url = reverse(name, args=[identity])
    client.get(url)
    with CaptureQueriesContext(connection) as queries:
        page = client.get(url).content.decode()
    assert len(queries) <= MOST_QUERIES[name]
    return " ".join(re.sub(r"<[^>]+>", " ", page.partition(section)[2]).split())


def test_settled_repeats_name_each_other_on_pages_and_in_the_answer_to_resume(
    viewer: Client, agent: Caller
) -> None:
    first, second = send_mail(agent, "one"), send_mail(agent, "two")
    alone = send_mail(agent, "three", arguments={"to": "bob@example.org"})
    indexer.update_index()
    assert re.search(
        f"{second} mail.send in {second.session} same call, [0-9.]+ m?s later",
        read_words(viewer, "effect", first.id),
    )
    relations = read_words(viewer, "effect", second.id, 'id="relations"')
    assert re.search(
        f"{first} mail.send in {first.session} same call, [0-9.]+ m?s earlier", relations
    )
    for name in ("session", "session_resume"):
        of_first = read_words(viewer, name, first.session_id)
        assert f"{first} mail.send was repeated as {second} in {second.session}" in of_first
        of_second = read_words(viewer, name, second.session_id)
        assert f"{second} mail.send repeats {first} in {first.session}" in of_second
        assert "repeats" not in read_words(viewer, name, alone.session_id)
    for own, other, earlier in ((first, second, False), (second, first, True)):
        (repeat,) = agent.get(f"/sessions/{own.session_id}/resume").json()["repeats"]
        assert (repeat["effect"], repeat["tool"]) == (str(own.id), "mail.send")
        assert repeat["other"]["effect"] == str(other.id)
        assert repeat["other"]["session"] == str(other.session_id)
        assert (repeat["other"]["earlier"], repeat["other"]["state"]) == (earlier, "acknowledged")
    assert agent.get(f"/sessions/{alone.session_id}/resume").json()["repeats"] == []
    assert 'id="relations"' not in viewer.get(reverse("effect", args=[alone.id])).content.decode()


def test_calls_that_may_repeat_are_not_named(
    viewer: Client, agent: Caller, organization: Organization
) -> None:
    add_row(
        Tool(
            project=organization.project,
            name="mail.send",
            tool_class="idempotent",
            reversibility="reversible",
        )
    )
    cache.clear_tool_cache()
    send_mail(agent, "one")
    second = send_mail(agent, "two")
    indexer.update_index()
    assert Session.objects.count() == 2
    assert "same call" not in read_words(viewer, "effect", second.id)
    assert "repeats" not in read_words(viewer, "session", second.session_id)


def test_a_loop_names_the_other_session_once(viewer: Client, agent: Caller) -> None:
    first = send_mail(agent, "one")
    loop = [send_mail(agent, "two", f"mail-{number}") for number in range(4)]
    indexer.update_index()
    words = read_words(viewer, "session", loop[0].session_id)
    assert words.count(f"repeats {first}") == 1


def test_a_long_loop_names_a_call_of_another_session_within_or_after_it(
    viewer: Client, agent: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("investigation.repeated_calls.MAX_NEAR", 2)
    loop = [send_mail(agent, "loop", "mail-0"), send_mail(agent, "loop", "mail-1")]
    within = send_mail(agent, "within")
    loop += [send_mail(agent, "loop", f"mail-{number}") for number in range(2, 6)]
    indexer.update_index()
    words = read_words(viewer, "session", loop[0].session_id)
    assert f"{loop[0]} mail.send was repeated as {within}" in words
    bob = {"to": "bob@example.org"}
    long = [send_mail(agent, "long", f"bob-{number}", arguments=bob) for number in range(5)]
    after = send_mail(agent, "after", arguments=bob)
    indexer.update_index()
    words = read_words(viewer, "session", long[0].session_id)
    assert f"{long[0]} mail.send was repeated as {after}" in words
