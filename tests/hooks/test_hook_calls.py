"""A call before it runs: permitted, waiting, refused, approved, repeated, met again after a crash."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals.models import Gate
from journal.models import Body, Entry
from ledger.models import Attempt
from sessions.models import Session
from tests.hooks.hook_client import (
    PUSH,
    RULES,
    HookClient,
    count_attempts,
    list_effects,
    the_effect,
)


def test_a_call_that_no_rule_holds_leaves_the_decision_to_the_client(claude: HookClient) -> None:
    output = claude.before("ls -l")
    assert "permissionDecision" not in output
    effect = the_effect()
    assert (effect.state, effect.permission, effect.call_id) == ("dispatched", "used", "toolu_1")
    assert effect.turn == "turn-1"


def test_the_address_can_ask_for_allow(claude: HookClient) -> None:
    assert claude.before("ls", query="?permitted=allow")["permissionDecision"] == "allow"


def test_only_enforced_rules_can_allow(claude: HookClient) -> None:
    """Without them, the client's own permissions are the only ones."""
    claude.scenario.rules(RULES, mode="observe")
    output = claude.before("ls", query="?permitted=allow")
    assert "permissionDecision" not in output
    assert the_effect().state == "dispatched"


def test_an_unknown_option_of_the_address_denies(claude: HookClient) -> None:
    output = claude.before("ls", query="?permitted=always")
    assert output["permissionDecision"] == "deny"
    assert "`permitted`" in output["permissionDecisionReason"]
    assert list_effects() == []


def test_a_held_call_is_denied_with_its_handle_and_a_link(claude: HookClient) -> None:
    output = claude.before()
    effect, gate = the_effect(), Gate.objects.get()
    assert output["permissionDecision"] == "deny"
    assert str(effect) in output["permissionDecisionReason"]
    assert f"/{gate.id}/" in output["permissionDecisionReason"]
    assert (effect.state, effect.permission) == ("planned", "pending")
    assert claude.stored_session.status == "waiting"
    assert claude.stored_session.waiting_on == f"approval of {effect}"


def test_a_headless_client_defers_and_runs_once_after_approval(claude: HookClient) -> None:
    assert claude.before(query="?waiting=defer")["permissionDecision"] == "defer"
    claude.send(claude.build("SessionEnd", reason="other"))
    assert claude.stored_session.status == "waiting"
    claude.rule_on_only_gate()
    # `claude --continue` repeats the call with its id, before any prompt.
    output = claude.before(query="?waiting=defer", prompt_id=None)
    assert output["permissionDecision"] == "allow"
    effect = the_effect()
    assert (effect.state, effect.permission, effect.attempt_count) == ("dispatched", "used", 1)
    assert claude.stored_session.status == "running"
    assert claude.after(prompt_id=None) == {}
    effect.refresh_from_db()
    assert (effect.state, effect.outcome) == ("acknowledged", "ok")


def test_a_deferred_call_waits_on_while_nobody_has_ruled(claude: HookClient) -> None:
    first = claude.before(query="?waiting=defer")
    assert claude.before(query="?waiting=defer", prompt_id=None) == first
    assert (len(list_effects()), Gate.objects.count()) == (1, 1)


def test_the_command_can_say_that_the_client_is_headless(claude: HookClient) -> None:
    assert claude.before(gatebook={"headless": True})["permissionDecision"] == "defer"


def test_a_refused_call_is_denied_with_the_words_of_the_reviewer(claude: HookClient) -> None:
    claude.before()
    claude.rule_on_only_gate("deny", reason="not on a Friday")
    for _ in range(2):
        output = claude.before(prompt_id=None)
        assert output["permissionDecision"] == "deny"
        assert "The reviewer wrote: not on a Friday" in output["permissionDecisionReason"]
    assert (count_attempts(), Gate.objects.count()) == (0, 1)


