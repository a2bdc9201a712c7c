"""The order of a change on its page: dangerous files first, and nothing left out."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.diff.file_order import MAX_FIRST_ROWS, OrderedChanges, ShownFile, order_changes
from approvals.diff.from_arguments import Changes, extract_changes
from approvals.diff.shown_rows import build_shown_rows
from approvals.diff.unified import DiffRow, FileDiff
from approvals.diff.word_differences import WordBudget

PATHS = [
    "docs/rounding.md",
    "docs/img/flow.svg",
    "tests/test_a.py",
    "src/a.py",
    "uv.lock",
    ".github/workflows/release.yml",
    "deploy/production/values.yaml",
]


def patch_of(paths: list[str], lines: int = 1) -> str:
    body = "".join(f"+line {n}\n" for n in range(lines))
    return "".join(f"--- a/{path}\n+++ b/{path}\n@@ -5,0 +5,{lines} @@\n{body}" for path in paths)


def order(arguments: object) -> OrderedChanges:
    return order_changes(extract_changes(arguments))


def shown_files(ordered: OrderedChanges) -> list[ShownFile]:
    return [shown for group in (*ordered.first, *ordered.rest) for shown in group.files]


def test_files_stand_in_the_order_of_danger() -> None:
    ordered = order({"patch": patch_of(PATHS)})
    assert [shown.file.path for shown in shown_files(ordered)] == [
        "deploy/production/values.yaml",
        ".github/workflows/release.yml",
        "uv.lock",
        "src/a.py",
        "tests/test_a.py",
        "docs/rounding.md",
        "docs/img/flow.svg",
    ]
    assert ordered.file_count == 7
    assert ordered.dangerous_count == 3
    assert ordered.is_ordered
    titles = [(group.title, group.names) for group in ordered.first if group.title]
    assert titles == [
        ("1 file in tests/", ("test_a.py",)),
        ("2 files in docs/", ("rounding.md", "img/flow.svg")),
    ]


def test_documents_alone_are_open_and_no_group() -> None:
    ordered = order({"patch": patch_of(PATHS[:2])})
    assert [group.title for group in ordered.first] == ["", ""]
    assert not ordered.is_ordered


def test_a_dangerous_file_never_stands_behind_the_others() -> None:
    """However many and however long the other files are, it is before the other facts, and open."""
    paths = [f"src/{n}.py" for n in range(40)] + ["docs/a.md"] * 3 + ["etc/sudoers"]
    ordered = order({"patch": patch_of(paths, lines=MAX_FIRST_ROWS // 8)})
    assert ordered.first[0].files[0].file.path == "etc/sudoers"
    assert ordered.first[0].files[0].is_open
    assert ordered.rest
    assert not any(shown.path_class.is_dangerous for group in ordered.rest for shown in group.files)
    long = order({"patch": patch_of(["uv.lock", "Dockerfile"], lines=5 * MAX_FIRST_ROWS)})
    assert [shown.is_open for shown in shown_files(long)] == [True, False]  # a lock file is long
    assert not long.rest


@given(st.lists(st.sampled_from([*PATHS, "", "a → etc/sudoers", "docs/b"]), max_size=12))
def test_every_file_and_row_is_shown_once(paths: list[str]) -> None:
    files = tuple(
        FileDiff(path, 1, 1, (DiffRow("-", f"old {n}"), DiffRow("+", f"new {n}")))
        for n, path in enumerate(paths)
    )
    ordered = order_changes(Changes(files))
    listed = shown_files(ordered)
    assert Counter(id(shown.file) for shown in listed) == Counter(map(id, files))
    for shown in listed:
        rows = build_shown_rows(shown.file, WordBudget())
        assert [(row.sign, row.text) for row in rows] == [
            (row.sign, row.text) for row in shown.file.rows
        ]


def test_removed_commits_come_first() -> None:
    ordered = order({"commits": ["1 a", "2 b"], "removed_commits": ["3 c"]})
    assert [commit.name for commit in ordered.removed_commits] == ["3"]
    assert [commit.name for commit in ordered.added_commits] == ["1", "2"]


GIT = "diff --git a/a b/a\n"


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (f"{GIT}old mode 100644\nnew mode 100755\n", ("file mode 100644 → 100755",)),
        (f"{GIT}new file mode 100755\n--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n",
         ("new executable",)),
        (f"{GIT}new file mode 120000\n--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+/etc/passwd\n",
         ("symbolic link",)),
        (f"{GIT}index 0a1b2c3..4d5e6f7 160000\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n",
         ("submodule",)),
        (f"{GIT}Binary files a/a and b/a differ\n", ("binary",)),
        (f"{GIT}new file mode 100644\n--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n", ()),
        # A line of the file that resembles a heading says nothing.
        (f"{GIT}--- a/a\n+++ b/a\n@@ -1 +1 @@\n-new mode 100755\n+Binary files a and b differ\n",
         ()),
    ],
)  # fmt: skip
def test_headings_say_what_else_changes(patch: str, words: tuple[str, ...]) -> None:
    (shown,) = shown_files(order({"patch": patch}))
    assert shown.words == words
    assert shown.path_class.is_dangerous == bool(words)


def numbers(arguments: object) -> list[tuple[str, int | None, int | None]]:
    (shown,) = shown_files(order(arguments))
    return [(row.sign, row.old, row.new) for row in shown.build_rows() if row.sign != "@"]


def test_line_numbers_are_those_of_the_hunks() -> None:
    patch = (
        "--- a/a\n+++ b/a\n@@ -14,3 +14,2 @@ api:\n x\n-y\n z\n@@ -31 +30,2 @@\n-a\n+b\n+c\n"
        "\\ No newline at end of file\n"
    )
    assert numbers({"patch": patch}) == [
        (" ", 14, 14),
        ("-", 15, None),
        (" ", 16, 15),
        ("-", 31, None),
        ("+", None, 30),
        ("+", None, 31),
    ]
    assert order({"patch": patch}).numbering_note == ""
    written = {"file_path": "a", "content": "one\ntwo\n"}
    assert numbers(written) == [("+", None, 1), ("+", None, 2)]
    assert order(written).numbering_note == ""


def test_no_line_number_is_invented() -> None:
    edit = {"file_path": "a", "old_string": "x\ny\n", "new_string": "x\nz\n"}
    assert numbers(edit) == [(" ", 1, 1), ("-", 2, None), ("+", None, 2)]
    assert "unknown" in order(edit).numbering_note
    marked = "*** Begin Patch\n*** Update File: a\n@@ -7 +7 @@\n-x\n+y\n*** End Patch"
    assert numbers({"input": marked}) == [("-", None, None), ("+", None, None)]
    assert "unknown" in order({"input": marked}).numbering_note


def test_lines_of_uneven_blocks_are_paired_by_their_words() -> None:
    old = "url: postgres://ro.db\n"
    new = "# see INC-204\nurl: postgres://rw.db\ntimeout: 5\n"
    (shown,) = shown_files(order({"path": "a", "old_string": old, "new_string": new}))
    marked = {row.text: row.spans for row in shown.build_rows() if row.spans}
    assert marked == {"url: postgres://ro.db": ((16, 18),), "url: postgres://rw.db": ((16, 18),)}
