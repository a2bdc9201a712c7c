"""A report that a stop covered is one violation; nothing else is, in any order of the facts."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import permutations, product
from typing import Any, Final

import pytest
from django.db import transaction
from django.urls import reverse

from accounts import agents
from journal.models import Entry, Outbox
from ledger import stops
from ledger import violations as violations_found
from ledger.models import Attempt, Effect, Stop
from tests.api.api_client import Caller, code, new_key
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.matrices import keep_core
from tests.pages.sample_data import connect_agent
from tests.sessions.team_helpers import one_team

STOPPED_TEXT: Final = "Executed during a stop."
MORE: Final[dict[str, dict[str, Any]]] = {
    "planned": {"tool": "git.push", "arguments": {"ref": "main"}},
    "dispatched": {},
    "acknowledged": {"outcome": "ok"},
    "failed": {"reason": "rejected"},
}
TOLD: Final = '{"violation":"executed_while_stopped"}'


def stop(inbox: InboxScenario, scope: str = "project", subject: str = "") -> Stop:
    with transaction.atomic():
        return stops.set_stop(inbox.project, scope, subject, "it loops", inbox.user("reviewer"))


def lift(inbox: InboxScenario, stop_row: Stop) -> None:
    with transaction.atomic():
        assert stops.lift_stop(stop_row, "it was me", inbox.user("reviewer"))


def fact(kind: str, effect_key: str = "e-1", **fields: Any) -> dict[str, Any]:
    return (
        {"id": new_key(), "kind": f"effect.{kind}", "session": "s-1", "effect_key": effect_key}
        | MORE[kind]
        | fields
    )


def report(caller: Caller, *facts: dict[str, Any]) -> None:
    assert caller.report(list(facts)).json()["accepted"] == len(facts)


def violations() -> list[str]:
    """The keys of the effects with a violation in the journal, once for each entry."""
    named = Entry.objects.filter(kind="integrity.violation", facts=TOLD).order_by("position")
    keys = dict(Effect.objects.values_list("id", "effect_key"))
    return [keys[effect] for effect in named.values_list("effect", flat=True) if effect]


@pytest.fixture
def connect_caller(quiet: InboxScenario) -> Iterator[Callable[..., Caller]]:
    """Another API client: the second agent of the team, or an importer in the first agent's
    name."""
    with ExitStack() as stack:

        def made(scope: str = "agent") -> Caller:
            agent = (
                quiet.organization.agent
                if scope == "import"
                else agents.ensure_agent(quiet.project, "second")
            )
            if scope != "import":
                one_team("deploy-7", "second")
            return stack.enter_context(connect_agent(agent, scope))

        yield made


def test_a_violation_is_recorded_once_and_shown_with_all_others(quiet: InboxScenario) -> None:
    stop(quiet)
    report(quiet.agent, fact("dispatched"))
    report(quiet.agent, fact("acknowledged"))
    report(quiet.agent, fact("planned"))
    effect = Effect.objects.get()
    assert (violations(), effect.violates, effect.permission) == (["e-1"], True, "observed")
    entry = Entry.objects.get(kind="integrity.violation")
    assert (entry.lane, entry.effect, entry.session) == ("system", effect.id, effect.session_id)
    assert Outbox.objects.filter(topic="integrity", entry=entry).count() == 1
    rita = Reviewer(quiet)
    assert STOPPED_TEXT.rstrip(".") in rita.page(reverse("effect", args=[effect.id]))
    assert "1 violation" in rita.page(reverse("session", args=[effect.session_id]))
    assert str(effect) in rita.page(reverse("search"), q="is:violating")
    html = rita.page(reverse("inbox"))
    assert html.index(f"<b>{STOPPED_TEXT}</b>") < html.index(reverse("effect", args=[effect.id]))
    assert "Executed without approval" not in html


def test_a_permitted_effect_that_was_stopped_is_shown_on_its_permalink(
    inbox: InboxScenario,
) -> None:
    planned = inbox.plan()
    gate = inbox.gate(planned)
    inbox.answer(gate, "reviewer")
    stop(inbox, "agent", inbox.organization.agent.id.hex)
    refused = inbox.agent.post(
        f"/effects/{planned['id']}/dispatch",
        {"process": "p", "intent_digest": planned["intent_digest"]},
    )
    assert code(refused) == (409, "STOPPED")
    assert violations() == []
    report(inbox.agent, fact("acknowledged"))
    assert (inbox.effect(planned).permission, inbox.gate(planned).status, violations()) == (
        "used",
        "used",
        ["e-1"],
    )
    assert STOPPED_TEXT in Reviewer(inbox).page(url_of(gate))


def test_without_permission_and_while_stopped_are_both_shown(inbox: InboxScenario) -> None:
    planned = inbox.plan()
    stop(inbox)
    report(inbox.agent, fact("dispatched"))
    named = Entry.objects.filter(kind="integrity.violation").values_list("facts", flat=True)
    assert sorted(named) == [TOLD, '{"violation":"executed_without_permission"}']
    page = Reviewer(inbox).page(url_of(inbox.gate(planned)))
    assert "Executed without approval." in page
    assert STOPPED_TEXT in page


@pytest.mark.parametrize("answer", ["acknowledged", "failed"])
@pytest.mark.parametrize("by_command", [True, False])
def test_the_outcome_of_an_earlier_dispatch_is_no_violation(
    quiet: InboxScenario, answer: str, by_command: bool
) -> None:
    planned = quiet.plan()
    if by_command:
        quiet.agent.dispatch(planned)
    else:
        report(quiet.agent, fact("dispatched"))
    stop(quiet)
    report(
        quiet.agent,
        fact(answer),
        fact("dispatched", producer_seq=1),
        fact("planned", producer_seq=0),
    )
    quiet.agent.post(f"/effects/{planned['id']}/acknowledge", {"attempt": 1, "outcome": "ok"})
    assert (violations(), Effect.objects.get().violates) == ([], False)


def test_another_attempt_of_an_earlier_dispatch_is_a_violation(quiet: InboxScenario) -> None:
    quiet.agent.dispatch(quiet.plan())
    stop(quiet)
    report(quiet.agent, fact("failed"), fact("dispatched", attempt=2))
    assert violations() == ["e-1"]


def test_agents_clocks_neither_cause_nor_prevent_a_violation(quiet: InboxScenario) -> None:
    quiet.agent.session()
    stop_row = stop(quiet)
    report(
        quiet.agent, fact("dispatched", "backdated", occurred_us=stop_row.set_at_us - 3_600_000_000)
    )
    assert violations() == ["backdated"]
    lift(quiet, stop_row)
    report(quiet.agent, fact("dispatched", "admitted", occurred_us=stop_row.set_at_us + 1))
    assert violations() == ["backdated"]


def test_imported_facts_are_no_violations_until_an_agent_reports_them(
    quiet: InboxScenario, connect_caller: Callable[..., Caller]
) -> None:
    importing = connect_caller("import")
    stop(quiet)
    report(importing, fact("planned"), fact("dispatched"), fact("acknowledged"))
    assert (violations(), Attempt.objects.get().heard_us) == ([], None)
    report(quiet.agent, fact("acknowledged", producer_seq=9))  # … until an agent reports it as done
    assert violations() == ["e-1"]


@pytest.mark.parametrize("scope", ["effect", "session", "agent", "tool", "project"])
def test_a_stop_covers_only_its_subject(
    quiet: InboxScenario, connect_caller: Callable[..., Caller], scope: str
) -> None:
    quiet.agent.session("s-2")
    planned = quiet.plan()
    effect = quiet.effect(planned)
    subjects = {
        "effect": effect.id.hex,
        "session": effect.session_id.hex,
        "agent": effect.agent_id.hex,
        "tool": "git.push",
        "project": "",
    }
    stop(quiet, scope, subjects[scope])
    second = connect_caller()
    report(second, fact("dispatched", "beside", session="s-2"))
    report(second, fact("planned", "beside", session="s-2", tool="file.read"))
    report(quiet.agent, fact("dispatched"))
    assert violations() == ([] if scope != "project" else ["beside"]) + ["e-1"]


ORDERS: Final = list(permutations(("planned", "dispatched", "acknowledged")))
SPANS: Final = [
    (put, lifted) for put in range(4) for lifted in range(put + 1, 5)
]  # before the nth fact; 4 is never


@pytest.mark.once
@pytest.mark.parametrize(
    ("order", "scope"),
    keep_core(
        product(ORDERS, ["tool", "session", "project"]),
        [
            *((order, "tool") for order in ORDERS[1::2]),
            *((ORDERS[0], "session"), (ORDERS[-2], "project")),
        ],
    ),
)
def test_in_every_order_an_attempt_first_reported_under_a_stop_is_a_violation(
    quiet: InboxScenario, order: tuple[str, ...], scope: str
) -> None:
    """The tool is only known from the plan, which is then compared with the stops of that
    moment."""
    expected = []
    for put, lifted in SPANS:
        key = f"{put}-{lifted}"
        session = quiet.agent.session(f"s-{key}")
        tool = f"tool-{key}"
        subject = {"tool": tool, "session": session["id"].replace("-", ""), "project": ""}[scope]
        stop_row = None
        for number, kind in enumerate(order):
            if number == put:
                stop_row = stop(quiet, scope, subject)
            if number == lifted and stop_row is not None:
                lift(quiet, stop_row)
                stop_row = None
            more = {"tool": tool} if kind == "planned" else {}
            report(quiet.agent, fact(kind, key, session=f"s-{key}", **more))
        if stop_row is not None:
            lift(quiet, stop_row)
        first_report = min(order.index(kind) for kind in ("dispatched", "acknowledged"))
        if put <= first_report < lifted:
            expected.append(key)
    assert sorted(violations()) == sorted(expected)
    assert sorted(
        Effect.objects.filter(violates=True).values_list("effect_key", flat=True)
    ) == sorted(expected)


@pytest.mark.parametrize("order", ORDERS)
def test_one_batch_in_any_order_has_the_same_violations(
    quiet: InboxScenario, order: tuple[str, ...]
) -> None:
    stop(quiet, "tool", "git.push")
    report(quiet.agent, *(fact(kind) for kind in order))
    assert violations() == ["e-1"]


@pytest.mark.parametrize("stopped", ["planner", "reporter", "neither"])
@pytest.mark.parametrize("plan_first", [True, False])
def test_a_stopped_agent_is_neither_to_plan_nor_to_do(
    quiet: InboxScenario, connect_caller: Callable[..., Caller], stopped: str, plan_first: bool
) -> None:
    second = connect_caller()
    agent_ids = {agent.name: agent.id for agent in quiet.project.agents.all()}
    named = {"planner": agent_ids["deploy-7"], "reporter": agent_ids["second"]}
    if stopped in named:
        stop(quiet, "agent", named[stopped].hex)
    reports = [(quiet.agent, fact("planned")), (second, fact("dispatched"))]
    for caller, item in reports if plan_first else reversed(reports):
        report(caller, item)
    assert violations() == ([] if stopped == "neither" else ["e-1"])


def test_a_command_that_plans_a_reported_effect_makes_its_tool_known(quiet: InboxScenario) -> None:
    quiet.agent.session()
    stop_row = stop(quiet, "tool", "git.push")
    report(quiet.agent, fact("failed"))
    assert violations() == []  # the tool is not known yet
    lift(quiet, stop_row)
    planned = quiet.plan()
    assert (violations(), planned["state"]) == (["e-1"], "failed")


def test_a_stopped_agent_starts_nothing_that_another_planned(
    quiet: InboxScenario, connect_caller: Callable[..., Caller]
) -> None:
    second = connect_caller()
    planned = quiet.plan()
    stop(quiet, "agent", quiet.project.agents.get(name="second").id.hex)
    body = {"process": "p", "intent_digest": planned["intent_digest"]}
    assert code(second.post(f"/effects/{planned['id']}/dispatch", body)) == (409, "STOPPED")
    assert quiet.agent.post(f"/effects/{planned['id']}/dispatch", body).status_code == 200


def test_a_violation_without_its_entry_is_not_guessed(quiet: InboxScenario) -> None:
    planned = quiet.plan("e-1")
    Effect.objects.filter(id=planned["id"]).update(violates=True)
    assert violations_found.load_effect_violations(Effect.objects.get(id=planned["id"])) == [
        violations_found.VIOLATION_NOT_FOUND
    ]