def test_a_refused_call_is_not_requested_again_in_its_turn(claude: HookClient) -> None:
    claude.before()
    claude.rule_on_only_gate("deny", reason="not on a Friday")
    assert "not on a Friday" in claude.before(call_id="toolu_2")["permissionDecisionReason"]
    assert Gate.objects.count() == 1
    claude.turn = "turn-2"  # the user asked again
    reason = claude.before(call_id="toolu_3")["permissionDecisionReason"]
    assert "waits for approval" in reason
    assert "not on a Friday" in reason
    assert Gate.objects.filter(status="pending").count() == 1


def test_a_forbidden_call_names_its_rule(claude: HookClient) -> None:
    call = claude.build(
        "PreToolUse", tool_name="mcp__bank__transfer", tool_input={"amount": 5}, tool_use_id="t"
    )
    output = claude.send(call)["hookSpecificOutput"]
    assert output["permissionDecision"] == "deny"
    assert "never" in output["permissionDecisionReason"]


def test_an_approval_is_used_by_the_next_equal_call_and_only_once(claude: HookClient) -> None:
    claude.before()
    claude.rule_on_only_gate()
    claude.turn = "turn-2"
    assert claude.before(call_id="toolu_2")["permissionDecision"] == "allow"
    assert claude.after(call_id="toolu_2") == {}
    effect = the_effect()
    assert (effect.state, effect.outcome, effect.call_id) == ("acknowledged", "ok", "toolu_1")
    assert claude.before(call_id="toolu_3")["permissionDecision"] == "deny"  # it asks again
    assert Gate.objects.filter(status="pending").count() == 1


def test_an_equal_call_meets_the_open_request(claude: HookClient) -> None:
    first = claude.before()
    claude.turn = "turn-2"
    assert claude.before(call_id="toolu_2") == first
    assert (len(list_effects()), Gate.objects.count()) == (1, 1)


@pytest.mark.parametrize("command", ["ls", PUSH])
def test_a_hook_that_comes_twice_changes_nothing(claude: HookClient, command: str) -> None:
    first = claude.before(command)
    entries = Entry.objects.count()
    assert claude.before(command) == first
    assert Entry.objects.count() == entries
    claude.after(command)
    entries = Entry.objects.count()
    claude.after(command)
    assert Entry.objects.count() == entries
    if command == "ls":
        assert claude.before(command) == first  # late: nothing is run by this answer
        assert Entry.objects.count() == entries


def test_a_call_in_flight_is_not_run_again_by_a_new_process(claude: HookClient) -> None:
    """kill -9 after the dispatch: the client drops the call, and samples it under a new id."""
    claude.before()
    claude.rule_on_only_gate()
    assert claude.before(prompt_id=None)["permissionDecision"] == "allow"
    claude.send(claude.build("SessionStart", source="resume", prompt_id=None))
    claude.turn = "turn-2"
    output = claude.before(call_id="toolu_9")
    assert output["permissionDecision"] == "deny"
    assert "A person must resolve it" in output["permissionDecisionReason"]
    assert str(the_effect()) in output["permissionDecisionReason"]
    assert count_attempts() == 1


def test_the_same_id_from_a_new_process_is_not_run_again(claude: HookClient) -> None:
    claude.before()
    claude.rule_on_only_gate()
    claude.before(prompt_id=None)
    for turn in (None, "turn-7"):
        output = claude.before(prompt_id=turn)
        assert output["permissionDecision"] == "deny"
        assert "no result was reported" in output["permissionDecisionReason"]
    assert count_attempts() == 1


def test_a_person_resolves_what_is_in_doubt(claude: HookClient) -> None:
    claude.before()
    gate = claude.rule_on_only_gate()
    claude.before(prompt_id=None)
    claude.turn = "turn-2"
    assert claude.before(call_id="toolu_9")["permissionDecision"] == "deny"
    effect = the_effect()
    claude.scenario.agent.fail({"id": str(effect.id)}, "rejected")
    # Nothing happened, so the call may be requested again.
    output = claude.before(call_id="toolu_10")
    assert "waits for approval" in output["permissionDecisionReason"]
    claude.rule(Gate.objects.get(status="pending"))
    assert Gate.objects.exclude(id=gate.id).get().status == "approved"
    assert claude.before(call_id="toolu_11")["permissionDecision"] == "allow"
    assert Attempt.objects.filter(is_open=True).count() == 1


