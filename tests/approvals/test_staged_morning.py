"""The staged morning: every trap is warned about, and no ordinary request is."""

from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import transaction

from accounts import agents
from approvals.checks import run_checks
from approvals.checks.checked_request import build_checked_request
from approvals.models import Gate
from approvals.policies import policy_evaluation
from ledger.tools import cache, registry
from ledger.tools.tools_yaml import parse_tools_yaml
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.staged_morning import REQUESTS, RULES, TOOLS, StagedRequest, stage_morning
from tests.pages.sample_data import connect_agent


class StagedAgents:
    """The agents of the morning, each with a session of the past and one of today."""

    def __init__(self, inbox: InboxScenario, stack: ExitStack) -> None:
        self.inbox, self.stack = inbox, stack
        self.callers: dict[str, Caller] = {}
        self.day = "past"

    def plan(self, request: StagedRequest, key: str) -> dict[str, Any]:
        """Plan a request; the first of the morning ends the past."""
        if self.day == "past" and key == request.key:
            self.day = "morning"
            self.inbox.rules(RULES)
        if request.agent not in self.callers:
            with transaction.atomic():
                agent = agents.ensure_agent(self.inbox.project, request.agent)
            self.callers[request.agent] = self.stack.enter_context(connect_agent(agent))
        caller, session = self.callers[request.agent], f"{request.agent}-{self.day}"
        caller.session(session)
        fields: dict[str, Any] = {"tool": request.tool, "arguments": request.arguments}
        if request.target:
            fields["target"] = request.target
        planned = caller.plan(key, session, why=request.why, **fields)
        return planned | {"agent": request.agent}

    def finish(self, plan: dict[str, Any]) -> None:
        """Run a planned effect of the past."""
        caller = self.callers[plan["agent"]]
        caller.dispatch(plan)
        caller.acknowledge(plan)


def test_every_trap_is_warned_about_and_nothing_else(
    quiet: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = quiet
    with ExitStack() as stack:
        staged = StagedAgents(inbox, stack)
        registry.declare_tools(inbox.project, parse_tools_yaml(TOOLS))
        cache.clear_tool_cache()
        inbox.rules(RULES, "observe")
        plans = stage_morning(staged.plan, staged.finish)
        call_command("update_name_index")
    gates = {
        key: Gate.objects.select_related("effect").get(id=UUID(plan["gate"]["id"]))
        for key, plan in plans.items()
    }
    checked = [
        build_checked_request(
            gate, gate.effect, policy_evaluation.load_plan_body(gate.plan_position)
        )
        for gate in gates.values()
    ]
    results = run_checks.check_requests(inbox.project.id, checked)
    warned = {
        key: [result.title for result in results.get(gate.id, ()) if result.is_warning]
        for key, gate in gates.items()
    }
    assert {key for key, titles in warned.items() if titles} == {
        request.key for request in REQUESTS if request.trap
    }, warned
