"""A rejected attempt that had happened after all, and the next attempt that people approved.

Both are reported in either order. The journal knows when a vote came, so which gate ended how may
differ; the violations of an agent and the basis of the next attempt may not.
"""

from collections.abc import Callable
from itertools import permutations, product
from typing import Any

import pytest
import time_machine
from django.db import transaction

from approvals.gates.statuses import US
from approvals.models import Gate
from db.clock import now_us
from journal.models import Entry
from ledger.models import Attempt, Tool
from ledger.tools import cache
from tests.approvals.inbox_scenario import InboxScenario
from tests.matrices import keep_core
from tests.rows_with_entries import change_tools

pytestmark = pytest.mark.django_db
EFFECT: dict[str, Any] = {"session": "s-1", "effect_key": "e-1"}
LATE = {**EFFECT, "id": "late", "kind": "effect.acknowledged", "outcome": "ok"}
SECOND = {**EFFECT, "id": "second", "kind": "effect.dispatched", "attempt": 2}


def approved(inbox: InboxScenario, gate: Gate) -> None:
    inbox.answer(gate, "reviewer")


def refused(inbox: InboxScenario, gate: Gate) -> None:
    inbox.answer(gate, "reviewer", "deny", "not a second time")


def no_vote(_desk: InboxScenario, _gate: Gate) -> None:
    """No vote arrives."""


@pytest.mark.parametrize("mode", ["enforce", "observe"])
@pytest.mark.parametrize(
    ("ruling", "after_s", "permission"),
    [
        (approved, 1, "used"),
        (approved, 3_600, "bypassed"),
        (refused, 1, "bypassed"),
        (no_vote, 1, "bypassed"),
    ],
    ids=["approved", "too late", "refused", "nobody ruled"],
)
def test_the_next_attempt_is_checked_against_its_own_permission(
    inbox: InboxScenario,
    ruling: Callable[[InboxScenario, Gate], None],
    after_s: int,
    permission: str,
    mode: str,
) -> None:
    """The first attempt had permission by a ruling too, or ran because the project observed."""
    inbox.rules(mode=mode)
    first = inbox.plan()
    if mode == "enforce":
        inbox.answer(inbox.gate(first), "reviewer")
    inbox.agent.dispatch(first)
    inbox.agent.fail(first, "rejected")
    inbox.rules()
    gate = inbox.gate(inbox.plan())
    ruling(inbox, gate)
    outcomes = []
    for order in permutations([LATE, SECOND]):
        savepoint = transaction.savepoint()
        for fact in order:
            at = now_us() / US + (after_s if fact is SECOND else 0)
            with time_machine.travel(at, tick=False):
                assert inbox.agent.report([fact]).status_code == 200
        outcomes.append(outcome(inbox, first))
        transaction.savepoint_rollback(savepoint)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0]["effect"] == ("acknowledged", permission, "", permission == "bypassed")
    assert outcomes[0]["permission"] == ("policy" if after_s > 1 else "ruling", gate.id.hex)
    assert outcomes[0]["attempts"] == [(1, "used"), (2, permission)]
    assert outcomes[0]["violations"] == (
        ["executed_without_permission"] if permission == "bypassed" else []
    )


def outcome(inbox: InboxScenario, planned: dict[str, Any]) -> dict[str, Any]:
    """The violations, and the state of the effect and its attempts."""
    effect = inbox.effect(planned)
    violations = (
        Entry.objects.filter(kind="integrity.violation")
        .order_by("position")
        .values_list("facts", flat=True)
    )
    return {
        "effect": (effect.state, effect.permission, effect.saved_permission, effect.violates),
        "permission": (effect.permission_basis, effect.permission_ref),
        "attempts": list(Attempt.objects.order_by("number").values_list("number", "permission")),
        "violations": [facts.split('"')[3] for facts in violations],
        "open": Gate.objects.filter(status__in=("pending", "approved")).count(),
    }


@pytest.mark.parametrize(
    ("together", "tool_class"),
    keep_core(
        product(
            [True, False],
            [
                "idempotent",
                "idempotency_key",
                "transactional",
                "probeable",
                "compensable",
                "opaque",
            ],
        ),
        [(True, "idempotent"), (True, "probeable"), (False, "idempotency_key"), (False, "opaque")],
    ),
)
def test_planned_again_after_a_first_that_happened_and_a_second_unknown(
    inbox: InboxScenario, tool_class: str, together: bool
) -> None:
    """There is no permission to request: the schema refused it, and the agent got a 500."""
    change_tools(Tool.objects.filter(project=inbox.project, name="git.push"), tool_class=tool_class)
    cache.clear_tool_cache()
    effect = inbox.plan("e-1")
    approved(inbox, inbox.gate(effect))
    inbox.agent.dispatch(effect)
    inbox.agent.fail(effect, "rejected")
    effect = inbox.agent.plan("e-1")
    approved(inbox, inbox.gate(effect))
    assert inbox.agent.dispatch(effect)["attempt"] == 2
    words = [{**LATE, "id": "nobody", "attempt": 2, "outcome": "unknown"}, LATE]
    for batch in [words] if together else [[fact] for fact in words]:
        assert inbox.agent.report(batch).status_code == 200
    gates = Gate.objects.count()
    answer = inbox.agent.post(
        "/effects", {**EFFECT, "tool": "git.push", "arguments": {"ref": "main"}}
    )
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["state"], body["outcome"] in ("ok", "unknown"), body["permission"]) == (
        "acknowledged",
        True,
        "used",
    )
    # An agent that gets no open effect may take its effect for done; otherwise the answer names the
    # effect to settle first.
    assert (body["outcome"] == "ok" and body["answer"] == "done") or body["open_effect"] == effect[
        "id"
    ]
    assert Gate.objects.count() == gates
    assert (
        inbox.agent.post(
            "/effects", {**EFFECT, "tool": "git.push", "arguments": {"ref": "main"}}
        ).status_code
        == 200
    )
