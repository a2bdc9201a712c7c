"""The lease of a session: renewed by heartbeats without progress, lost once, never used by a forked child."""

import os
import threading
import time
from collections.abc import Callable

import gatebook_client as gatebook
import httpx
import pytest
from gatebook_client import attempts
from gatebook_client.lease import HeartbeatSender, Lease
from gatebook_client.testing import FakeGatebook, Process

from tests.client.test_pushes import wait_until
from tests.config.server import Server

MAIL = ("mail.send", {"to": "ada"})


@pytest.fixture
def ledger() -> FakeGatebook:
    return FakeGatebook()


def reported_progress(ledger: FakeGatebook) -> str:
    """Return the progress that heartbeats have reported."""
    (lease,) = ledger.leases.values()
    return lease.progress


def heartbeat_threads() -> set[threading.Thread]:
    """Return the threads that send heartbeats, also those of processes that died in other tests."""
    return {thread for thread in threading.enumerate() if thread.name == "gatebook-heartbeats"}


def heartbeat(s: gatebook.Session) -> None:
    assert s.core._heartbeats is not None
    s.core._heartbeats.send()


@pytest.mark.once
def test_heartbeats_continue_and_report_only_the_agents_progress(
    ledger: FakeGatebook,
) -> None:
    client, before_it = ledger.client(), heartbeat_threads()
    client.heartbeats = Hasty(client.http)
    s = client.session("a", end_on_exit=False)
    wait_until(lambda: ledger.steps.count("heartbeats") >= 3)
    assert reported_progress(ledger) == ""
    s.perform(*MAIL, lambda _key: None)
    wait_until(lambda: reported_progress(ledger).startswith("1 "))
    before = ledger.steps.count("heartbeats")
    wait_until(
        lambda: ledger.steps.count("heartbeats") >= before + 3
    )  # a hanging process sends heartbeats without progress
    assert reported_progress(ledger).startswith("1 ")
    s.progress("page 17")
    wait_until(lambda: reported_progress(ledger) == "2 page 17")
    s.close()
    wait_until(lambda: heartbeat_threads() <= before_it)


class Hasty(HeartbeatSender):
    """Send a hundred heartbeats a second, or as `ttl_s` says."""

    ttl_s = 0.03

    def add(self, lease: Lease) -> None:
        lease.ttl_s = self.ttl_s
        super().add(lease)
        lease.may_have_expired = lambda: False  # type: ignore[method-assign]


@pytest.mark.once
def test_one_request_sends_the_heartbeats_of_all_sessions_of_a_client(ledger: FakeGatebook) -> None:
    client = ledger.client()
    sessions = [client.session(key, end_on_exit=False) for key in ("a", "b", "c")]
    heartbeat(sessions[0])
    assert ledger.steps.count("heartbeats") == 1
    for s in sessions:
        s.close()


@pytest.mark.once
def test_another_process_is_refused_until_the_lease_is_released(ledger: FakeGatebook) -> None:
    with ledger.session("a", end_on_exit=False), pytest.raises(gatebook.LeaseHeld):
        ledger.session("a")
    ledger.session("a").close()


@pytest.mark.once
def test_a_session_that_could_not_be_opened_is_not_leased_for_ever(ledger: FakeGatebook) -> None:
    before_it = heartbeat_threads()
    ledger.session("a", end_on_exit=False).close()
    ledger.refuse_next("resume", "unavailable")
    with pytest.raises(gatebook.Refused):
        ledger.session("a", ttl_s=5)
    wait_until(lambda: heartbeat_threads() <= before_it)
    ledger.sleep(6)
    ledger.session("a").close()


def test_a_waiting_process_gets_the_expired_lease_of_a_dead_process(
    ledger: FakeGatebook,
) -> None:
    process = ledger.process()
    ledger.session("a", process=process, ttl_s=30)
    process.dead = True
    s = ledger.session("a", wait_for_lease_s=60)
    assert s.lease is not None
    assert s.lease.epoch == 2
    s.close()


