"""A report that an effect was superseded after its dispatch: stored and marked, and the outcome
stays unknown."""

from typing import Any

import pytest

from approvals.models import Gate
from journal.models import Entry
from ledger.models import Effect
from tests.api.api_client import Caller, code
from tests.approvals.inbox_scenario import InboxScenario

pytestmark = pytest.mark.django_db
WORDS = "Withdrawn after its dispatch"
VIOLATION = '{"violation":"withdrawn_after_dispatch"}'


@pytest.fixture
def worker(agent: Caller) -> Caller:
    agent.session()
    return agent


def withdraw(agent: Caller, effect_key: str = "e-1", number: int = 1) -> None:
    """Report that an effect was superseded."""
    fact = {
        "id": f"w-{effect_key}-{number}",
        "kind": "effect.superseded",
        "session": "s-1",
        "effect_key": effect_key,
    }
    result = agent.report([fact]).json()["results"][0]
    assert (result["status"], "note" in result) == ("created", False)


def stored() -> Effect:
    return Effect.objects.get(effect_key="e-1")


def violations() -> list[str]:
    return list(Entry.objects.filter(kind="integrity.violation").values_list("facts", flat=True))


def resume(agent: Caller) -> Any:
    return agent.get(f"/sessions/{stored().session_id}/resume").json()


def test_a_dispatched_effect_stays_unknown_and_open(worker: Caller) -> None:
    effect = worker.plan()
    worker.dispatch(effect)
    assert code(worker.post(f"/effects/{effect['id']}/supersede")) == (409, "WRONG_STATE")
    before = resume(worker)
    withdraw(worker)
    assert (stored().state, stored().violates, violations()) == ("dispatched", True, [VIOLATION])
    now = resume(worker)
    (still_open,) = now["crash_recovery"]["open_effects"]
    assert still_open["effect"] == effect["id"]
    assert (now["safe"], now["because"]) == (before["safe"], before["because"])
    assert now["crash_recovery"]["by_verdict"] == before["crash_recovery"]["by_verdict"]
    again = worker.plan("another-name")
    assert (again["answer"], again["open_effect"]) == ("ambiguous", effect["id"])
    assert worker.plan()["answer"] == "ambiguous"
    assert worker.acknowledge(effect)["state"] == "acknowledged"  # the outcome is known now
    assert violations() == [VIOLATION]


def test_an_acknowledged_effect_stays_acknowledged(worker: Caller) -> None:
    effect = worker.plan()
    worker.dispatch(effect)
    worker.acknowledge(effect, external_reference="r-1")
    assert [entry["effect"] for entry in resume(worker)["done"]] == [effect["id"]]
    withdraw(worker)
    assert (stored().state, stored().outcome, stored().external_reference) == (
        "acknowledged",
        "ok",
        "r-1",
    )
    assert violations() == [VIOLATION]
    assert worker.plan()["answer"] == "done"
    assert [entry["effect"] for entry in resume(worker)["done"]] == [effect["id"]]


@pytest.mark.parametrize("reported_first", [True, False])
def test_the_order_of_reports_makes_no_difference(worker: Caller, reported_first: bool) -> None:
    dispatch = {"id": "d", "kind": "effect.dispatched", "session": "s-1", "effect_key": "e-1"}
    worker.plan()
    if not reported_first:
        worker.report([dispatch])
    withdraw(worker)
    if reported_first:
        assert (stored().state, violations()) == ("superseded", [])
        worker.report([dispatch])
    assert (stored().state, stored().violates, violations()) == ("dispatched", True, [VIOLATION])


def test_an_effect_that_was_not_dispatched_is_superseded_by_a_report(worker: Caller) -> None:
    worker.plan()
    withdraw(worker)
    assert (stored().state, stored().violates) == ("superseded", False)


def test_a_rejected_effect_is_superseded_by_a_command_without_a_violation(worker: Caller) -> None:
    effect = worker.plan()
    worker.dispatch(effect)
    worker.fail(effect, "rejected")
    assert worker.post(f"/effects/{effect['id']}/supersede").status_code == 200
    assert (stored().state, stored().violates) == ("superseded", False)
    late = worker.post(f"/effects/{effect['id']}/acknowledge", {"attempt": 1, "outcome": "ok"})
    assert (late.status_code, stored().state, violations()) == (202, "acknowledged", [VIOLATION])


def test_a_gate_for_the_next_attempt_stays_open_and_the_page_shows_the_report(
    inbox: InboxScenario,
) -> None:
    planned = inbox.plan()
    inbox.answer(inbox.gate(planned), "reviewer")
    inbox.agent.dispatch(planned)
    inbox.agent.fail(planned, "timeout")
    assert inbox.plan()["answer"] == "ambiguous"
    withdraw(inbox.agent)
    effect = inbox.effect(planned)
    assert (effect.state, effect.outcome, effect.permission) == (
        "failed",
        "unknown",
        inbox.effect(planned).permission,
    )
    assert not Gate.objects.filter(status="cancelled").exists()
    page = inbox.organization.client("viewer").get(f"/effects/{planned['id']}/").content.decode()
    assert WORDS in page
    assert (
        str(effect)
        in inbox.organization.client("viewer")
        .get("/search/", {"q": "is:violating"})
        .content.decode()
    )
