"""What a call would change, read from its arguments in the shapes of many agents."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.diff.from_arguments import NEW_TEXT_NAMES, OLD_TEXT_NAMES, extract_changes
from approvals.diff.unified import MAX_DIFF_ROWS


@pytest.mark.parametrize(
    ("arguments", "signs"),
    [
        ({"file_path": "a", "edits": [{"old_string": "x", "new_string": "y"}]}, "-+"),
        ({"file_path": "a", "content": "one\ntwo\n"}, "++"),
        ({"path": "a", "command": "str_replace", "old_str": "x\n", "new_str": ""}, "-"),
        ({"input": "*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch"}, "@@@-+@"),
        (
            {
                "patch": "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n--- a/b\n+++ b/b\n@@ -1 +1,2 @@\n "
                "z\n+\n"
            },
            "@@@-+@@@ +",
        ),
        ({"command": "git push"}, ""),
        (["a", "list"], ""),
        (None, ""),
    ],
)
def test_edits_are_read_in_the_shapes_of_many_agents(arguments: Any, signs: str) -> None:
    changes = extract_changes(arguments)
    assert "".join(row.sign for file in changes.files for row in file.rows) == signs


@pytest.mark.parametrize(
    "more", [{"note": "x"}, {"sha": 7}, {"message": "two titles", "title": "x"}]
)
def test_commits_with_more_fields_are_shown_with_the_arguments(more: dict[str, Any]) -> None:
    plain = {"sha": "4be1c9e", "title": "fix", "author": "bob"}
    assert extract_changes({"commits": [plain]}).shown_names == ("commits",)
    assert extract_changes({"commits": [plain | more]}).shown_names == ()


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_rows_of_a_diff_contain_both_texts(old: str, new: str) -> None:
    changes = extract_changes({"path": "a", "old_string": old, "new_string": new})
    rows = [row for file in changes.files for row in file.rows]
    assert [row.text for row in rows if row.sign in "- "] == lines(old)
    assert [row.text for row in rows if row.sign in "+ "] == lines(new)


def lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


@pytest.mark.parametrize(
    ("arguments", "shown_names"),
    [
        ({"file_path": "a", "old_string": "x", "new_string": "y"}, ("new_string", "old_string")),
        (
            {"file_path": "a", "old_string": "x", "new_string": "y", "new_text": "EVIL"},
            ("new_string", "old_string"),
        ),
        (
            {"file_path": "a", "old_string": ["EVIL"], "old_str": "x", "new_str": "y"},
            ("new_str", "old_str"),
        ),
        ({"file_path": "a", "old_string": "x", "new_string": {"EVIL": 1}}, ("old_string",)),
        ({"file_path": "a", "edits": [{"old_string": "x", "new_string": "y"}]}, ("edits",)),
        (
            {
                "file_path": "a",
                "edits": [{"old_string": "x", "new_string": "y", "new_str": "EVIL"}],
            },
            (),
        ),
        ({"file_path": "a", "edits": [{"old_string": "x", "new_string": "y", "old_str": 1}]}, ()),
        ({"file_path": "a", "edits": [{"new_string": "y"}], "new_string": "EVIL"}, ("edits",)),
    ],
)
def test_only_names_that_the_rows_show_count_as_shown(
    arguments: Any, shown_names: tuple[str, ...]
) -> None:
    changes = extract_changes(arguments)
    assert changes.shown_names == shown_names
    assert "EVIL" not in "".join(row.text for file in changes.files for row in file.rows)


TEXTS = st.one_of(st.text(max_size=3), st.integers(), st.lists(st.text(max_size=2), max_size=2))
ANY_EDIT = st.dictionaries(
    st.sampled_from([*OLD_TEXT_NAMES, *NEW_TEXT_NAMES, "replace_all"]), TEXTS, max_size=5
)


@given(ANY_EDIT, st.lists(ANY_EDIT, max_size=3))
def test_every_argument_listed_as_shown_is_in_the_rows(
    named: dict[str, Any], listed: list[dict[str, Any]]
) -> None:
    for arguments in (named, named | {"edits": listed}):
        changes = extract_changes(arguments)
        texts = [arguments[name] for name in changes.shown_names if name != "edits"]
        if "edits" in changes.shown_names:
            texts += [value for edit in listed for value in edit.values()]
        rows = [(row.sign, row.text) for file in changes.files for row in file.rows]
        for text in texts:
            assert isinstance(text, str)
            assert {line for line in text.split("\n") if line} <= {line for _, line in rows}


def test_each_edit_is_listed_under_its_own_path() -> None:
    edits = [
        {"old_string": "x", "new_string": "y"},
        {"file_path": "/etc/sudoers", "new_string": "z"},
    ]
    changes = extract_changes({"file_path": "README.md", "edits": edits})
    assert [file.path for file in changes.files] == ["README.md", "/etc/sudoers"]
    assert changes.shown_names == ()  # fact 1 shows the list too, with the path in it


GIT = "diff --git a/a.py b/a.py\n"
BODY = "@@ -1 +1 @@ def one():\n-x\n+y\n"
MARKED = "*** Begin Patch\n{}\n*** End Patch\n"


@pytest.mark.parametrize(
    ("patch", "files"),
    [
        (
            f"{GIT}index 0a1b2c3..4d5e6f7 100644\n--- a/a.py\n+++ b/a.py\n{BODY}",
            [("a.py", "+1 −1")],
        ),
        (
            f"--- a.py.orig\t2026-11-20 10:00:00.000000000 +0100\n+++ a.py\n{BODY}",
            [("a.py.orig → a.py", "+1 −1")],
        ),
        (
            f"Index: a.py\n{'=' * 67}\n--- a.py\t(revision 7)\n+++ a.py\t(working copy)\n{BODY}",
            [("a.py", "+1 −1")],
        ),
        (f"--- a/README.md\n+++ b/etc/sudoers\n{BODY}", [("README.md → etc/sudoers", "+1 −1")]),
        ("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", [("x", "+0 −1, deletes the file")]),
        (
            "--- /dev/null\n+++ x\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n",
            [("x", "+1 −0")],
        ),
        (
            f"{GIT}deleted file mode 100755\nindex 0a1b2c3..0000000\n",
            [("a.py", "deletes the file")],
        ),
        (f"{GIT}old mode 100644\nnew mode 100755\n", [("a.py", "+0 −0")]),
        (
            f"{GIT}new file mode 120000\n--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+x\n",
            [("a.py", "+1 −0")],
        ),
        (
            f"{GIT}index 0a1b2c3..4d5e6f7 100644\nBinary files a/a.py and b/a.py differ\n",
            [("a.py", "+0 −0")],
        ),
        (
            f"{GIT}GIT binary patch\nliteral 3\nKcmZQzU|<9Q0RR91\n\nliteral 0\nHcmV?d00001\n\n",
            [("a.py", "+0 −0")],
        ),
        (f"{GIT}new file mode 100644\nindex 0000000..e69de29\n", [("a.py", "+0 −0")]),
        (
            "diff --git a/a b c/d e\nsimilarity index 100%\nrename from a b\nrename to d e\n",
            [],  # the first line names other files than the patch would move
        ),
        (
            "diff --git a/a b b/d e\nsimilarity index 100%\nrename from a b\nrename to d e\n",
            [("a b → d e", "+0 −0")],
        ),
        # In a hunk the sign decides what a line is; it is never a heading.
        (
            "--- a/etc/sudoers\n+++ b/etc/sudoers\n@@ -1 +1,2 @@\n a\n+++ b/README.md\n",
            [("etc/sudoers", "+1 −0")],
        ),
        ("--- a/x.sql\n+++ b/x.sql\n@@ -1,2 +1 @@\n a\n--- y\n", [("x.sql", "+0 −1")]),
        (MARKED.format("*** Delete File: src/a.py"), [("src/a.py", "deletes the file")]),
        (
            MARKED.format("*** Update File: a\n*** Move to: b\n@@ def one():\n x\n-y\n+*** z"),
            [("a → b", "+1 −1")],
        ),
        (
            MARKED.format(
                "*** Add File: a\n+x\n*** Update File: b\n-y\n*** End of File\n*** Delete File: c"
            ),
            [("a", "+1 −0"), ("b", "+0 −1"), ("c", "deletes the file")],
        ),
    ],
)
def test_a_patch_is_summarised_by_its_effect(patch: str, files: list[tuple[str, str]]) -> None:
    changes = extract_changes({"input": patch})
    assert [(file.path, file.counted) for file in changes.files] == files
    assert changes.shown_names == (("input",) if files else ())


@pytest.mark.parametrize(
    "text",
    [
        "--- nightly cleanup\nDROP TABLE users;\n",
        f"--- a\n+++ b\n{BODY}DROP TABLE users;\n",
        f"DROP TABLE users;\n--- a\n+++ b\n{BODY}",
        f"--- a\nDROP TABLE users;\n+++ b\n{BODY}",
        f"--- a\t; DROP TABLE users;\n+++ b\n{BODY}",
        # git applies no hunk that changes nothing
        "--- a\n+++ b\n@@ -1 +1 @@\n DROP TABLE users;\n",
        "--- a\n+++ b\n@@ -1,9 +1,9 @@\n-x\n+y\n",
        "--- a\n+++ b\n@@ -0,0 +0,0 @@ DROP TABLE users;\n",
        "--- a\n+++ b\n",
        "--- /dev/null\n+++ /dev/null\n" + BODY,
        f"{GIT}; DROP TABLE users;\n--- a/a.py\n+++ b/a.py\n{BODY}",
        f"{GIT}--- a/b.py\n+++ b/b.py\n{BODY}",
        f"{GIT}old mode 100644\n",
        f"{GIT}Binary files a/b.py and b/b.py differ\n",
        f"{GIT}GIT binary patch\nDROP TABLE users;\n",
        f"{GIT}GIT binary patch\nliteral 3\nDROP TABLE users;\n",
        "Binary files a/a.py and b/a.py differ\n",
        f"Index: a.py\nDROP TABLE users;\n--- a.py\n+++ a.py\n{BODY}",
        f"Index: b.py\n===\n--- a.py\n+++ a.py\n{BODY}",
        "x\n@@ -1 +1 @@\n-x\n+y\n",
        "*** Begin Patch\n*** Update File: a\n-x\n+y\n",
        MARKED.format("DROP TABLE users;"),
        MARKED.format("*** Update File: a\nDROP TABLE users;"),
        MARKED.format("*** Update File: a\n DROP TABLE users;"),
        MARKED.format("*** Delete File: a\nDROP TABLE users;"),
        MARKED.format("*** Add File: a\n DROP TABLE users;"),
        MARKED.format("*** Add File: a\n+x") + "DROP TABLE users;",
        MARKED.format("*** Note: DROP TABLE users;"),
        "*** Begin Patch\n*** End Patch",
        "",
        "\n",
    ],
)
def test_text_that_only_resembles_a_patch_stays_with_the_arguments(text: str) -> None:
    changes = extract_changes({"input": text})
    assert (changes.shown_names, changes.files) == ((), ())


def test_the_input_of_a_program_is_no_patch() -> None:
    patch = f"--- a\n+++ b\n{BODY}"
    assert extract_changes({"patch": patch, "path": "."}).shown_names == ("patch",)
    assert extract_changes({"patch": patch, "command": "psql prod"}).shown_names == ()


LINES = st.text(st.sampled_from("ab +-*@\\/\t"), max_size=12) | st.sampled_from(
    ["-- x", "++ b/y", "@ -1 +1 @@", "** End"]
)
SIGNED = st.lists(st.tuples(st.sampled_from(" +-"), LINES), min_size=1, max_size=6).filter(
    lambda listed: any(sign != " " for sign, _ in listed)
)
HEADING = re.compile(
    r"(--- a|\+\+\+ b)/f[0-9]|@@ -1,[0-9] \+1,[0-9] @@|\*\*\* (Begin Patch|Update File: f[0-9]|End "
    r"Patch)|@@"
)


def unified(files: list[list[tuple[str, str]]]) -> str:
    text = ""
    for number, rows in enumerate(files):
        old, new = (sum(sign in of for sign, _ in rows) for of in (" -", " +"))
        text += f"--- a/f{number}\n+++ b/f{number}\n@@ -1,{old} +1,{new} @@\n"
        text += "".join(f"{sign}{line}\n" for sign, line in rows)
    return text


def marked(files: list[list[tuple[str, str]]]) -> str:
    body = [
        f"*** Update File: f{number}\n@@\n" + "\n".join(sign + line for sign, line in rows)
        for number, rows in enumerate(files)
    ]
    return MARKED.format("\n".join(body))


@given(st.lists(SIGNED, min_size=1, max_size=3), st.sampled_from([unified, marked]))
def test_every_line_of_a_patch_is_signed_as_it_was_sent(
    files: list[list[tuple[str, str]]], form: Any
) -> None:
    changes = extract_changes({"patch": form(files)})
    assert changes.shown_names == ("patch",)
    assert [file.path for file in changes.files] == [f"f{number}" for number in range(len(files))]
    for file, rows in zip(changes.files, files, strict=True):
        assert [(row.sign, row.text) for row in file.rows if row.sign != "@"] == rows
        assert (file.added, file.removed) == tuple(
            sum(sign == expected for sign, _ in rows) for expected in "+-"
        )


@given(
    st.lists(SIGNED, min_size=1, max_size=2),
    st.sampled_from([unified, marked]),
    st.integers(0, 30),
    st.sampled_from(
        [
            "DROP TABLE users;",
            "--- x",
            "+++ b/f9",
            "+x",
            " x",
            "",
            "@@ -1,1 +1,1 @@",
            "*** End Patch",
            None,
        ]
    ),
)
def test_a_line_too_many_or_too_few_is_never_passed_over(
    files: list[list[tuple[str, str]]], form: Any, at: int, more: str | None
) -> None:
    """After any change to a patch: the rows equal the text, and lines without a sign are valid
    headings."""
    sent = form(files).removesuffix("\n").split("\n")
    at %= len(sent)
    sent[at : at + (more is None)] = [] if more is None else [more]
    changes = extract_changes({"patch": "\n".join(sent)})
    assert more != "DROP TABLE users;" or changes.shown_names == ()
    if changes.shown_names:
        rows = [row for file in changes.files for row in file.rows]
        shown = [row.text if row.sign == "@" else row.sign + row.text for row in rows]
        assert shown == [line or " " for line in sent]
        assert all(HEADING.fullmatch(row.text) for row in rows if row.sign == "@")
    else:
        assert changes.files == ()


def test_an_edit_that_is_dear_to_compare_is_two_texts() -> None:
    """Where every other line is repeated, difflib needs the cube of the length: hours for all of
    these."""
    old, new = ("".join(f"c\n{line}\n" for _ in range(700)) for line in "xy")
    changes = extract_changes({"path": "a", "edits": [{"old_string": old, "new_string": new}] * 30})
    for file in changes.files:
        assert [(row.sign, row.text) for row in file.rows] == [("-", old), ("+", new)]
        assert (file.added, file.removed) == (1400, 1400)
    assert changes.shown_names == ("edits",)


def test_an_ordinary_edit_of_thousands_of_lines_is_a_diff() -> None:
    """Like code: a tenth of the lines empty, a tenth closing brackets, each thirtieth line
    changed."""
    old = [
        "" if n % 10 == 0 else "    }" if n % 10 == 5 else f"line {n}"
        for n in range(MAX_DIFF_ROWS // 2)
    ]
    new = [f"changed {n}" if n % 30 == 7 else line for n, line in enumerate(old)]
    file = extract_changes(
        {"path": "a", "old_string": "\n".join(old), "new_string": "\n".join(new)}
    ).files[0]
    assert (file.added, file.removed) == (50, 50)
    assert len(file.rows) == MAX_DIFF_ROWS // 2 + 50
