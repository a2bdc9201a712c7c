"""The resume answer of an ended session."""

from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from recovery import resume
from sessions.models import Session
from tests.api.api_client import Caller
from tests.pages.sample_data import done
from tests.recovery.test_resume import (
    agent,
    dispatch_effect,
    get_resume,
    operator,
    page,
    session,
    viewer,
)

__all__ = ["agent", "operator", "session", "viewer"]
pytestmark = pytest.mark.django_db


def test_resume_of_an_ended_session_shows_its_end_and_its_open_effects(
    agent: Caller, viewer: Client, operator: Client, session: UUID
) -> None:
    agent.acknowledge(dispatch_effect(agent, session, "mail.send", "well"))
    assert [entry["unheard"] for entry in get_resume(agent, session)["done"]] == [True]
    done(agent.post(f"/sessions/{session}/end", {"status": "completed"}))
    answer = get_resume(agent, session)
    assert (answer["session"]["ended"], answer["safe"]) == (True, True)
    assert [entry["unheard"] for entry in answer["done"]] == [False]  # its worker reported the end
    assert answer["session"]["ended_at_us"] == Session.objects.get(id=session).ended_at_us
    assert answer["sentence"] == "The session has ended (completed). No dispatched effect is open."
    for name in ("session", "session_resume"):
        html = page(viewer, session, name)
        assert ": <b>completed</b> </h2> <p> No dispatched effect is open. " in html
        assert "resume safely" not in html


def test_open_effects_of_an_ended_session_are_listed_with_who_settles_them(
    agent: Caller, viewer: Client, operator: Client, session: UUID
) -> None:
    mail = dispatch_effect(agent, session, "mail.send", "mail")
    dispatch_effect(agent, session, "git.push", "push")
    agent.plan("later", str(session), tool="git.push", arguments={"n": 1})
    done(agent.post(f"/sessions/{session}/end", {"status": "failed"}))
    answer = get_resume(agent, session)
    assert (answer["session"]["ended"], answer["safe"]) == (True, False)
    assert [entry["effect"] for entry in answer["because"]] == [mail["id"]]
    left = (
        f"Still open: for a person {mail['handle']}, 1 that can be settled without a person."
        " 1 planned but never dispatched."
    )
    assert answer["sentence"] == f"The session has ended (failed). {left}"
    html = page(operator, session)
    assert f": <b>failed</b> </h2> <p> {left} {answer['because'][0]['sentence']}" in html
    assert reverse("resolve", args=[UUID(mail["id"])]) in html
    assert "1 was never started" in html
    assert "may run for the first time" not in page(viewer, session).partition('id="timeline"')[0]


def test_open_effects_of_an_ended_session_are_counted_up_to_the_limit(
    agent: Caller, session: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "MAX_EVALUATED_EFFECTS", 1)
    for key in ("a", "b"):
        dispatch_effect(agent, session, "mail.send", key)
    done(agent.post(f"/sessions/{session}/end", {"status": "cancelled"}))
    sentence = get_resume(agent, session)["sentence"]
    assert sentence == "The session has ended (cancelled). More than 1 of its effects are open."
