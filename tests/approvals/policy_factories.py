"""Plans and rules for the tests of approvals, with the defaults of a push to production."""

from typing import Any

from approvals.policies import policies_yaml
from approvals.policies.engine import CompiledPolicy, PlanRate, PolicyInput, compile_rules

PUSH: dict[str, Any] = {
    "tool": "git.push",
    "repository": "web",
    "ref": "refs/heads/main",
    "ref_class": "production",
    "environment": "",
    "resource": "",
    "tool_class": "probeable",
    "reversibility": "compensable",
    "declared": True,
    "risk": "high",
    "agent": "deploy-7",
    "labels": {"team": "web"},
    "arguments": {"remote": "origin", "refspec": "HEAD:main"},
}


def wish(**changes: Any) -> PolicyInput:
    return PolicyInput(**(PUSH | changes))


def rules(*given: dict[str, Any]) -> CompiledPolicy:
    """Rules as the reader returns them, each with an id of its own and without conditions by
    default."""
    complete_rules = [
        {"id": f"r{n}", "title": "t", "match": {}, "require": None, **fields}
        for n, fields in enumerate(given)
    ]
    return compile_rules({"name": "basic", "rules": complete_rules})


def loaded(text: str) -> CompiledPolicy:
    return compile_rules(policies_yaml.parse_policies(text))


def no_earlier_plans(_rate: PlanRate) -> int:
    """No plans came before."""
    return 0
