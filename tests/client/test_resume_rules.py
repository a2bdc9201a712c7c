"""The file of `gatebook resume-runner`: what it may say, and what agents cannot make of it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from gatebook_client.cli import main
from gatebook_client.resume_rules import (
    CommandNotUsable,
    ResumeRule,
    RulesInvalid,
    collect_fields,
    find_rule,
    read_rules,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "resume.md"
GATE = {"id": "g", "handle": "g_7", "status": "approved", "page": "/approvals/g/", "tool": "t"}
SESSION = {"id": "s", "handle": "s_1", "key": "k", "agent": "nightly-1", "labels": {}, "meta": {}}


def write(folder: Path, *commands: Any, name: str = "resume.json") -> str:
    file = folder / name
    file.write_text(json.dumps({"commands": list(commands)}))
    return str(file)


def build(folder: Path, **members: Any) -> ResumeRule:
    (rule,) = read_rules(write(folder, {"name": "n", "run": ["program"]} | members))
    return rule


def list_fields(**session: Any) -> dict[str, str]:
    return collect_fields(GATE, SESSION | session, "https://gatebook.example")


def test_the_file_of_the_page_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```yaml\n(commands:.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "resume.yaml"
    file.write_text(example)
    claude, graph, workflow = rules = read_rules(str(file))
    work = tmp_path / "work"
    fields = list_fields(labels={"client": "claude-code"}, meta={"cwd": "/srv/work/shop"})
    assert find_rule(rules, fields) is claude
    command = claude.build_command(fields)
    assert command.arguments == ("claude", "-p", "", "--resume", "k")
    assert command.folder == "/srv/work/shop"
    with pytest.raises(CommandNotUsable, match="not inside `folders`"):
        claude.build_command(fields | {"meta.cwd": str(work)})
    mail = list_fields(key="mail-7")
    assert find_rule(rules, mail) is graph
    python = "/srv/mail/.venv/bin/python"
    assert graph.build_command(mail).arguments == (python, "mail_graph.py", "mail-7", "go on")
    assert find_rule(rules, list_fields(key="news-7")) is workflow
    assert find_rule(rules, list_fields()) is None
    assert main(["resume-runner", str(file), "--check"]) == 0
    assert "3 commands" in capsys.readouterr().out


def test_the_table_of_the_page_names_every_member() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [
        *("name", "match", "run", "cwd", "folders", "on", "wait_for", "after_end"),
        "environment",
    ]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"run": []}, "needs `run`"),
        ({"run": "claude -p"}, "list of texts"),
        ({"run": ["{meta.program}"]}, "program must not depend"),
        ({"run": ["a", "{token}"]}, "unknown placeholder {token}"),
        ({"shell": True}, "unknown member shell"),
        ({"on": ["pending"]}, "`on` is a list of approved"),
        ({"match": {"colour": "red"}}, "does not know colour"),
        ({"match": {"agent": 7}}, "object of texts"),
        ({"cwd": "{meta.cwd}"}, "`folders` must list"),
        ({"cwd": "{meta.cwd}", "folders": ["work"]}, "absolute paths"),
        ({"wait_for": "some"}, "all or any"),
        ({"name": ""}, "needs a `name`"),
    ],
)
def test_a_file_that_says_something_else_is_refused(
    tmp_path: Path, members: dict[str, Any], words: str
) -> None:
    file = write(tmp_path, {"name": "n", "run": ["program"]} | members)
    with pytest.raises(RulesInvalid, match=re.escape(words)):
        read_rules(file)
    assert main(["resume-runner", file]) == 64


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for content in ("", "[]", "{", '{"commands": []}', '{"commands": [7]}', '{"other": []}'):
        for name in ("a.json", "a.yaml"):
            (tmp_path / name).write_text(content)
            with pytest.raises(RulesInvalid):
                read_rules(str(tmp_path / name))
    with pytest.raises(RulesInvalid, match="cannot be read"):
        read_rules(str(tmp_path / "missing.json"))


@pytest.mark.parametrize("value", ["--dangerous", "-p", "a\0b", "\ud800"])
def test_no_word_of_an_agent_becomes_an_option_or_breaks_the_start(
    tmp_path: Path, value: str
) -> None:
    rule = build(tmp_path, run=["program", "{meta.note}"])
    with pytest.raises(CommandNotUsable):
        rule.build_command(list_fields(meta={"note": value}))


def test_a_word_of_an_agent_stays_one_argument(tmp_path: Path) -> None:
    rule = build(tmp_path, run=["program", "--note={meta.note}", "{session_key}"])
    fields = list_fields(meta={"note": "a; rm -rf / $(x) {session_key} '\n"}, key="a b")
    assert rule.build_command(fields).arguments == (
        "program",
        "--note=a; rm -rf / $(x) {session_key} '\n",
        "a b",
    )
    with pytest.raises(CommandNotUsable, match=r"has no meta\.note"):
        rule.build_command(list_fields())


def test_the_folder_of_an_agent_is_inside_what_the_operator_allows(tmp_path: Path) -> None:
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    for folder in (allowed / "inner", outside):
        folder.mkdir(parents=True)
    (allowed / "link").symlink_to(outside)
    rule = build(tmp_path, cwd="{meta.cwd}", folders=[str(allowed)])
    assert rule.build_command(list_fields(meta={"cwd": f"{allowed}/inner"})).folder == str(
        allowed / "inner"
    )
    for folder in (outside, allowed / "link", allowed / "..", Path("inner"), Path()):
        with pytest.raises(CommandNotUsable):
            rule.build_command(list_fields(meta={"cwd": str(folder)}))


def test_only_texts_and_numbers_of_meta_are_fields() -> None:
    fields = list_fields(meta={"a": "x", "b": 7, "c": True, "d": [1], "e": None, "f": {"g": 1}})
    assert {name: text for name, text in fields.items() if name.startswith("meta.")} == {
        "meta.a": "x",
        "meta.b": "7",
    }
