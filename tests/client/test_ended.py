"""An ended session refuses new acts and still returns its results."""

from typing import Any

import gatebook_client as gatebook
import pytest
from gatebook_client.testing import FakeGatebook

from tests.config.server import Server

ADA = ("mail.send", {"to": "ada"})
BOB = ("mail.send", {"to": "bob"})
NAMES: list[dict[str, Any]] = [{}, {"key": "e-1"}, {"call_id": "call:1"}]


@pytest.fixture(scope="module")
def client(live_server_process: Server) -> gatebook.Client:
    server = live_server_process
    server.run(
        "from django.db import transaction; from accounts import projects\n"
        "with transaction.atomic(): projects.create_project('ended')"
    )
    return gatebook.Client(server.url, server.token("worker", "--project", "ended"))


def never(_remote_key: str) -> None:
    raise AssertionError("it was done in a session that has ended")


def states(s: gatebook.Session) -> list[tuple[str, str]]:
    effects = s.http.get("/effects", session=s.id).body["items"]
    return [(effect["effect_key"], effect["state"]) for effect in effects]


@pytest.mark.parametrize("mode", ["leased", "one_shot"])
def test_an_ended_session_returns_its_results_and_refuses_new_acts(
    client: gatebook.Client, mode: str
) -> None:
    for number, name in enumerate(NAMES):
        with client.session(f"{mode}-{number}", mode=mode) as s:
            first = s.perform(*ADA, lambda _key: gatebook.Result(reference="m-1"), **name)
        for _ in range(2):
            with client.session(f"{mode}-{number}", mode=mode) as s:
                assert (s.status, s.lease) == ("completed", None)
                states_before = states(s)
                done = s.perform(*ADA, never, **name)
                assert (done.effect, done.ok, done.already_done, done.reference) == (
                    first.effect,
                    True,
                    True,
                    "m-1",
                )
                for other in (BOB, ("mail.file", {"to": "ada"})):
                    with pytest.raises(
                        gatebook.SessionEnded, match=r"has ended \(completed\)"
                    ) as refusal:
                        s.perform(*other, never, **name)
                    assert refusal.value.status == "completed"
                if not name.get("key"):  # without a key the same call is another effect
                    with pytest.raises(gatebook.SessionEnded):
                        s.perform(*ADA, never, **name)
                assert s.recover().steps == []
                assert states(s) == states_before


def test_an_unknown_outcome_is_not_returned_as_done(client: gatebook.Client) -> None:
    def late(_remote_key: str) -> None:
        raise TimeoutError

    with client.session("in-doubt") as s:
        with pytest.raises(TimeoutError):
            s.perform(*ADA, late, key="e-1")
        s.end("failed")
        with pytest.raises(gatebook.SessionEnded):
            s.perform(*BOB, never)  # also to the process that ended it
    with client.session("in-doubt") as s:
        with pytest.raises(gatebook.SessionEnded, match="failed"):
            s.perform(*ADA, never, key="e-1")
        assert states(s) == [("e-1", "failed")]


def test_an_ended_leased_session_may_be_compensated_now_and_by_a_later_process(
    client: gatebook.Client,
) -> None:
    with client.session("over") as s:
        kept = s.perform(*ADA, lambda _key: None, key="e-1")
        regretted = s.perform(*BOB, lambda _key: None, key="e-2")
        s.end()
        with pytest.raises(gatebook.SessionEnded):
            s.perform("mail.file", {"to": "ada"}, never)
        assert s.compensate(regretted, "mail.recall", {"to": "bob"}, lambda _key: None).ok
    with client.session("over") as s:
        assert s.compensate(regretted, "mail.recall", {"to": "bob"}, never).already_done
        assert s.perform(*ADA, never, key="e-1").state == "acknowledged"
        assert s.compensate(
            kept, "mail.recall", {"to": "ada"}, lambda _key: None
        ).ok  # under a lease taken for that
        assert s.lease is None
        (lease,) = s.http.get("/leases", session=s.id).body["items"]
        assert (lease["state"], lease["epoch"]) == ("released", 2)
        with pytest.raises(gatebook.SessionEnded):
            s.perform("mail.file", {"to": "ada"}, never)
        assert s.perform(*ADA, never, key="e-1").state == "compensated"
        assert s.perform(*BOB, never, key="e-2").state == "compensated"


def test_an_ended_session_without_a_lease_can_be_compensated(
    client: gatebook.Client,
) -> None:
    with client.session("taken-back", mode="one_shot") as s:
        done = s.perform(*ADA, lambda _key: None)
    for again in (False, True):
        with client.session("taken-back", mode="one_shot") as s:
            undone = s.compensate(
                done, "mail.recall", {"to": "ada"}, never if again else lambda _key: None
            )
            assert (undone.ok, undone.already_done) == (True, again)


@pytest.mark.once
def test_a_session_that_ends_between_its_opening_and_its_lease_is_ended() -> None:
    ledger = FakeGatebook()
    ledger.refuse_next("leases", "SESSION_ENDED")
    with pytest.raises(gatebook.SessionEnded):
        ledger.session("a")
