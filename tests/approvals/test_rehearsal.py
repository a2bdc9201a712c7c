"""Dry runs of a draft: which recorded effects would have another outcome, and how many of each."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts import people
from accounts.models import Agent, Membership
from approvals.models import Gate, PolicySet
from approvals.policies import dry_run
from approvals.policies.dry_run import DryRun
from approvals.policies.engine import PlanRate
from approvals.policies.rate_counters import make_rate_counter
from db.clock import now_us
from journal import erasures
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Session
from tests.approvals.inbox_scenario import InboxScenario
from tests.rows_with_entries import change_agents

pytestmark = pytest.mark.django_db
DRAFT = """
name: basic
rules:
  - {id: forced, title: F, match: {tools: [git.push], arguments: [{path: force, eq: true}]}, outcome: deny}
  - {id: push, title: P, match: {tools: [git.push], refs: [main]}, outcome: require}
  - {id: rest, title: R, match: {tools: [git.push, file.read]}, outcome: allow}
"""
MAIN = {"repository": "web", "ref": "main"}


def replayed(
    inbox: InboxScenario, text: str = DRAFT, **options: Any
) -> tuple[DryRun, list[tuple[str, str, str, str]]]:
    replay = dry_run.prepare_dry_run(inbox.project, text, **options)
    keys = dict(Effect.objects.values_list("id", "effect_key"))
    return replay, [
        (keys[change.effect], change.before, change.after, change.after_rule) for change in replay
    ]


@pytest.fixture
def worked(quiet: InboxScenario) -> InboxScenario:
    """Four effects planned before there was any policy."""
    quiet.declare("git.push")
    for key, force, ref in (
        ("to-main", False, "main"),
        ("forced", True, "fix"),
        ("to-fix", False, "fix"),
    ):
        quiet.plan(key, arguments={"force": force}, target={"repository": "web", "ref": ref})
    quiet.plan("deployed", tool="deploy", arguments={})
    return quiet


def test_every_effect_that_would_have_ended_otherwise_is_listed_newest_first(
    worked: InboxScenario,
) -> None:
    replay, changes = replayed(worked)
    assert changes == [
        ("deployed", "allow", "ask", "basic, draft/"),
        ("forced", "allow", "deny", "basic, draft/forced"),
        ("to-main", "allow", "ask", "basic, draft/push"),
    ]
    assert replay.looked == 4
    assert dict(replay.outcomes) == {
        ("allow", "ask"): 2,
        ("allow", "deny"): 1,
        ("allow", "allow"): 1,
    }


def test_a_draft_is_compared_with_the_active_policy(worked: InboxScenario) -> None:
    worked.rules(DRAFT)
    name = str(PolicySet.objects.get())
    laxer = DRAFT.replace("outcome: deny", "outcome: allow")
    assert replayed(worked)[1] == []
    replay, changes = replayed(worked, laxer)
    assert changes == [("forced", "deny", "allow", "basic, draft/forced")]
    assert next(iter(replay)).before_rule == f"{name}/forced"


def test_asking_other_people_is_counted_and_no_change_of_outcome(worked: InboxScenario) -> None:
    worked.rules(DRAFT)
    replay, changes = replayed(
        worked, DRAFT.replace("outcome: require", "outcome: require, require: {minimum: 2}")
    )
    assert (changes, replay.asked_otherwise) == ([], 1)


def test_in_mode_observe_a_plan_without_a_rule_passes(worked: InboxScenario) -> None:
    _, changes = replayed(worked, mode="observe")
    assert [key for key, *_ in changes] == ["forced", "to-main"]


def test_nothing_is_written(worked: InboxScenario) -> None:
    before = (Entry.objects.count(), Gate.objects.count(), PolicySet.objects.count())
    with CaptureQueriesContext(connection) as queries:
        replayed(worked)
    assert {query["sql"].split()[0] for query in queries} == {"SELECT"}
    assert (Entry.objects.count(), Gate.objects.count(), PolicySet.objects.count()) == before


def test_older_effects_and_those_of_other_projects_are_left_out(worked: InboxScenario) -> None:
    old = Effect.objects.get(effect_key="to-main")
    Effect.objects.filter(pk=old.pk).update(received_us=now_us() - 3 * dry_run.DAY_US)
    assert [key for key, *_ in replayed(worked, days=2)[1]] == ["deployed", "forced"]
    assert replayed(worked, days=4)[0].since_us < old.received_us
    elsewhere = dry_run.prepare_dry_run(worked.organization.other, DRAFT)
    assert (list(elsewhere), elsewhere.looked) == ([], 0)


def test_a_dry_run_reads_in_pages_and_stops_at_its_limit(
    worked: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_changes = replayed(worked)[1]
    monkeypatch.setattr(dry_run, "EFFECTS_PER_QUERY", 2)
    assert replayed(worked)[1] == all_changes
    replay, changes = replayed(worked, most=2)
    assert (changes, replay.looked) == (all_changes[:1], 2)
    assert replay.cut_at_us == Effect.objects.get(effect_key="forced").received_us


def test_effects_without_arguments_and_without_plan_are_distinguished(
    worked: InboxScenario,
) -> None:
    forced = Effect.objects.get(effect_key="forced")
    assert forced.plan_position is not None
    erasures.erase_body(
        worked.project.id, forced.plan_position, reason="Art. 17", actor="tests", now_us=now_us()
    )
    fact = {
        "kind": "effect.acknowledged",
        "id": "seen",
        "session": "s-1",
        "effect_key": "late",
        "outcome": "ok",
    }
    worked.agent.report([fact | {"attempt": 1}])
    replay, changes = replayed(worked)
    assert (replay.erased, replay.unplanned) == (1, 1)
    assert [key for key, *_ in changes] == ["deployed", "to-main"]


def test_rates_are_those_of_then(worked: InboxScenario) -> None:
    rate_draft = (
        "name: basic\nrules:\n"
        "  - {id: often, title: O, match: {rate: {over: 2, within_s: 1h, per: tool}}, outcome: "
        "deny}\n"
        "  - {id: rest, title: R, match: {}, outcome: allow}\n"
    )
    assert [key for key, *_ in replayed(worked, rate_draft)[1]] == ["to-fix"]


@pytest.mark.parametrize(
    ("per", "within_s", "expected"),
    [
        ("tool", 60, 3),
        ("agent", 60, 3),
        ("session", 60, 3),
        ("project", 60, 4),
        ("session_effects", 0, 4),
    ],
)
def test_earlier_plans_are_counted_per_subject(
    worked: InboxScenario, per: str, within_s: int, expected: int
) -> None:
    session = Session.objects.get()
    agent, tool = worked.organization.agent.id, "git.push"
    count = make_rate_counter(worked.project.id, agent, session.id, tool, now_us(), intent="")
    assert count(PlanRate(100, within_s, per)) == expected
    assert count(PlanRate(2, within_s, per)) == 2, "no more is counted than the rule asks about"
    first = Effect.objects.get(effect_key="to-main").opened_position
    assert (
        make_rate_counter(worked.project.id, agent, session.id, tool, now_us(), first, intent="")(
            PlanRate(100, within_s, per)
        )
        == 0
    )
    if within_s:
        later = now_us() + 61_000_000
        assert (
            make_rate_counter(worked.project.id, agent, session.id, tool, later, intent="")(
                PlanRate(100, within_s, per)
            )
            == 0
        )


def test_the_effect_itself_is_not_counted_when_it_is_evaluated_again(quiet: InboxScenario) -> None:
    quiet.declare("git.push")
    quiet.rules(
        "name: basic\nrules:\n"
        "  - {id: often, title: O, match: {rate: {over: 2, within_s: 1h, per: tool}}, outcome: "
        "require}\n"
        "  - {id: rest, title: R, match: {}, outcome: allow}\n"
    )
    first, second = quiet.plan("first"), quiet.plan("second", arguments={"n": 2})
    assert [quiet.agent.dispatch(effect)["state"] for effect in (first, second)] == [
        "dispatched",
        "dispatched",
    ]
    assert quiet.plan("third", arguments={"n": 3})["answer"] == "wait"


def command(inbox: InboxScenario, path: Path, *options: str) -> str:
    out = StringIO()
    call_command(
        "dry_run_policies", str(path), "--project", inbox.project.name, *options, stdout=out
    )
    return out.getvalue()


def test_the_command_lists_the_changes_and_counts_them(
    worked: InboxScenario, tmp_path: Path
) -> None:
    path = tmp_path / "draft.yaml"
    path.write_text(DRAFT)
    worked.plan(
        "hidden", arguments={"force": True}, target={"repository": "web", "ref": "fix\u202e"}
    )
    lines = command(worked, path).splitlines()
    assert [line.split("  ", 1)[1].split("  ", 1)[1] for line in lines[:2]] == [
        "allow → deny  git.push web fix[U+202E]  (no active policy → basic, draft/forced)",
        "allow → ask  deploy  (no active policy → basic, draft/)",
    ]
    assert lines[4:] == [
        "5 effects of the last 14 days, replayed in mode enforce.",
        "allow stays: 1",
        "allow → ask: 2",
        "allow → deny: 2",
    ]
    assert "allow → ask: 1" in command(worked, path, "--mode", "observe")
    path.write_text("name: basic\nrules: {}\n")
    with pytest.raises(CommandError, match=r"draft.yaml:2: `rules` must be a list"):
        command(worked, path)
    with pytest.raises(CommandError, match="--days"):
        command(worked, path, "--days", "0")


def test_a_requirement_that_no_one_meets_is_another_outcome_with_a_warning(
    quiet: InboxScenario, tmp_path: Path
) -> None:
    """Four people could vote; the agent's owner and the session's owner are two of them."""
    quiet.declare("git.push")
    quiet.rules(DRAFT)
    quiet.agent.post("/sessions", {"key": "s-1", "owner": "reviewer"})
    change_agents(Agent.objects.all(), owner=quiet.user("operator"))
    quiet.plan("to-main", target=MAIN)

    def draft(minimum: int, people: str = "") -> str:
        outcome = f"refs: [main]}}, outcome: require, require: {{{people} minimum: {minimum}}}"
        return DRAFT.replace("refs: [main]}, outcome: require", outcome)

    replay, changes = replayed(quiet, draft(1))
    assert (changes, replay.warnings) == ([], [])
    for text, warned in (
        (draft(2), False),
        (draft(9), True),
        (draft(1, "teams: [nowhere],"), True),
    ):
        replay, changes = replayed(quiet, text)
        assert changes == [("to-main", "ask", "impossible", "basic, draft/push")], text
        assert bool(replay.warnings) is warned, text
        assert dict(replay.outcomes) == {("ask", "impossible"): 1}
    quiet.person("zoe")
    assert replayed(quiet, draft(2))[1] == []
    member = Membership.objects.get(user__username="zoe")
    people.close_account(member.user.username)
    assert replayed(quiet, draft(2))[1] != []

    fields = {"text": draft(9), "days": "7", "mode": "enforce", "do": "dry_run"}
    page = (
        quiet.organization.client("administrator")
        .post(reverse("policy_draft"), fields)
        .content.decode()
    )
    assert "No outcome would change" not in page
    assert "requires more approvers than are eligible" in page
    assert "requests will expire" in page
    out, path = StringIO(), tmp_path / "draft.yaml"
    path.write_text(draft(9))
    call_command("dry_run_policies", str(path), stdout=out)
    assert "Warning: rule push: Needs 9 approvers" in out.getvalue()
    assert "ask → impossible" in out.getvalue()
