"""The client where people say yes: before the real server, under a policy in force, also for what a
crash left."""

from collections.abc import Callable
from typing import Any

import gatebook_client as gatebook
import pytest
from gatebook_client.testing import Crash

from tests.client.test_classes import Mortal
from tests.config.server import Server
from tests.evaluation.test_demo_agent import POLICY, a_project, rule

MAIN = {"repository": "acme/shop", "ref": "refs/heads/main"}
# Setting a state may be repeated, but under permission for one attempt people are asked about the next.
DELETE = ("git.branch.delete", {"remote": "origin", "ref": "refs/heads/main"})


@pytest.fixture(scope="module")
def token(live_server_process: Server) -> str:
    return a_project(live_server_process, "peopled", POLICY)


def answering(
    server: Server, *answers: str
) -> tuple[Callable[[str, dict[str, Any]], None], list[str]]:
    """A person who answers each question in turn, and the gates that were asked about."""
    left, asked = list(answers), list[str]()

    def waiting(why: str, told: dict[str, Any]) -> None:
        if why == "gate":
            asked.append(told["gate"]["id"])
            rule(server, asked[-1], "peopled-pilot", left.pop(0), "not today")

    return waiting, asked


def test_what_people_let_go_once_they_are_asked_about_again_before_it_is_done_again(
    live_server_process: Server, token: str
) -> None:
    server, done = live_server_process, list[str]()
    waiting, asked = answering(server, "approve", "approve")
    dying = gatebook.Client(
        server.url, token, on_wait=waiting, transport=Mortal("after", "dispatch")
    )
    with pytest.raises(Crash), dying.session("again") as s:
        s.perform(*DELETE, done.append, target=MAIN)
    assert (done, len(asked)) == ([], 1)
    with gatebook.Client(server.url, token, on_wait=waiting).session("again", takeover=True) as s:
        (step,) = s.recover().steps
        assert (step.result, len(asked)) == ("due", 1)
        assert s.perform(*DELETE, done.append, target=MAIN).attempt == 2
    assert (len(done), len(set(asked))) == (1, 2)


@pytest.mark.parametrize("answer", ["deny", "request_changes"])
def test_a_no_is_a_no_and_says_why(live_server_process: Server, token: str, answer: str) -> None:
    server, done = live_server_process, list[str]()
    waiting, asked = answering(server, answer)
    client = gatebook.Client(server.url, token, on_wait=waiting)
    with (
        client.session(f"no-{answer}") as s,
        pytest.raises(gatebook.PermissionRefused, match="not today") as no,
    ):
        s.perform(*DELETE, done.append, target=MAIN)
    assert no.value.status == {"deny": "denied", "request_changes": "changes_requested"}[answer]
    assert (done, len(asked)) == ([], 1)


def test_a_registered_tool_is_done_again_from_its_plan(
    live_server_process: Server, token: str
) -> None:
    server, written = live_server_process, list[tuple[str, str]]()
    with (
        pytest.raises(Crash),
        gatebook.Client(server.url, token, transport=Mortal("after", "dispatch")).session("p") as s,
    ):
        s.perform("file.edit", {"path": "a", "text": "b"}, lambda _key: None)
    with gatebook.Client(server.url, token).session("p", takeover=True) as s:

        @s.effect("file.edit")
        def edit(path: str, text: str) -> None:
            written.append((path, text))

        assert [step.result for step in s.recover().steps] == ["replayed"]
        assert edit("a", "b").already_done
    assert written == [("a", "b")]