def test_a_call_that_was_done_is_not_done_again_under_its_id(claude: HookClient) -> None:
    claude.before(PUSH)
    claude.rule_on_only_gate()
    claude.before(PUSH, prompt_id=None)
    claude.after(PUSH, stdout="deployed 7", prompt_id=None)
    output = claude.before(PUSH, prompt_id=None)
    assert output["permissionDecision"] == "deny"
    assert "was done before with outcome ok" in output["permissionDecisionReason"]
    assert "deployed 7" in output["permissionDecisionReason"]


def test_equal_calls_after_a_result_are_legitimate(claude: HookClient) -> None:
    for number in range(3):
        assert "permissionDecision" not in claude.before("make test", f"toolu_{number}")
        claude.after("make test", f"toolu_{number}")
    assert [effect.outcome for effect in list_effects()] == ["ok"] * 3


def test_equal_calls_of_one_turn_are_legitimate(claude: HookClient) -> None:
    call = {"tool_name": "mcp__x__send", "tool_input": {"to": "a"}}
    for number in range(2):
        body = claude.build("PreToolUse", tool_use_id=f"toolu_{number}", **call)
        assert "permissionDecision" not in claude.send(body)["hookSpecificOutput"]
    assert count_attempts() == 2


def test_a_call_that_changes_nothing_outside_runs_again_after_a_crash(claude: HookClient) -> None:
    claude.before("make test")
    claude.turn = "turn-2"
    assert "permissionDecision" not in claude.before("make test", "toolu_2")
    assert count_attempts() == 2


def test_the_description_is_no_part_of_the_intent(claude: HookClient) -> None:
    claude.before()
    claude.turn = "turn-2"
    other = {"command": PUSH, "description": "another description", "timeout": 5000}
    assert (
        str(the_effect())
        in claude.before(call_id="toolu_2", tool_input=other)["permissionDecisionReason"]
    )
    assert the_effect().state == "planned"


def test_another_folder_is_another_intent(claude: HookClient) -> None:
    claude.before()
    claude.before(call_id="toolu_2", cwd="/home/dev/other")
    assert len(list_effects()) == 2


def test_a_call_id_that_is_used_for_two_intents_names_two_effects(claude: HookClient) -> None:
    claude.before("ls a")
    claude.before("ls b")
    claude.after("ls b", stdout="b")
    claude.after("ls a", stdout="a")
    assert len({effect.intent_digest for effect in list_effects(state="acknowledged")}) == 2


def test_a_subagent_is_a_child_session_and_meets_the_calls_of_its_family(
    claude: HookClient,
) -> None:
    agent = {"agent_id": "a1", "agent_type": "general-purpose"}
    claude.before(**agent)
    child = Session.objects.get(key=f"{claude.session}/a1")
    assert child.parent is not None
    assert child.parent.key == claude.session
    claude.rule_on_only_gate()
    assert claude.before(**agent)["permissionDecision"] == "allow"
    # After a crash another subagent repeats the call.
    claude.turn = "turn-2"
    output = claude.before(call_id="toolu_2", agent_id="a2", agent_type="general-purpose")
    assert output["permissionDecision"] == "deny"
    assert count_attempts() == 1


def test_facts_of_the_folder_become_the_target_with_their_source(claude: HookClient) -> None:
    facts = {
        "repository": "acme/fork",
        "branch": "agent/cc",
        "remotes": {"origin": "git@example.org:acme/web.git"},
        "source": "git files",
    }
    claude.before("git push origin", gatebook=facts)
    effect = the_effect()
    assert effect.repository is not None
    assert (effect.repository.name, effect.ref) == ("acme/web", "agent/cc")
    body = Body.objects.get(entry=effect.plan_position).text
    assert '"ref":"the branch of the folder (git files)"' in body


