"""PostgreSQL ends a deadlock by refusing one of two transactions: pages retry theirs, unseen."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.urls import reverse

from approvals.models import Gate, Vote
from db import retry
from journal.models import Entry
from ledger import stops
from ledger.models import Stop
from tests.api.api_client import new_key
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import REASON, Reviewer
from tests.approvals.test_races import approved, committed, inbox, planned

__all__ = ["committed", "inbox"]

GATE = "SELECT 1 FROM approvals_gate WHERE id = %s FOR UPDATE"
EFFECT = "SELECT 1 FROM ledger_effect WHERE id = %s FOR UPDATE"
PROJECT = "SELECT 1 FROM accounts_project WHERE id = %s FOR UPDATE"
STOP = "SELECT 1 FROM ledger_stop WHERE id = %s FOR UPDATE"
BLOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
SEEN = re.compile(r'name="seen-([0-9a-f]{32})" value="([^"]+)"')
Prepared = tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]
ROUNDS = 10
ANYTHING = "name: all\nrules:\n  - {id: all, title: Everything, match: {}, outcome: require}\n"
pytestmark = [
    pytest.mark.skipif(
        connection.vendor != "postgresql",
        reason="SQLite has one writer at a time, and no deadlocks",
    ),
    pytest.mark.usefixtures("inbox"),
]


@pytest.fixture
def retries(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each error of a page's transaction: whether the transaction was retried."""
    outcomes: list[bool] = []
    original_check = retry.is_retry_requested

    def record_check(error: BaseException) -> bool:
        outcomes.append(original_check(error))
        return outcomes[-1]

    monkeypatch.setattr(retry, "is_retry_requested", record_check)
    return outcomes


