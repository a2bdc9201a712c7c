"""Edits of settings files in place, and the hooks that `gatebook connect` writes."""

import json
from typing import Any

import pytest
from gatebook_client.agent_settings import (
    AGENT_SETTINGS,
    add_hooks,
    build_groups,
    is_own_group,
    make_hook_command,
    remove_hooks,
)
from gatebook_client.settings_edit import (
    NotEditable,
    append_item,
    parse_settings,
    remove_item,
    remove_member,
    set_member,
)
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.once
COMMENTED = """{
    // the theme
    "theme": "dark", /* why: night */
    "hooks": {
        "BeforeTool": [
            {"hooks": [{"command": "mine"}]}, // keep
        ],
    },
    "last": [1, 2], // end
}
"""
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)


def parse(text: str) -> Any:
    return parse_settings(text).to_json()


def test_comments_and_commas_are_read() -> None:
    assert parse(COMMENTED) == {
        "theme": "dark",
        "hooks": {"BeforeTool": [{"hooks": [{"command": "mine"}]}]},
        "last": [1, 2],
    }


def test_an_insertion_changes_no_other_line() -> None:
    text = append_item(COMMENTED, ["hooks", "BeforeTool"], {"added": 1})
    assert parse(text)["hooks"]["BeforeTool"] == [{"hooks": [{"command": "mine"}]}, {"added": 1}]
    added = [line for line in text.splitlines() if line not in COMMENTED.splitlines()]
    kept = [line for line in text.splitlines() if line in COMMENTED.splitlines()]
    assert kept == COMMENTED.splitlines()
    assert "".join(added).replace(" ", "") == '{"added":1}'
    text = set_member(COMMENTED, ["hooks", "AfterTool"], [])
    assert parse(text)["hooks"]["AfterTool"] == []
    assert [line for line in text.splitlines() if line in COMMENTED.splitlines()] == (
        COMMENTED.splitlines()
    )


@given(DOCUMENTS, st.sampled_from([None, 1, 2, 4, "\t"]), st.text(max_size=4), VALUES)
def test_a_member_is_set_as_json_would_have_it(
    document: dict[str, Any], indent: Any, name: str, value: Any
) -> None:
    text = json.dumps(document, indent=indent)
    assert parse(set_member(text, [name], value)) == document | {name: value}


@given(DOCUMENTS, st.sampled_from([None, 2]), VALUES)
def test_what_is_added_can_be_removed(document: dict[str, Any], indent: Any, value: Any) -> None:
    text = json.dumps(document | {"list": [0]}, indent=indent)
    longer = append_item(text, ["list"], value)
    assert parse(longer)["list"] == [0, value]
    assert parse(remove_item(longer, ["list"], 1)) == document | {"list": [0]}
    assert parse(remove_item(longer, ["list"], 0)) == document | {"list": [value]}
    assert parse(remove_member(longer, ["list"])) == {
        name: item for name, item in document.items() if name != "list"
    }


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a" 1}', "{} x", '{"a": 1 "b": 2}', "{/*", "1"])
def test_what_is_not_a_settings_file_is_refused(text: str) -> None:
    with pytest.raises(NotEditable):
        parse_settings(text)


def test_a_member_of_another_kind_is_refused() -> None:
    with pytest.raises(NotEditable, match="hooks is not an object"):
        append_item('{"hooks": []}', ["hooks", "PreToolUse"], {})


@pytest.mark.parametrize("agent", list(AGENT_SETTINGS))
@pytest.mark.parametrize("text", ["", "{}", COMMENTED, '{"hooks": {}}\n', '{"a": 1}'], ids=range(5))
def test_hooks_are_added_once_and_removed_again(agent: str, text: str) -> None:
    settings = AGENT_SETTINGS[agent]
    groups = build_groups(settings, "default", portable=False)
    written = add_hooks(text, groups)
    assert add_hooks(written, groups) == written
    hooks = parse(written)["hooks"]
    for event, group in groups.items():
        assert [item for item in hooks[event] if is_own_group(item)] == [group]
    renamed = add_hooks(written, build_groups(settings, "other", portable=True))
    assert "--connection default" not in renamed
    assert parse(remove_hooks(renamed)).get("hooks", {}) == (
        parse(text).get("hooks", {}) if text else {}
    )
    lines = iter(written.splitlines())
    if text.count("\n") > 1:
        assert all(line in lines for line in text.splitlines()), "a line was lost or moved"


@pytest.mark.parametrize("agent", list(AGENT_SETTINGS))
def test_only_a_command_that_gates_blocks_where_it_cannot_start(agent: str) -> None:
    assert make_hook_command(agent, "default", portable=True, gate=True).endswith("exit 2; }")
    report = make_hook_command(agent, "default", portable=True, gate=False)
    assert report == f"gatebook hook {agent} --connection default"
