"""The fold of confirmations: facts in any order give one state, and nothing is overwritten."""

from itertools import permutations
from typing import Any, Final
from uuid import UUID

import pytest

from approvals.models import Gate
from hooks.code_hosts import agent_identities, host_events
from hooks.models import EventMatch
from journal.models import Entry
from journal.order_keys import make_order_key
from ledger.confirmations import make_confirmation_fact
from ledger.fold import effect_state
from ledger.fold.effect_state import Fact
from ledger.store.effect_rows import AttemptRow, EffectRow
from tests.approvals.inbox_scenario import RULES, InboxScenario
from tests.hooks.code_hosts.code_host import CodeHost

EFFECT: Final = UUID(int=9)
TOPIC: Final[dict[str, Any]] = {
    "arguments": {"ref": "topic"},
    "target": {"repository": "acme/shop", "ref": "topic"},
}
ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "effect.acknowledged": {"outcome": "unknown", "external_reference": ""},
    "effect.failed": {"reason": "timeout"},
}


def report(kind: str, number: int, values: dict[str, Any]) -> Fact:
    return Fact(
        kind=kind,
        mark=make_order_key("evidence", None, "robot", f"{number}"),
        lane="evidence",
        key=f"{number}",
        position=number,
        received_us=number,
        told_us=number,
        attempt=1,
        values=values,
    )


def confirmation(kind: str, position: int, by: str) -> Fact:
    return make_confirmation_fact(EFFECT, kind, position=position, attempt=1, at_us=position, by=by)


def fold_in_order(facts: tuple[Fact, ...]) -> tuple[str, str, str]:
    effect = EffectRow(
        EFFECT, UUID(int=1), UUID(int=2), UUID(int=3), "e-1", 1, received_us=1, changed_us=1
    )
    attempts: dict[int, AttemptRow] = {}
    for fact in facts:
        effect_state.fold_fact(effect, attempts, fact)
        violations = effect_state.derive_state(effect, attempts, 300)
        assert violations == []
    return effect.state, effect.outcome, effect.confirmed_by


@pytest.mark.once
@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize(
    ("confirmations", "expected"),
    [
        ([("effect.confirmed", "github")], ("acknowledged", "ok", "github")),
        ([("effect.confirmed", "github"), ("effect.unconfirmed", "")], None),
        (
            [("effect.confirmed", "gitlab"), ("effect.unconfirmed", "github")],
            ("acknowledged", "ok", "github"),
        ),
        (
            [
                ("effect.confirmed", "github"),
                ("effect.unconfirmed", ""),
                ("effect.confirmed", "gitlab"),
            ],
            ("acknowledged", "ok", "gitlab"),
        ),
    ],
)
def test_the_order_of_arrival_does_not_count(
    kind: str, confirmations: list[tuple[str, str]], expected: tuple[str, str, str] | None
) -> None:
    reports = [report("effect.dispatched", 1, {}), report(kind, 2, ANSWERS[kind])]
    without = fold_in_order(tuple(reports))
    facts = reports + [
        confirmation(name, 10 + number, by) for number, (name, by) in enumerate(confirmations)
    ]
    results = {fold_in_order(order) for order in permutations(facts)}
    assert results == {expected or without}


@pytest.mark.once
def test_a_known_outcome_of_the_agent_stays() -> None:
    failed = report("effect.acknowledged", 2, {"outcome": "error", "external_reference": ""})
    facts = [report("effect.dispatched", 1, {}), failed]
    facts.append(confirmation("effect.confirmed", 10, "github"))
    results = {fold_in_order(order) for order in permutations(facts)}
    assert results == {("acknowledged", "error", "github")}


@pytest.mark.once
def test_an_agents_report_of_a_confirmation_changes_nothing() -> None:
    fact = confirmation("effect.confirmed", 10, "github")
    fact.lane = "evidence"
    assert fold_in_order((report("effect.dispatched", 1, {}), fact)) == ("dispatched", "", "")


@pytest.fixture
def bot(host: CodeHost) -> CodeHost:
    agent_identities.add_identity(
        host.organization.agent, "github", "release-bot", actor="gatebook"
    )
    return host


@pytest.mark.django_db
def test_a_report_of_a_confirmation_over_http_is_only_stored(bot: CodeHost) -> None:
    effect = bot.dispatch_push()
    item = {
        "id": "r-1",
        "kind": "effect.confirmed",
        "session": str(effect.session_id),
        "effect": str(effect.id),
        "by": "github",
    }
    bot.agent.report([item])
    effect.refresh_from_db()
    assert (effect.state, effect.confirmed_by) == ("dispatched", "")


@pytest.mark.django_db
def test_a_contradicting_event_ends_no_request(bot: CodeHost) -> None:
    inbox = InboxScenario(bot.organization, bot.agent)
    inbox.declare("git.push", tool_class="idempotent")
    inbox.rules(RULES)
    planned = bot.plan_push(**TOPIC)
    assert inbox.answer(inbox.gate(planned), "rita").refusal is None
    bot.agent.dispatch(planned)
    bot.agent.fail(planned, "rejected")
    again = bot.plan_push(**TOPIC)
    gate = inbox.gate(again)
    assert gate.status == "pending"
    event = bot.push(ref="refs/heads/topic")
    assert EventMatch.objects.get(event=event).status == "contradicts"
    assert Gate.objects.get(id=gate.id).status == "pending"


@pytest.mark.django_db
def test_a_request_after_a_timeout_ends_with_the_confirmation(bot: CodeHost) -> None:
    inbox = InboxScenario(bot.organization, bot.agent)
    inbox.declare("git.push", tool_class="idempotent")
    inbox.rules(RULES)
    planned = bot.plan_push(**TOPIC)
    assert inbox.answer(inbox.gate(planned), "rita").refusal is None
    bot.agent.dispatch(planned)
    bot.agent.fail(planned, "timeout")
    assert bot.plan_push(**TOPIC)["permission"] == "pending"
    event = bot.push(ref="refs/heads/topic")
    effect = inbox.effect(planned)
    assert (event.status, effect.state, effect.confirmed_by) == (
        "matched",
        "acknowledged",
        "github",
    )
    assert not Gate.objects.filter(effect=effect, status="pending").exists()
    host_events.withdraw_event_match(
        event.matches.get().id, bot.project.id, actor="p_1", reason="Another job did it."
    )
    effect.refresh_from_db()
    assert (effect.state, effect.outcome, effect.confirmed_by) == ("failed", "unknown", "")


@pytest.mark.django_db
def test_dismissing_every_candidate_leaves_the_finding(
    bot: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot.dispatch_push("e-1")
    bot.dispatch_push("e-2", arguments={"ref": "main", "note": "again"})
    event = bot.push()
    later = event.received_us + host_events.GRACE_S * 1_000_000
    monkeypatch.setattr(host_events, "now_us", lambda: later)
    statuses = []
    for match in event.matches.order_by("position"):
        host_events.withdraw_event_match(
            match.id, bot.project.id, actor="p_1", reason="Its log shows another ref."
        )
        event.refresh_from_db()
        statuses.append(event.status)
    # With one effect left nothing else explains the event, until that is dismissed too.
    assert statuses in (["matched", "outside"], ["ambiguous", "outside"])
    assert Entry.objects.filter(kind="integrity.violation").count() == 1