@pytest.mark.once
def test_a_lost_lease_is_lost_to_everything_that_would_begin_something(
    ledger: FakeGatebook,
) -> None:
    done: list[str] = []
    with ledger.session("a", end_on_exit=False) as s:
        taken = ledger.session("a", takeover=True)
        with pytest.raises(gatebook.LeaseLost, match="nothing was begun"):
            s.perform(*MAIL, done.append)
        steps = len(ledger.steps)
        begins: list[Callable[[], object]] = [
            lambda: s.perform(*MAIL, done.append),
            lambda: s.checkpoint("x"),
            lambda: s.task("t"),
            lambda: s.decide("k", "c"),
            lambda: s.recover(),
            lambda: s.end(),
        ]
        for begin in begins:
            with pytest.raises(gatebook.LeaseLost):
                begin()
        assert len(ledger.steps) == steps, "nothing is even asked any more"
        taken.close()
    assert done == []


@pytest.mark.once
def test_a_heartbeat_answered_with_a_lost_lease_stops_the_next_step(ledger: FakeGatebook) -> None:
    with ledger.session("a", end_on_exit=False) as s:
        taken = ledger.session("a", takeover=True)
        heartbeat(s)
        with pytest.raises(gatebook.LeaseLost):
            s.check_active()
        taken.close()


@pytest.mark.once
def test_after_a_lease_lifetime_without_answers_it_checks_before_it_acts(
    ledger: FakeGatebook,
) -> None:
    done: list[str] = []
    with ledger.session("a", end_on_exit=False, patience_s=0.0) as s:
        assert s.lease is not None
        s.lease._confirmed_at -= 61
        ledger.go_down()
        with pytest.raises(gatebook.ServerUnavailable, match="it is unknown whether"):
            s.perform(*MAIL, done.append)
        ledger.go_down(0)
        assert done == []
        s.perform(*MAIL, done.append)
        s.lease._confirmed_at -= 61
        taken = ledger.session("a", takeover=True)
        with pytest.raises(gatebook.LeaseLost):
            s.perform(*MAIL, done.append)
        taken.close()
    assert len(done) == 1


@pytest.mark.once
def test_a_forked_child_acts_only_in_its_own_session(
    ledger: FakeGatebook,
) -> None:
    with ledger.session("a", end_on_exit=False) as s:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                s.perform(*MAIL, lambda _key: os._exit(2))
            except gatebook.ForkError:
                s.close()  # and leaves the parent's lease alone
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert s.perform(*MAIL, lambda _key: None).ok


@pytest.mark.once
def test_an_exited_session_is_unusable_and_an_error_leaves_it_running(ledger: FakeGatebook) -> None:
    with pytest.raises(ZeroDivisionError), ledger.session("a") as s:
        raise ZeroDivisionError
    with pytest.raises(gatebook.SessionClosed):
        s.perform(*MAIL, lambda _key: None)
    assert [session["status"] for session in ledger.sessions.values()] == ["running"]
    with ledger.session("a"):
        pass
    assert [session["status"] for session in ledger.sessions.values()] == ["completed"]


