"""The title of a request names what belongs to the call, and not always its branch."""

from typing import Any

import pytest

from accounts.repositories import shorten_ref
from approvals.review.call_titles import build_call_title

MAIN: dict[str, Any] = {"ref": "refs/heads/main", "repository": "acme/payments-api"}


@pytest.mark.parametrize(
    ("tool", "arguments", "options", "expected"),
    [
        (
            "Edit",
            {"file_path": "payments/rounding.py"},
            MAIN,
            "Edit payments/rounding.py of {repo}",
        ),
        ("git.push", {"command": "git push"}, MAIN, "git.push main of {repo}"),
        ("git.push", {"refspec": "+a:main"}, MAIN | {"forced": True}, "Force-push main of {repo}"),
        (
            "shell.run",
            {"command": "git push -f"},
            MAIN | {"forced": True},
            "shell.run main of {repo}",
        ),
        ("mail.send", {"to": "ann@x.example", "dry_run": True}, {}, "mail.send to ann@x.example"),
        ("mail.send", {"to": ["ann@x.example"]}, {}, "mail.send to ann@x.example"),
        ("mail.send", {"to": ["a@x.example", "b@x.example"]}, {}, "mail.send"),
        ("issue.close", {"issue": 411}, {"repository": "web"}, "issue.close 411 of web"),
        ("drop.table", {"table": "invoices_2019"}, {}, "drop.table invoices_2019"),
        ("infra.apply", {"name": True}, {"resource": "cluster/eu-1"}, "infra.apply cluster/eu-1"),
        ("deploy", None, {"ref": "refs/tags/v2"}, "deploy v2"),
        ("deploy", ["a", 1], {}, "deploy"),
        ("note", {"name": "one\ntwo"}, {}, "note"),
    ],
)
def test_a_title_names_the_tool_and_its_object(
    tool: str, arguments: Any, options: dict[str, Any], expected: str
) -> None:
    title = build_call_title(tool, arguments, **options)
    assert str(title) == expected.format(repo=MAIN["repository"])


def test_a_long_object_keeps_its_beginning_and_its_end() -> None:
    path = "exports/" + "x" * 80 + "/customers-2026-11.csv"
    title = build_call_title("Write", {"path": path})
    assert len(title.object) == 60
    assert title.object.startswith("exports/")
    assert title.object.endswith("/customers-2026-11.csv")


@pytest.mark.parametrize(
    ("ref", "expected"),
    [("refs/heads/a/b", "a/b"), ("refs/tags/v1", "v1"), ("main", "main"), ("", "")],
)
def test_a_ref_is_named_as_people_say_it(ref: str, expected: str) -> None:
    assert shorten_ref(ref) == expected
