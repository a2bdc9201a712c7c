"""List rows show the arguments that tell requests apart, cut in the middle."""

import re
from html import unescape
from typing import Any

import pytest
from django.db import transaction
from django.urls import reverse

from approvals.inbox.telling_values import list_telling_values
from approvals.models import Gate
from approvals.review.call_titles import build_call_title
from approvals.templatetags.approvals import middle_cut
from ledger.tools import cache, registry, tools_yaml
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of

ADDRESS = "postgres://ops@pg-7.eu-central-1.db.acme.example/billing"


def pairs(declared: list[str], arguments: Any, shown: str = "") -> list[tuple[str, str]]:
    return [tuple(pair) for pair in list_telling_values(declared, arguments, shown)]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("declared", "arguments", "expected"),
    [
        (
            ["cluster", "dry_run"],
            {"dry_run": False, "cluster": "a"},
            ["cluster=a", "dry_run=false"],
        ),
        (["cluster"], {"volume": "b"}, []),
        (["from.id", "to.id"], {"from": {"id": 1}, "to": {"id": 2}}, ["from.id=1", "to.id=2"]),
        (["items.id"], {"items": [{"id": n} for n in range(9)]}, ["id=0, 1, 2, 3, 4, 5, 3 more"]),
        (["items.0.id"], {"items": [{"id": "x"}]}, ["id=x"]),
        (
            [],
            {"subject": "Hi", "to": ["a@b.example", "c@d.example"]},
            ["to=a@b.example, c@d.example", "subject=Hi"],
        ),
        ([], {"command": "rm -rf build", "description": "cleans"}, ["command=rm -rf build"]),
        ([], {"command": ["git", "diff", "--stat"]}, ["command=git diff --stat"]),
        (["x.cmd"], {"x": {"cmd": ["cp", "a b", "c", "c"]}}, ["cmd=cp 'a b' c c"]),
        ([], {"cluster": "staging", "amount": 7, "table": "t"}, ["cluster=staging", "table=t"]),
        ([], {"note": "nothing known"}, []),
        ([], ["no", "names"], []),
        ([], None, []),
    ],
)
def test_telling_arguments_in_the_order_of_the_declaration(
    declared: list[str], arguments: Any, expected: list[str]
) -> None:
    assert [f"{label}={value}" for label, value in pairs(declared, arguments)] == expected


def test_the_title_is_not_repeated_by_default() -> None:
    arguments = {"file_path": "payments/rounding.py", "old_string": "1", "new_string": "2"}
    assert pairs([], arguments, "payments/rounding.py") == []
    assert pairs(["file_path"], arguments, "payments/rounding.py") == [
        ("file_path", "payments/rounding.py")
    ]


def test_a_value_has_a_bounded_length() -> None:
    ((_, value),) = pairs(["a"], {"a": "x" * 100_000})
    assert len(value) < 500


@pytest.mark.parametrize(
    ("tool", "ref", "arguments", "expected"),
    [
        ("Edit", "refs/heads/main", {"file_path": "payments/rounding.py"}, "payments/rounding.py"),
        ("git.push", "refs/heads/main", {"path": "."}, "main"),
        ("forge.file", "main", {"path": "a.py", "branch": "main"}, "a.py"),
        ("forge.merge", "main", {"number": 7}, "main"),
        ("mail.send", "", {"to": "a"}, "a"),
        ("Edit", "main", None, "main"),
    ],
)
def test_a_title_names_what_the_request_changes(
    tool: str, ref: str, arguments: Any, expected: str
) -> None:
    assert build_call_title(tool, arguments, ref=ref).object == expected


def cut(text: str) -> tuple[str, str, str]:
    match = re.fullmatch(
        r'<span class="mid" title="([^"]*)"><span>(.*)</span><span>(.*)</span></span>',
        re.sub(r'<span class="untrusted"[^>]*>(.*?)</span>(?=</span>)', r"\1", middle_cut(text)),
        re.DOTALL,
    )
    assert match
    return unescape(match[1]), unescape(match[2]), unescape(match[3])


def test_a_long_value_is_cut_in_the_middle_and_its_end_stays() -> None:
    title, head, tail = cut(ADDRESS)
    assert (title, head + tail, tail) == (ADDRESS, ADDRESS, "/billing")
    assert cut("billing@northwind-audit.example")[2] == "northwind-audit.example"
    long = "a" * 5000 + "-prod-eu-1"
    _, head, tail = cut(long)
    assert (re.sub(r"<[^>]+>", "", head), tail) == ("a" * 160 + "…", "aaaa-prod-eu-1")
    assert cut("") == ("", "", "")
    assert "".join(cut("ab")[1:]) == "ab"


def test_the_cut_shows_hidden_characters_and_splits_no_letter() -> None:
    _, head, tail = cut("e\u0301" * 10)
    assert (head + tail).count("\u0301") == 10
    assert not tail.startswith("\u0301")
    title, head, _ = cut("billing\u202egnp.exe " + "x" * 30)
    assert "\u202e" not in title
    assert "U+202E" in head
    assert "&lt;b&gt;" in middle_cut("<b>" + "x" * 40)


@pytest.mark.django_db
class TestRows:
    def row(self, inbox: InboxScenario, gate: Gate) -> str:
        html = Reviewer(inbox).page(reverse("inbox"))
        part = next(
            part
            for part in html.split('<li class="entry')
            if f'href="{url_of(gate)}" data-gate' in part
        )
        return part.partition("</li>")[0]

    def test_declared_arguments_replace_the_summary(self, inbox: InboxScenario) -> None:
        text = "tools: {deploy: {class: opaque, telling: [spec.cluster, image]}}"
        with transaction.atomic():
            registry.declare_tools(inbox.project, tools_yaml.parse_tools_yaml(text))
        cache.clear_tool_cache()
        arguments = {"image": ADDRESS, "spec": {"cluster": "prod-eu-1"}, "note": "as ever"}
        row = self.row(inbox, inbox.gate(inbox.plan(tool="deploy", arguments=arguments)))
        assert '<dl class="telling"><dt><span' in row
        assert re.findall(r"<dt><span[^>]*>(.*?)</span>", row) == ["cluster", "image"]
        assert "<span>prod-</span>" in row or "prod-eu-1" in re.sub(r"<[^>]+>", "", row)
        assert "/billing</span>" in row
        assert "gist" not in row
        assert "as ever" not in row

    def test_without_any_telling_argument_the_summary_stays(self, inbox: InboxScenario) -> None:
        gate = inbox.gate(inbox.plan(tool="deploy", arguments={"note": "as ever"}))
        row = self.row(inbox, gate)
        assert "as ever" in row
        assert "telling" not in row

    def test_an_edit_is_titled_by_its_file(self, inbox: InboxScenario) -> None:
        inbox.rules("name: all\nrules:\n- {id: all, title: All, match: {}, outcome: require}\n")
        gate = inbox.gate(
            inbox.plan(
                tool="Edit",
                arguments={"file_path": "payments/rounding.py", "new_string": "x"},
                target={"repository": "web", "ref": "refs/heads/main"},
            )
        )
        title = re.search(r"<h3>(.*?)</h3>", self.row(inbox, gate))
        assert title
        assert re.sub(r"<[^>]+>", "", title[1]) == "Edit payments/rounding.py of web"
