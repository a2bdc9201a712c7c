"""Fixtures of the tests of hooks: a project whose rules ask for pushes, and coding agents."""

from collections.abc import Iterator

import pytest

from ledger.tools import cache
from tests.approvals.inbox_scenario import InboxScenario
from tests.config.row_snapshot import Kept
from tests.hooks.hook_client import RULES, HookClient
from tests.pages.people import Organization
from tests.pages.sample_data import ORGANIZATIONS_TOKEN, connect_agent

_FURNISHED = Kept[None]()


@pytest.fixture
def ruled(organization: Organization) -> Iterator[InboxScenario]:
    """A project that asks people for pushes and allows everything else."""
    with connect_agent(organization.agent, kept=ORGANIZATIONS_TOKEN) as caller:
        scenario = InboxScenario(organization, caller)
        _FURNISHED.again(lambda: _furnish(scenario))
        yield scenario


def _furnish(scenario: InboxScenario) -> None:
    scenario.rules(RULES)
    scenario.declare("git.push", tool_class="opaque")
    cache.clear_tool_cache()


@pytest.fixture
def claude(ruled: InboxScenario) -> HookClient:
    return HookClient(ruled)


@pytest.fixture
def codex(ruled: InboxScenario) -> HookClient:
    return HookClient(ruled, "codex")


@pytest.fixture
def gemini(ruled: InboxScenario) -> HookClient:
    return HookClient(ruled, "gemini")
