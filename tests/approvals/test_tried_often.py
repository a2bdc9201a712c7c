"""Violations of every attempt of an effect stay, also of attempts that no new fact names."""

from typing import Any

import pytest

from accounts import agents
from journal.models import Entry
from ledger import stops
from ledger.models import Attempt, Effect
from ledger.store import reader
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.sample_data import connect_agent
from tests.sessions.team_helpers import one_team

pytestmark = pytest.mark.django_db
EFFECT: dict[str, Any] = {"session": "s-1", "effect_key": "e-1"}
PLAN = {
    **EFFECT,
    "id": "plan",
    "kind": "effect.planned",
    "tool": "git.push",
    "arguments": {"ref": "main"},
}


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every effect as one with very many attempts."""
    monkeypatch.setattr(reader, "MAX_FULLY_LOADED", 0)


def dispatched(*attempts: int) -> list[dict[str, Any]]:
    return [{**EFFECT, "id": f"d{n}", "kind": "effect.dispatched", "attempt": n} for n in attempts]


def load_permissions() -> list[str]:
    return list(Attempt.objects.order_by("number").values_list("permission", flat=True))


def test_a_plan_that_comes_late_shows_under_which_permission_each_of_them_ran(
    inbox: InboxScenario,
) -> None:
    inbox.agent.report(dispatched(1, 2, 3, 4))
    assert load_permissions() == ["observed"] * 4
    inbox.agent.report([PLAN])
    assert load_permissions() == ["bypassed"] * 4


def test_a_live_report_of_one_outweighs_the_import_of_all(inbox: InboxScenario) -> None:
    inbox.agent.report([PLAN])
    with connect_agent(agents.ensure_agent(inbox.project, "importer"), "import") as importer:
        one_team("deploy-7", "importer")
        importer.report(dispatched(1, 2, 3, 4))
    assert load_permissions() == ["observed"] * 4
    inbox.agent.report(
        [{**EFFECT, "id": "a", "kind": "effect.acknowledged", "attempt": 4, "outcome": "ok"}]
    )
    assert load_permissions() == ["bypassed"] * 4


def test_a_plan_that_comes_late_shows_which_of_them_ran_while_its_tool_was_stopped(
    inbox: InboxScenario,
) -> None:
    inbox.person("operator", "operator")
    inbox.agent.report(dispatched(1))
    stop_row = stops.set_stop(
        inbox.project, "tool", "git.push", "stop all pushes", inbox.user("operator")
    )
    inbox.agent.report(dispatched(2))
    stops.lift_stop(stop_row, "they may go on", inbox.user("operator"))
    inbox.agent.report(dispatched(3, 4))
    inbox.agent.report([PLAN])
    assert Effect.objects.get().violates
    facts = Entry.objects.filter(kind="integrity.violation").values_list("facts", flat=True)
    assert '{"violation":"executed_while_stopped"}' in facts
