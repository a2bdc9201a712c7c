"""Many people and processes at one gate at once, with real commits: one wins, the others get the
reason."""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest
from django.db import transaction
from pytest_django import Settings

from accounts import people, tokens
from accounts.models import Membership
from approvals.gates import gates
from approvals.gates.statuses import US
from approvals.models import Gate, Vote
from approvals.policies import policies
from approvals.views.vote import run_vote
from approvals.voting import undo, votes
from approvals.voting.votes import VoteResult
from db.clock import now_us
from journal.models import Entry
from ledger import stops
from ledger.models import Attempt, Effect, Stop
from ledger.tools import cache
from sessions.models import Session
from tests.api.api_client import Caller, code
from tests.approvals.inbox_scenario import RULES, InboxScenario
from tests.journal.committed import committed, together
from tests.pages.people import build

__all__ = ["committed"]
MANY = 24
ROUNDS = 3
STRICT = "name: basic\nrules:\n  - {id: nothing, title: Nothing, match: {}, outcome: deny}\n"
LAX = "name: basic\nrules:\n  - {id: all, title: Everything, match: {}, outcome: allow}\n"


@pytest.fixture
def inbox(committed: None, settings: Settings) -> InboxScenario:
    """A project whose policy asks for pushes; all of its rows are committed."""
    from config.wsgi import application

    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    cache.clear_tool_cache()
    organization = build()
    with transaction.atomic():
        token = tokens.issue_token(organization.agent, expires_in=None, actor="tests")
    made = InboxScenario(organization, Caller(token, app=application))
    made.rules()
    for name in ("git.push", "deploy"):
        made.declare(name)
    made.agent.session("s-1")
    return made


def planned(inbox: InboxScenario, name: str, **fields: Any) -> tuple[dict[str, Any], Gate]:
    """Plan an effect of its own; return the answer and its gate."""
    effect = inbox.plan(name, arguments={"ref": name}, **fields)
    return effect, inbox.gate(effect)


def approved(inbox: InboxScenario, name: str) -> tuple[dict[str, Any], Gate]:
    """Plan an effect and approve it as a person."""
    effect, gate = planned(inbox, name)
    assert inbox.answer(gate, "reviewer").refusal is None
    return effect, gate


def decider(inbox: InboxScenario, gate: Gate, name: str, answer: str) -> Callable[[], VoteResult]:
    """One person with a fresh page, about to answer."""
    person, shown = inbox.person(name), inbox.shown(gate)
    return partial(
        run_vote, partial(votes.cast_vote, gate, person, answer, "agreed in INC-204", shown)
    )


def starter(
    inbox: InboxScenario, effect: dict[str, Any], process: str = "p"
) -> Callable[[], httpx.Response]:
    """One process about to dispatch an effect, over a connection of its own."""
    client = Caller(inbox.agent.token, app=inbox.agent.client._transport.app)  # type: ignore[attr-defined]
    body = {"process": process, "intent_digest": effect["intent_digest"]}
    return lambda: client.post(f"/effects/{effect['id']}/dispatch", body)


def split(results: list[Any]) -> tuple[list[VoteResult], list[str]]:
    """Return the recorded rulings, and the reasons of the refused ones."""
    assert all(isinstance(result, VoteResult) for result in results), results
    return [result for result in results if result.refusal is None], [
        result.refusal[0] for result in results if result.refusal
    ]


def agree(gate: Gate) -> Gate:
    """Fail unless gate, votes, effect and journal agree; return the gate as stored."""
    gate.refresh_from_db()
    effect = Effect.objects.get(id=gate.effect_id)
    kinds = Counter(Entry.objects.filter(subject=gate.id).values_list("kind", flat=True))
    permission = {
        "approved": "granted",
        "used": "used",
        "revoked": "none",
        "denied": "denied",
        "expired": "denied",
    }
    assert effect.permission == permission[gate.status]
    assert (
        Attempt.objects.filter(effect=effect).count()
        == kinds["gate.used"]
        == int(gate.status == "used")
    )
    assert kinds["gate.voted"] == Vote.objects.filter(gate=gate).count()
    assert kinds["gate.requested"] == 1
    assert all(
        number == 1 for kind, number in kinds.items() if kind not in ("gate.voted", "gate.ruled")
    ), kinds
    return gate


