"""Plans reported in batches: their policy inputs are read once, and each plan counts earlier
ones."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from db.clock import now_us
from investigation.history.moment import JournalCut
from journal.models import Entry
from ledger.models import Effect
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.test_asof_replay import differences, live, made_again
from tests.ledger.test_commands_then_reports import every_delivery
from tests.ledger.test_convergence import stored, undone
from tests.matrices import keep_core

pytestmark = pytest.mark.django_db
PER = ("tool", "agent", "session", "project")
LOOKS = "name: basic\nrules:\n" + "".join(
    f"  - id: often-{per}\n    title: Often\n    outcome: require\n"
    "    match: "
    f"{{tools: [git.push], labels: {{team: web}}, rate: {{over: 500, within_s: 1h, per: {per}}}}}\n"
    for per in PER
)
LOOKS += "  - {id: long, title: Long, match: {labels: {team: web}, session_effects_over: 500}, outcome: require}\n"
LOOKS += "  - {id: rest, title: Rest, match: {}, outcome: allow}\n"


def planned(
    effect_key: str, session: str = "s-1", tool: str = "git.push", suffix: str = ""
) -> dict[str, Any]:
    fact = {
        "id": f"plan of {effect_key}{suffix}",
        "kind": "effect.planned",
        "session": session,
        "effect_key": effect_key,
    }
    return {**fact, "tool": tool, "arguments": {"ref": effect_key}}


def queries(inbox: InboxScenario, batch: list[dict[str, Any]]) -> int:
    with CaptureQueriesContext(connection) as queries_run:
        assert inbox.agent.report(batch).status_code == 200
    return len(queries_run)


def require_by_count(inbox: InboxScenario, match: str) -> None:
    """Activate rules by which plans that `match` counts need approval, and all others are
    allowed."""
    inbox.rules(
        "name: basic\nrules:\n  - "
        f"{{id: often, title: Often, match: {{{match}}}, outcome: require}}\n"
        "  - {id: rest, title: Rest, match: {}, outcome: allow}\n"
    )


def policy_outcome(*keys: str) -> list[str]:
    """The policy outcome of each effect."""
    outcomes = dict(Effect.objects.values_list("effect_key", "policy_outcome"))
    return [outcomes[key] for key in keys]


@pytest.mark.usefixtures("remembered")
def test_a_batch_reads_labels_and_counts_once_however_many_plans_it_has(
    inbox: InboxScenario,
) -> None:
    inbox.rules(LOOKS)
    for session in ("s-1", "s-2"):
        inbox.agent.session(session, labels={"team": "web"})
    few = [planned(f"few-{n}", f"s-{1 + n % 2}") for n in range(10)]
    many = [planned(f"many-{n}", f"s-{1 + n % 2}") for n in range(200)]
    queries(
        inbox, [planned("first"), planned("second", "s-2")]
    )  # caches that a process keeps afterwards
    assert queries(inbox, few) == queries(inbox, many)
    assert set(Effect.objects.values_list("policy_rule", flat=True)) == {"basic@2/rest"}


@pytest.mark.parametrize("per", PER)
def test_the_plans_of_a_batch_count_one_another(inbox: InboxScenario, per: str) -> None:
    require_by_count(inbox, f"tools: [git.push], rate: {{over: 2, within_s: 1h, per: {per}}}")
    assert inbox.agent.report([planned(f"e-{n}") for n in range(4)]).status_code == 200
    assert policy_outcome("e-0", "e-1", "e-2", "e-3") == ["allow", "allow", "ask", "ask"]
    assert inbox.plan("e-4")["permission"] == "pending"


def test_plans_counted_by_another_rate_are_left_out(inbox: InboxScenario) -> None:
    require_by_count(inbox, "tools: [git.push], rate: {over: 1, within_s: 1h, per: session}")
    batch = [
        planned("e-0"),
        planned("e-1", "s-2"),
        planned("e-2", tool="note"),
        planned("e-3"),
        planned("e-4", "s-2"),
    ]
    assert inbox.agent.report(batch).status_code == 200
    assert policy_outcome("e-0", "e-1", "e-2", "e-3", "e-4") == [
        "allow",
        "allow",
        "allow",
        "ask",
        "ask",
    ]


def test_an_effect_counts_once_however_often_its_plan_is_reported(inbox: InboxScenario) -> None:
    require_by_count(inbox, "session_effects_over: 2")
    assert inbox.agent.report([planned("e-0")]).status_code == 200
    batch = [
        planned("e-0", suffix=" again"),
        planned("e-1"),
        planned("e-1", suffix=" again"),
        planned("e-2"),
    ]
    # It does not count before itself either, if another batch or agent reports it later.
    batch += [
        planned(key, suffix=" too") | {"source": "deploy-7/hook"} for key in ("e-0", "e-1", "e-2")
    ]
    assert inbox.agent.report(batch).status_code == 200
    assert policy_outcome("e-0", "e-1", "e-2") == ["allow", "allow", "ask"]


PLACES = (
    "name: basic\nrules:\n  - {id: live, title: Live, match: {environments: [live]}, outcome: "
    "deny}\n"
    "  - {id: vault, title: The vault, match: {environments: [vault]}, outcome: deny}\n"
    "  - {id: stage, title: Stage, match: {environments: [stage]}, outcome: require}\n"
    "  - {id: rest, title: Rest, match: {}, outcome: allow}\n"
)
RAN = {"id": "ran", "kind": "effect.dispatched", "session": "s-1", "effect_key": "e-0"}


def plan_at(environment: str, suffix: str) -> dict[str, Any]:
    """The plan of e-0 with another target; of two plans the one with the smaller `suffix` wins."""
    return planned("e-0", suffix=suffix) | (
        {"target": {"environment": environment}} if environment else {}
    )


def deliver(inbox: InboxScenario, *facts: dict[str, Any]) -> None:
    """Report facts, each in a batch of its own."""
    for fact in facts:
        assert inbox.agent.report([fact]).status_code == 200


def load_policy_result() -> tuple[str, str, bool]:
    """The permission of the one effect, the rule that decided it, and whether the effect is a
    violation."""
    return Effect.objects.values_list("permission", "policy_rule", "violates").get()


@pytest.mark.parametrize(
    ("stricter", "other", "rule"),
    keep_core(
        [
            ("", "live", "live"),
            ("stage", "", "stage"),
            ("live", "stage", "live"),
            ("vault", "live", "live"),
        ],
        one_in=2,
    ),
)
def test_of_reported_plans_the_strictest_policy_outcome_wins_in_any_order(
    inbox: InboxScenario, stricter: str, other: str, rule: str
) -> None:
    """Which plan ran is unknown, so a run without permission is never silently accepted."""
    inbox.rules(PLACES)
    inbox.agent.session("s-1")
    states = []
    for batches in every_delivery([plan_at(stricter, " 1"), plan_at(other, " 2"), RAN]):
        with undone():
            for batch in batches:
                assert inbox.agent.report(batch).status_code == 200
            states.append(stored("s-1"))
    assert all(state == states[0] for state in states)
    (row,) = states[0]["effects"]
    assert (row["environment"], row["policy_rule"], row["policy_enforced"]) == (
        stricter,
        f"basic@2/{rule}",
        True,
    )
    assert (row["permission"], row["permission_basis"], row["violates"]) == (
        "bypassed",
        "policy",
        True,
    )
    assert [attempt["permission"] for attempt in states[0]["attempts"]] == ["bypassed"]
    assert [facts.split('"')[3] for _, facts, _ in states[0]["violations"]] == [
        "executed_without_permission"
    ]


def test_a_plan_that_is_reported_again_is_not_evaluated_by_newer_rules(
    inbox: InboxScenario,
) -> None:
    inbox.rules("name: basic\nrules:\n  - {id: all, title: All, match: {}, outcome: allow}\n")
    inbox.agent.session("s-1")
    deliver(inbox, plan_at("stage", " 5"), plan_at("live", " 6"), RAN)
    inbox.rules(PLACES)
    # The winning plan and the losing plan, under ids that come before and after.
    deliver(
        inbox,
        *(plan_at(place, f" {number}{place}") for place in ("stage", "live") for number in (4, 7)),
    )
    assert load_policy_result() == ("observed", "basic@2/all", False)
    others = (
        plan_at("vault", " 3"),
        plan_at("live", " 8") | {"source": "deploy-7/hook"},
        plan_at("live", " 8") | {"tool": "note"},
    )
    for other_plan, rule in zip(others, ("vault", "live", "live"), strict=True):
        with undone():
            deliver(inbox, other_plan)
            assert load_policy_result() == ("bypassed", f"basic@3/{rule}", True), other_plan


def test_only_plans_with_other_policy_outcomes_are_compared_with_earlier_ones(
    inbox: InboxScenario,
) -> None:
    inbox.rules(PLACES)
    inbox.agent.session("s-1")
    deliver(
        inbox, planned("first"), planned("first", suffix=" again")
    )  # caches that a process keeps afterwards
    counts = []
    for batch in (
        [planned("e-0"), planned("e-1"), planned("e-1", suffix=" again")],
        [planned("e-0", suffix=" again"), planned("e-2")],
        [plan_at("live", " there"), planned("e-3")],
    ):
        with CaptureQueriesContext(connection) as queries_run:
            assert inbox.agent.report(batch).status_code == 200
        counts.append(sum(_reads_bodies(query["sql"]) for query in queries_run))
    assert counts == [0, 0, 1]


def _reads_bodies(query: str) -> bool:
    return query.startswith("SELECT") and '"journal_body"."text"' in query


def test_as_of_a_moment_the_policy_outcome_is_of_the_plans_until_then(inbox: InboxScenario) -> None:
    inbox.rules(PLACES)
    inbox.agent.session("s-1")
    moments = []
    for fact in (
        plan_at("", " 1"),
        RAN,
        plan_at("stage", " 3"),
        plan_at("live", " 2"),
        plan_at("vault", " 0"),
    ):
        deliver(inbox, fact)
        cut = JournalCut(Entry.objects.latest("position").position, now_us())
        moments.append((cut, live(cut.at_us)))
    assert [shown["effect e-0"]["policy_rule"] for _, shown in moments] == [
        f"basic@2/{rule}" for rule in ("rest", "rest", "stage", "live", "live")
    ]
    for cut, shown in moments:
        assert differences(made_again(inbox.project.id, cut), shown) == {}
