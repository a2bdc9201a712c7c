"""Integers past 2^53 and past 64 bits: their digits are kept in journal, digest, pages and
answers."""

import hashlib
import hmac
from typing import Any

import pytest
from django.conf import settings

from journal.models import Body
from ledger.models import Effect
from tests.api.api_client import Caller, code
from tests.api.conftest import agent as agent
from tests.api.conftest import application as application
from tests.api.conftest import call as call
from tests.api.conftest import issue as issue
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of

pytestmark = pytest.mark.django_db
CHATS = [2**53, 2**53 + 1, -(2**53) - 1, 2**63, 2**64 + 1, 10**40 + 7]


def planned(agent: Caller, number: int, key: str = "e", **more: Any) -> dict[str, Any]:
    return agent.plan(key, tool="git.push", arguments={"chat": number, "text": "x"}, **more)


@pytest.mark.parametrize("number", CHATS)
def test_a_plan_keeps_it_and_the_digest_sees_its_digits(agent: Caller, number: int) -> None:
    agent.session()
    effect = planned(agent, number)
    assert f'"chat":{number},' in Body.objects.get(entry=Effect.objects.get().plan_position).text
    text = f'["git.push",{{"chat":{number},"text":"x"}}]'.encode()
    assert (
        effect["intent_digest"]
        == "v1:" + hmac.new(settings.GATEBOOK_PEPPER, text, hashlib.sha256).hexdigest()
    )
    answer = agent.get(f"/effects/{effect['id']}/plan")
    assert f'"chat":{number},' in answer.text
    assert answer.json()["arguments"]["chat"] == number
    # Its neighbours are other intents: one double represents all of them.
    for other in (number - 1, number + 1):
        refused = agent.post(
            f"/effects/{effect['id']}/dispatch",
            {"process": "p", "arguments": {"chat": other, "text": "x"}},
        )
        assert code(refused) == (409, "INTENT_MISMATCH")
    body = {"process": "p", "arguments": {"chat": number, "text": "x"}}
    assert agent.post(f"/effects/{effect['id']}/dispatch", body).status_code == 200


@pytest.mark.parametrize("number", CHATS)
def test_evidence_of_the_same_call_has_the_same_digest(agent: Caller, number: int) -> None:
    agent.session()
    effect = planned(agent, number)
    item = {
        "id": "n",
        "kind": "effect.planned",
        "session": "s-1",
        "effect_key": "reported",
        "tool": "git.push",
    }
    assert (
        agent.report([item | {"arguments": {"chat": number, "text": "x"}}]).json()["accepted"] == 1
    )
    digests = set(Effect.objects.values_list("intent_digest", flat=True))
    assert digests == {effect["intent_digest"]}


@pytest.mark.parametrize("number", [2**53 + 1, 2**64 + 1])
def test_people_see_and_approve_it_and_its_preconditions_are_compared(
    inbox: InboxScenario, number: int
) -> None:
    inbox.agent.session()
    effect = planned(inbox.agent, number, preconditions={"last": number}, free_text=["text"])
    gate = inbox.gate(effect)
    rita = Reviewer(inbox)
    page = rita.page(url_of(gate))
    assert str(number) in page
    assert "verified by Gatebook: the arguments match the intent digest" in page
    assert str(number) in rita.page(f"/effects/{effect['id']}/")
    inbox.answer(gate, "reviewer")
    start = {"process": "p", "arguments": {"chat": number, "text": "x"}, "free_text": ["text"]}
    other = inbox.agent.post(
        f"/effects/{effect['id']}/dispatch", start | {"preconditions": {"last": number + 1}}
    )
    assert other.status_code == 409
    again = planned(inbox.agent, number, preconditions={"last": number}, free_text=["text"])
    inbox.answer(inbox.gate(again), "administrator")
    started = inbox.agent.post(
        f"/effects/{effect['id']}/dispatch", start | {"preconditions": {"last": number}}
    )
    assert started.status_code == 200, started.text


def test_a_rule_compares_its_digits(inbox: InboxScenario) -> None:
    rule = "{id: all, title: x, match: {arguments: [{path: chat, gt: 9007199254740991}]}, outcome: deny}"
    rest = "{id: rest, title: x, match: {}, outcome: allow}"
    inbox.rules(f"name: basic\nrules: [{rule}, {rest}]")
    inbox.agent.session()
    assert planned(inbox.agent, 2**53 - 1, "at")["permission"] == "granted"
    assert planned(inbox.agent, 2**64 + 1, "above")["permission"] == "denied"


def test_a_number_of_more_than_64_digits_is_refused(agent: Caller) -> None:
    agent.session()
    body = b'{"session":"s-1","effect_key":"e","tool":"t","arguments":{"n":%s}}' % (b"1" * 65)
    assert code(agent.raw("/effects", body)) == (422, "number_too_long")


@pytest.mark.parametrize("field", ["attempt", "ordinal", "lease_epoch", "producer_seq"])
def test_where_a_number_has_a_meaning_it_is_refused_and_never_a_fault(
    agent: Caller, field: str
) -> None:
    agent.session()
    body = {"session": "s-1", "call_id": "c", "tool": "t", "arguments": {}, field: 2**64 + 1}
    assert agent.post("/effects", body).status_code == 422
    item = {
        "id": "i",
        "kind": "effect.acknowledged",
        "session": "s-1",
        "effect_key": "e",
        "outcome": "ok",
    }
    answer = agent.report([item | {field: 2**64 + 1}])
    assert answer.status_code in (200, 207), answer.text