def test_of_many_deciders_one_rules_and_the_others_are_refused(inbox: InboxScenario) -> None:
    _, gate = planned(inbox, "e")
    answers = ("approve", "deny")
    recorded, others = split(
        together(*(decider(inbox, gate, f"p{n}", answers[n % 2]) for n in range(MANY)))
    )
    assert len(recorded) == 1
    assert others == ["not_resolved"] * (MANY - 1)
    (vote,) = Vote.objects.all()
    assert agree(gate).status == {"approve": "approved", "deny": "denied"}[vote.answer]
    assert Entry.objects.filter(kind="gate.ruled").count() == 1


def test_of_one_persons_two_windows_one_vote_counts(inbox: InboxScenario) -> None:
    _, gate = planned(inbox, "e", tool="deploy")  # needs two people
    recorded, others = split(together(*[decider(inbox, gate, "reviewer", "approve")] * 8))
    assert len(recorded) == 1
    assert others == ["duplicate_vote"] * 7
    gate.refresh_from_db()
    assert (gate.status, Vote.objects.count()) == ("pending", 1)


def test_of_many_who_reload_the_page_two_make_a_quorum_of_two(inbox: InboxScenario) -> None:
    people = [inbox.person(f"p{number}") for number in range(6)]

    def vote_until_current(gate: Gate, person: Membership) -> list[VoteResult]:
        """Answer, and repeat with a fresh page as long as another person was quicker."""
        outcomes = [votes.cast_vote(gate, person, "approve", "", inbox.shown(gate))]
        while outcomes[-1].refusal is not None and outcomes[-1].refusal[0] == "stale_view":
            outcomes.append(votes.cast_vote(gate, person, "approve", "", inbox.shown(gate)))
        return outcomes

    for round_ in range(ROUNDS):
        _, gate = planned(inbox, f"e{round_}", tool="deploy")
        outcomes = together(*(partial(vote_until_current, gate, person) for person in people))
        recorded, others = split([results[-1] for results in outcomes])
        assert len(recorded) == Vote.objects.filter(gate=gate).count() == 2
        assert others == ["not_resolved"] * (len(people) - 2)
        assert agree(gate).status == "approved"


def test_deny_against_approve_one_of_them_is_the_ruling(inbox: InboxScenario) -> None:
    for round_ in range(ROUNDS):
        _, gate = planned(inbox, f"e{round_}")
        pair = [
            decider(inbox, gate, "reviewer", "approve"),
            decider(inbox, gate, "administrator", "deny"),
        ]
        recorded, others = split(together(*pair))
        assert (len(recorded), others) == (1, ["not_resolved"])
        assert (
            agree(gate).status
            == {"approve": "approved", "deny": "denied"}[Vote.objects.get(gate=gate).answer]
        )


def test_of_many_processes_that_use_one_permission_one_may_act(inbox: InboxScenario) -> None:
    effect, gate = approved(inbox, "e")
    answers = together(*(starter(inbox, effect, f"p-{number}") for number in range(MANY)))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 409: MANY - 1}
    assert {code(answer) for answer in answers if answer.status_code == 409} == {
        (409, "ALREADY_DISPATCHED")
    }
    assert agree(gate).status == "used"


def test_revoke_against_use_one_of_them_wins(inbox: InboxScenario) -> None:
    administrator = inbox.person("administrator")
    for round_ in range(2 * ROUNDS):
        effect, gate = approved(inbox, f"e{round_}")
        revoke = partial(votes.revoke_approval, gate, administrator, "on second thoughts")
        started, revoked = together(starter(inbox, effect), revoke)
        if started.status_code == 200:
            assert revoked.refusal[0] == "already_used"
            assert agree(gate).status == "used"
        else:
            assert code(started) == (409, "GATE_GONE")
            assert revoked.refusal is None
            assert agree(gate).status == "revoked"


