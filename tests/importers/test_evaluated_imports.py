"""Imports evaluated with the policy in force: marked, counted by rule, and never a violation."""

import io
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from accounts.models import Project
from approvals.models import Gate
from approvals.policies import policies
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Session
from tests.api.api_client import Caller, code
from tests.api.conftest import agent, application, call, importer, issue
from tests.importers.samples import FILES, RECORDED, format_of, needs_recordings, recorded_counts

__all__ = ["agent", "application", "call", "importer", "issue"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("project", "in_process")]


RULES = """
name: rules
rules:
  - {id: reading, title: Reading, match: {tools: [Read]}, outcome: allow}
  - {id: no-shell, title: No shell, match: {tools: [Bash], arguments: [{path: command, contains: git}]}, outcome: deny}
  - {id: writing, title: Writing, match: {tools: [Write]}, outcome: require}
"""


def _in_force(project: Project, text: str = RULES, mode: str = "enforce") -> None:
    policies.activate_policy_set(project, policies.load_policy_set(project, text), mode)


def _import(format_name: str, *files: Path, evaluate: bool = True) -> str:
    out = io.StringIO()
    call_command(
        "import_trajectory", format_name, *map(str, files), evaluate_policies=evaluate, stdout=out
    )
    return out.getvalue()


def test_evaluated_effects_are_marked_counted_by_rule_and_no_violation(project: Project) -> None:
    _in_force(project)
    assert _import("claude-code", FILES / "claude-code.jsonl").splitlines()[1:] == [
        "Evaluated by the active policy:",
        "   effects  would have been    by rule",
        "         1  denied             rules@1/no-shell",
        "         3  gated              rules@1, no matching rule",
        "         1  gated              rules@1/writing",
        "         1  allowed            rules@1/reading",
    ]
    assert Effect.objects.get(tool="Write").policy_rule == "rules@1/writing"
    assert set(Effect.objects.values_list("permission", "permission_basis", "policy_enforced")) == {
        ("observed", "import", False)
    }
    assert not Gate.objects.exists()
    assert not Entry.objects.filter(kind__startswith="integrity.").exists()


def test_earlier_imports_are_not_evaluated_afterwards(project: Project) -> None:
    _in_force(project, mode="observe")
    _import("claude-code", FILES / "claude-code.jsonl", evaluate=False)
    assert set(Effect.objects.values_list("policy_outcome", flat=True)) == {""}
    printed = _import(
        "claude-code", FILES / "claude-code.jsonl", FILES / "claude-code-subagent.jsonl"
    ).splitlines()
    assert "         6  not evaluated      imported before without --evaluate-policies" in printed
    assert Effect.objects.filter(policy_outcome="").count() == 6
    assert Effect.objects.exclude(policy_outcome="").count() == 2


def test_without_a_policy_in_force_nothing_is_imported(project: Project) -> None:
    with pytest.raises(CommandError, match="The project has no active policy"):
        _import("pi", FILES / "pi.jsonl")
    assert not Entry.objects.filter(lane="evidence").exists()
    assert not Session.objects.exists()


def test_only_an_import_is_evaluated_on_request(
    agent: Caller, importer: Caller, project: Project
) -> None:
    item = {"id": "1", "kind": "session.started", "session": "s"}
    assert code(importer.report([item], "?evaluate_policies=true")) == (409, "no_policy")
    _in_force(project)
    assert code(agent.report([item], "?evaluate_policies=true")) == (
        422,
        "evaluate_policies_is_for_imports",
    )
    assert code(importer.report([item], "?evaluate_policies=yes")) == (422, "invalid")
    assert not Entry.objects.filter(lane="evidence").exists()
    assert importer.report([item], "?evaluate_policies=true").status_code == 200


@needs_recordings
def test_a_recorded_session_is_evaluated_completely(project: Project) -> None:
    _in_force(project)
    name = min((name for name in recorded_counts() if name.startswith("claude-code")), key=_size)
    printed = _import(format_of(name), RECORDED / name)
    counted = [int(line.split()[0].replace(",", "")) for line in printed.splitlines()[3:]]
    assert (
        sum(counted)
        == Effect.objects.exclude(policy_outcome="").count()
        == Effect.objects.count()
        > 0
    )


def _size(name: str) -> int:
    return (RECORDED / name).stat().st_size
