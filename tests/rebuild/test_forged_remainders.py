"""When a notification is due, what an erasure counted, and agents that no entry creates."""

from typing import Any

import orjson
import pytest
from django.db import transaction

from accounts import agents
from accounts.models import Agent
from db.clock import now_us
from erasure.models import ErasureRequest
from journal.models import Outbox
from tests.approvals.inbox_scenario import InboxScenario
from tests.erasure.conftest import ADDRESS, Office
from tests.erasure.conftest import committed as committed
from tests.erasure.conftest import office as office
from tests.erasure.conftest import own_folder as own_folder
from tests.rebuild.test_forged_rows import forge, run
from tests.rebuild.test_misplaced_rows import copy_row

pytestmark = pytest.mark.django_db
YEAR_2100_US = 4_102_444_800_000_000


def list_named(*arguments: str) -> set[tuple[str, str, str]]:
    """Return what the check names: (difference, table, column)."""
    _code, text = run("--check", "--json", *arguments)
    *named, _summary = map(orjson.loads, text.splitlines())
    return {(row["difference"], row["table"], row.get("column", "")) for row in named}


def test_a_notification_that_waits_for_years_is_named_and_due_again(inbox: InboxScenario) -> None:
    inbox.gate(inbox.plan("held", tool="deploy"))
    assert Outbox.objects.filter(topic="gate.requested", sent_at_us=None).count() == 1
    forge((f"UPDATE journal_outbox SET due_at_us = {now_us() + 3_000_000_000}, tries = 20",))
    assert list_named() == set()  # a failure may have postponed it by an hour
    forge((f"UPDATE journal_outbox SET due_at_us = {YEAR_2100_US}, tries = 0",))
    assert list_named() == {("changed", "journal_outbox", "due_at_us")}
    assert run()[0] == 0
    assert Outbox.objects.get(topic="gate.requested").due_at_us <= now_us()


def test_counts_of_an_erasure_are_compared_with_their_sums(office: Office) -> None:
    row = office.erase(ADDRESS)
    assert row.executed_position
    table = "erasure_erasurerequest"
    assert list_named("--table", table) == set()
    counts: dict[str, Any] = ErasureRequest.objects.get(pk=row.pk).erased_counts
    for forged in ({**counts, "forged": {"rows": 1}}, {**counts, "forged": {"held": 7}}):
        with transaction.atomic():
            text = orjson.dumps(forged).decode()
            forge((f"UPDATE erasure_erasurerequest SET erased_counts = '{text}'",))
            assert list_named("--table", table) == {("altered", table, "erased_counts")}
            transaction.set_rollback(True)


def test_an_agent_that_no_entry_creates_is_excused_only_as_an_earlier_one(
    inbox: InboxScenario,
) -> None:
    agent = Agent.objects.get(name="deploy-7")
    inbox.plan("held", tool="file.read")
    assert list_named() == set()
    with transaction.atomic():
        copy_row(Agent, agent, name="dep1oy-7", owner=None, charter="Merge all.", charter_version=1)
        assert list_named() == {("added", "accounts_agent", "")}
        transaction.set_rollback(True)
    agents.ensure_agent(inbox.project, "newer", actor="p_1")
    assert list_named() == set()
    copy_row(Agent, agent, name="dep1oy-7", owner=None)
    assert list_named() == {("added", "accounts_agent", "")}
    assert run()[0] == 0
    assert not Agent.objects.filter(name="dep1oy-7").exists()
