"""An effect with very many attempts: a fact writes only its attempt, reads are bounded."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from django.urls import reverse

from api.views.effects import MAX_ATTEMPTS_SHOWN
from db import raw_sql
from ledger.models import Attempt, Effect
from pages.effects import data
from tests.api.api_client import Caller
from tests.pages.people import Organization

MANY = 300


def fact(kind: str, attempt: int, **fields: Any) -> dict[str, Any]:
    named = {"id": f"{kind}-{attempt}", "kind": f"effect.{kind}", "session": "s", "effect_key": "e"}
    return {**named, "attempt": attempt, **fields}


@pytest.fixture
def effect(agent: Caller) -> Effect:
    """Create an effect with many dispatches whose fifth attempt was acknowledged."""
    agent.report([fact("dispatched", n) for n in range(1, MANY + 1)])
    agent.report([fact("acknowledged", 5, outcome="ok", external_reference="the-fifth")])
    return Effect.objects.get()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the attempt rows that each statement writes."""
    counts: list[int] = []

    def counted(write: Any) -> Any:
        def run(text: str, parameters: Sequence[Any] | Iterable[Sequence[Any]] = ()) -> int:
            rows: int = write(text, parameters)
            if "INTO ledger_attempt" in text:
                counts.append(rows)
            return rows

        return run

    monkeypatch.setattr(raw_sql, "execute_write", counted(raw_sql.execute_write))
    monkeypatch.setattr(raw_sql, "execute_write_each", counted(raw_sql.execute_write_each))
    return counts


def test_a_fact_writes_only_the_attempts_that_it_changes(
    agent: Caller, effect: Effect, written: list[int]
) -> None:
    for facts, expected in (
        ([fact("acknowledged", 7, outcome="error")], 1),
        ([fact("dispatched", MANY + 1)], 2),  # and the attempt that it replaces
        ([fact("failed", 9, reason="rejected"), fact("failed", 10, reason="timeout")], 2),
        (
            [{"id": "p", "kind": "effect.planned", "session": "s", "effect_key": "e", "tool": "t"}],
            0,
        ),
        ([{"id": "w", "kind": "effect.superseded", "session": "s", "effect_key": "e"}], 0),
    ):
        written.clear()
        assert agent.report(facts).json()["accepted"] == len(facts)
        assert sum(written) == expected, facts
    assert Attempt.objects.count() == MANY + 1
    assert (
        Attempt.objects.filter(replaced=True).count() == MANY - 4
    )  # except 5, 7, 9, 10 and the newest
    assert Attempt.objects.get(is_open=True).number == MANY + 1


def test_a_command_writes_only_the_attempts_that_it_changes(
    agent: Caller, written: list[int]
) -> None:
    agent.session("s")
    for number in range(1, 4):  # the default limit of attempts of a tool
        planned = agent.plan("e", "s")
        written.clear()
        agent.dispatch(planned)
        agent.fail(planned, "rejected", number)
        assert sum(written) == 2
    assert (
        list(Attempt.objects.order_by("number").values_list("outcome", flat=True)) == ["error"] * 3
    )


def test_the_api_returns_the_newest_attempts_and_their_number(
    agent: Caller, effect: Effect
) -> None:
    answer = agent.get(f"/effects/{effect.id}").json()
    assert [attempt["attempt"] for attempt in answer["attempts"]] == list(
        range(MANY - MAX_ATTEMPTS_SHOWN + 1, MANY + 1)
    )
    assert (answer["attempts_in_all"], answer["outcome"], answer["external_reference"]) == (
        MANY,
        "ok",
        "the-fifth",
    )


def test_the_page_shows_the_newest_attempts_and_the_deciding_one(
    organization: Organization, effect: Effect
) -> None:
    text = organization.client("viewer").get(reverse("effect", args=[effect.id])).text
    rows = re.findall(
        r'data-label="Attempt">\s*(\d+)',
        text.partition('id="attempts"')[2].partition("</section>")[0],
    )
    assert rows == ["5", *(str(n) for n in range(MANY - data.MAX_ATTEMPTS + 1, MANY + 1))]
    counted = (
        f"{data.MAX_ATTEMPTS + 1} of {MANY}: the newest, and the attempt that decides the outcome"
    )
    assert counted in " ".join(text.split())
    assert f"It was attempted {MANY} times." in text


def test_few_attempts_are_all_shown(organization: Organization, agent: Caller) -> None:
    agent.report([fact("dispatched", n) for n in (1, 2)])
    effect = Effect.objects.get()
    answer = agent.get(f"/effects/{effect.id}").json()
    assert ([attempt["attempt"] for attempt in answer["attempts"]], answer["attempts_in_all"]) == (
        [1, 2],
        2,
    )
    text = organization.client("viewer").get(reverse("effect", args=[effect.id])).text
    assert 'data-label="Attempt"> 1 ' in " ".join(text.split())
    assert "the attempt that decides the outcome" not in " ".join(text.split())
