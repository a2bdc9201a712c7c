"""docs/reference/shell.md and the example declarations are true and complete."""

import re

import pytest
from django.core.management import call_command

from ledger.tools.tools_yaml import MAX_SHELL_LINES, parse_tools_yaml
from shell import interpretation, map_command
from shell.command_effects import EFFECTS, RUN_TOOL, UNPARSED_TOOL
from shell.mapping import load_default_mapping
from tests.config.server import ROOT

pytestmark = pytest.mark.once
TEXT = (ROOT / "docs" / "reference" / "shell.md").read_text(encoding="utf-8")
EXAMPLE = (ROOT / "docs" / "examples" / "shell_tools.yaml").read_text(encoding="utf-8")


def list_all_tools() -> set[str]:
    mapping = load_default_mapping()
    followed = {f"{tool.partition('.')[0]}.read" for tool in map_command._REMOTE_COMMANDS}
    return {*mapping.list_tools(), RUN_TOOL, UNPARSED_TOOL, *followed}


def test_the_explained_command_prints_what_the_page_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line, shown = re.findall(r"^```\n(.*?)\n```", TEXT, re.MULTILINE | re.DOTALL)
    command, cwd = re.findall(r"explain_command '(.+)' --cwd (\S+)", line)[0]
    call_command("explain_command", command, "--cwd", cwd, "--default")
    assert capsys.readouterr().out.strip() == shown


def test_the_page_and_the_example_name_every_tool() -> None:
    table = TEXT.partition("## Tools of the default mapping")[2].partition("- **Only")[0]
    assert set(re.findall(r"`([a-z]+\.[a-z_]+)`", table)) == list_all_tools()
    assert {tool.name for tool in parse_tools_yaml(EXAMPLE)} == list_all_tools()


def test_tools_that_only_read_are_declared_so_and_no_others() -> None:
    declared = {tool.name: tool for tool in parse_tools_yaml(EXAMPLE)}
    reading = {name for name, tool in declared.items() if tool.tool_class == "read_only"}
    assert reading == {name for name in declared if name.endswith(".read")}


def test_a_compound_command_is_opaque() -> None:
    for tool in parse_tools_yaml(EXAMPLE):
        if tool.tool_class not in ("opaque", "read_only"):
            raised = [entry for entry in tool.raises if entry["path"] == "compound"]
            assert [entry["class"] for entry in raised] == ["opaque"], tool.name


def test_the_example_of_usage_lines_is_read_and_the_limits_are_named() -> None:
    (example,) = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert all(tool.shell for tool in parse_tools_yaml(example))
    assert f"at most {MAX_SHELL_LINES} usage lines" in TEXT
    assert f"{interpretation.MAX_CHARACTERS:,} characters" in TEXT
    assert f"{interpretation.MAX_COMMANDS} commands" in TEXT
    assert f"{interpretation.MAX_NESTING} commands inside" in TEXT
    assert f"at most {map_command.MAX_PARTS} |" in TEXT
    assert re.findall(r"^\| `([a-z]+)` \| (?!the)", TEXT, re.MULTILINE)[: len(EFFECTS)] == list(
        reversed(EFFECTS)
    )
