"""An entry without a fact that earlier ones of its kind have ends no comparison."""

from typing import Any

import orjson
import pytest

from accounts import agents, tokens
from accounts.models import Agent, AgentToken
from db.clock import now_us
from db.ids import new_uuid7
from journal import entries
from rebuild.short_entries import FULL_FACTS
from tests.approvals.inbox_scenario import InboxScenario
from tests.rebuild.test_forged_rows import forge, run

pytestmark = pytest.mark.django_db


def record_short(inbox: InboxScenario, kind: str, subject: Any, **facts: Any) -> int:
    """Write an entry in the form of an earlier version, as the application's role can."""
    return entries.record_system_entry(
        inbox.project.id,
        kind,
        event_id=new_uuid7().hex,
        text=entries.dump_sorted_json({"kind": kind}),
        received_us=now_us(),
        facts=entries.dump_sorted_json(facts),
        subject=subject,
    ).position


def list_named() -> set[tuple[str, str, str]]:
    """Return what the check names: (difference, table, column)."""
    _code, text = run("--check", "--json")
    *named, _summary = map(orjson.loads, text.splitlines())
    return {(row["difference"], row["table"], row.get("column", "")) for row in named}


def test_a_short_entry_after_a_full_one_is_named_and_decides_nothing(inbox: InboxScenario) -> None:
    agent = Agent.objects.get(name="deploy-7")
    agents.set_agent_team(agent, "web")
    owner, other = (inbox.person(name, "reviewer").user for name in ("olga", "otto"))
    agents.ensure_agent(inbox.project, "owned", owner, actor="p_1")
    tokens.issue_token(agent, expires_in=None, actor="p_1")
    assert list_named() == set()
    owned, token = Agent.objects.get(name="owned"), AgentToken.objects.latest("created_at")
    for position in (
        record_short(inbox, "admin.agent_created", owned.id, agent=str(owned.id)),
        record_short(inbox, "admin.agent_team_changed", agent.id),
        record_short(
            *(inbox, "admin.token_issued", token.id),
            agent=str(agent.id),
            scope="agent",
            expires_us=None,
        ),
    ):
        _code, text = run("--check")
        assert f"unreadable: journal_entry position={position}: its facts lack" in text
    assert list_named() == {("unreadable", "journal_entry", "facts")}
    forge(
        (
            f"UPDATE accounts_agent SET owner_id = {other.id} WHERE name = 'owned'",
            "UPDATE accounts_agent SET team = 'forged' WHERE name = 'deploy-7'",
        )
    )
    assert list_named() == {
        ("unreadable", "journal_entry", "facts"),
        ("changed", "accounts_agent", "owner_id"),
        ("changed", "accounts_agent", "team"),
    }
    assert run()[0] == 1
    assert list_named() == {("unreadable", "journal_entry", "facts")}


def test_a_short_entry_before_any_full_one_is_of_an_earlier_version(inbox: InboxScenario) -> None:
    agent = Agent.objects.get(name="deploy-7")
    record_short(inbox, "admin.agent_team_changed", agent.id)
    assert list_named() == set()


def test_every_kind_has_its_facts_in_what_this_version_writes(inbox: InboxScenario) -> None:
    assert inbox.project
    assert all(FULL_FACTS.values())
