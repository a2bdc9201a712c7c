"""docs/reference/tools.md is true: its example is read, and every key is explained."""

import re

import pytest

from ledger.tools import predicates_yaml, raises, tools_yaml
from ledger.tools.predicates import ARGUMENT_OPERATORS
from tests.config.server import ROOT

pytestmark = pytest.mark.once
TEXT = (ROOT / "docs" / "reference" / "tools.md").read_text(encoding="utf-8")
SAMPLE = (ROOT / "docs" / "examples" / "tools.yaml").read_text(encoding="utf-8")


def test_the_example_is_read_and_uses_every_key_about_arguments() -> None:
    (example,) = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    tools = tools_yaml.parse_tools_yaml(example)
    assert all(tool.telling and tool.raises for tool in tools)
    assert {
        key for tool in tools for entry in tool.raises for key in entry
    } >= raises.RAISED_KEYS.keys()


def test_every_word_and_limit_is_named() -> None:
    words = set(re.findall(r"`(\w+)`", TEXT))
    assert {"telling", "fields", "raises", *ARGUMENT_OPERATORS, *raises.RAISED_KEYS} <= words
    for limit in (tools_yaml.MAX_TELLING, tools_yaml.MAX_FIELDS, tools_yaml.MAX_RAISES):
        assert f"at most {limit} " in TEXT
    assert predicates_yaml.LONGEST_PATH == 200


def test_the_sample_explains_every_key_of_a_declaration() -> None:
    assert tools_yaml.parse_tools_yaml(SAMPLE)
    for key in tools_yaml._KEYS:
        assert re.search(rf"^# {key} ", SAMPLE, re.MULTILINE), key
