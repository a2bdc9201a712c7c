"""What the resume answer says of a session that has ended."""

from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from recovery import resume
from sessions.models import Session
from tests.api.api_client import Caller
from tests.pages.sample_data import done
from tests.recovery.test_resume import agent, dispatched, operator, page, resumed, session, viewer

__all__ = ["agent", "operator", "session", "viewer"]
pytestmark = pytest.mark.django_db


def test_of_a_session_that_has_ended_it_is_said_how_and_what_is_open_and_not_whether_it_can_resume(
    agent: Caller, viewer: Client, operator: Client, session: UUID
) -> None:
    agent.acknowledge(dispatched(agent, session, "mail.send", "well"))
    assert [one["unheard"] for one in resumed(agent, session)["done"]] == [True]
    done(agent.post(f"/sessions/{session}/end", {"status": "completed"}))
    found = resumed(agent, session)
    assert (found["session"]["ended"], found["safe"]) == (True, True)
    assert [one["unheard"] for one in found["done"]] == [False]  # its worker has told the end of it
    assert found["session"]["ended_at_us"] == Session.objects.get(id=session).ended_at_us
    assert found["sentence"] == "The session has ended (completed). No dispatched effect is open."
    for name in ("session", "session_resume"):
        said = page(viewer, session, name)
        assert ": <b>completed</b> </h2> <p> No dispatched effect is open. " in said
        assert "resume safely" not in said


def test_what_an_ended_session_left_open_is_named_and_who_settles_it(
    agent: Caller, viewer: Client, operator: Client, session: UUID
) -> None:
    mail = dispatched(agent, session, "mail.send", "mail")
    dispatched(agent, session, "git.push", "push")
    agent.plan("later", str(session), tool="git.push", arguments={"n": 1})
    done(agent.post(f"/sessions/{session}/end", {"status": "failed"}))
    found = resumed(agent, session)
    assert (found["session"]["ended"], found["safe"]) == (True, False)
    assert [one["effect"] for one in found["because"]] == [mail["id"]]
    left = (
        f"Still open: for a person {mail['handle']}, 1 that can be settled without a person."
        " 1 planned but never dispatched."
    )
    assert found["sentence"] == f"The session has ended (failed). {left}"
    said = page(operator, session)
    assert f": <b>failed</b> </h2> <p> {left} {found['because'][0]['sentence']}" in said
    assert reverse("resolve", args=[UUID(mail["id"])]) in said
    assert "1 was never started" in said
    assert "may run for the first time" not in page(viewer, session).partition('id="timeline"')[0]


def test_open_effects_of_an_ended_session_are_counted_up_to_the_limit(
    agent: Caller, session: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "MAX_EVALUATED_EFFECTS", 1)
    for key in ("a", "b"):
        dispatched(agent, session, "mail.send", key)
    done(agent.post(f"/sessions/{session}/end", {"status": "cancelled"}))
    sentence = resumed(agent, session)["sentence"]
    assert sentence == "The session has ended (cancelled). More than 1 of its effects are open."
