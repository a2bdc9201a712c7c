"""Requests made to be misread, or to keep the inbox from answering, on the pages where people
decide."""

import re
from typing import Any

import pytest
from django.urls import reverse

from approvals.models import Gate, Vote
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.approvals.test_inbox_facts import fact

LOOKS_LIKE_A_PATCH = "--- nightly cleanup\nDROP TABLE users;\n"
DELETING = "*** Begin Patch\n*** Delete File: src/ledger.py\n*** End Patch"


def test_the_input_of_a_program_is_shown_with_its_command(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate = inbox.gate(inbox.plan(arguments={"command": "psql prod", "input": LOOKS_LIKE_A_PATCH}))
    assert "DROP TABLE users;" in fact(rita, gate, 1)
    shown = fact(rita, gate, 2)
    assert "Unknown." in shown
    assert "file" not in shown
    assert "Diff of fact 2" not in rita.page(url_of(gate))


def test_a_patch_names_what_it_writes_to_and_what_it_deletes(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    patch = "--- a/etc/sudoers\n+++ b/etc/sudoers\n@@ -1 +1,2 @@\n root\n+++ b/README.md\n"
    shown = fact(rita, inbox.gate(inbox.plan("e-1", arguments={"patch": patch})), 2)
    assert "1 file, +1 −0" in shown
    assert "etc/sudoers permissions or owners +1 −0" in shown
    assert "added + ++ b/README.md" in shown  # a line of the file, not a heading
    shown = fact(rita, inbox.gate(inbox.plan("e-2", arguments={"patch": DELETING})), 2)
    assert "1 file, +0 −0 , 1 deleted , nothing left out." in shown
    assert "src/ledger.py deletes the file" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        {"file_path": "a", "old_string": "x\n", "new_string": "".join(f"{n}\n" for n in range(40))},
        {"file_path": "a", "content": "x" * 2000},
        {"patch": "--- a/a\n+++ b/a\n@@ -1 +1,40 @@\n z\n" + "".join(f"+{n}\n" for n in range(39))},
        {"commits": [f"{n:040} and so on" for n in range(12)]},
    ],
    ids=["edit", "file", "patch", "commits"],
)
def test_a_diff_in_place_of_arguments_must_be_read_too(
    inbox: InboxScenario, rita: Reviewer, arguments: dict[str, Any]
) -> None:
    inbox.declare("close", "reversible")
    short = inbox.gate(inbox.plan("e-1", tool="close", arguments={"issue": 7}))
    gate = inbox.gate(inbox.plan("e-2", tool="close", arguments=arguments))
    match = re.search(
        r"I have read all (\d+) lines?,\s+including What changes", rita.page(url_of(gate))
    )
    assert match
    rita.client.post(reverse("batch"), {"gate": [str(item.id) for item in (short, gate)]})
    together = rita.page(reverse("batch_confirm"))
    assert "hidden characters, long blanks or too much text" in together
    assert f"seen-{short.id.hex}" in together
    assert f"seen-{gate.id.hex}" not in together
    refused = rita.answer(gate)
    assert refused.status_code == 409
    assert b"tick that you have read all lines" in refused.content
    assert not Vote.objects.exists()
    assert rita.answer(gate, all_read="1").status_code == 302
    assert Vote.objects.get().answer == "approve"


def test_many_short_lines_are_not_offered_to_be_decided_among_others(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.declare("close", "reversible")
    new = "".join(f"{n}\n" for n in range(40))
    edits = [
        {"path": "a", "old_str": "x", "new_str": "y"},
        {"path": "a", "old_str": "x", "new_str": new},
    ]
    short, long = (
        inbox.gate(inbox.plan(f"e-{at}", tool="close", arguments=edit))
        for at, edit in enumerate(edits)
    )
    html = rita.page(reverse("inbox"))
    assert f'name="gate" value="{short.id}"' in html
    assert str(long.id) in html
    assert f'name="gate" value="{long.id}"' not in html


def test_a_short_edit_needs_no_tick(inbox: InboxScenario, rita: Reviewer) -> None:
    gate = inbox.gate(
        inbox.plan(arguments={"file_path": "a", "old_string": "x", "new_string": "y"})
    )
    assert "I have read all" not in rita.page(url_of(gate))
    assert rita.answer(gate).status_code == 302


def test_no_command_keeps_the_inbox_or_its_page_from_answering(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    """Searched from each of its words, this would take thousands of millions of steps."""
    gate = inbox.gate(inbox.plan(arguments={"command": "pushd x\n" + "git " * 60_000}))
    more = [
        inbox.gate(inbox.plan(f"push-{n}", arguments={"command": f"pushd {n}\n" + "git " * 4000}))
        for n in range(3)
    ]
    html = rita.page(reverse("inbox"))
    assert all(url_of(listed) in html for listed in (gate, *more))
    assert "git git git" in rita.page(url_of(gate))


@pytest.mark.matrix
def test_no_edit_keeps_its_page_or_its_answer_waiting(inbox: InboxScenario, rita: Reviewer) -> None:
    """The diff of one of these takes some hundred million steps, and there are thirty."""
    old, new = ("".join(f"c\n{line}\n" for _ in range(700)) for line in "xy")
    gate = inbox.gate(
        inbox.plan(arguments={"path": "a", "edits": [{"old_string": old, "new_string": new}] * 30})
    )
    shown = fact(rita, gate, 2)
    assert "1 file, 30 edits, +42 000 −42 000" in shown.replace("\u202f", " ")
    assert rita.answer(gate, "deny", "unreadable").status_code == 302
    assert Gate.objects.get(id=gate.id).status == "denied"


@pytest.mark.parametrize(
    "command", ["git push origin v1.2\ufe0f", "git push;\ufe0f ls", "a &\ufe0e b"]
)
def test_a_selector_that_selects_nothing_is_shown_and_counted(
    inbox: InboxScenario, rita: Reviewer, command: str
) -> None:
    gate = inbox.gate(inbox.plan(arguments={"command": command}))
    html = rita.page(url_of(gate))
    assert "1 hidden character." in html
    assert "\ufe0f" not in html
    assert "\ufe0e" not in html
    assert b"tick that you have seen the hidden characters" in rita.answer(gate).content


@pytest.mark.parametrize(
    "current_url", ["http://[", "http://[::1", "//℀/", "http://x]/?state=mine", "%", "?&=%00"]
)
def test_a_pane_is_answered_for_any_current_url(
    gate: Gate, rita: Reviewer, current_url: str
) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": current_url}
    answer = rita.client.get(url_of(gate), headers=headers)
    assert answer.status_code == 200
    assert '<input type="hidden" name="list" value="">' in answer.content.decode()
