"""Help of the policy editor: words to complete, examples, difference from the rules in force."""

import difflib
from typing import Any, Final, NamedTuple

from accounts.models import REF_CLASSES, Project
from approvals.gates import statuses
from approvals.policies import policies_yaml as language
from approvals.policies.engine import REQUEST_PARTIES, WARNED_PROOFS
from approvals.policies.staffing_check import load_eligible_reviewers
from approvals.policies.working_hours import WEEKDAYS
from ledger.models import Effect, Tool
from ledger.states import REVERSIBILITIES
from ledger.tools.predicates import ARGUMENT_OPERATORS

MAX_NAMES: Final = 200  # of each kind
_NEWEST_EFFECTS: Final = 500  # whose tools and agents are completed


class RuleExample(NamedTuple):
    """A rule to insert: its title on the button, and its text within `rules`."""

    key: str
    title: str
    text: str


EXAMPLES: Final = (
    RuleExample(
        "irreversible",
        "Ask before anything irreversible",
        "  - id: irreversible\n"
        "    title: Anything that cannot be undone\n"
        "    match: {reversibility: [irreversible]}\n"
        "    outcome: require\n",
    ),
    RuleExample(
        "production",
        "Ask two people before a push to production",
        "  - id: push-to-production\n"
        "    title: A push to a production branch\n"
        "    match: {tools: [git.push], ref_classes: [production]}\n"
        "    outcome: require\n"
        "    require: {minimum: 2, rationale: {on: always, minimum_characters: 10}}\n",
    ),
    RuleExample(
        "amount",
        "Ask before a large amount",
        "  - id: large-amount\n"
        "    title: More than 500\n"
        "    match: {arguments: [{path: amount, gt: 500}]}\n"
        "    outcome: require\n",
    ),
    RuleExample(
        "often",
        "Ask when an agent repeats itself",
        "  - id: too-often\n"
        "    title: More than 20 calls of a tool in an hour\n"
        "    match: {rate: {over: 20, within_s: 1h, per: agent}}\n"
        "    outcome: require\n",
    ),
    RuleExample(
        "deny",
        "Refuse a tool",
        "  - id: no-tags\n"
        "    title: People make tags\n"
        "    match: {tools: [git.tag]}\n"
        "    outcome: deny\n",
    ),
    RuleExample(
        "rest",
        "Let everything else pass",
        "  - id: rest\n    title: Everything else\n    match: {}\n    outcome: allow\n",
    ),
)


class DraftLine(NamedTuple):
    """A line of the difference: `sign` is “+”, “-” or a blank."""

    sign: str
    text: str


class DraftDifference(NamedTuple):
    """How a draft differs from the rules in force: rule ids, and the lines with their context."""

    added: list[str]
    removed: list[str]
    changed: list[str]
    lines: list[DraftLine]


def insert_example(text: str, key: str) -> str:
    """Append an example to the rules of `text`; its id gets a number if it is taken."""
    example = next((example for example in EXAMPLES if example.key == key), None)
    if example is None:
        return text
    name = example.text.split("\n", 1)[0].removeprefix("  - id: ")
    free = name
    number = 1
    while f"id: {free}\n" in text or f"id: {free}," in text:
        number += 1
        free = f"{name}-{number}"
    rule = example.text.replace(f"id: {name}\n", f"id: {free}\n", 1)
    if "rules:" not in text:
        text = f"{text.rstrip() or 'name: draft'}\nrules:\n"
    return text.replace("rules: []", "rules:").rstrip("\n") + "\n" + rule


def compare_rules(before: dict[str, Any] | None, before_text: str, text: str) -> DraftDifference:
    """Compare a draft with the rules in force (None: none). Raises DocumentError."""
    old = {rule["id"]: rule for rule in before["rules"]} if before else {}
    new = {rule["id"]: rule for rule in language.parse_policies(text)["rules"]}
    lines = difflib.unified_diff(before_text.splitlines(), text.splitlines(), lineterm="", n=2)
    return DraftDifference(
        added=[name for name in new if name not in old],
        removed=[name for name in old if name not in new],
        changed=[name for name in new if name in old and new[name] != old[name]],
        lines=[
            DraftLine(line[0], line[1:])
            for line in lines
            if not line.startswith(("---", "+++", "@@"))
        ],
    )


def load_completions(project: Project) -> dict[str, list[str]]:
    """Return the words that may stand after each key, under "" the keys; six queries."""
    newest = Effect.objects.filter(project=project).order_by("-opened_position")
    pairs = set(newest.values_list("tool", "agent__name")[:_NEWEST_EFFECTS])
    declared = Tool.objects.filter(project=project).order_by("name")
    tools = {*declared.values_list("name", flat=True)[:MAX_NAMES], *(tool for tool, _ in pairs)}
    teams = project.teams.order_by("name").values_list("name", flat=True)[:MAX_NAMES]
    repositories = project.repositories.order_by("name").values_list("name", flat=True)
    keys = {
        *(*language.TOP_KEYS, *language.MORE_KEYS, *language.RULE_KEYS, *language.MATCH_KEYS),
        *(*language.REQUIRE_KEYS, *language.EVIDENCE_KEYS, *language.RATIONALE_KEYS),
        *(*language.RATE_KEYS, *language.HOURS_KEYS, *ARGUMENT_OPERATORS, "path"),
    }
    return {
        "": sorted(f"{key}: " for key in keys),
        "tools": sorted(filter(None, tools))[:MAX_NAMES],
        "agents": sorted({name for _, name in pairs})[:MAX_NAMES],
        "teams": list(teams),
        "people": sorted(load_eligible_reviewers(project))[:MAX_NAMES],
        "repositories": list(repositories[:MAX_NAMES]),
        "outcome": list(language.OUTCOMES),
        "ref_classes": list(REF_CLASSES),
        "reversibility": list(REVERSIBILITIES),
        "risk_at_least": list(statuses.RISKS),
        "risk_at_most": list(statuses.RISKS),
        "distinct_from": list(REQUEST_PARTIES),
        "step_up": list(statuses.STEP_UPS),
        "proof_on_warning": list(WARNED_PROOFS),
        "exemptible": list(language.EXEMPTIBLE),
        "same_call_unknown": list(language.SAME_CALL_UNKNOWN),
        "on": list(statuses.RATIONALES),
        "per": list(language.WINDOWS),
        "days": list(WEEKDAYS),
    }
