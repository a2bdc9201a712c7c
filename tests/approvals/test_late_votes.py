"""A rejected attempt that had happened after all, and the next one that people had approved:
reported either way round.

Of what people said the book knows when it came, so which gate ended how may differ; what is held
against an agent not, nor on whose word the next attempt ran.
"""

from collections.abc import Callable
from itertools import permutations
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
from tests.approvals.inbox_scenario import Desk

pytestmark = pytest.mark.django_db
SAID: dict[str, Any] = {"session": "s-1", "effect_key": "e-1"}
LATE = {**SAID, "id": "late", "kind": "effect.acknowledged", "outcome": "ok"}
SECOND = {**SAID, "id": "second", "kind": "effect.dispatched", "attempt": 2}


def approved(desk: Desk, gate: Gate) -> None:
    desk.answer(gate, "reviewer")


def refused(desk: Desk, gate: Gate) -> None:
    desk.answer(gate, "reviewer", "deny", "not a second time")


def nothing(_desk: Desk, _gate: Gate) -> None:
    """Nobody rules."""


@pytest.mark.parametrize("mode", ["enforce", "observe"])
@pytest.mark.parametrize(
    ("ruling", "after_s", "permission"),
    [
        (approved, 1, "used"),
        (approved, 3_600, "bypassed"),
        (refused, 1, "bypassed"),
        (nothing, 1, "bypassed"),
    ],
    ids=["approved", "too late", "refused", "nobody ruled"],
)
def test_the_next_attempt_is_judged_by_the_permission_that_stood_for_it(
    desk: Desk, ruling: Callable[[Desk, Gate], None], after_s: int, permission: str, mode: str
) -> None:
    """The first attempt had permission from people too, or was let go because the project observed."""
    desk.rules(mode=mode)
    first = desk.plan()
    if mode == "enforce":
        desk.answer(desk.gate(first), "reviewer")
    desk.agent.dispatch(first)
    desk.agent.fail(first, "rejected")
    desk.rules()
    asked = desk.gate(desk.plan())
    ruling(desk, asked)
    found = []
    for order in permutations([LATE, SECOND]):
        savepoint = transaction.savepoint()
        for said in order:
            at = now_us() / US + (after_s if said is SECOND else 0)
            with time_machine.travel(at, tick=False):
                assert desk.agent.report([said]).status_code == 200
        found.append(outcome(desk, first))
        transaction.savepoint_rollback(savepoint)
    assert found[0] == found[1]
    assert found[0]["effect"] == ("acknowledged", permission, "", permission == "bypassed")
    assert found[0]["permission"] == ("policy" if after_s > 1 else "ruling", asked.id.hex)
    assert found[0]["attempts"] == [(1, "used"), (2, permission)]
    assert found[0]["violations"] == (
        ["executed_without_permission"] if permission == "bypassed" else []
    )


def outcome(desk: Desk, planned: dict[str, Any]) -> dict[str, Any]:
    """What is held against whom."""
    effect = desk.effect(planned)
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
    "tool_class",
    ["idempotent", "idempotency_key", "transactional", "probeable", "compensable", "opaque"],
)
@pytest.mark.parametrize("together", [True, False])
def test_planned_again_where_the_first_had_happened_and_nobody_knows_of_the_second(
    desk: Desk, tool_class: str, together: bool
) -> None:
    """There is no permission to ask for: the schema refused it, and the agent was answered 500."""
    Tool.objects.filter(project=desk.project, name="git.push").update(tool_class=tool_class)
    cache.clear_tool_cache()
    effect = desk.plan("e-1")
    approved(desk, desk.gate(effect))
    desk.agent.dispatch(effect)
    desk.agent.fail(effect, "rejected")
    effect = desk.agent.plan("e-1")
    approved(desk, desk.gate(effect))
    assert desk.agent.dispatch(effect)["attempt"] == 2
    words = [{**LATE, "id": "nobody", "attempt": 2, "outcome": "unknown"}, LATE]
    for batch in [words] if together else [[one] for one in words]:
        assert desk.agent.report(batch).status_code == 200
    gates = Gate.objects.count()
    answer = desk.agent.post("/effects", {**SAID, "tool": "git.push", "arguments": {"ref": "main"}})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["state"], told["outcome"] in ("ok", "unknown"), told["permission"]) == (
        "acknowledged",
        True,
        "used",
    )
    # Whoever is told nothing open may take it for done; else it is said which effect must be
    # settled first.
    assert (told["outcome"] == "ok" and told["answer"] == "done") or told["open_effect"] == effect[
        "id"
    ]
    assert Gate.objects.count() == gates
    assert (
        desk.agent.post(
            "/effects", {**SAID, "tool": "git.push", "arguments": {"ref": "main"}}
        ).status_code
        == 200
    )
