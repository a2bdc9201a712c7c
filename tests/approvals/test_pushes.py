"""What a push removes, from its arguments."""

from typing import Any

import pytest

from approvals.diff.destructive_pushes import describe_destructive_push
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.approvals.test_inbox_flags import entry, words

FORCED = ("forced push",)
DELETED = ("deletes a ref",)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git push --force origin main", FORCED),
        ("git push --force-with-lease=main:4be1c9e origin 9d02a77:main", FORCED),
        ("cd web && git -C . -c a=b push -uf origin main", FORCED),
        ("git push origin +9d02a77:main", FORCED),
        ("git push origin '+main'", FORCED),
        ("git push --mirror", FORCED),
        ("git push \\\n  --force", FORCED),
        ("echo one\n/usr/bin/git push -f", FORCED),
        ('bash -c "git push -f"', FORCED),
        (["git", "push", "-f"], FORCED),
        (["git fetch", "git push -f"], FORCED),
        ("git push origin :old", DELETED),
        ("git push -d origin old", DELETED),
        ("git push --delete origin old", DELETED),
        ("git push origin main", ()),
        ("git push origin fix-force:main", ()),
        ("git push origin main; rm -f out", ()),
        ("git fetch --force", ()),
        ("git stash push -f", FORCED),  # rather one flag too many
        ('echo "$(git push -f)"', FORCED),
        ('"git" push "-f"', FORCED),
        ("cd legit && legit push -f", ()),
        ("git pushed -f", ()),
        ("push git -f", ()),
        ("git fetch git push -f git", FORCED),
        ("gh api -X PATCH repos/a/b/git/refs/heads/main -f sha=1 -F force=true", FORCED),
        ("gh api repos/a/b/git/refs/heads/main", ()),
        ("jj git push --branch main --allow-backwards", FORCED),
    ],
)
def test_a_forced_push_is_detected_by_its_command(command: Any, expected: tuple[str, ...]) -> None:
    assert describe_destructive_push("shell", {"command": command}) == expected
    assert describe_destructive_push("shell", command) == expected or isinstance(command, list)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"remote": "origin", "force": True}, FORCED),
        ({"force_with_lease": "main:4be1c9e"}, FORCED),
        ({"refspec": "+a:main"}, FORCED),
        ({"refs": ["a:main", ":old"]}, DELETED),
        ({"branch": "main", "mode": "force"}, FORCED),
        ({"branch": "main", "mode": "fast-forward"}, ()),
        ({"isForce": True}, FORCED),
        ({"non_fast_forward": True}, FORCED),
        ({"force": False, "ref": "main"}, ()),
        ({"force": "false"}, ()),
        ({"removed_commits": ["a1 one", {"sha": "b2"}]}, ("removes 2 commits",)),
        ({"force": True, "commits_removed": ["a1"]}, ("forced push", "removes 1 commit")),
        ({"removed_commits": "many"}, ()),
        (None, ()),
        ("main", ()),
    ],
)
def test_a_forced_push_is_detected_by_its_options(
    arguments: Any, expected: tuple[str, ...]
) -> None:
    assert describe_destructive_push("git.push", arguments) == expected


@pytest.mark.parametrize("tool", ["github.update_ref", "updateRef", "git_update_reference"])
def test_a_tool_that_moves_a_ref_is_a_push(tool: str) -> None:
    assert describe_destructive_push(tool, {"ref": "heads/main", "force": True}) == FORCED
    assert describe_destructive_push(tool, {"ref": "heads/main", "force": False}) == ()


def test_options_of_other_tools_are_not_those_of_a_push() -> None:
    assert describe_destructive_push("update_refund", {"force": True}) == ()
    assert describe_destructive_push("file.copy", {"force": True, "delete": True}) == ()
    assert describe_destructive_push("file.copy", {}, {"removed_commits": ["a1"]}) == (
        "removes 1 commit",
    )


def test_what_a_push_removes_is_shown_in_the_list_and_on_its_page(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    removed = [{"sha": "4be1c9e", "title": "fix rounding", "author": "bob"}]
    gate = inbox.gate(
        inbox.plan(arguments={"command": "git push --force", "removed_commits": removed})
    )
    text = entry(rita, gate)
    assert "forced push" in text
    assert "removes 1 commit" in text
    assert "Forced push. Removes 1 commit. verified by Gatebook" in words(rita, gate)
    plain = inbox.gate(inbox.plan("e-2", arguments={"command": "git push origin main"}))
    assert "forced" not in entry(rita, plain) + rita.page(url_of(plain)).replace(
        "forced-colors", ""
    )
