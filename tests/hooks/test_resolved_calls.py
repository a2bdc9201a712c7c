"""A person resolves a call whose result never came; the agent's next equal call is told so."""

import pytest
from django.db import transaction

from approvals.models import Gate
from hooks.code_hosts import agent_identities
from journal.models import Entry
from ledger.models import Effect
from tests.hooks.code_hosts.code_host import CodeHost
from tests.hooks.hook_client import HookClient, count_attempts, list_effects, the_effect
from tests.recovery.resolver import Resolver

pytestmark = pytest.mark.django_db
RATIONALE = "The branch is on the remote since 14:05."
NOTIFY = {"tool_name": "mcp__chat__send", "tool_input": {"to": "team", "text": "Released"}}


def lose_result(claude: HookClient) -> Effect:
    """Let an approved push begin; its process dies, and a new one meets it."""
    claude.before()
    claude.rule_on_only_gate()
    assert claude.before(prompt_id=None)["permissionDecision"] == "allow"
    claude.turn = "turn-2"
    output = claude.before(call_id="toolu_2")
    assert "A person must resolve it" in output["permissionDecisionReason"]
    return the_effect()


def resolve(claude: HookClient, effect: Effect, answer: str) -> None:
    """Resolve an effect on its page."""
    resolver = Resolver(claude.scenario)
    done = resolver.resolve(effect, answer, RATIONALE, insists="1")
    assert done.status_code == 302
    effect.refresh_from_db()
    assert effect.resolution == answer


def read_reason(claude: HookClient, call_id: str) -> str:
    """Return why a call is denied."""
    output = claude.before(call_id=call_id)
    assert output["permissionDecision"] == "deny"
    return str(output["permissionDecisionReason"])


def test_a_call_that_a_person_states_as_done_is_not_done_again(claude: HookClient) -> None:
    effect = lose_result(claude)
    resolve(claude, effect, "happened")
    for turn, call_id in (("turn-2", "toolu_3"), ("turn-2", "toolu_4"), (None, "toolu_1")):
        claude.turn = turn or "turn-2"
        reason = read_reason(claude, call_id)
        assert f"{effect} (git.push) was done" in reason
    assert f"The person wrote: {RATIONALE}" in read_reason(claude, "toolu_3")
    assert (len(list_effects()), count_attempts(), Gate.objects.count()) == (1, 1, 1)
    assert Entry.objects.filter(kind="hook.settled_call_answered").count() == 1


def test_a_later_turn_may_ask_for_the_call_again(claude: HookClient) -> None:
    resolve(claude, lose_result(claude), "happened")
    assert "was done" in read_reason(claude, "toolu_3")
    claude.turn = "turn-3"  # the user wants a second push
    assert "waits for approval" in read_reason(claude, "toolu_4")
    assert (len(list_effects()), Gate.objects.filter(status="pending").count()) == (2, 1)


def test_a_call_that_a_person_states_as_not_done_may_run_again(claude: HookClient) -> None:
    effect = lose_result(claude)
    resolve(claude, effect, "not_happened")
    assert "waits for approval" in read_reason(claude, "toolu_3")
    claude.rule(Gate.objects.get(status="pending"))
    assert claude.before(call_id="toolu_4")["permissionDecision"] == "allow"
    assert claude.after(call_id="toolu_4") == {}
    assert [row.state for row in list_effects()] == ["failed", "acknowledged"]


def test_a_call_that_is_not_held_runs_again_after_it_was_not_done(claude: HookClient) -> None:
    def call(call_id: str) -> dict[str, str]:
        hook = claude.build("PreToolUse", tool_use_id=call_id, **NOTIFY)
        output: dict[str, str] = claude.send(hook)["hookSpecificOutput"]
        return output

    assert "permissionDecision" not in call("toolu_1")
    claude.turn = "turn-2"
    assert call("toolu_2")["permissionDecision"] == "deny"
    resolve(claude, the_effect(), "not_happened")
    assert "permissionDecision" not in call("toolu_3")
    assert count_attempts() == 2


def test_the_same_call_id_may_run_again_after_it_was_not_done(claude: HookClient) -> None:
    resolve(claude, lose_result(claude), "not_happened")
    assert "waits for approval" in read_reason(claude, "toolu_1")
    claude.rule(Gate.objects.get(status="pending"))
    assert claude.before(call_id="toolu_1")["permissionDecision"] == "allow"
    assert (len(list_effects()), count_attempts()) == (1, 2)


def test_an_abandoned_call_is_not_repeated_unseen(claude: HookClient) -> None:
    resolve(claude, lose_result(claude), "abandoned")
    reason = read_reason(claude, "toolu_3")
    assert "abandoned" in reason
    assert RATIONALE in reason
    assert count_attempts() == 1


def test_a_call_that_the_code_host_confirmed_is_not_done_again(claude: HookClient) -> None:
    facts = {"remotes": {"origin": "https://github.com/acme/shop.git"}, "source": "git files"}
    push = "git push origin HEAD:refs/heads/main"
    claude.before(push, gatebook=facts)
    claude.rule_on_only_gate()
    claude.before(push, prompt_id=None, gatebook=facts)
    with transaction.atomic():
        agent_identities.add_identity(the_effect().agent, "github", "release-bot", actor="gatebook")
    CodeHost(claude.scenario.organization, claude.scenario.agent).push()
    assert the_effect().confirmed_by == "github"
    claude.turn = "turn-2"
    output = claude.before(push, "toolu_2", gatebook=facts)
    assert "GitHub confirmed it" in output["permissionDecisionReason"]
    assert count_attempts() == 1


def test_a_reported_result_is_no_news(claude: HookClient) -> None:
    claude.before()
    claude.rule_on_only_gate()
    claude.before(prompt_id=None)
    claude.after(prompt_id=None)
    claude.turn = "turn-2"
    assert "waits for approval" in read_reason(claude, "toolu_2")