def test_undo_against_use_one_of_them_wins(inbox: InboxScenario) -> None:
    reviewer = inbox.person("reviewer")
    for round_ in range(2 * ROUNDS):
        effect, gate = approved(inbox, f"e{round_}")
        take_back = partial(run_vote, partial(undo.undo_vote, gate, reviewer))
        started, undone = together(starter(inbox, effect), take_back)
        gate.refresh_from_db()
        if started.status_code == 200:
            assert undone.refusal[0] == "already_used"
            assert agree(gate).status == "used"
        else:
            assert code(started)[0] == 409
            assert undone.refusal is None
            assert (gate.status, undone.gate.status) == ("revoked", "pending")
            assert code(starter(inbox, effect)()) == (409, "GATE_PENDING")
            assert not Attempt.objects.filter(effect=gate.effect_id).exists()


def test_expiry_against_approval_the_clock_decides_and_all_agree(inbox: InboxScenario) -> None:
    inbox.rules(RULES.replace("minimum: 1, rationale", "decide_within: 1s, minimum: 1, rationale"))
    made = [planned(inbox, f"e{number}")[1] for number in range(8)]
    people = [inbox.person(f"p{number}") for number in range(8)]
    last = max(gate.decide_by_us for gate in made)

    def decide(number: int) -> VoteResult:
        gate = made[number]
        shown = inbox.shown(gate)
        time.sleep(max(0, gate.decide_by_us - now_us() + 2_000 * (number - 4)) / US)
        return votes.cast_vote(gate, people[number], "approve", "", shown)

    def sweep() -> None:
        while now_us() < last + US // 10:
            gates.expire_due_gates()

    *outcomes, swept = together(*(partial(decide, number) for number in range(8)), sweep)
    assert swept is None
    gates.expire_due_gates()
    for gate, outcome in zip(made, outcomes, strict=True):
        stored = agree(gate)
        if stored.status == "approved":
            assert outcome.refusal is None
            assert stored.decided_at_us is not None
            assert stored.decided_at_us <= stored.decide_by_us
        elif (
            outcome.refusal is None
        ):  # the deadline passed while the vote was written: stored, and not counted
            assert (stored.status, outcome.gate.status) == ("expired", "expired")
            assert Vote.objects.get(gate=gate).voted_at_us > stored.decide_by_us
        else:
            assert (stored.status, outcome.refusal[0]) == ("expired", "expired")
            assert not Vote.objects.filter(gate=gate).exists()


def ender(inbox: InboxScenario, session: str) -> Callable[[], httpx.Response]:
    """A process about to end a session, over a connection of its own."""
    client = Caller(inbox.agent.token, app=inbox.agent.client._transport.app)  # type: ignore[attr-defined]
    identity = Session.objects.get(key=session).id
    return lambda: client.post(f"/sessions/{identity}/end", {"status": "completed"})


def test_the_end_of_a_session_against_its_plans_closes_every_gate(inbox: InboxScenario) -> None:
    for round_ in range(ROUNDS):
        session = f"r{round_}"
        inbox.agent.session(session)
        app = inbox.agent.client._transport.app  # type: ignore[attr-defined]
        clients = [Caller(inbox.agent.token, app=app) for _ in range(5)]
        plans = [
            partial(
                client.post,
                "/effects",
                {"session": session, "effect_key": f"e{n}", "tool": "git.push", "arguments": n},
            )
            for n, client in enumerate(clients)
        ]
        *answers, ended = together(*plans[:3], ender(inbox, session), *plans[3:])
        answers.append(ended)
        assert {answer.status_code for answer in answers} <= {200, 201, 409}
        refused = [answer for answer in answers if answer.status_code == 409]
        assert {code(answer) for answer in refused} <= {(409, "SESSION_ENDED")}
        gates_of = Gate.objects.filter(session__key=session)
        assert gates_of.count() == 5 - len(refused)
        assert set(gates_of.values_list("status", "reason")) <= {("cancelled", "session_ended")}
        assert not Effect.objects.filter(
            session__key=session, permission__in=("pending", "granted")
        ).exists()


