"""Compare two sessions: the longest common subsequence, the page and its JSON."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import time_machine
from django.urls import reverse
from hypothesis import given, settings
from hypothesis import strategies as st

from db.clock import now_us
from ledger.models import Effect
from pages.compare import diff
from pages.compare.diff import (
    MIN_COLLAPSED,
    Call,
    collapse_equal_lines,
    longest_common_subsequence,
    merge_lines,
)
from sessions.models import Session
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import InboxScenario
from tests.matrices import count_examples
from tests.pages.people import Organization


def longest(left: list[int], right: list[int]) -> int:
    """Return the length of the longest common subsequence by dynamic programming."""
    row = [0] * (len(right) + 1)
    for item in left:
        above, row = row, [0]
        for place, other in enumerate(right):
            row.append(above[place] + 1 if item == other else max(above[place + 1], row[-1]))
    return row[-1]


@settings(max_examples=count_examples(30, 80))
@given(*[st.lists(st.integers(0, 5), max_size=40)] * 2)
def test_common_calls_are_a_longest_common_subsequence(left: list[int], right: list[int]) -> None:
    pairs = longest_common_subsequence(left, right)
    assert all(left[a] == right[b] for a, b in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))
    assert len(pairs) == longest(left, right)


@settings(max_examples=count_examples(12, 30))
@given(*[st.lists(st.integers(0, 3), max_size=30)] * 2)
def test_every_call_of_both_is_in_one_line_in_order(left: list[int], right: list[int]) -> None:
    sides = [[call(n, str(key)) for n, key in enumerate(keys)] for keys in (left, right)]
    merged = merge_lines(*sides)
    assert [line.left for line in merged if line.left] == sides[0]
    assert [line.right for line in merged if line.right] == sides[1]
    rows = collapse_equal_lines(merged)
    assert [line for row in rows for line in row.lines] == merged
    assert [row.at for row in rows] == [merged.index(row.first) for row in rows]
    assert all(len(row.lines) == 1 or len(row.lines) >= MIN_COLLAPSED for row in rows)


def call(number: int, intent: str, **more: Any) -> Call:
    effect = SimpleNamespace(
        id=number, tool="t", intent_digest=intent, outcome="ok", attempt_count=1, permission="used"
    )
    return Call(effect, "acknowledged", **more)


def test_a_call_whose_plan_is_unknown_is_equal_to_none() -> None:
    assert [line.sign for line in merge_lines([call(1, "")], [call(2, "")])] == ["-", "+"]


def test_times_differ_when_they_are_twice_as_long_and_a_second_apart() -> None:
    def differ(waited_us: int | None, other: int | None) -> tuple[str, ...]:
        return diff.differing_aspects(
            call(1, "a", waited_us=waited_us), call(2, "a", waited_us=other)
        )

    assert differ(900_000, 100_000) == ()
    assert differ(9_000_000, 5_000_000) == ()
    assert differ(9_000_000, 1_000_000) == ("waiting",)
    assert differ(None, 1) == ("waiting",)


def act(
    agent: Caller, session: str, key: str, outcome: str = "ok", attempts: int = 1, **plan: Any
) -> None:
    for attempt in range(1, attempts + 1):
        effect = agent.plan(key, session, **plan)
        agent.dispatch(effect)
        if attempt < attempts:
            agent.fail(effect, "rejected", attempt)
        else:
            agent.acknowledge(effect, attempt, outcome=outcome)


def test_two_sessions_are_compared_side_by_side(organization: Organization, agent: Caller) -> None:
    left, right = (agent.session(key, title=f"<i>{key}</i>") for key in ("left", "right"))
    alike: list[dict[str, Any]] = [
        {"tool": "file.read", "arguments": {"path": f"{n}.py"}} for n in range(MIN_COLLAPSED)
    ]
    for session in ("left", "right"):
        for number, plan in enumerate(alike):
            act(agent, session, f"r{number}", **plan)
    act(agent, "left", "only", tool="file.delete", arguments={"path": "<script>a</script>"})
    act(agent, "left", "push", tool="git.push", arguments={"ref": "main"})
    act(agent, "right", "push", "error", 2, tool="git.push", arguments={"ref": "main"})
    act(agent, "right", "other", tool="git.push", arguments={"ref": "next"})
    viewer = organization.client("viewer")
    url = reverse("session_diff", args=[left["id"], right["id"]])
    answer = viewer.get(url, {"view": "json"}).json()
    assert [line["sign"] for line in answer["lines"]] == [*["="] * MIN_COLLAPSED, "-", "≠", "+"]
    assert (answer["equal"], answer["differing"], answer["only_left"], answer["only_right"]) == (
        MIN_COLLAPSED,
        1,
        1,
        1,
    )
    unlike = answer["lines"][MIN_COLLAPSED + 1]
    assert unlike["differs"] == ["outcome", "attempts"]
    assert (unlike["left"]["outcome"], unlike["right"]["outcome"], unlike["right"]["attempts"]) == (
        "ok",
        "error",
        2,
    )
    assert unlike["left"]["effect"] == str(
        Effect.objects.get(session=left["id"], effect_key="push")
    )
    page = viewer.get(url).text
    assert f"{MIN_COLLAPSED} calls alike" in page
    assert "6 calls in both sessions" in " ".join(page.replace("</b>", "").split())
    assert "&lt;script&gt;a" in page
    assert "<script>a" not in page
    assert f"{MIN_COLLAPSED} calls alike" not in viewer.get(url, {"all": "1"}).text
    assert (
        "file.read" not in viewer.get(url, {"only": "differences"}).text.partition('id="calls"')[2]
    )
    # The form accepts any reference to a session and refuses the rest.
    compare_url = reverse("session_compare", args=[left["id"]])
    assert f'action="{compare_url}"' in viewer.get(reverse("session", args=[left["id"]])).text
    handle = str(Session.objects.get(id=right["id"]))
    for named in (
        handle,
        "right",
        right["id"],
        f"https://book.example/sessions/{right['id']}/?at=e_1#e_1",
    ):
        assert viewer.get(compare_url, {"with": named}).headers["Location"] == url
    refused = viewer.get(compare_url, {"with": "s_99999999"})
    assert (refused.status_code, "No such session" in refused.text) == (422, True)
    stranger = organization.client("neighbour")
    assert stranger.get(url).status_code == stranger.get(compare_url).status_code == 404
    assert (
        viewer.get(reverse("session_diff", args=[left["id"], organization.project.id])).status_code
        == 404
    )


def test_waiting_and_reviewers_are_compared(organization: Organization, agent: Caller) -> None:
    inbox = InboxScenario(organization, agent)
    inbox.rules()
    inbox.declare("git.push")
    effects = {}
    with time_machine.travel(now_us() / 1_000_000, tick=False):  # both wait equally long
        for session in ("one", "two"):
            agent.session(session)
            call = {"tool": "git.push", "arguments": {"ref": "main"}}
            effects[session] = agent.plan("push", session, **call)
        inbox.answer(inbox.gate(effects["one"]), "rita")
        inbox.answer(inbox.gate(effects["two"]), "carol", "deny", "not on a Friday")
    gate = inbox.gate(effects["one"])
    sessions = [Session.objects.get(key=key) for key in effects]
    url = reverse("session_diff", args=[row.id for row in sessions])
    (line,) = organization.client("viewer").get(url, {"view": "json"}).json()["lines"]
    assert line["differs"] == ["permission", "reviewers"]
    assert (line["left"]["reviewers"], line["right"]["reviewers"]) == (["rita"], ["carol"])
    assert gate.decided_at_us is not None
    assert line["left"]["waited_us"] == gate.decided_at_us - gate.requested_at_us
    page = organization.client("viewer").get(url).text
    assert "granted" in page
    assert "denied" in page
