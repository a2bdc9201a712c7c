"""The pages of decisions, handoffs and state: their content, erased texts, and who may erase."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse

from db.clock import now_us
from journal import erasures
from sessions.models import Decision, Handoff, Session
from tests.api.api_client import Caller
from tests.pages.people import Organization
from tests.pages.sample_data import connect_agent

pytestmark = pytest.mark.django_db
NAMES = ("session_decisions", "session_handoffs", "session_state")


@pytest.fixture
def worker(organization: Organization) -> Iterator[Caller]:
    with connect_agent(organization.agent) as caller:
        yield caller


@pytest.fixture
def session(worker: Caller) -> str:
    session_id: str = worker.session("s-1", title="<b>Fix it</b>")["id"]
    return session_id


def page(
    organization: Organization, name: str, session: str, role: str = "viewer", **query: Any
) -> str:
    client: Client = organization.client(role)
    answer = client.get(reverse(name, args=[session]), query)
    assert answer.status_code == 200
    text: str = answer.content.decode()
    return re.sub(r"\s+", " ", text.partition("<main")[2])


def test_decisions_are_shown_with_rationale_and_conclusion(
    organization: Organization, worker: Caller, session: str
) -> None:
    effect = worker.plan("push-1")
    choice = {
        "key": "way",
        "choice": "go <i>left</i>",
        "rationale": "it is shorter",
        "effect_key": "push-1",
    }
    decision = worker.post(f"/sessions/{session}/decisions", choice).json()
    worker.post(f"/sessions/{session}/decisions", {"key": "open", "choice": "wait for Ann"})
    worker.post(
        f"/decisions/{decision['id']}/conclude", {"status": "done", "outcome": "pushed as 3f2a"}
    )
    text = page(organization, "session_decisions", session)
    assert text.index("wait for Ann") < text.index("go &lt;i&gt;left&lt;/i&gt;")
    for words in ("it is shorter", "pushed as 3f2a", reverse("effect", args=[effect["id"]])):
        assert words in text
    still_open = page(organization, "session_decisions", session, open="1")
    assert "wait for Ann" in still_open
    assert "it is shorter" not in still_open


def test_a_handoff_is_shown_in_its_sections(
    organization: Organization, worker: Caller, session: str
) -> None:
    effect = worker.plan("push-1")
    note = {
        "in_progress": ["half of the orders"],
        "waits_on": [{"kind": "effect", "ref": "push-1", "text": "the push"}],
    }
    first = worker.post(f"/sessions/{session}/handoffs", note).json()
    assert "not yet accepted" in page(organization, "session_handoffs", session)
    worker.post(f"/sessions/{session}/handoffs", {"can_wait": ["x" * 4000] * 2})
    text = page(organization, "session_handoffs", session)
    assert "never accepted; replaced by a later handoff" in text
    assert "longer than the next worker should read" in text
    assert f'<dd> <a href="{reverse("effect", args=[effect["id"]])}">' in text
    assert f"{effect['handle']} git.push the push" in re.sub(r"<[^>]+>", "", text)
    worker.post(f"/handoffs/{first['id']}/accept")
    assert f"by {organization.agent.name}, " in page(organization, "session_handoffs", session)


def test_the_awaited_handoff_is_shown_on_the_session_and_the_resume_page(
    organization: Organization, worker: Caller, session: str
) -> None:
    names = ("session", "session_resume")
    for name in names:
        assert "Needs attention next" not in page(organization, name, session)
    effect = worker.plan("push-1")
    waits = [{"kind": "effect", "ref": "push-1"}, {"kind": "text", "text": "CI run 882"}]
    note = {"needs_attention": ["ask the provider for its log"], "waits_on": waits}
    written = worker.post(f"/sessions/{session}/handoffs", note).json()
    for name in names:
        text = page(organization, name, session)
        assert f'<dd> <a href="{reverse("effect", args=[effect["id"]])}">' in text
        words = " ".join(re.sub(r"<[^>]+>", " ", text).split())
        assert "Needs attention next ask the provider for its log" in words
        assert f"Waiting on {effect['handle']} git.push CI run 882" in words
    worker.post(f"/handoffs/{written['id']}/accept")
    for name in names:
        assert "Needs attention next" not in page(organization, name, session)


def test_checkpoints_facts_and_drift_are_shown(
    organization: Organization, worker: Caller, session: str
) -> None:
    assert "None." in page(organization, "session_state", session)
    worker.post(
        f"/sessions/{session}/checkpoints", {"summary": "two of three", "pins": {"schema": "8"}}
    )
    for source, value in (("git", "3f2a"), ("CI", {"head": "9c41"})):
        worker.post(
            f"/sessions/{session}/facts", {"name": "head", "value": value, "source": source}
        )
    text = page(organization, "session_state", session)
    for words in ("two of three", "3f2a", "{&quot;head&quot;:&quot;9c41&quot;}"):
        assert words in text
    assert "schema 8" in re.sub(r"<[^>]+>", "", text)
    assert text.count("another source disagrees") == 2


def test_erased_texts_are_marked_and_only_administrators_see_the_erase_link(
    organization: Organization, worker: Caller, session: str
) -> None:
    worker.post(f"/sessions/{session}/decisions", {"key": "d", "choice": "call Ann at home"})
    worker.post(f"/sessions/{session}/handoffs", {"can_wait": ["Ann's number"]})
    row, handoff = Decision.objects.get(), Handoff.objects.get()
    positions = [row.recorded_position, handoff.written_position]
    for name, position in zip(NAMES, positions, strict=False):
        erase = reverse("erase_body", args=[position])
        assert erase in page(organization, name, session, "administrator")
        assert erase not in page(organization, name, session, "operator")
    for position in positions:
        assert position is not None
        with transaction.atomic():
            erasures.erase_body(
                organization.project.id, position, reason="request", actor="tests", now_us=now_us()
            )
    assert "Ann" not in page(organization, "session_decisions", session)
    assert ">erased</span>" in page(organization, "session_decisions", session)
    assert "The text was erased." in page(organization, "session_handoffs", session)


def test_a_session_of_another_project_is_not_found(
    organization: Organization, worker: Caller, session: str
) -> None:
    with connect_agent(organization.other_token.agent) as stranger:
        theirs = stranger.session("s-1")["id"]
    for name in NAMES:
        assert organization.client("viewer").get(reverse(name, args=[theirs])).status_code == 404
        assert organization.client("viewer").post(reverse(name, args=[session])).status_code == 405


def test_the_session_page_links_to_the_pages_and_shows_the_merge(
    organization: Organization, worker: Caller, session: str
) -> None:
    branch = worker.session("branch", branched_from="s-1")["id"]
    worker.post(
        f"/sessions/{branch}/change", {"merge_into": "s-1", "merge_intent": "when CI is green"}
    )
    worker.post(f"/sessions/{branch}/change", {"status": "waiting", "waiting_on": "CI run 88"})
    text = page(organization, "session", branch)
    assert all(reverse(name, args=[branch]) in text for name in NAMES)
    for words in (
        "when CI is green",
        "CI run 88",
        f'into <a href="{reverse("session", args=[session])}"',
    ):
        assert words in text
    worker.post(f"/sessions/{branch}/merged", {"into": "s-1"})
    text = page(organization, "session", branch)
    assert "Merged into" in text
    assert "Merge target" not in text
    assert str(Session.objects.get(id=session)) in text
