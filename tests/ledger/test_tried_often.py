"""Only a few attempts of an effect with many attempts are read; the result is the same as with
all."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts import projects, repositories
from accounts.models import Agent
from ledger.models import Attempt, Effect
from ledger.store import reader
from ledger.store.effect_rows import EffectRow
from tests.api.api_client import Caller
from tests.ledger.fact_strategies import Said, deliveries, stories
from tests.ledger.test_convergence import SOME, open_session, post, record, stored, undone

pytestmark = pytest.mark.django_db
READ_ALL, READ_FEW = 1_000, 0


@SOME
@given(reports=stories(keys=["push", "undo"]), chance=st.randoms(use_true_random=False))
def test_it_folds_to_the_same_rows(
    tester: Agent, reports: list[Said], chance: random.Random
) -> None:
    batches = deliveries(reports, chance)
    states = []
    for few in (READ_ALL, READ_FEW):
        with undone(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(reader, "MAX_FULLY_LOADED", few)
            open_session(tester)
            for batch in batches:
                record(tester, batch)
            states.append(stored("s", clock=True))
    assert states[0] == states[1]


@SOME
@given(reports=stories(keys=["push"]), chance=st.randoms(use_true_random=False))
def test_it_folds_to_the_same_rows_after_commands_and_imports(
    agent: Caller, importer: Caller, reports: list[Said], chance: random.Random
) -> None:
    batches = [(chance.choice([agent, importer]), batch) for batch in deliveries(reports, chance)]
    commands = chance.randint(0, 3)
    with undone():
        repositories.ensure_repository(projects.ensure_default_project(), "acme/x")
        if commands:
            effect = agent.session("s") and agent.plan("push", "s", tool="git.push", arguments={})
        if commands > 1:
            agent.dispatch(effect)
        if commands > 2:
            agent.fail(effect, "rejected")
            agent.plan("push", "s", tool="git.push", arguments={})
        states = []
        for few in (READ_ALL, READ_FEW):
            with undone(), pytest.MonkeyPatch.context() as patch:
                patch.setattr(reader, "MAX_FULLY_LOADED", few)
                for caller, batch in batches:
                    items = [report.item("s") for report in batch]
                    for item in items:
                        del item["source"]  # the caller is the source
                    assert caller.report(items).status_code == 200
                states.append(stored("s"))
        assert states[0] == states[1]


def test_a_fact_reads_no_more_of_many_attempts_than_of_a_few(
    agent: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    load_relevant_attempts = reader.load_relevant_attempts

    def counted(rows: dict[Any, EffectRow], facts: Any) -> Any:
        attempts = load_relevant_attempts(rows, facts)
        read.append(sum(map(len, attempts.values())))
        return attempts

    monkeypatch.setattr("ledger.store.writer.load_relevant_attempts", counted)
    many = 4 * reader.MAX_FULLY_LOADED
    for first in range(1, many, reader.MAX_FULLY_LOADED):
        post(
            agent,
            [
                Said(f"d{n}", "e", "effect.dispatched", attempt=n)
                for n in range(first, first + reader.MAX_FULLY_LOADED)
            ],
        )
    read.clear()
    for number in (3, 5, 7):
        post(
            agent,
            [
                Said(
                    f"a{number}",
                    "e",
                    "effect.acknowledged",
                    attempt=number,
                    fields={"outcome": "ok"},
                )
            ],
        )
    post(agent, [Said("next", "e", "effect.dispatched", attempt=many + 1)])
    assert max(read) <= 4, "the named attempt, the newest, and the last two acknowledged ones"
    effect = Effect.objects.get()
    assert (effect.state, effect.attempt_count, effect.violates) == ("acknowledged", many + 1, True)
    assert Attempt.objects.filter(replaced=True).count() == many - 3
    assert Attempt.objects.get(is_open=True).number == many + 1
