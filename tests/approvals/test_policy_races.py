"""Loading, activating and using at the same moment, on transactions that really commit."""

import threading
from typing import Any

import pytest
from django.db import connection, transaction

from accounts import agents, people, projects
from accounts.models import Project
from approvals import exemptions
from approvals.models import Activation, Exemption, PolicySet
from approvals.policies import policies, rate_counters
from db import retry
from db.clock import now_us
from db.ids import new_uuid7
from journal.models import Entry
from tests.api.api_client import Caller
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.test_deadlocks import BLOCKED, statement
from tests.approvals.test_races import inbox
from tests.journal.committed import committed, together
from tests.matrices import keep_core
from tests.sessions.command_factories import origin

__all__ = ["committed", "inbox"]
TEXT = "name: basic\nrules:\n  - {id: all, title: Everything, match: {}, outcome: require}\n"
pytestmark = pytest.mark.usefixtures("committed")


@pytest.fixture
def project(committed: None) -> Project:
    with transaction.atomic():
        return projects.create_project("of the races")


def load(project: Project, text: str) -> Any:
    with transaction.atomic():
        return policies.load_policy_set(project, text)


def test_of_two_who_activate_at_once_one_is_in_force_and_both_are_recorded(
    project: Project,
) -> None:
    first, second = load(project, TEXT), load(project, TEXT.replace("require", "deny"))

    def activate(policy_set: PolicySet) -> Activation:
        with transaction.atomic():
            return policies.activate_policy_set(project, policy_set, "enforce")

    done = together(*(lambda chosen=chosen: activate(chosen) for chosen in (first, second) * 4))
    assert all(isinstance(activation, Activation) for activation in done), done
    assert Activation.objects.filter(is_current=True).count() == 1
    current = policies.load_activation(project)
    assert current is not None
    assert current == Activation.objects.latest("id")
    assert Entry.objects.filter(kind="policy.activated").count() == Activation.objects.count() >= 2


def test_the_same_text_loaded_at_once_is_loaded_once(project: Project) -> None:
    done = together(*[lambda: load(project, TEXT)] * 6)
    assert {policy_set.pk for policy_set in done} == {PolicySet.objects.get().pk}
    assert Entry.objects.filter(kind="policy.loaded").count() == 1


def test_different_texts_loaded_at_once_are_versions_of_their_own(project: Project) -> None:
    texts = [TEXT + f"# {n}\n" for n in range(6)]
    done = together(*(lambda text=text: load(project, text) for text in texts))
    assert sorted(policy_set.version for policy_set in done) == [1, 2, 3, 4, 5, 6]


def test_use_against_revocation_is_counted_or_refused(project: Project) -> None:
    with transaction.atomic():
        user = people.add_project_member(project, "ada", "operator", "slate-lantern-orbit-42").user
        agent = agents.ensure_agent(project, "deploy-7")
        granted = exemptions.create_exemption(
            project,
            tool="*",
            reason="For the race of this test.",
            ends_at_us=now_us() + 60_000_000,
            user=user,
            **proved(),
        )

    def use() -> bool:
        with transaction.atomic():
            return exemptions.use_exemption(
                granted, origin(agent, new_uuid7().hex, received_us=now_us()), new_uuid7()
            )

    def revoke() -> bool:
        with transaction.atomic():
            return exemptions.end_exemption(granted, user)

    done = together(use, use, use, revoke, use, use, use, revoke)
    assert not any(isinstance(result, Exception) for result in done), done
    assert [done[3], done[7]].count(True) == 1
    used = [result for index, result in enumerate(done) if index not in (3, 7)].count(True)
    assert (
        Exemption.objects.get().uses == used == Entry.objects.filter(kind="exemption.used").count()
    )
    assert use() is False


MANY = 16  # sessions


def limit_rate(inbox: InboxScenario, per: str, over: int) -> None:
    """Rules by which the plans of git.push beyond `over` an hour ask people."""
    match = f"{{tools: [git.push], rate: {{over: {over}, within_s: 1h, per: {per}}}}}"
    inbox.rules(
        f"name: basic\nrules:\n  - {{id: often, title: Often, match: {match}, outcome: require}}\n"
        "  - {id: rest, title: Rest, match: {}, outcome: allow}\n"
    )


def connect_again(inbox: InboxScenario) -> Caller:
    """The same agent, over a connection of its own."""
    return Caller(inbox.agent.token, app=inbox.agent.client._transport.app)  # type: ignore[attr-defined]


@pytest.mark.parametrize("per", keep_core(["agent", "tool", "project"], ["agent", "project"]))
def test_of_many_sessions_that_plan_at_once_no_more_pass_than_the_rate_lets(
    inbox: InboxScenario, per: str
) -> None:
    limit_rate(inbox, per, 4)
    for number in range(MANY):
        inbox.agent.session(f"s-{number}")
    callers = [connect_again(inbox) for _ in range(MANY)]
    done = together(
        *(
            lambda caller=caller, n=n: caller.plan(f"e-{n}", f"s-{n}")["permission"]
            for n, caller in enumerate(callers)
        )
    )
    assert sorted(done) == ["granted"] * 4 + ["pending"] * (MANY - 4)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time")
def test_a_plan_and_a_batch_with_the_same_new_repository_do_not_deadlock(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan has stored the repository and needs its counter; the batch waits, and must not block
    the plan."""
    limit_rate(inbox, "agent", 10)
    for session in ("s-0", "s-1"):
        inbox.agent.session(session)
    fact = {"tool": "git.push", "arguments": {}, "target": {"repository": "new", "ref": "main"}}
    counts, planner = threading.Event(), []
    met: list[BaseException] = []
    original_counts = rate_counters.serialize_rated_plans

    def alone(*given: Any) -> None:
        if threading.get_ident() in planner:
            counts.set()
            while not statement(BLOCKED)[0]:
                assert not met
        original_counts(*given)

    def once(error: BaseException) -> bool:
        met.append(error)
        return False

    def plans() -> int:
        planner.append(threading.get_ident())
        return (
            connect_again(inbox)
            .post("/effects", {"session": "s-0", "effect_key": "e-0", **fact})
            .status_code
        )

    def reports() -> int:
        assert counts.wait(30)
        reported = {
            "id": "reported",
            "kind": "effect.planned",
            "session": "s-1",
            "effect_key": "e-1",
            **fact,
        }
        return connect_again(inbox).report([reported]).status_code

    monkeypatch.setattr(rate_counters, "serialize_rated_plans", alone)
    monkeypatch.setattr(retry, "is_retry_requested", once)
    assert (together(plans, reports), met) == ([201, 200], [])
