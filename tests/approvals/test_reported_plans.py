"""Plans that are reported in batches: what their judging reads is read once, and each counts those before it."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from journal.models import Entry
from ledger.models import Effect
from tests.approvals.story import Desk
from tests.ledger.test_commands_then_reports import every_delivery
from tests.ledger.test_convergence import undone

pytestmark = pytest.mark.django_db
PER = ("tool", "agent", "session", "project")
LOOKS = "name: house\nrules:\n" + "".join(
    f"  - id: often-{per}\n    title: Often\n    outcome: require\n"
    f"    match: {{tools: [git.push], labels: {{team: web}}, rate: {{over: 500, within_s: 1h, per: {per}}}}}\n"
    for per in PER
)
LOOKS += "  - {id: long, title: Long, match: {labels: {team: web}, session_effects_over: 500}, outcome: require}\n"
LOOKS += "  - {id: rest, title: Rest, match: {}, outcome: allow}\n"


def planned(effect_key: str, session: str = "s-1", tool: str = "git.push", told: str = "") -> dict[str, Any]:
    fact = {"id": f"plan of {effect_key}{told}", "kind": "effect.planned", "session": session, "effect_key": effect_key}
    return {**fact, "tool": tool, "arguments": {"ref": effect_key}}


def queries(desk: Desk, batch: list[dict[str, Any]]) -> int:
    with CaptureQueriesContext(connection) as asked:
        assert desk.agent.report(batch).status_code == 200
    return len(asked)


def often(desk: Desk, match: str) -> None:
    """Rules by which what `match` counts asks people, and all else passes."""
    desk.rules(
        f"name: house\nrules:\n  - {{id: often, title: Often, match: {{{match}}}, outcome: require}}\n"
        "  - {id: rest, title: Rest, match: {}, outcome: allow}\n"
    )


def judged(*keys: str) -> list[str]:
    """What each effect was judged."""
    found = dict(Effect.objects.values_list("effect_key", "judged"))
    return [found[key] for key in keys]


def test_a_batch_reads_labels_and_counts_once_however_many_plans_it_has(desk: Desk) -> None:
    desk.rules(LOOKS)
    for session in ("s-1", "s-2"):
        desk.agent.session(session, labels={"team": "web"})
    few = [planned(f"few-{n}", f"s-{1 + n % 2}") for n in range(10)]
    many = [planned(f"many-{n}", f"s-{1 + n % 2}") for n in range(200)]
    queries(desk, [planned("first"), planned("second", "s-2")])  # what a process remembers afterwards
    assert queries(desk, few) == queries(desk, many)
    assert set(Effect.objects.values_list("judged_by", flat=True)) == {"house@2/rest"}


@pytest.mark.parametrize("per", PER)
def test_the_plans_of_a_batch_count_one_another(desk: Desk, per: str) -> None:
    often(desk, f"tools: [git.push], rate: {{over: 2, within_s: 1h, per: {per}}}")
    assert desk.agent.report([planned(f"e-{n}") for n in range(4)]).status_code == 200
    assert judged("e-0", "e-1", "e-2", "e-3") == ["allow", "allow", "ask", "ask"]
    assert desk.plan("e-4")["leave"] == "pending"


def test_what_another_rate_counts_is_left_out(desk: Desk) -> None:
    often(desk, "tools: [git.push], rate: {over: 1, within_s: 1h, per: session}")
    batch = [planned("e-0"), planned("e-1", "s-2"), planned("e-2", tool="note"), planned("e-3"), planned("e-4", "s-2")]
    assert desk.agent.report(batch).status_code == 200
    assert judged("e-0", "e-1", "e-2", "e-3", "e-4") == ["allow", "allow", "allow", "ask", "ask"]


def test_an_effect_counts_once_however_often_its_plan_is_told(desk: Desk) -> None:
    often(desk, "session_effects_over: 2")
    assert desk.agent.report([planned("e-0")]).status_code == 200
    batch = [planned("e-0", told=" again"), planned("e-1"), planned("e-1", told=" again"), planned("e-2")]
    assert desk.agent.report(batch).status_code == 200
    assert judged("e-0", "e-1", "e-2") == ["allow", "allow", "ask"]


def test_what_is_marked_as_a_breach_has_an_entry_that_says_which(desk: Desk) -> None:
    """Of two plans of one effect the policy denies one, and the other wins: however they and the dispatch are told."""
    desk.rules(
        "name: house\nrules:\n  - {id: live, title: Live, match: {environments: [live]}, outcome: deny}\n"
        "  - {id: rest, title: Rest, match: {}, outcome: allow}\n"
    )
    desk.agent.session("s-1")
    denied = planned("e-0", told=" as it was meant") | {"target": {"environment": "live"}}
    ran = {"id": "ran", "kind": "effect.dispatched", "session": "s-1", "effect_key": "e-0"}
    marked = set()
    for batches in every_delivery([planned("e-0"), denied, ran]):
        with undone():
            for batch in batches:
                assert desk.agent.report(batch).status_code == 200
            violates = Effect.objects.get().violates
            assert violates == Entry.objects.filter(kind="integrity.violation").exists(), batches
            marked.add(violates)
    assert True in marked
