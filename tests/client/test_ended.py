"""A session that has ended says so to whoever would act in it, and still tells what it did."""

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
    found = s.http.get("/effects", session=s.id).body["items"]
    return [(one["effect_key"], one["state"]) for one in found]


@pytest.mark.parametrize("mode", ["leased", "one_shot"])
def test_what_an_ended_session_did_is_told_and_whatever_would_act_hears_that_it_has_ended(
    client: gatebook.Client, mode: str
) -> None:
    for number, name in enumerate(NAMES):
        with client.session(f"{mode}-{number}", mode=mode) as s:
            first = s.perform(*ADA, lambda _key: gatebook.Result(reference="m-1"), **name)
        for _ in range(2):
            with client.session(f"{mode}-{number}", mode=mode) as s:
                assert (s.status, s.lease) == ("completed", None)
                known = states(s)
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
                    ) as told:
                        s.perform(*other, never, **name)
                    assert told.value.status == "completed"
                if not name.get("key"):  # once more is another effect
                    with pytest.raises(gatebook.SessionEnded):
                        s.perform(*ADA, never, **name)
                assert s.recover().steps == []
                assert states(s) == known


def test_what_is_not_known_to_be_done_is_not_told_as_done(client: gatebook.Client) -> None:
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


def test_whoever_ended_a_leased_session_may_take_back_what_it_did_and_so_may_whoever_comes_later(
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


def test_where_no_lease_is_asked_for_what_an_ended_session_did_can_be_taken_back(
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
def test_a_session_that_ends_between_its_opening_and_its_lease_is_told_as_ended() -> None:
    ledger = FakeGatebook()
    ledger.refuse_next("leases", "SESSION_ENDED")
    with pytest.raises(gatebook.SessionEnded):
        ledger.session("a")
