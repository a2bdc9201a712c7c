"""What a call would change, read from its arguments in the shapes of many agents."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.changes import NEW, OLD, changes


@pytest.mark.parametrize(
    ("arguments", "signs"),
    [
        ({"file_path": "a", "edits": [{"old_string": "x", "new_string": "y"}]}, "-+"),
        ({"file_path": "a", "content": "one\ntwo\n"}, "++"),
        ({"path": "a", "command": "str_replace", "old_str": "x\n", "new_str": ""}, "-"),
        ({"input": "*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch"}, "@@@-+@"),
        ({"patch": "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n z\n"}, "@@@-+@@@ "),
        ({"command": "git push"}, ""),
        (["a", "list"], ""),
        (None, ""),
    ],
)
def test_edits_are_read_in_the_shapes_of_many_agents(arguments: Any, signs: str) -> None:
    found = changes(arguments)
    assert "".join(row.sign for file in found.files for row in file.rows) == signs


@pytest.mark.parametrize("more", [{"note": "x"}, {"sha": 7}, {"message": "two titles", "title": "x"}])
def test_commits_that_say_more_are_shown_whole_with_the_arguments(more: dict[str, Any]) -> None:
    plain = {"sha": "4be1c9e", "title": "fix", "author": "bob"}
    assert changes({"commits": [plain]}).told == ("commits",)
    assert changes({"commits": [plain | more]}).told == ()


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_rows_of_a_diff_hold_both_texts(old: str, new: str) -> None:
    found = changes({"path": "a", "old_string": old, "new_string": new})
    rows = [row for file in found.files for row in file.rows]
    assert [row.text for row in rows if row.sign in "- "] == lines(old)
    assert [row.text for row in rows if row.sign in "+ "] == lines(new)


def lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"file_path": "a", "old_string": "x", "new_string": "y"}, ("new_string", "old_string")),
        ({"file_path": "a", "old_string": "x", "new_string": "y", "new_text": "EVIL"}, ("new_string", "old_string")),
        ({"file_path": "a", "old_string": ["EVIL"], "old_str": "x", "new_str": "y"}, ("new_str", "old_str")),
        ({"file_path": "a", "old_string": "x", "new_string": {"EVIL": 1}}, ("old_string",)),
        ({"file_path": "a", "edits": [{"old_string": "x", "new_string": "y"}]}, ("edits",)),
        ({"file_path": "a", "edits": [{"old_string": "x", "new_string": "y", "new_str": "EVIL"}]}, ()),
        ({"file_path": "a", "edits": [{"old_string": "x", "new_string": "y", "old_str": 1}]}, ()),
        ({"file_path": "a", "edits": [{"new_string": "y"}], "new_string": "EVIL"}, ("edits",)),
    ],
)
def test_only_what_the_rows_show_counts_as_told(arguments: Any, told: tuple[str, ...]) -> None:
    found = changes(arguments)
    assert found.told == told
    assert "EVIL" not in "".join(row.text for file in found.files for row in file.rows)


TEXTS = st.one_of(st.text(max_size=3), st.integers(), st.lists(st.text(max_size=2), max_size=2))
ANY_EDIT = st.dictionaries(st.sampled_from([*OLD, *NEW, "replace_all"]), TEXTS, max_size=5)


@given(ANY_EDIT, st.lists(ANY_EDIT, max_size=3))
def test_every_argument_that_is_told_stands_in_the_rows(named: dict[str, Any], listed: list[dict[str, Any]]) -> None:
    for arguments in (named, named | {"edits": listed}):
        found = changes(arguments)
        texts = [arguments[name] for name in found.told if name != "edits"]
        if "edits" in found.told:
            texts += [value for one in listed for value in one.values()]
        rows = [(row.sign, row.text) for file in found.files for row in file.rows]
        for text in texts:
            assert isinstance(text, str)
            assert {line for line in text.split("\n") if line} <= {line for _, line in rows}