def test_an_approved_call_that_ended_does_not_run_again_under_its_id(claude: HookClient) -> None:
    """Some models name two calls of one turn alike."""
    claude.before()
    claude.rule_on_only_gate()
    assert claude.before()["permissionDecision"] == "allow"
    claude.after()
    output = claude.before()
    assert output["permissionDecision"] == "deny"
    assert "was done before" in output["permissionDecisionReason"]
    assert count_attempts() == 1


@pytest.mark.parametrize(
    "changed", [{"branch": "main"}, {"repository": "acme/other"}, {"remotes": {}}]
)
@pytest.mark.parametrize("call_id", ["toolu_1", "toolu_2"])
def test_an_approval_counts_only_for_the_target_that_the_person_saw(
    claude: HookClient, changed: dict[str, object], call_id: str
) -> None:
    """The same command in the same folder pushes elsewhere after `git checkout main`."""
    facts = {
        "branch": "topic",
        "repository": "acme/shop",
        "remotes": {"origin": "git@github.com:acme/shop.git"},
        "source": "git",
    }
    command = "git push" if "remotes" not in changed else "git push origin"
    claude.before(command, gatebook=facts)
    claude.rule_on_only_gate()
    claude.turn = "turn-2"
    output = claude.before(command, call_id, gatebook=facts | changed)
    assert output["permissionDecision"] == "deny"
    assert count_attempts() == 0
    output = claude.before(command, "toolu_3", gatebook=facts | changed)
    assert "waits for approval" in output["permissionDecisionReason"]
    claude.rule(Gate.objects.get(status="pending"))
    claude.turn = "turn-3"
    output = claude.before(command, "toolu_4", gatebook=facts | changed)
    assert output["permissionDecision"] == "allow"
    assert count_attempts() == 1
    claude.after(command, "toolu_4", gatebook=facts | changed)
    # The first approval still counts for what it was given.
    assert claude.before(command, "toolu_5", gatebook=facts)["permissionDecision"] == "allow"
    assert count_attempts() == 2


def test_a_tool_of_a_server_is_no_shell_command_by_its_name(gemini: HookClient) -> None:
    for tool in ("shell.read", "git.read", "repo.read"):
        gemini.send(gemini.build("BeforeTool", timestamp=tool, tool_name=tool, tool_input={}))
    assert [effect.tool for effect in list_effects()] == [
        *("gemini.shell.read", "gemini.git.read", "repo.read"),
    ]


def test_a_call_in_other_words_than_approved_asks_again(claude: HookClient) -> None:
    """People saw the description, which the model words differently every time."""
    claude.scenario.rules(RULES.replace("tools: [git.push]", "tools: [Agent]"))

    def call(words: str, call_id: str) -> str:
        fields = {"prompt": "release it", "description": words}
        hook = claude.build("PreToolUse", tool_name="Agent", tool_input=fields, tool_use_id=call_id)
        output = claude.send(hook)["hookSpecificOutput"]
        return f"{output.get('permissionDecisionReason')}{output['permissionDecision']}"

    assert "waits for approval" in call("Release", "toolu_1")
    claude.rule_on_only_gate()
    claude.turn = "turn-2"
    assert "waits for approval" in call("Do a release", "toolu_2")
    claude.rule(Gate.objects.get(status="pending"))
    assert call("Do a release", "toolu_3").endswith("allow")
    assert count_attempts() == 1


@pytest.mark.skipif(connection.vendor != "sqlite", reason="explains plans of SQLite")
def test_no_hook_searches_all_effects_of_a_project(claude: HookClient) -> None:
    claude.before("ls")
    with CaptureQueriesContext(connection) as caught:
        claude.before("ls", "toolu_2")
        claude.before("ls", "toolu_2")
        claude.after("ls", "toolu_9")
        claude.send(claude.build("Stop"))
    reads = [query["sql"] for query in caught if query["sql"].startswith("SELECT")]
    plans = []
    with connection.cursor() as cursor:
        for sql in reads:
            if "ledger_effect" in sql:
                cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
                plans += [row[3] for row in cursor.fetchall()]
    searches = [plan for plan in plans if "ledger_effect " in plan]
    assert len(searches) > 3
    assert not [plan for plan in searches if "SCAN" in plan or "project_id=?)" in plan]
