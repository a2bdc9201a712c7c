"""docs/policies.md is true: every example is read, and every word of the language is explained."""

import re
import textwrap

import pytest
from django.core.management import get_commands
from django.urls import reverse

from approvals import document, states
from approvals.predicates import OPERATORS
from approvals.requirement import DEFAULT, PARTIES
from tests.house.server import ROOT

pytestmark = pytest.mark.once
TEXT = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: re.findall(r"id: (\S+)", example)[0])
def test_every_example_is_read(example: str) -> None:
    whole = example if example.startswith("name:") else f"name: example\nrules:\n{textwrap.indent(example, '  ')}"
    assert document.read(whole)["rules"]


def test_every_word_of_the_language_is_explained_and_used() -> None:
    told = set(re.findall(r"`(\w+)`", TEXT))
    words = {
        *document.TOP_KEYS, *document.MORE_KEYS, *document.HOURS_KEYS,
        *document.RULE_KEYS, *document.MATCH_KEYS, *document.RATE_KEYS, *document.REQUIRE_KEYS,
        *document.RATIONALE_KEYS, *document.OUTCOMES, *OPERATORS, *states.STEP_UPS, *PARTIES,
    }  # fmt: skip
    assert words <= told, words - told
    used = set(re.findall(r"\b(\w+):", "\n".join(EXAMPLES)))
    keys = {*document.RULE_KEYS, *document.MATCH_KEYS, *document.RATE_KEYS, *document.REQUIRE_KEYS, *OPERATORS}
    assert keys - used == {"refs", "resources"}


def test_what_is_left_out_is_what_the_page_says() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*?) \|$", TEXT, re.MULTILINE))
    assert rows["minimum"] == str(DEFAULT.minimum)
    assert rows["step_up"] == DEFAULT.step_up
    assert rows["deny_threshold"] == str(DEFAULT.deny_threshold)
    assert rows["rationale"] == f"{DEFAULT.rationale}, {DEFAULT.rationale_characters}"
    assert (rows["decide_within"], rows["leave_for"]) == ("1h", "10m")
    assert (DEFAULT.decide_within_s, DEFAULT.leave_for_s) == (3600, 600)
    assert rows["self_approval"] == str(DEFAULT.self_approval).lower()


def test_the_commands_and_pages_exist() -> None:
    for name in re.findall(r"`manage\.py (\w+)", TEXT):
        assert name in get_commands(), name
    for name in ("policies", "policy_draft", "exemptions"):
        assert reverse(name)
