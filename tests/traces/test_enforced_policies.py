"""Spans under an enforced policy: only what nothing else explains ran without permission."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from accounts.models import Project
from approvals.policies import policies
from ledger.models import Effect
from tests.api.api_client import Caller
from tests.traces.conftest import Exporter
from tests.traces.otlp_requests import tool_span

RULES = """
name: pushes
rules:
  - id: pushes
    title: Pushes need approval
    match: {tools: [git.push]}
    outcome: require
"""


@pytest.fixture
def enforce(agent: Caller) -> Callable[..., None]:
    """Activate RULES: `enforce(mode="enforce")`."""

    def activate(mode: str = "enforce") -> None:
        project = Project.objects.get(name="default")
        with transaction.atomic():
            loaded = policies.load_policy_set(project, RULES, "tests")
            policies.activate_policy_set(project, loaded, mode, None, "tests")

    return activate


def read_permissions() -> list[tuple[Any, ...]]:
    rows = Effect.objects.filter(effect_key__startswith="otlp:").order_by("effect_key")
    return list(rows.values_list("policy_outcome", "permission", "permission_basis", "violates"))


def test_a_call_that_only_spans_know_ran_without_permission(
    enforce: Callable[..., None], exporter: Exporter
) -> None:
    enforce()
    exporter.export(tool_span(1))
    assert read_permissions() == [("ask", "bypassed", "policy", True)]


def test_an_observed_policy_makes_no_violation(
    enforce: Callable[..., None], exporter: Exporter
) -> None:
    enforce("observe")
    exporter.export(tool_span(1))
    assert read_permissions() == [("ask", "observed", "observe", False)]


@pytest.mark.parametrize(
    "changed",
    [
        {"status": 2},  # it may not have happened
        {"attributes": {"gen_ai.tool.call.result": None}},  # it may wait for a person
    ],
)
def test_a_call_of_unknown_outcome_is_not_a_violation(
    enforce: Callable[..., None], exporter: Exporter, changed: dict[str, Any]
) -> None:
    enforce()
    exporter.export(tool_span(1, **changed))
    assert read_permissions() == [("ask", "observed", "import", False)]


def test_a_denied_call_that_returned_to_the_model_is_not_a_violation(
    enforce: Callable[..., None], agent: Caller, exporter: Exporter
) -> None:
    enforce()
    agent.session("conv-1")
    agent.plan("push-1", "conv-1", call_id="call_1")
    exporter.export(tool_span(1, attributes={"gen_ai.tool.call.result": "denied by rita"}))
    effect = Effect.objects.get()
    assert (effect.permission, effect.state, effect.violates) == ("pending", "planned", False)


def test_a_span_of_a_session_with_recorded_effects_may_be_one_of_them(
    enforce: Callable[..., None], agent: Caller, exporter: Exporter
) -> None:
    enforce()
    agent.session("conv-1")
    agent.plan("push-1", "conv-1", tool="shell.git_push")  # the same call under another name
    exporter.export(tool_span(1))
    assert read_permissions() == [("ask", "observed", "import", False)]
