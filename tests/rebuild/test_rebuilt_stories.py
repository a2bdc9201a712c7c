"""A story of agents, people and the clock: the check finds nothing, whatever happened."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from accounts import agents
from investigation.fulltext import indexer
from ledger.tools import cache
from rebuild import checking
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.test_asof_replay import ReplayMachine
from tests.approvals.test_life_machine import Life
from tests.matrices import count_examples
from tests.pages.sample_data import connect_agent
from tests.sessions.team_helpers import one_team

pytestmark = pytest.mark.django_db


def list_differences(
    project: UUID | None = None, tables: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return what the check (of some tables) names."""
    return [
        checking.difference_to_json(difference, with_texts=True)
        for result in checking.check_batches(project, tables=tables)
        for difference in result.differences
    ]


def _brief(row: dict[str, object]) -> str:
    return " ".join(str(row.get(name)) for name in _SHOWN)


_SHOWN = ("difference", "table", "key", "column", "stored", "expected", "position")


class RebuildMachine(ReplayMachine):
    """The story of two effects; at its end all rows are folded again."""

    def remember(self) -> None: ...

    def teardown(self) -> None:
        try:
            indexer.update_index()
            assert [_brief(row) for row in list_differences()] == []
        finally:
            Life.teardown(self)
            cache.clear_tool_cache()


@pytest.fixture
def machine(inbox: InboxScenario) -> Iterator[type[RebuildMachine]]:
    """The state machine of a project with a second agent in the first agent's team."""
    with connect_agent(
        agents.ensure_agent(inbox.project, "build-9", inbox.user("reviewer"))
    ) as second:
        one_team("deploy-7", "build-9")
        RebuildMachine.inbox, RebuildMachine.callers = inbox, [inbox.agent, second]
        yield RebuildMachine


@pytest.mark.deepened
def test_no_row_of_a_story_differs_from_the_journal(machine: type[RebuildMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=count_examples(5, 60),
            stateful_step_count=15,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