def test_the_end_of_a_session_against_an_approval_ends_permission(inbox: InboxScenario) -> None:
    for round_ in range(ROUNDS):
        session = f"r{round_}"
        inbox.agent.session(session)
        gate = inbox.gate(inbox.agent.plan("e", session))
        ended, outcome = together(
            ender(inbox, session), decider(inbox, gate, "reviewer", "approve")
        )
        assert ended.status_code == 200
        assert outcome.refusal is None or outcome.refusal[0] in ("not_resolved", "stale_view")
        gate.refresh_from_db()
        assert (gate.status, gate.reason) == ("cancelled", "session_ended")
        assert (gate.decided_at_us is None) == (outcome.refusal is not None)
        assert Effect.objects.get(id=gate.effect_id).permission == "none"


def test_a_person_who_leaves_against_the_vote_that_completes_a_quorum(inbox: InboxScenario) -> None:
    """In either order: an approval never rests on the vote of a person who had left before it."""
    for round_ in range(ROUNDS):
        effect, gate = planned(inbox, f"e{round_}", tool="deploy")
        first = inbox.person(f"first{round_}")
        assert inbox.answer(gate, f"first{round_}").refusal is None
        permission = partial(people.change_project_role, first, "viewer", actor="tests")
        outcome, left = together(decider(inbox, gate, "reviewer", "approve"), permission)
        assert left is None
        assert outcome.refusal is None
        gate.refresh_from_db()
        assert gate.status in ("pending", "approved")
        if gate.status == "pending":
            assert inbox.answer(gate, "administrator").refusal is None
            gate.refresh_from_db()
            assert gate.status == "approved"
            assert starter(inbox, effect)().status_code == 200
        else:
            assert code(starter(inbox, effect)()) == (409, "GATE_GONE")


def test_a_person_who_leaves_against_the_use_of_their_approval(inbox: InboxScenario) -> None:
    for round_ in range(ROUNDS):
        effect, gate = planned(inbox, f"u{round_}")
        name = f"leaver{round_}"
        assert inbox.answer(gate, name).refusal is None
        permission = partial(people.remove_project_member, inbox.person(name), actor="tests")
        started, left = together(starter(inbox, effect), permission)
        assert left is None
        stored = agree(gate)
        if started.status_code == 200:
            assert stored.status == "used"
        else:
            assert (code(started), stored.reason) == ((409, "GATE_GONE"), "quorum_lost")
        assert code(starter(inbox, effect, "p-2")())[0] == 409


def none_started_after(kind: str, answers: list[httpx.Response], refusal: str) -> None:
    """Fail unless every start was either before the entry of `kind` or refused with `refusal`."""
    line = Entry.objects.filter(kind=kind).latest("position").position
    started = Entry.objects.filter(kind="effect.dispatched").values_list("position", flat=True)
    assert all(position < line for position in started)
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert {code(answer)[1] for answer in answers if answer.status_code == 409} <= {refusal}


def test_once_a_stop_is_set_no_start_gets_through(inbox: InboxScenario) -> None:
    user = inbox.person("operator").user
    for round_ in range(ROUNDS):
        effects = [approved(inbox, f"e{round_}-{number}")[0] for number in range(6)]
        stop = partial(stops.set_stop, inbox.project, "project", "", "all hands off", user)
        *answers, stop_row = together(*(starter(inbox, effect) for effect in effects[:5]), stop)
        assert isinstance(stop_row, Stop)
        assert code(starter(inbox, effects[5])()) == (409, "STOPPED")
        none_started_after("stop.set", answers, "STOPPED")
        assert stops.lift_stop(stop_row, "go on", user)
        assert starter(inbox, effects[5])().status_code == 200


def test_once_a_stricter_policy_is_in_force_no_start_gets_through(inbox: InboxScenario) -> None:
    with transaction.atomic():
        strict = policies.load_policy_set(inbox.project, STRICT)
    inbox.rules(LAX)
    effects = [inbox.plan(f"e{number}", arguments={"n": number}) for number in range(10)]
    assert {effect["answer"] for effect in effects} == {"proceed"}
    activate = partial(policies.activate_policy_set, inbox.project, strict, "enforce")
    *answers, activation = together(*(starter(inbox, effect) for effect in effects[:9]), activate)
    assert activation.policy_set_id == strict.id
    none_started_after("policy.activated", answers, "GATE_GONE")
    assert code(starter(inbox, effects[9])()) == (409, "GATE_GONE")
    assert Effect.objects.get(id=effects[9]["id"]).permission == "none"