@pytest.mark.once
@pytest.mark.parametrize("leased", [True, False])
def test_a_process_that_slept_between_dispatch_and_act_does_not_act(
    ledger: FakeGatebook, leased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    ledger.declare_tool("mail.send", "idempotency_key")
    process = Sleepy(ledger)
    s = ledger.session(
        "a", process=process, mode="leased" if leased else "one_shot", end_on_exit=False
    )

    def sleep() -> None:
        if leased:
            assert s.lease is not None
            s.lease._confirmed_at -= 61
            ledger.session("a", takeover=True).close()
        else:
            monkeypatch.setattr(attempts, "MAX_DISPATCH_AGE_S", -1.0)
            process.after_dispatch = lambda: monkeypatch.setattr(
                attempts, "MAX_DISPATCH_AGE_S", 60.0
            )

    process.after_dispatch = sleep
    if leased:
        with pytest.raises(gatebook.LeaseLost):
            s.perform(*MAIL, done.append)
        assert done == []
    else:
        assert s.perform(*MAIL, done.append).attempt == 2
        assert len(done) == 1
    s.close()


class Sleepy(Process):
    """A process that is stopped after the answer to its dispatch."""

    after_dispatch: Callable[[], object] = staticmethod(lambda: None)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        if request.url.path.endswith("/dispatch"):
            self.after_dispatch()
        return response


# With the real server.
# ----------------------------------------------------------------------------------------------


def test_a_worker_whose_lease_was_taken_starts_nothing_and_reports_evidence(
    live_server_process: Server,
) -> None:
    server = live_server_process
    token = server.token("sleeper")
    done: list[str] = []
    first = gatebook.session(server.url, token, key="woken", ttl_s=30, end_on_exit=False)

    def slow(remote_key: str) -> gatebook.Result:
        """Act while another process takes the session over."""
        done.append(remote_key)
        with gatebook.session(
            server.url, token, key="woken", takeover=True, end_on_exit=False
        ) as second:
            assert second.lease is not None
            assert first.lease is not None
            assert second.lease.epoch > first.lease.epoch
        return gatebook.Result(reference="m-1")

    with pytest.raises(gatebook.LeaseLost, match="stored as evidence") as lost:
        first.perform(*MAIL, slow, key="one")
    assert lost.value.performed is not None
    with pytest.raises(gatebook.LeaseLost):
        first.perform("mail.send", {"to": "bob"}, slow, key="two")
    first.close()
    assert len(done) == 1
    kinds = server.run(
        "from journal.models import Entry\n"
        "found = "
        f"Entry.objects.filter(effect='{lost.value.performed.effect}').order_by('position')\n"
        "print(*found.values_list('kind', flat=True))"
    )
    assert kinds.split()[-2:] == ["effect.acknowledged", "integrity.fenced"]
    with gatebook.session(server.url, token, key="woken") as third:
        assert third.perform(*MAIL, done.append, key="one").reference == "m-1"
    assert len(done) == 1


def test_heartbeats_prolong_a_lease_of_the_real_server(
    live_server_process: Server,
) -> None:
    server = live_server_process
    token = server.token("beater")
    client = gatebook.Client(server.url, token)
    client.heartbeats = Hasty(client.http)
    client.heartbeats.ttl_s = 1
    with client.session("kept", ttl_s=600, end_on_exit=False) as s:
        assert s.lease is not None
        (lease,) = client.http.get("/leases", session=s.id).body["items"]
        s.progress("page 17")

        def moved() -> bool:
            (now,) = client.http.get("/leases", session=s.id).body["items"]
            return all(
                now[name] > lease[name]
                for name in ("heartbeat_at_us", "progress_at_us", "expires_at_us")
            )

        wait_until(moved)
        with pytest.raises(gatebook.LeaseHeld):
            gatebook.session(server.url, token, key="kept")
    assert client.http.get("/leases", session=s.id).body["items"][0]["state"] == "released"


def test_work_is_claimed_by_one(live_server_process: Server) -> None:
    server = live_server_process
    token = server.token("claimant")
    labels = {"kind": f"claims-{time.time_ns()}"}
    with gatebook.session(
        server.url, token, key=str(labels), mode="leased", labels=labels, end_on_exit=False
    ) as s:
        s.task("build", priority=3)
    claimed = gatebook.claim(server.url, token, kinds=["task"], labels=labels)
    assert claimed is not None
    assert (claimed.id, claimed.claimed["kind"]) == (s.id, "task")
    assert gatebook.claim(server.url, token, kinds=["task"], labels=labels) is None
    claimed.close()
