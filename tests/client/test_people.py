"""The client with approvals: real server, policy in force, also after a crash."""

from collections.abc import Callable
from typing import Any

import gatebook_client as gatebook
import pytest
from gatebook_client.testing import Crash

from tests.client.test_classes import Mortal
from tests.config.server import Server
from tests.evaluation.test_demo_agent import POLICY, a_project, rule

MAIN = {"repository": "acme/shop", "ref": "refs/heads/main"}
# Setting a state may be repeated, but a permission for one attempt requires approval of the next.
DELETE = ("git.branch.delete", {"remote": "origin", "ref": "refs/heads/main"})


@pytest.fixture(scope="module")
def token(live_server_process: Server) -> str:
    return a_project(live_server_process, "peopled", POLICY)


def answering(
    server: Server, *answers: str
) -> tuple[Callable[[str, dict[str, Any]], None], list[str]]:
    """Return a callback that answers each request in turn, and the list of its gates."""
    left, gates = list(answers), list[str]()

    def waiting(why: str, details: dict[str, Any]) -> None:
        if why == "gate":
            gates.append(details["gate"]["id"])
            rule(server, gates[-1], "peopled-pilot", left.pop(0), "not today")

    return waiting, gates


def test_an_approved_act_needs_a_second_approval_before_its_repetition(
    live_server_process: Server, token: str
) -> None:
    server, done = live_server_process, list[str]()
    waiting, gates = answering(server, "approve", "approve")
    dying = gatebook.Client(
        server.url, token, on_wait=waiting, transport=Mortal("after", "dispatch")
    )
    with pytest.raises(Crash), dying.session("again") as s:
        s.perform(*DELETE, done.append, target=MAIN)
    assert (done, len(gates)) == ([], 1)
    with gatebook.Client(server.url, token, on_wait=waiting).session("again", takeover=True) as s:
        (step,) = s.recover().steps
        assert (step.result, len(gates)) == ("due", 1)
        assert s.perform(*DELETE, done.append, target=MAIN).attempt == 2
    assert (len(done), len(set(gates))) == (1, 2)


@pytest.mark.parametrize("answer", ["deny", "request_changes"])
def test_a_denial_is_final_and_has_a_reason(
    live_server_process: Server, token: str, answer: str
) -> None:
    server, done = live_server_process, list[str]()
    waiting, gates = answering(server, answer)
    client = gatebook.Client(server.url, token, on_wait=waiting)
    with (
        client.session(f"no-{answer}") as s,
        pytest.raises(gatebook.PermissionRefused, match="not today") as no,
    ):
        s.perform(*DELETE, done.append, target=MAIN)
    assert no.value.status == {"deny": "denied", "request_changes": "changes_requested"}[answer]
    assert (done, len(gates)) == ([], 1)


def deny_again(server: Server, gate: str, username: str) -> None:
    """Approve a gate, take that back, comment on the new request and deny it."""
    server.run(
        f"""
from django.db import transaction
from accounts.models import Membership
from approvals.gates.comments import write_comment
from approvals.models import Gate
from approvals.voting import undo, votes
from approvals.voting.votes import ShownGate
from approvals.voting.warned_proof import list_warnings, load_request_checks
from db.clock import now_us
gate = Gate.objects.get(id="{gate}")
member = Membership.objects.select_related("project", "user").get(
    project=gate.project, user__username="{username}")
def vote(gate, answer):
    warnings = list_warnings(load_request_checks(gate, gate.effect))
    shown = ShownGate(gate.version, gate.digest, "0" * 64, True, now_us(), warnings)
    result = votes.cast_vote(gate, member, answer, "not today", shown, step_up="typed_digest")
    assert result.refusal is None, result.refusal
with transaction.atomic():
    vote(gate, "approve")
    again = undo.undo_vote(gate, member).gate
write_comment(again, member, "Use the other branch.")
vote(again, "deny")
"""
    )


def test_a_client_follows_a_request_that_was_made_again_and_reads_its_comments(
    live_server_process: Server, token: str
) -> None:
    server = live_server_process

    def waiting(why: str, details: dict[str, Any]) -> None:
        if why == "gate":
            deny_again(server, details["gate"]["id"], "peopled-pilot")

    client = gatebook.Client(server.url, token, on_wait=waiting)
    with (
        client.session("undone") as s,
        pytest.raises(gatebook.PermissionRefused, match="not today") as no,
    ):
        s.perform(*DELETE, print, target=MAIN)
    assert (no.value.status, no.value.comments) == ("denied", ("Use the other branch.",))


def test_a_registered_tool_is_repeated_from_its_plan(
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