def statement(sql: str, *values: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchone()


def gate_and_effect(gate: Gate, work: Callable[[], Any]) -> Prepared:
    """`work`, and the two rows that it locks, the last row first."""
    return work, lambda: statement(GATE, gate.id), lambda: statement(EFFECT, gate.effect_id)


def deadlocked(retries: list[bool], prepare: Callable[[], Prepared]) -> Any:
    """Run a work into a deadlock and return its result.

    The test has the first lock and asks for the second; the work has the second and waits.
    PostgreSQL refuses the transaction that checks first, mostly the one that waits longer;
    `prepare` is called until that is the work. A refused work may reach the second lock before the
    test has it, and be refused again, so every error must have been retried.
    """
    for _ in range(ROUNDS):
        work, first, second = prepare()

        def works(work: Callable[[], Any] = work) -> Any:
            try:
                return work()
            finally:
                connection.close()

        with ThreadPoolExecutor(1) as pool:
            with suppress(OperationalError), transaction.atomic():
                first()
                doing = pool.submit(works)
                while not statement(BLOCKED)[0]:
                    assert not doing.done(), doing.result()
                second()
            answer = doing.result()
        if retries:
            assert all(retries)
            return answer
    raise AssertionError("the page was never refused")


def test_an_answer_that_meets_a_deadlock_is_recorded_once(
    inbox: InboxScenario, retries: list[bool]
) -> None:
    rita = Reviewer(inbox)
    gates: list[Gate] = []

    def prepare() -> Prepared:
        gates.append(planned(inbox, new_key())[1])
        seen = rita.seen(gates[-1])
        return gate_and_effect(gates[-1], lambda: rita.answer(gates[-1], seen=seen))

    answer = deadlocked(retries, prepare)
    assert answer.status_code == 302
    gates[-1].refresh_from_db()
    assert (gates[-1].status, Vote.objects.filter(gate=gates[-1]).count()) == ("approved", 1)
    assert Entry.objects.filter(subject=gates[-1].id, kind="gate.voted").count() == 1


def test_an_answer_from_the_confirm_page_is_recorded_once_too(
    inbox: InboxScenario, retries: list[bool]
) -> None:
    rita = Reviewer(inbox)
    gates: list[Gate] = []

    def prepare() -> Prepared:
        gates.append(planned(inbox, new_key())[1])
        url = reverse("gate_confirm", args=[gates[-1].id])
        assert rita.answer(gates[-1], settled="").headers["Location"] == url
        sent = {"seen_draft": rita.draft(gates[-1])}
        return gate_and_effect(gates[-1], lambda: rita.client.post(url, sent))

    answer = deadlocked(retries, prepare)
    assert answer.status_code == 302
    gates[-1].refresh_from_db()
    assert (gates[-1].status, Vote.objects.filter(gate=gates[-1]).count()) == ("approved", 1)


def test_a_batch_goes_on_after_a_deadlock_with_one_of_its_gates(
    inbox: InboxScenario, retries: list[bool]
) -> None:
    inbox.rules(ANYTHING)
    inbox.declare("note", "reversible")
    rita = Reviewer(inbox)
    gates: list[Gate] = []

    def prepare() -> Prepared:
        gates[:] = [planned(inbox, new_key(), tool="note")[1] for _ in range(2)]
        rita.client.post(reverse("batch"), {"gate": [str(gate.id) for gate in gates]})
        tokens = SEEN.findall(rita.page(reverse("batch_confirm")))
        fields = {
            "answer": "approve",
            "reason": REASON,
            "gate": [str(gate.id) for gate in gates],
            **{f"seen-{name}": token for name, token in tokens},
        }
        return gate_and_effect(gates[0], lambda: rita.client.post(reverse("batch_confirm"), fields))

    answer = deadlocked(retries, prepare)
    assert answer.status_code == 302
    for gate in gates:
        gate.refresh_from_db()
        assert (gate.status, Vote.objects.filter(gate=gate).count()) == ("approved", 1)


@pytest.mark.parametrize(
    ("url_name", "status"), [("gate_revoke", "revoked"), ("gate_extend", "pending")]
)
def test_a_revocation_and_an_extension_too(
    inbox: InboxScenario, retries: list[bool], url_name: str, status: str
) -> None:
    rita = Reviewer(inbox)
    gates: list[Gate] = []

    def prepare() -> Prepared:
        gates.append((approved if url_name == "gate_revoke" else planned)(inbox, new_key())[1])
        gates[-1].refresh_from_db()
        url = reverse(url_name, args=[gates[-1].id])
        return gate_and_effect(
            gates[-1], lambda: rita.client.post(url, {"reason": "on second thoughts"})
        )

    answer = deadlocked(retries, prepare)
    assert answer.status_code == 302
    now = Gate.objects.get(id=gates[-1].id)
    assert (now.status, now.version) == (status, gates[-1].version + 1)


def test_a_stop_is_set_once_and_lifted_once(inbox: InboxScenario, retries: list[bool]) -> None:
    rita, project = Reviewer(inbox), inbox.project.id

    def put() -> Prepared:
        for standing in Stop.objects.filter(lifted_at_us=None):
            stops.lift_stop(standing, "once more", inbox.user("operator"))
        fields = {"scope": "project", "subject": "", "reason": "all hands off"}
        send = lambda: rita.client.post(reverse("stop"), fields)  # noqa: E731
        dispatch = lambda: stops.hold_back_stops_and_activations(project)  # noqa: E731
        return send, lambda: statement(PROJECT, project), dispatch

    def lift() -> Prepared:
        stop = stops.set_stop(inbox.project, "project", "", "all hands off", inbox.user("operator"))
        send = lambda: rita.client.post(reverse("lift", args=[stop.id]), {"reason": "go on"})  # noqa: E731
        dispatch = lambda: stops.hold_back_stops_and_activations(project)  # noqa: E731
        return send, lambda: statement(STOP, stop.id), dispatch

    answer = deadlocked(retries, put)
    assert answer.status_code == 302
    assert Stop.objects.filter(lifted_at_us=None).count() == 1
    retries.clear()
    answer = deadlocked(retries, lift)
    assert answer.status_code == 302
    counts = [Entry.objects.filter(kind=kind).count() for kind in ("stop.set", "stop.lifted")]
    assert counts == [Stop.objects.count()] * 2


def test_a_transaction_refused_each_time_raises_in_the_end() -> None:
    tried: list[int] = []

    def refused() -> None:
        tried.append(1)
        with connection.cursor() as cursor:
            cursor.execute("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")

    with pytest.raises(OperationalError):
        retry.run_with_retry(refused)
    assert len(tried) == retry.MAX_TRIES
