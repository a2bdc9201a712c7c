"""docs/reference/policies.md is true: every example is read, and every word of the language is explained."""

import re
import textwrap

import pytest
from django.core.management import get_commands
from django.urls import reverse

from approvals.gates import statuses
from approvals.policies import policies_yaml
from approvals.policies.engine import DEFAULT_REQUIREMENT, REQUEST_PARTIES
from ledger.tools.predicates import ARGUMENT_OPERATORS
from tests.config.server import ROOT

pytestmark = pytest.mark.once
TEXT = (ROOT / "docs" / "reference" / "policies.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "example", EXAMPLES, ids=lambda example: re.findall(r"id: (\S+)", example)[0]
)
def test_every_example_is_read(example: str) -> None:
    whole = (
        example
        if example.startswith("name:")
        else f"name: example\nrules:\n{textwrap.indent(example, '  ')}"
    )
    assert policies_yaml.parse_policies(whole)["rules"]


def test_every_word_of_the_language_is_explained_and_used() -> None:
    documented = set(re.findall(r"`(\w+)`", TEXT))
    words = {
        *policies_yaml.TOP_KEYS,
        *policies_yaml.MORE_KEYS,
        *policies_yaml.HOURS_KEYS,
        *policies_yaml.RULE_KEYS,
        *policies_yaml.MATCH_KEYS,
        *policies_yaml.RATE_KEYS,
        *policies_yaml.REQUIRE_KEYS,
        *policies_yaml.RATIONALE_KEYS,
        *policies_yaml.OUTCOMES,
        *ARGUMENT_OPERATORS,
        *statuses.STEP_UPS,
        *REQUEST_PARTIES,
    }
    assert words <= documented, words - documented
    used = set(re.findall(r"\b(\w+):", "\n".join(EXAMPLES)))
    keys = {
        *policies_yaml.RULE_KEYS,
        *policies_yaml.MATCH_KEYS,
        *policies_yaml.RATE_KEYS,
        *policies_yaml.REQUIRE_KEYS,
        *ARGUMENT_OPERATORS,
    }
    assert keys - used == {"refs", "resources"}


def test_the_omitted_fields_are_those_that_the_page_lists() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*?) \|$", TEXT, re.MULTILINE))
    assert rows["minimum"] == str(DEFAULT_REQUIREMENT.minimum)
    assert rows["step_up"] == DEFAULT_REQUIREMENT.step_up
    assert rows["deny_threshold"] == str(DEFAULT_REQUIREMENT.deny_threshold)
    assert (
        rows["rationale"]
        == f"{DEFAULT_REQUIREMENT.rationale}, {DEFAULT_REQUIREMENT.rationale_characters}"
    )
    assert (rows["decide_within"], rows["valid_for"]) == ("1h", "10m")
    assert (DEFAULT_REQUIREMENT.decide_within_s, DEFAULT_REQUIREMENT.valid_for_s) == (3600, 600)
    assert rows["self_approval"] == str(DEFAULT_REQUIREMENT.self_approval).lower()


def test_the_commands_and_pages_exist() -> None:
    for name in re.findall(r"`manage\.py (\w+)", TEXT):
        assert name in get_commands(), name
    for name in ("policies", "policy_draft", "exemptions"):
        assert reverse(name)
